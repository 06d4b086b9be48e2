"""Tables for terminals of any width: if columns do not fit, each row is a few lines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

# A column whose words may be broken anywhere is not read at fewer characters.
_FOLDED = 12
_GAP, _INDENT = 2, "  "
_ENDLESS = 100_000


class FittedTable(Table):
    """A table whose words are never cut off and whose columns never vanish.

    Where the console has no room for its columns, each row becomes lines of a heading and a cell.

    Attributes:
        abreast: Cells that stay beside each other even then.
    """

    abreast = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sizes = [_size(each, console, options) for each in self.columns]
        whole = self.__rich_measure__(console, options.update(max_width=_ENDLESS)).maximum
        between = whole - sum(each.maximum for each in sizes)
        left = options.max_width - between - sum(each.minimum for each in sizes)
        if left >= 0:
            for column, width in zip(self.columns, _widths(sizes, left), strict=True):
                column.width = width
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield _text(self.title)
        headings = [_flat(each.header) for each in self.columns]
        for row in zip(*(each.cells for each in self.columns), strict=True):
            words = [*map(str, row)]
            cells = ((each,) for each in words[self.abreast :])
            first = (" " * _GAP).join(words[: self.abreast])
            yield _record(first, zip(headings[self.abreast :], cells, strict=True))
        if self.caption:
            yield _text(self.caption)


def _widths(sizes: Sequence[Measurement], left: int) -> list[int]:
    """What each column gets: all that it can use, or less where that is the widest.

    Args:
        sizes: Of the columns.
        left: Characters beyond the fewest that all need.
    """
    widths = [each.maximum for each in sizes]
    for _ in range(sum(each.span for each in sizes) - left):
        able = [at for at, each in enumerate(sizes) if widths[at] > each.minimum]
        widths[max(able, key=widths.__getitem__)] -= 1
    return widths


Cell = str | tuple[str, ...]
"""Words, broken where that reads best in a column; or lines that each stand for themselves."""


@dataclass(frozen=True, slots=True)
class FixedRow:
    """One line of a table of fixed widths, so that text of any length may follow it.

    Where there is no room for it, the cells stand below each other, and headings beside them.

    Attributes:
        cells: In order; none: the line of headings itself.
        headings: Of the columns.
        widths: Of the columns, in characters.
    """

    cells: Sequence[Cell]
    headings: Sequence[str]
    widths: Sequence[int]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        if sum(self.widths) + _GAP * (len(self.widths) - 1) <= options.max_width:
            yield self._table()
        elif self.cells:
            first, *rest = map(_lines, self.cells)
            yield _record(" ".join(first), zip(self.headings[1:], rest, strict=True))

    def _table(self) -> Table:
        table = Table.grid(padding=(0, _GAP, 0, 0))
        for width in self.widths:
            table.add_column(width=width, overflow="fold")
        cells = ["\n".join(each) if isinstance(each, tuple) else each for each in self.cells]
        table.add_row(*(cells or self.headings), style="" if cells else "bold")
        return table


def _lines(cell: Cell) -> tuple[str, ...]:
    return cell if isinstance(cell, tuple) else (cell.replace("\n", " "),)


def _record(first: str, rest: Iterable[tuple[str, tuple[str, ...]]]) -> Text:
    """A row on its own: what is said `first`, if anything, then the lines under each heading."""
    inside = [
        f"{_INDENT}{f'{name}: ' if name[:1].isalpha() and len(lines) == 1 else ''}{line}"
        for name, lines in rest
        for line in lines
        if line
    ]
    return Text("\n".join([*filter(None, [first]), *inside]))


def _size(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """The fewest characters in which `column` reads well, and those that it can use."""
    endless = options.update(max_width=_ENDLESS)
    parts = [column.header, *column.cells]
    sizes = [Measurement.get(console, endless, each) for each in parts]
    most = max(each.maximum for each in sizes)
    # What is set in is one word with the space before it.
    least = max(
        size.maximum if column.no_wrap or str(part).startswith(" ") else size.minimum
        for part, size in zip(parts, sizes, strict=True)
    )
    return Measurement(min(least, _FOLDED) if column.overflow == "fold" else least, most)


def _flat(heading: Any) -> str:
    """A heading on one line, hyphens at line ends taken back."""
    return str(heading).replace("-\n", "").replace("\n", " ")


def _text(title: Any) -> Text:
    return title if isinstance(title, Text) else Text(str(title))
