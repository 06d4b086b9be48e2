"""Numbers with units and 90 % intervals, the words for each way to share, and tables."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from csv import DictWriter
from io import StringIO
from itertools import groupby
from math import inf
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from advisor.errors import counted, in_percent
from advisor.prediction.prediction import LEVELS, Interval, MixPrediction
from advisor.sharing import Mode, Sharing
from advisor.sharing.groups import kind_of, partitions

NOT_MEASURED = "not measured"
MIB_PER_GIB, J_PER_WH = 1024.0, 3600.0

_Units = tuple[tuple[float, str, float], ...]
"""Value up to which a unit is used, the unit, and its seconds or joules."""
_TIMES: _Units = (
    (0.1, "ms", 1e-3),
    (120.0, "s", 1.0),
    (7200.0, "min", 60.0),
    (172_800.0, "h", 3600.0),
    (inf, "d", 86_400.0),
)
_ENERGIES: _Units = (
    (0.1, "mJ", 1e-3),
    (360.0, "J", 1.0),
    (3.6e6, "Wh", J_PER_WH),
    (inf, "kWh", 3.6e6),
)


def _best_unit(value: float, sizes: _Units) -> tuple[str, float]:
    return next(((unit, size) for most, unit, size in sizes if value < most), sizes[-1][1:])


def time_unit(length_s: float) -> tuple[str, float]:
    """Return the unit in which a length of time reads best, and its seconds."""
    return _best_unit(length_s, _TIMES)


def axis_unit(unit: Literal["s", "J", "ratio"], value: float) -> tuple[str, float]:
    """Return the unit in which an axis up to `value` reads best, and its size; a ratio has none."""
    return ("", 1.0) if unit == "ratio" else _best_unit(value, _TIMES if unit == "s" else _ENERGIES)


def number(value: float) -> str:
    """Return `value` with about three significant digits."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    """Return a share in per cent, or a dash for None."""
    return "-" if share is None else in_percent(share, 1)


def duration(length_s: float) -> str:
    """Return a measured time, e.g. ``"5.92 ms"``."""
    unit, size_s = time_unit(length_s)
    return f"{number(length_s / size_s)} {unit}"


def durations(lengths_s: Sequence[float]) -> str:
    """Return the shortest and the longest of measured times, e.g. ``"3.80 to 11.4 s"``."""
    least, most = duration(min(lengths_s)), duration(max(lengths_s))
    if least == most:
        return least
    value, unit = least.split()
    return f"{value if most.endswith(f' {unit}') else least} to {most}"


def seconds(value: Interval | None) -> str:
    """Return a predicted time, e.g. ``"12.3 min (11.0-14.1)"``."""
    return NOT_MEASURED if value is None else _with_interval(value, *time_unit(value.p50))


def joules(value: Interval | None) -> str:
    """Return energy in the unit that reads best."""
    if value is None:
        return NOT_MEASURED
    return _with_interval(value, *_best_unit(value.p50, _ENERGIES))


def watts(value: Interval | None) -> str:
    return NOT_MEASURED if value is None else _with_interval(value, "W", 1.0)


def gib(value_mib: Interval) -> str:
    return _with_interval(value_mib, "GiB", MIB_PER_GIB)


def middle(value: Interval | None, shown: Callable[[Interval], str]) -> str:
    """Return the median alone, as `shown` writes it; a dash if it is unknown."""
    return "-" if value is None else shown(Interval(*[value.p50] * 3))


def gib_of(size_mib: float) -> str:
    """Return memory without an interval."""
    return f"{number(size_mib / MIB_PER_GIB)} GiB"


def held(mix: MixPrediction) -> str:
    """Return the memory that processes hold at once, and the capacity."""
    return f"{mix.memory_total_mib / 1024:.1f} of {mix.memory_capacity_mib / 1024:.0f} GiB"


def times(value: Interval) -> str:
    """Return a factor, e.g. ``"1.80x (1.62-2.01)"``."""
    return _with_interval(value, "x", 1.0, between="")


def share(value: float | None) -> str:
    """Return a share of 1 in per cent."""
    return NOT_MEASURED if value is None else in_percent(value)


def collapsed(equal: Sequence[str]) -> str:
    """Return several equal names as one, e.g. ``"resnet50 x3"`` for three."""
    return equal[0] if len(equal) == 1 else f"{equal[0]} x{len(equal)}"


def numbers(ordered: Iterable[int]) -> str:
    """Return increasing numbers, three or more in a row by their ends, e.g. ``"1-8,11,12"``."""
    parts = list[str]()
    # Numbers in a row differ equally from their places.
    for _, run in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0]):
        first, *others = (value for _, value in run)
        parts += [f"{first}-{others[-1]}"] if len(others) > 1 else map(str, (first, *others))
    return ",".join(parts)


def with_ends(value: Interval, shown: Callable[[float], str], unit: str = "") -> str:
    """Return the median with its `unit`, and in parentheses the ends of its 90 % interval."""
    return f"{shown(value.p50)}{unit} ({shown(value.p05)}-{shown(value.p95)})"


def _with_interval(value: Interval, unit: str, size: float, between: str = " ") -> str:
    def shown(end: float) -> str:
        return number(end / size)

    unit = between + unit
    # Exact by definition, such as serial's gain over serial.
    return shown(value.p50) + unit if value.p05 == value.p95 else with_ends(value, shown, unit)


# Of nine jobs or more.
_JOBS, _SHARES = re.compile(r"(?<=\[)(\d+,){8,}\d+"), re.compile(r"(?<==)(\d[\d.]*,){8,}\d[\d.]*")
_TURNS = "[1,2];[3]: groups of job numbers, one group after another"
_NOTATIONS = {
    "queue": "mps/2[3,1,2]: job numbers in the order of their starts, at most 2 at once",
    "mps-limits": "mps=: SM limit of each job, in %",
    "mig": "mig=: a MIG instance for each job, @ its first memory slice",
    "hybrid": "[1,2]: numbers of the jobs on an instance, 3c: three of its compute slices",
    "phases": _TURNS,
}


def notation_of(sharing: Sharing) -> str:
    """Return an explanation of the notation of `sharing`, if it needs one."""
    return _TURNS if sharing.mode == "phases" else _NOTATIONS.get(kind_of(sharing), "")


def places(sharing: Sharing, jobs: Sequence[str]) -> str:
    """Return the MIG instance of each of `jobs`, which are names in order."""
    words = []
    for part in partitions(sharing, len(jobs)):
        slices = f"{counted(part.slices, 'compute slice')} of " if part.slices else ""
        own = each_counted([jobs[number - 1] for number in part.jobs])
        names = (", then " if part.at_once else ", ").join(own)
        words.append(f"{names} on {slices}{part.instance.profile if part.instance else ''}")
    return "; ".join(words)


WAYS = ("one after another", "time-slicing", "MPS", "MPS with limits", "MIG")
"""The ways to share a GPU, the simplest first."""


def way_of(sharing: Sharing, jobs: int) -> str:
    """Return the way in `WAYS` of a plan for so many `jobs`: in queues and groups the least simple.

    A plan with MIG instances is of MIG, however jobs share one of them.
    """
    if sharing.instances:
        return "MIG"
    modes = {part.sharing.mode for part in partitions(sharing, jobs)}
    kinds: dict[Mode, str] = dict(zip(("serial", "naive", "mps", "mps-limits"), WAYS, strict=False))
    return max((kinds[mode] for mode in modes), key=WAYS.index)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each of `names` its first words, as few as no other name begins with."""
    short = {}
    for name in (every := list(dict.fromkeys(names))):
        words = name.split("-")
        starts = ["-".join(words[:count]) for count in range(1, len(words))]
        taken = [f"{other}-" for other in every if other != name]
        own = (start for start in starts if not any(each.startswith(f"{start}-") for each in taken))
        short[name] = next(own, name)
    return short


def shortened(notation: str) -> str:
    """Return `notation` with long lists of jobs as ranges, and equal shares as ``14 x40``."""

    def count(shares: re.Match[str]) -> str:
        return ",".join(collapsed(list(run)) for _, run in groupby(shares[0].split(",")))

    short = _SHARES.sub(count, notation)
    return _JOBS.sub(lambda jobs: numbers(map(int, jobs[0].split(","))), short)


def in_order(words: Sequence[str]) -> str:
    """Return `words` in their order, with the number of times that each occurs in a row."""
    rows = [(word, len(list(row))) for word, row in groupby(words)]
    return ", ".join(f"{count} x {word}" if count > 1 else word for word, count in rows)


def each_counted(words: Sequence[str]) -> list[str]:
    """Return each different one of `words`, with the number of times it occurs."""
    return [f"{count} x {word}" if count > 1 else word for word, count in Counter(words).items()]


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
            lines = [(" " * _GAP).join(words[: self.abreast])]
            for name, cell in zip(headings[self.abreast :], words[self.abreast :], strict=True):
                heading = f"{name}: " if name[:1].isalpha() else ""
                lines += [f"{_INDENT}{heading}{cell}"] if cell else []
            yield Text("\n".join(filter(None, lines)))
        if self.caption:
            yield Text(str(self.caption))


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
