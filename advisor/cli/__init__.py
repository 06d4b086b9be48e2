"""The `advisor` command: options and exit codes only, no decisions.

Heavy modules are imported inside the commands that need them, so that help is instant.
"""

import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from inspect import getdoc
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from advisor import __version__
from advisor.cli.options import flag, with_groups
from advisor.cli.output import aside, forget_stdout, ready, show_text
from advisor.errors import AdvisorError, InvalidInput, OutsideInterval

_EPILOG = (
    "Exit codes: 0 done; 1 failed; 2 wrong use, or an invalid file; 3 no plan fits; 4 no GPU, no "
    "permission, or the GPU is in use; 5 measured outside the predicted interval; 130 interrupted."
)
_FIRST = "Try this first:  advisor recommend"


class _Command(TyperCommand):
    """A command whose help lists an argument by its placeholder, without a Python type."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        names = [f"{each.metavar}" if each.required else f"[{each.metavar}]" for each in arguments]
        return [self.options_metavar or "", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for kind in ("argument", "option"):
            rows = []
            for each in self.get_params(ctx):
                record = each.get_help_record(ctx)
                if each.param_type_name == kind and record is not None:
                    rows.append((each.metavar if kind == "argument" else record[0], record[1]))
            if rows:
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(rows)


class _Commands(TyperGroup):
    """All commands, whose help lists them in groups."""

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for group, names in _GROUPS.items():
            helps = [self.commands[name].get_short_help_str(formatter.width) for name in names]
            with formatter.section(group):
                formatter.write_dl(
                    [(name.ljust(width), text) for name, text in zip(names, helps, strict=True)]
                )


_GROUPS = {
    "Ask": ("recommend", "copies", "admit", "trials", "batch", "predict", "compare", "simulate"),
    "Measure": ("profile", "campaign", "runs", "calibrate", "doctor"),
    "Run": ("export", "run", "stop", "validate"),
    "Learn": ("fit", "evaluate"),
    "Look up": ("gpus", "layouts", "workloads", "profiles", "init", "app"),
}
COMMANDS = tuple(name for names in _GROUPS.values() for name in names)
"""Names of all commands."""

# The commands of each module, which only they import. Profiles from numbers and from histories have
# commands of their own, which are typed as options of `profile`.
_HOMES = {
    "recommend": ("recommend", "copies", "admit", "trials", "batch", "export"),
    "predict": ("predict", "compare", "simulate"),
    "profile": ("profile", "profile --from-numbers", "profile --from-history"),
    "measure": ("campaign", "runs", "calibrate", "doctor", "validate", "fit", "evaluate"),
    "run": ("run", "stop"),
    "lists": ("gpus", "layouts", "workloads", "profiles", "init", "app"),
}

# Paragraphs of help with a command to copy, in which click breaks no line after "\\b".
_EXAMPLES = re.compile(r"^(?=.*: advisor )", re.MULTILINE)


def typer_app(only: str | None = None) -> typer.Typer:
    """Return the app with the command called `only`; with all if there is none of that name."""
    app = typer.Typer(
        cls=_Commands,
        callback=_advisor,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog=_EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    groups = {name: group for group, names in _GROUPS.items() for name in names}
    homes = {name: home for home, names in _HOMES.items() for name in names}
    for name in [only] if only in homes else homes:
        function = getattr(
            import_module(f"advisor.cli.{homes[name]}"),
            name.removeprefix("profile --").replace("-", "_"),
        )
        command = app.command(
            name,
            cls=_Command,
            hidden=name not in groups,
            rich_help_panel=groups.get(name, "Measure"),
            help=_EXAMPLES.sub("\b\n", getdoc(function) or ""),
        )
        command(with_groups(function))
    return app


def _advisor(
    context: typer.Context,
    version: bool = flag("Print the version and exit.", "--version"),
    debug: bool = flag("Print the traceback of an error.", "--debug"),  # `main` looks for the word
) -> None:
    """Recommend which training jobs should share a GPU, and how."""
    if version:
        show_text(f"advisor {__version__}")
        raise typer.Exit
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
            typer_app()(prog_name="advisor")
        sys.exit(AdvisorError.exit_code)
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Of "profile --device 1 -- python a.py", `ours` end before "--"; `rest` is the user's command.
    ours = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in ours
    passed, rest = [word for word in ours if word != "--debug"], words[len(ours) :]
    if passed[:1] == ["help"]:
        passed = [*(word for word in passed if word != "help"), "--help"]
    try:
        typed = passed[1:] + rest  # a profile records the words by which it was made
        if passed[:1] == ["profile"]:
            from advisor.cli.profile import as_commands

            passed, rest = as_commands(passed, rest)
        app = typer_app(*passed[:1])  # to make the options of all commands takes long
        code = app(passed + rest, prog_name="advisor", standalone_mode=False, obj=typed)
    except AdvisorError as error:
        _fail(error, debug=debug)
    except OSError as error:
        # Errors of files are converted where they happen; one that names no file is of stdout.
        if error.filename is not None:
            raise
        forget_stdout()
        lost = f"stdout: {error.strerror}. The answer is lost. Redirect it to another place."
        _fail(AdvisorError(lost), debug=debug)
    except Exception as error:
        _fail(_wrong_use(error), debug=debug)
    sys.exit(code)


def _wrong_use(error: Exception) -> InvalidInput:
    """Return typer's message about the words, with the command for help; raise another error."""
    if (message := getattr(error, "format_message", None)) is None:
        raise error
    context = getattr(error, "ctx", None)
    text = message().replace("Value error, ", "").rstrip(".")
    see = f"See `{context.command_path if context is not None else 'advisor'} -h`."
    return InvalidInput(f"{text}{'' if text.endswith('?') else '.'} {see}")


def _fail(error: AdvisorError, *, debug: bool) -> NoReturn:
    if debug:
        aside(traceback.format_exc(), keep="\n")
    # Steps outside their intervals are listed, one a line.
    aside(f"error: {error}", keep="\n" if isinstance(error, OutsideInterval) else "")
    sys.exit(error.exit_code)
