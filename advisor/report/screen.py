"""What fits on one screen of a terminal, so that an answer is read without scrolling."""

from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINES, _COLUMNS = 25, 80


def fits(report: "RenderableType") -> bool:
    """Whether all of `report` is seen at once in a terminal of 80 columns.

    A table that was laid out keeps its widths: lay another out for what is shown.
    """
    from rich.console import Console

    console = Console(width=_COLUMNS, file=StringIO(), markup=False, emoji=False, highlight=False)
    return len(console.render_lines(report, pad=False)) <= _LINES
