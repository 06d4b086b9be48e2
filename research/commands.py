"""Writes docs/reference/commands.md from the help of the commands.

python -m research.commands
"""

import re
from typing import Any

import click
import typer.main

from advisor.cli import COMMANDS, _app
from advisor.report.scores import markdown
from advisor.workload.writing import write_whole
from research.files import ROOT

FILE = ROOT / "docs" / "reference" / "commands.md"
_TOP = """# Commands

`python -m research.commands` writes this page from `advisor COMMAND --help`. Each command also
accepts `--help`, and `--debug`, which prints the traceback of an error.
[Exit codes and variables](exit-codes.md)."""


def commands_text() -> str:
    """Return the page: a section for each command, in the order of the help."""
    group: Any = typer.main.get_command(_app)
    top = click.Context(group, info_name="advisor")
    return "\n\n".join([_TOP, *(_section(group.commands[name], top) for name in COMMANDS)]) + "\n"


def _section(command: click.Command, top: click.Context) -> str:
    context = click.Context(command, info_name=command.name, parent=top)
    usage = command.get_usage(context).removeprefix("Usage: ")
    rows = [
        (f"`{_escaped(option)}`", _escaped(text).replace("[", r"\["))
        for parameter in command.get_params(context)
        if parameter.name != "help" and (record := parameter.get_help_record(context))
        for option, text in [record]
    ]
    table = markdown(("option", "meaning"), rows) if rows else ""
    parts = (f"## {command.name}", command.help, f"```text\n{usage}\n```", table)
    return "\n\n".join(part for part in parts if part)


def _escaped(text: str) -> str:
    """Return `text` for a cell of a table, without the Python type of an argument."""
    return re.sub(r" <(?:list\[.*\]|str|path)>", "", text).replace("|", r"\|")


if __name__ == "__main__":
    write_whole(FILE, commands_text())
