"""Writes docs/reference/commands.md from the help of the commands.

python -m research.commands
"""

from collections.abc import Iterator
from typing import Any

import click
import typer.main

from advisor.cli import COMMANDS, typer_app
from advisor.files.writing import write_whole
from research.files import ROOT
from research.score_tables import markdown

FILE = ROOT / "docs" / "reference" / "commands.md"
_TOP = """# Commands

`python -m research.commands` writes this page from `advisor COMMAND --help`. Each command also
accepts `--help`, and `--debug`, which prints the traceback of an error.
[Exit codes and variables](exit-codes.md)."""


def commands_text() -> str:
    """Return the page: a section for each command, in the groups of the help."""
    group: Any = typer.main.get_command(typer_app())
    top = click.Context(group, info_name="advisor")
    parts, before = [_TOP], None
    # Numbers and histories have commands of their own.
    others = {"profile": [f"profile --from-{kind}" for kind in ("numbers", "history")]}
    for name in (each for command in COMMANDS for each in (command, *others.get(command, ()))):
        command = group.commands[name]
        panel = command.rich_help_panel  # typer's own default stands for none
        if isinstance(panel, str) and panel != before:
            before = panel
            parts.append(f"## {before}")
        parts += [f"### {name}", *_described(command, click.Context(command, top, name))]
    return "\n\n".join(parts) + "\n"


def _described(command: Any, context: click.Context) -> Iterator[str]:
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
