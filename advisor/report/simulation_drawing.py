"""A simulation over time as bars and curves for charts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from advisor.hardware.catalogue import Gpu
from advisor.prediction.interval import Interval
from advisor.report import units
from advisor.report.gpu_drawing import Bar, row_name
from advisor.timeline.outcome import SimulatedJob, Simulation, Usage


@dataclass(frozen=True, slots=True)
class CurveReading:
    """Value of a curve while the same jobs run; None: not measured."""

    start: float
    end: float
    value: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity of the GPU over time, one reading after another.

    Attributes:
        name: Name with unit, e.g. ``"memory, GiB"``.
        most: End of its axis: the GPU's capacity, or the largest value.
    """

    name: str
    most: float
    readings: tuple[CurveReading, ...]

    @property
    def measured(self) -> bool:
        return all(each.value is not None for each in self.readings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A simulation as rows of bars and as curves.

    Attributes:
        unit: Of time, e.g. ``"min"``.
        rows: A row for each job, or for copies that run alike, from the top.
        spans: Bars of waiting and running, in `unit`.
        end: Right end of the drawing: the upper end of the makespan.
    """

    unit: str
    rows: tuple[str, ...]
    spans: tuple[Bar, ...]
    curves: tuple[Curve, ...]
    end: float


def timeline(simulation: Simulation, gpu: Gpu) -> Timeline:
    """Drawing of the jobs of `simulation`, all of which run on one `gpu`."""
    makespan_s = simulation.makespan_s
    curves = _curves(simulation, gpu, units.time_unit(makespan_s.p50)[1])
    return in_rows(tuple(_lived(simulation.jobs)), makespan_s, curves)


def in_rows(
    lived: Sequence[tuple[str, SimulatedJob]], makespan_s: Interval, curves: tuple[Curve, ...] = ()
) -> Timeline:
    """Drawing of jobs, each in the row that it comes with."""
    unit, size_s = units.time_unit(makespan_s.p50)
    waits = (_waits(row, each, size_s) for row, each in lived if each.wait_s > 0)
    runs = (_runs(row, each, size_s) for row, each in lived)
    return Timeline(
        unit=unit, rows=tuple(row for row, _ in lived), spans=(*waits, *runs), curves=curves,
        end=makespan_s.p95 / size_s,
    )  # fmt: skip


def _lived(jobs: Sequence[SimulatedJob]) -> Iterator[tuple[str, SimulatedJob]]:
    """The jobs in order with their rows; copies with equal starts and ends share one."""
    first = 1
    for _, alike in groupby(jobs, _fate):
        copies = list(alike)
        yield row_name(first, copies[0].job.name, len(copies)), copies[0]
        first += len(copies)


def _fate(lived: SimulatedJob) -> tuple[str, float, float, str]:
    return lived.job.name, lived.arrival_s, lived.start_s, units.seconds(lived.end_s)


def _runs(row: str, lived: SimulatedJob, size_s: float) -> Bar:
    return Bar(
        row=row, job=lived.job.name, kind="runs",
        start=lived.start_s / size_s, end=lived.end_s.p50 / size_s,
        end_low=lived.end_s.p05 / size_s, end_high=lived.end_s.p95 / size_s,
        hint=f"ends after {units.seconds(lived.end_s)}",
    )  # fmt: skip


def _waits(row: str, lived: SimulatedJob, size_s: float) -> Bar:
    return Bar(
        row=row, job=lived.job.name, kind="waits",
        start=lived.arrival_s / size_s, end=lived.start_s / size_s,
        hint=f"waits {units.duration(lived.wait_s)}",
    )  # fmt: skip


def _curves(simulation: Simulation, gpu: Gpu, size_s: float) -> tuple[Curve, ...]:
    def curve(name: str, most: float, value_of: Callable[[Usage], float | None]) -> Curve:
        readings = (
            CurveReading(each.start_s / size_s, each.end_s / size_s, value_of(each))
            for each in simulation.usage
        )
        return Curve(name, most, tuple(readings))

    most_w = gpu.power_limit_w
    peak_w = max(each.power_w or 0.0 for each in simulation.usage)
    peak_gib = max(each.memory_mib for each in simulation.usage) / units.MIB_PER_GIB
    return (
        curve("GPU busy, %", 100.0, lambda use: _percent(use.gract)),
        curve("SMs busy, %", 100.0, lambda use: _percent(use.smact)),
        curve("memory, GiB", peak_gib, lambda use: use.memory_mib / units.MIB_PER_GIB),
        curve("power, W", peak_w if most_w is None else most_w, lambda use: use.power_w),
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
