"""The `advisor` command: options and exit codes only, no decisions.

Heavy modules are imported inside the commands that need them, so that help is instant.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, NoReturn, TextIO

import typer

from advisor import __version__
from advisor.cli.advise import explain, export, predict, simulate
from advisor.cli.learn import evaluate, fit
from advisor.cli.lists import gpus, init, layouts, profiles, workloads
from advisor.cli.measure import (
    AS_GIVEN,
    app,
    as_given,
    calibrate,
    campaign,
    doctor,
    profile,
    run,
    stop,
    validate,
)
from advisor.cli.output import aside, forget_stdout, ready, show_text, warn
from advisor.cli.recommend import batch, recommend, trials
from advisor.cli.removed import refuse_removed
from advisor.errors import AdvisorError, AdvisorWarning, InvalidInput, OutsideInterval

_EPILOG = (
    "Exit codes: 0 done; 1 failed; 2 wrong use, or a file that is not valid; 3 nothing fits; "
    "4 no GPU, no permission, or somebody else holds it; 5 measured outside the predicted "
    "interval; 130 interrupted."
)
_FIRST = "Try this first:  advisor recommend"

# What typer's checks say of a word that is no number, and what to write instead.
_PLAINER = {
    "Input should be a valid number, unable to parse string as a number": (
        "it takes a number alone, without % or a unit; of a share, 0.1 is 10 %"
    ),
    "Input should be a valid integer, unable to parse string as an integer": (
        "it takes a whole number alone, without a unit"
    ),
}

_app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (recommend, trials, batch, predict, explain, simulate, export):
    _app.command()(_command)
for _command in (profile, campaign, calibrate, doctor):
    _app.command(context_settings=AS_GIVEN)(_command)
for _command in (
    validate, run, stop, fit, evaluate, gpus, layouts,
    workloads, profiles, init, app,
):  # fmt: skip
    _app.command()(_command)


def _version(asked: bool) -> None:
    if asked:
        show_text(f"advisor {__version__}")
        raise typer.Exit


@_app.callback(invoke_without_command=True)
def _advisor(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does all
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[  # noqa: ARG001 - `main` looks for the word
        bool, typer.Option("--debug", help="Show an error's traceback; may stand anywhere.")
    ] = False,
) -> None:
    """Which training jobs should share a GPU, and how?"""
    if context.invoked_subcommand is None:
        show_text(f"{context.get_help()}\n\n{_FIRST}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Args:
        arguments: The words after the command's name; None: this process's own.
    """
    # The systems solved here are small: a second thread makes them slower, on a busy machine much.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    ready()
    warnings.showwarning = _show_warning
    words = list(sys.argv[1:] if arguments is None else arguments)
    ours = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in ours
    asked = as_given([word for word in ours if word != "--debug"], words[len(ours) :])
    try:
        refuse_removed(ours)
        code = _app(asked, prog_name="advisor", standalone_mode=False)
    except AdvisorError as error:
        _fail(error, debug)
    except OSError as error:
        # Errors of files are converted where they happen; one that names no file is of stdout.
        if error.filename is not None:
            raise
        forget_stdout()
        lost = f"stdout: {error.strerror}. The answer is lost: send it elsewhere"
        _fail(AdvisorError(lost), debug)
    except Exception as error:
        _refuse(error, ours)
    sys.exit(code)


_show_others = warnings.showwarning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of the advisor as one line, others as Python does."""
    if issubclass(category, AdvisorWarning):
        warn([message])
    else:
        _show_others(message, category, filename, lineno, file, line)


def _refuse(error: Exception, words: Sequence[str]) -> NoReturn:
    """Print a usage error of typer's, whose class differs between versions, and exit.

    Args:
        error: What went wrong.
        words: Of the command line, without what is passed on as given.

    Raises:
        Exception: `error` is no usage error.
    """
    if (message := getattr(error, "format_message", None)) is None:
        raise error
    said = message().replace("Value error, ", "").rstrip().removesuffix(".")
    for theirs, ours in _PLAINER.items():
        said = said.replace(theirs, ours)
    context = getattr(error, "ctx", None)
    help_of = context.command_path if context is not None else "advisor"
    end = "" if said.endswith("?") else "."
    script = next((word for word in words if word.endswith(".py")), None)
    if script is not None and said.startswith("No such option"):
        end += f" Those of {script} itself are for `advisor profile -- python {script} ...`."
    aside(f"error: {said}{end} See `{help_of} -h`.")
    sys.exit(getattr(error, "exit_code", InvalidInput.exit_code))


def _fail(error: AdvisorError, debug: bool) -> NoReturn:
    if debug:
        aside(traceback.format_exc(), keep="\n")
    # Steps outside their intervals are listed, one a line.
    aside(f"error: {error}", keep="\n" if isinstance(error, OutsideInterval) else "")
    sys.exit(error.exit_code)
