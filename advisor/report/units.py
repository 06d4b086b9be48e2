"""Writes numbers with unit and interval; None is written as not measured."""

from collections.abc import Callable, Iterable, Sequence

from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import MixPrediction

NOT_MEASURED = "not measured"
MIB_PER_GIB = 1024.0

# Length up to which a unit is used, the unit, and its seconds.
_TIMES = ((0.1, "ms", 1e-3), (120.0, "s", 1.0), (7200.0, "min", 60.0), (172_800.0, "h", 3600.0))
_DAYS = ("d", 86_400.0)


def time_unit(length_s: float) -> tuple[str, float]:
    """The unit in which a length of time reads best, and its seconds."""
    return next(((unit, size_s) for most, unit, size_s in _TIMES if length_s < most), _DAYS)


def number(value: float) -> str:
    """`value` with about three significant digits."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def duration(length_s: float) -> str:
    """A measured time, e.g. ``"5.92 ms"``."""
    unit, size_s = time_unit(length_s)
    return f"{number(length_s / size_s)} {unit}"


def seconds(value: Interval | None) -> str:
    """A predicted time, e.g. ``"12.3 min (11.0-14.1)"``."""
    return NOT_MEASURED if value is None else _with_interval(value, *time_unit(value.p50))


def joules(value: Interval | None) -> str:
    """Energy, in the unit that reads well."""
    if value is None:
        return NOT_MEASURED
    return _with_interval(value, *energy_unit(value.p50))


def energy_unit(energy_j: float) -> tuple[str, float]:
    """The unit in which an amount of energy reads best, and its joules."""
    if energy_j < 360:
        return ("J", 1.0) if energy_j >= 0.1 else ("mJ", 1e-3)
    return ("Wh", 3.6e3) if energy_j < 3.6e6 else ("kWh", 3.6e6)


def watts(value: Interval | None) -> str:
    return NOT_MEASURED if value is None else _with_interval(value, "W", 1.0)


def gib(value_mib: Interval) -> str:
    return _with_interval(value_mib, "GiB", MIB_PER_GIB)


def gib_of(size_mib: float) -> str:
    """Memory without an interval."""
    return f"{number(size_mib / MIB_PER_GIB)} GiB"


def held(mix: MixPrediction) -> str:
    """Memory that processes hold at once, of the memory there is."""
    return f"{mix.memory_total_mib / 1024:.1f} of {mix.memory_capacity_mib / 1024:.0f} GiB"


def times(value: Interval) -> str:
    """A factor, e.g. ``"1.80x (1.62-2.01)"``."""
    return _with_interval(value, "x", 1.0, between="")


def share(value: float | None) -> str:
    """A share of 1, in per cent."""
    return NOT_MEASURED if value is None else f"{value:.0%}"


def collapsed(equal: Sequence[str]) -> str:
    """Several equal names as one, e.g. ``"resnet50 x3"`` for three."""
    return equal[0] if len(equal) == 1 else f"{equal[0]} x{len(equal)}"


def numbers(ordered: Iterable[int]) -> str:
    """Increasing numbers, three or more in a row by their ends, e.g. ``"1-8,11,12"``."""
    runs: list[list[int]] = []
    for each in ordered:
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs
    )


def with_ends(value: Interval, shown: Callable[[float], str], unit: str = "") -> str:
    """The median with its `unit`, and in parentheses the ends of its 90 % interval."""
    return f"{shown(value.p50)}{unit} ({shown(value.p05)}-{shown(value.p95)})"


def _with_interval(value: Interval, unit: str, size: float, between: str = " ") -> str:
    def shown(each: float) -> str:
        return number(each / size)

    unit = between + unit
    # Exact by definition, such as serial's gain over serial.
    return shown(value.p50) + unit if value.p05 == value.p95 else with_ends(value, shown, unit)
