"""Puts results on stdout."""

import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType


def show(report: "RenderableType") -> None:
    """`report`, without colours where stdout is no terminal or ``NO_COLOR`` is set."""
    from rich.console import Console

    Console(highlight=False).print(report)


def show_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=1, allow_nan=False))
