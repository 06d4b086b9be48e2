"""The `advisor` command: options and exit codes only, no decisions.

Heavy modules are imported inside the commands that need them, so that help is instant.
"""

import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from advisor import __version__
from advisor.cli.advise import compare, export, predict, simulate
from advisor.cli.lists import app, gpus, init, layouts, profiles, workloads
from advisor.cli.measure import (
    calibrate,
    campaign,
    doctor,
    evaluate,
    fit,
    profile,
    run,
    runs,
    stop,
    validate,
)
from advisor.cli.output import aside, forget_stdout, ready, show_text, warn
from advisor.cli.recommend import batch, recommend, trials
from advisor.errors import AdvisorError, AdvisorWarning, InvalidInput, OutsideInterval

_EPILOG = (
    "Exit codes: 0 done; 1 failed; 2 wrong use, or an invalid file; 3 no plan fits; 4 no GPU, no "
    "permission, or the GPU is in use; 5 measured outside the predicted interval; 130 interrupted."
)
_FIRST = "Try this first:  advisor recommend"

# Typer's messages about a word that is not a number, and ours.
_PLAINER = {
    "Input should be a valid number, unable to parse string as a number": (
        "expected a number without a unit, such as 3"
    ),
    "Input should be a valid integer, unable to parse string as an integer": (
        "expected a whole number without a unit, such as 4"
    ),
    "Input should be a valid boolean, unable to interpret input": "write 1 or 0",
}

_ASK_PREDICT = "Use --objective energy; `advisor predict` prints the joules of a step."
_OBJECTIVES = {
    "energy-epoch": _ASK_PREDICT,
    "energy-example": _ASK_PREDICT,
    "fairness": "Use --objective throughput; `advisor recommend --protect JOB` keeps a job fast.",
}

_BATCH_OPTIONS = "Use `advisor predict JOB-bsN --sharing mig=1g.18gb` for the pace at a batch size."

REMOVED: Mapping[str, str] = {
    **{
        f"{command} --objective {objective}": instead
        for command in ("recommend", "compare", "export", "validate")
        for objective, instead in _OBJECTIVES.items()
    },
    "batch --batches": _BATCH_OPTIONS,
    "batch --details": _BATCH_OPTIONS,
    "confirm": "Run your own jobs and compare them with predictions: advisor validate JOB.",
    "explain": "Use `advisor compare PLAN PLAN JOB`, of two plans or more.",
    "status": "Use `advisor run --list`, or `advisor run RUN` to watch a run.",
    "restore": "Use `advisor doctor --undo`.",
    "run --resume": "Use `advisor run RUN`.",
    "estimate-memory": "Profile the workload for a minute instead: advisor profile WORKLOAD.",
    "profile --from-mlflow": "Describe the job by the numbers that its log and nvidia-smi show: "
    "advisor profile --from-numbers.",
    "profile --to-end": "Let the program print its pace: advisor profile --throughput REGEX.",
    "recommend --time-limit": "A search ends by its work, so that the same question has the same "
    "answer: --effort 4 searches four times as long.",
    "reproduce": "notebooks/the_studies_reproduced.ipynb shows every row of the studies.",
    "translate": "Any command translates a profile of another GPU by itself: name the profile or "
    "its file, and the GPU: advisor predict JOB --gpu GPU.",
    "watch": "Read its memory and power from nvidia-smi and its step from its log: "
    "advisor profile --from-numbers.",
}
"""Remedies by a removed command, or a removed option of one (``"profile --to-end"``)."""


class _Command(TyperCommand):
    """A command whose help lists an argument by its placeholder, without a Python type."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = [self.options_metavar or ""]
        for each in self.get_params(ctx):
            if each.param_type_name == "argument":
                name = str(each.metavar)
                name += "..." if each.nargs == -1 and not name.endswith("...") else ""
                pieces.append(name if each.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for argument in self.get_params(ctx):
            if argument.param_type_name == "argument" and argument.metavar:
                vars(argument)["display_type_rich"] = lambda ctx: ""  # noqa: ARG005
        super().format_options(ctx, formatter)


class _Commands(TyperGroup):
    """All commands, whose help lists them in groups."""

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for group, members in _COMMANDS.items():
            names = [member.__name__ for member in members]
            helps = [self.commands[name].get_short_help_str(formatter.width) for name in names]
            with formatter.section(group):
                formatter.write_dl(
                    [(name.ljust(width), text) for name, text in zip(names, helps, strict=True)]
                )


_app = typer.Typer(
    cls=_Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: Mapping[str, Sequence[Callable[..., None]]] = {
    "Ask": (recommend, compare, predict, trials, batch, simulate),
    "Measure": (profile, campaign, runs, calibrate, doctor),
    "Run": (export, run, stop, validate),
    "Learn": (fit, evaluate),
    "Look up": (gpus, layouts, workloads, profiles, init, app),
}
COMMANDS = tuple(command.__name__ for group in _COMMANDS.values() for command in group)
"""Names of all commands."""

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
for _group, _members in _COMMANDS.items():
    for _command in _members:
        _settings = _PASS_ON if _command in (profile, campaign, runs, calibrate) else None
        _app.command(cls=_Command, context_settings=_settings, rich_help_panel=_group)(_command)


def _version(wanted: bool) -> None:
    if wanted:
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
        bool, typer.Option("--debug", help="Print the traceback of an error.")
    ] = False,
) -> None:
    """Recommend which training jobs should share a GPU, and how."""
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
    if "_ADVISOR_COMPLETE" in os.environ:  # a shell waits for words, and shows all that is printed
        with suppress(Exception):
            _app(prog_name="advisor")
        sys.exit(AdvisorError.exit_code)
    warnings.showwarning = _show_warning
    words = list(sys.argv[1:] if arguments is None else arguments)
    ours = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in ours
    passed, rest = [word for word in ours if word != "--debug"], words[len(ours) :]
    if passed[:1] == ["help"]:
        passed = [*passed[1:], "--help"]
    if passed[:1] == ["profile"]:  # typer drops one `--`, and the words of a script follow another
        rest = rest[:1] + rest
    try:
        _refuse_removed(passed)
        code = _app(passed + rest, prog_name="advisor", standalone_mode=False)
    except AdvisorError as error:
        _fail(error, debug)
    except OSError as error:
        # Errors of files are converted where they happen; one that names no file is of stdout.
        if error.filename is not None:
            raise
        forget_stdout()
        lost = f"stdout: {error.strerror}. The answer is lost. Redirect it to another place."
        _fail(AdvisorError(lost), debug)
    except Exception as error:
        _refuse(error, ours)
    sys.exit(code)


def _refuse_removed(words: Sequence[str]) -> None:
    """Refuse a command line that names a removed command, option, or value of an option."""
    command, *rest = words or [""]
    options = [word for word in rest if word.startswith("--")]
    named = [option.partition("=")[0] for option in options]
    values = [*map(" ".join, pairwise(rest)), *(each.replace("=", " ", 1) for each in options)]
    for key in (command, *(f"{command} {option}" for option in (*named, *values))):
        if key in REMOVED:
            raise InvalidInput(f"`advisor {key}` is no longer there. {REMOVED[key]}")


# Of typer: words where a command has no argument.
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.+)\)")

_show_others = warnings.showwarning


def _show_warning(
    message: Warning | str, category: type[Warning], *where: Any, **more: Any
) -> None:
    """Print a warning of the advisor as one line, others as Python does."""
    if issubclass(category, AdvisorWarning):
        warn([message])
    else:
        _show_others(message, category, *where, **more)


def _refuse(error: Exception, words: Sequence[str]) -> NoReturn:
    """Print a usage error of typer's, whose class differs between versions, and exit."""
    if (message := getattr(error, "format_message", None)) is None:
        raise error
    text = message().replace("Value error, ", "").rstrip().removesuffix(".")
    for theirs, ours in _PLAINER.items():
        text = text.replace(theirs, ours)
    context = getattr(error, "ctx", None)
    help_of = context.command_path if context is not None else "advisor"
    if context is not None and (extra := _EXTRA.fullmatch(text)):
        named = any("--gpu" in each.opts for each in context.command.params)
        text = f"`{help_of}` accepts no argument {extra[1]!r}"
        text += f"; name a GPU by --gpu {extra[1].split()[0]}" if named else ""
    end = "" if text.endswith("?") else "."
    script = next((word for word in words if word.endswith(".py")), None)
    if script is not None and text.startswith("No such option"):
        end += f" For options of {script}, run `advisor profile -- python {script} ...`."
    aside(f"error: {text}{end} See `{help_of} -h`.")
    sys.exit(getattr(error, "exit_code", InvalidInput.exit_code))


def _fail(error: AdvisorError, debug: bool) -> NoReturn:
    if debug:
        aside(traceback.format_exc(), keep="\n")
    # Steps outside their intervals are listed, one a line.
    aside(f"error: {error}", keep="\n" if isinstance(error, OutsideInterval) else "")
    sys.exit(error.exit_code)
