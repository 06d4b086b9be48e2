"""The layout of reports for a terminal: tables, the answer above them, what fits on a screen."""

from collections.abc import Iterable
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from advisor.terminal.terminal_tables import FittedTable

_LINES, _COLUMNS = 25, 80


def plain_table(first: str, *others: str) -> "FittedTable":
    """A table without lines, whose `first` column is never wrapped."""
    from advisor.terminal.terminal_tables import FittedTable

    table = FittedTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)  # a name is copied from here
    for each in others:
        table.add_column(each)
    return table


def answer_above_table(answer: str, table: "Table", notes: Iterable[str]) -> "RenderableType":
    """A report: the `answer` in a sentence, its table, and a line for each of `notes`."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(answer, style="bold"), Text(), table, Text(), *map(Text, notes))


def fits(report: "RenderableType") -> bool:
    """Whether `report` fits in a terminal of 80 columns without scrolling.

    Measuring fixes the widths of its tables, so build the report anew to show it.
    """
    from rich.console import Console

    console = Console(width=_COLUMNS, file=StringIO(), markup=False, emoji=False, highlight=False)
    return len(console.render_lines(report, pad=False)) <= _LINES
