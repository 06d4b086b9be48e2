"""Writes docs/reference/commands.md from the help of the commands.

python -m research.commands
"""

from collections.abc import Iterator
from typing import Any

import click
import typer.main

from advisor.cli import COMMANDS, _app
from advisor.workload.writing import write_whole
from research.files import ROOT
from research.score_tables import markdown
from research.terminal_output import terminal_output

_COLUMNS = 88
FILE = ROOT / "docs" / "reference" / "commands.md"
_TOP = """# Commands

`python -m research.commands` writes this page from `advisor COMMAND --help`. Each command also
accepts `--help`, and `--debug`, which prints the traceback of an error.
[Exit codes and variables](exit-codes.md)."""


def commands_text() -> str:
    """Return the page: a section for each command, in the groups of the help."""
    group: Any = typer.main.get_command(_app)
    top = click.Context(group, info_name="advisor")
    parts, before = [_TOP], None
    for name in COMMANDS:
        command = group.commands[name]
        if command.rich_help_panel != before:
            parts.append(f"## {command.rich_help_panel}")
        before = command.rich_help_panel
        parts += [f"### {name}", *_described(command, click.Context(command, top, name))]
    return "\n\n".join(parts) + "\n"


def _described(command: Any, context: click.Context) -> Iterator[str]:
    if command.context_settings.get("ignore_unknown_options"):
        # A parser of its own reads its words, and prints its help.
        own = [["--from-numbers"], ["--from-history"]] if command.name == "profile" else []
        for words in [[], *own]:
            lines = terminal_output([command.name, *words, "--help"], _COLUMNS)
            yield "\n".join(["```text", *lines, "```"])
        return
    yield command.help.replace("\b\n", "")
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            words, text = record
            if parameter.param_type_name == "argument":
                words = parameter.metavar  # without a Python type
            rows.append((f"`{_escaped(words)}`", _escaped(text).replace("[", r"\[")))
    if rows:
        yield markdown(("option", "meaning"), rows)


def _escaped(text: str) -> str:
    """Return `text` for a cell of a table, where bars end cells."""
    return text.replace("|", r"\|")


if __name__ == "__main__":
    write_whole(FILE, commands_text())
