"""Tables for terminals and as CSV, and the console on which reports are printed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from csv import DictWriter
from io import StringIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from advisor.prediction.prediction import LEVELS, Interval

_LINES, _COLUMNS = 25, 80


def plain_table(first: str, *others: str) -> "FittedTable":
    """Return a table without lines, whose `first` column is never wrapped."""
    table = FittedTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)  # a name is copied from here
    for heading in others:
        table.add_column(heading)
    return table


def table_of(rows: Sequence[Mapping[str, str]]) -> "FittedTable":
    """Return `plain_table` of `rows`, whose keys are the headings."""
    table = plain_table(*rows[0])
    for row in rows:
        table.add_row(*row.values())
    return table


def answer_above_table(answer: str, table: Table, notes: Iterable[str]) -> Group:
    """Return a report: the `answer` in a sentence, its table, and a line for each of `notes`."""
    return Group(Text(answer, style="bold"), Text(), table, Text(), *map(Text, notes))


def fits(report: RenderableType, lines: int = _LINES, columns: int = _COLUMNS) -> bool:
    """Check whether `report` fits in so many lines and columns; by default in a terminal.

    Measuring fixes the widths of its tables, so build the report again to print it.
    """
    console = Console(width=columns, file=StringIO(), markup=False, emoji=False, highlight=False)
    return len(console.render_lines(report, pad=False)) <= lines


# A word, or a command with its blanks: in backticks, or after a colon to the end of the line.
_UNBROKEN = re.compile(r"\s*(?:`[^`]+`|(?<=: )advisor .*|\S)+\s*")
_HAS_COMMAND = re.compile(r"`[^`]+ [^`]+`|: advisor ")


class ReportConsole(Console):
    """A console that breaks no line inside of a command, so that the command can be copied."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as `Console.render`; a command that is too long exceeds the width."""
        text = Text(renderable) if isinstance(renderable, str) else renderable
        if isinstance(text, Text) and not text.no_wrap and _HAS_COMMAND.search(text.plain):
            width = (options or self.options).max_width
            renderable = Group(
                *(part for line in text.split(allow_blank=True) for part in _broken(line, width))
            )
        return super().render(renderable, options)


def _broken(line: Text, width: int) -> Iterable[Text]:
    """The parts of `line` that fit in the `width`, between words and commands."""
    ends, used = list[int](), 0
    for word in _UNBROKEN.finditer(line.plain):
        if used and used + cell_len(word[0].rstrip()) > width:
            ends.append(word.start())
            used = 0
        used += cell_len(word[0])
    for part in line.divide(ends):
        part.rstrip()
        part.no_wrap, part.overflow = True, "ignore"
        yield part


_LEAST_FOLDED = 12  # characters of a column whose words may break anywhere
_GAP, _INDENT = 2, "  "
_ENDLESS = 100_000


class FittedTable(Table):
    """A table whose words are never cut off and whose columns never vanish.

    If the console is too narrow for its columns, each row becomes lines of a heading and a cell.

    Attributes:
        abreast: Cells that stay on one line even then.
    """

    abreast = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sizes = [_size(each, console, options) for each in self.columns]
        whole = self.__rich_measure__(console, options.update(max_width=_ENDLESS)).maximum
        between = whole - sum(each.maximum for each in sizes)
        spare = options.max_width - between - sum(each.minimum for each in sizes)
        if spare >= 0:
            widths = [each.maximum for each in sizes]
            for _ in range(sum(each.span for each in sizes) - spare):
                shrinkable = [at for at, each in enumerate(sizes) if widths[at] > each.minimum]
                widths[max(shrinkable, key=widths.__getitem__)] -= 1
            for column, width in zip(self.columns, widths, strict=True):
                column.width = width
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(str(self.title))
        # On one line, without the hyphens of line ends.
        headings = [str(each.header).replace("-\n", "").replace("\n", " ") for each in self.columns]
        for row in zip(*(each.cells for each in self.columns), strict=True):
            words = [*map(str, row)]
            first = (" " * _GAP).join(words[: self.abreast])
            yield _record(first, zip(headings[self.abreast :], words[self.abreast :], strict=True))
        if self.caption:
            yield Text(str(self.caption))


def _record(first: str, rest: Iterable[tuple[str, str]]) -> Text:
    """A row on its own: the line `first`, if any, then a line for each heading and its cell."""
    inside = [
        f"{_INDENT}{f'{name}: ' if name[:1].isalpha() else ''}{cell}" for name, cell in rest if cell
    ]
    return Text("\n".join([*filter(None, [first]), *inside]))


def _size(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """The fewest characters in which `column` reads well, and those that it can use."""
    endless, least, most = options.update(max_width=_ENDLESS), 0, 0
    for part in (column.header, *column.cells):
        size = Measurement.get(console, endless, part)
        whole = column.no_wrap or str(part).startswith(" ")  # an indented cell is one word
        least, most = max(least, size.maximum if whole else size.minimum), max(most, size.maximum)
    return Measurement(min(least, _LEAST_FOLDED) if column.overflow == "fold" else least, most)


def csv_text(rows: Iterable[Mapping[str, object]]) -> str:
    """Return `rows`, which have equal keys, as CSV."""
    first, *others = rows
    file = StringIO()
    table = DictWriter(file, first.keys(), lineterminator="\n")
    table.writeheader()
    table.writerows((first, *others))
    return file.getvalue()


def range_columns(name: str, unit: str, value: Interval | None) -> dict[str, float | None]:
    """Return a column for the median and each end of a 90 % interval, e.g. ``time_p05_s``."""
    return {
        "_".join(filter(None, (name, level, unit))): None if value is None else value.at(level)
        for level in LEVELS
    }
