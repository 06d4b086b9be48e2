"""Numbers with units and 90 % intervals, and the words for each way to share."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from math import inf

from advisor.errors import counted
from advisor.prediction.prediction import Interval, MixPrediction
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


def number(value: float) -> str:
    """Return `value` with about three significant digits."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    """Return a share in per cent, or a dash for None."""
    return "-" if share is None else f"{100 * share:.1f} %"


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
    return NOT_MEASURED if value is None else f"{value:.0%}"


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
    """Return which of `jobs`, which are names in order, are on which MIG instance."""
    words = []
    for part in partitions(sharing, len(jobs)):
        slices = f"{counted(part.slices, 'compute slice')} of " if part.slices else ""
        names = ", ".join(each_counted([jobs[number - 1] for number in part.jobs]))
        words.append(f"{names} on {slices}{part.instance.profile if part.instance else ''}")
    return "; ".join(words)


WAYS = ("one after another", "time-slicing", "MPS", "MPS with limits", "MIG")
"""The ways to share a GPU, the simplest first."""


def way_of(sharing: Sharing, jobs: int) -> str:
    """Return the way in `WAYS` of a plan for so many `jobs`; of a queue or of groups the furthest.

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
    """Return text with notation in which long lists of jobs are ranges, and shares ``14 x40``."""

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
