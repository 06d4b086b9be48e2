"""Puts results on stdout."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType


def show(report: "RenderableType") -> None:
    """`report`, without colours where stdout is no terminal or ``NO_COLOR`` is set."""
    from rich.console import Console

    Console(highlight=False).print(report)


def warn(lines: Iterable[object]) -> None:
    """Each of `lines` as a warning on stderr."""
    for line in lines:
        typer.echo(f"warning: {line}", err=True)


def leave_out(*reasons: str) -> None:
    """Say that files are left out, and of each why."""
    warn(f"left out: {why}" for why in reasons)


def show_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=1, allow_nan=False))
