"""Tells whether a report fits on one screen of a terminal."""

from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINES, _COLUMNS = 25, 80


def fits(report: "RenderableType") -> bool:
    """Whether `report` fits in a terminal of 80 columns without scrolling.

    Measuring fixes the widths of its tables, so build the report anew to show it.
    """
    from rich.console import Console

    console = Console(width=_COLUMNS, file=StringIO(), markup=False, emoji=False, highlight=False)
    return len(console.render_lines(report, pad=False)) <= _LINES
