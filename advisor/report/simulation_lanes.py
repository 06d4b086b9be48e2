"""A simulation over time, drawn as lines of characters."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from advisor.report import units
from advisor.timeline.outcome import SimulatedJob, Simulation, Usage

# More jobs than this are counted, not drawn one by one; more GPUs are not drawn.
_MOST_JOBS, _MOST_GPUS = 24, 16

_NAME, _TAIL, _COLUMNS = 26, 10, 40
_WAITS, _RUNS, _NOTHING = "·", "█", " "
_LEVELS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the drawing; `style` is rich's name of its colour."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Scale of a curve.

    Attributes:
        most: Value of the highest block; None: the largest value.
        size: Size of one `unit`.
    """

    style: str
    most: float | None = None
    unit: str = ""
    size: float = 1.0


_SHARE = _Scale("green", 1.0, " %", 0.01)
_MEMORY, _POWER = _Scale("green", None, " GiB", units.MIB_PER_GIB), _Scale("green", None, " W")


def lanes(simulation: Simulation) -> Iterator[Lane]:
    """The drawing, 80 columns wide; each character is an equal part of the time."""
    column_s = simulation.makespan_s.p50 / _COLUMNS
    unit, size_s = units.time_unit(simulation.makespan_s.p50)
    yield Lane(
        f"over time, {units.number(column_s / size_s)} {unit} a character, of which curves are "
        f"means; "
        f"{_RUNS} runs, {_WAITS} waits",
        "dim",
    )
    if len(simulation.jobs) <= _MOST_JOBS:
        for number, lived in enumerate(simulation.jobs, start=1):
            end = f"{units.number(lived.end_s.p50 / size_s)} {unit}"
            yield _lane(f"{number} {lived.job.name}", _drawn_bar(lived, column_s), end, "cyan")
    else:
        yield from _counted(simulation, column_s)
    yield from _curve_lanes(simulation, column_s)


def _lane(name: str, drawn: str, said: str, style: str = "") -> Lane:
    # What tells alike jobs apart, as a batch size, stands at the end.
    short = name if len(name) <= _NAME else f"{name[: _NAME - _TAIL - 1]}…{name[-_TAIL:]}"
    return Lane(f"{short:{_NAME}}|{drawn}| {said}".rstrip(), style)


def _drawn_bar(lived: SimulatedJob, column_s: float) -> str:
    """What the job does in the middle of each column."""
    middles = ((column + 0.5) * column_s for column in range(_COLUMNS))
    return "".join(
        _RUNS
        if lived.start_s <= at_s < lived.end_s.p50
        else _WAITS
        if lived.arrival_s <= at_s < lived.start_s
        else _NOTHING
        for at_s in middles
    )


def _counted(simulation: Simulation, column_s: float) -> Iterator[Lane]:
    """Number of jobs that wait and that run, in all and on each GPU."""
    waits = [(each.arrival_s, each.start_s, 1.0) for each in simulation.jobs]
    runs = [(each.start_s, each.end_s, float(len(each.jobs))) for each in simulation.usage]
    yield _curve_lane("jobs that wait", _means(waits, column_s), _Scale("yellow"))
    yield _curve_lane("jobs that run", _means(runs, column_s), _Scale("cyan"))
    if not 1 < simulation.gpus <= _MOST_GPUS:
        return
    most = max(len(each.jobs) for each in simulation.usage)
    for gpu in range(simulation.gpus):
        here = [each for each in simulation.usage if each.gpu == gpu]
        spans = [(each.start_s, each.end_s, float(len(each.jobs))) for each in here]
        yield _curve_lane(f"  on GPU {gpu}", _means(spans, column_s), _Scale("cyan", most))


def _curve_lanes(simulation: Simulation, column_s: float) -> Iterator[Lane]:
    """Activity, memory and power, means over GPUs and over the time of each column."""
    idle_w = simulation.idle_power_w
    power = "power while jobs run" if idle_w is None else "power"
    rows: tuple[tuple[str, Callable[[Usage], float | None], float, _Scale], ...] = (
        ("GPU busy", lambda use: use.gract, 0.0, _SHARE),
        ("SMs busy", lambda use: use.smact, 0.0, _SHARE),
        ("memory held", lambda use: use.memory_mib, 0.0, _MEMORY),
        (power, lambda use: use.power_w, idle_w or 0.0, _POWER),
    )
    for name, value_of, idle, scale in rows:
        values = [value_of(use) for use in simulation.usage]
        spans = [
            (use.start_s, use.end_s, (value - idle) / simulation.gpus)
            for use, value in zip(simulation.usage, values, strict=True)
            if value is not None
        ]
        if len(spans) == len(values):
            yield _curve_lane(name, [idle + mean for mean in _means(spans, column_s)], scale)
        else:
            yield Lane(f"{name:{_NAME}} {units.NOT_MEASURED}")


def _curve_lane(name: str, values: Sequence[float], scale: _Scale) -> Lane:
    peak = max(values)
    top = scale.most or peak or 1.0
    drawn = "".join(_LEVELS[round(min(1.0, value / top) * (len(_LEVELS) - 1))] for value in values)
    return _lane(name, drawn, f"≤ {units.number(peak / scale.size)}{scale.unit}", scale.style)


def _means(spans: Sequence[tuple[float, float, float]], column_s: float) -> list[float]:
    """Mean over each column of the sum of all `spans` (from, until, value)."""
    sums = [0.0] * _COLUMNS
    for start_s, end_s, value in spans:
        first, last = int(start_s / column_s), min(int(end_s / column_s), _COLUMNS - 1)
        for column in range(first, last + 1):
            shared_s = min(end_s, (column + 1) * column_s) - max(start_s, column * column_s)
            sums[column] += value * max(0.0, shared_s) / column_s
    return sums
