"""The bars of a drawing of a simulation on one GPU, for text and charts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from advisor.hardware.catalogue import Gpu
from advisor.report import units
from advisor.report.gpu_drawing import row_names
from advisor.timeline.outcome import SimulatedJob, Simulation, Usage

_MIB_PER_GIB = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time on the row of one job, in the timeline's unit.

    Attributes:
        row: Names the job and tells copies apart.
        job: Its name, the same for copies.
        kind: Whether it runs or waits.
        end_low: Where its end may lie at least; None: of a stretch of waiting.
        end_high: Upper end of the interval of its end.
        hint: One line on what this is.
    """

    row: str
    job: str
    kind: Literal["runs", "waits"]
    start: float
    end: float
    end_low: float | None = None
    end_high: float | None = None
    hint: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a curve says while the same jobs run; None: not measured."""

    start: float
    end: float
    value: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """What the GPU does over time, a reading after the other.

    Attributes:
        name: With its unit, e.g. ``"memory, GiB"``.
        most: Where its axis ends: what the GPU has of it, or has at most been seen to take.
    """

    name: str
    most: float
    readings: tuple[Reading, ...]

    @property
    def measured(self) -> bool:
        return all(each.value is not None for each in self.readings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All of it.

    Attributes:
        unit: Of time, e.g. ``"min"``.
        rows: One for each job, in order, from the top.
        end: Until where it is drawn: the last job ends no later, with nine of ten chances.
    """

    unit: str
    rows: tuple[str, ...]
    spans: tuple[Span, ...]
    curves: tuple[Curve, ...]
    end: float


def timeline(simulation: Simulation, gpu: Gpu) -> Timeline:
    """The results of the jobs of `simulation`, all of them on one `gpu`."""
    unit, size_s = units.time_unit(simulation.makespan_s.p50)
    rows = row_names([each.job.name for each in simulation.jobs])
    lived = tuple(zip(rows, simulation.jobs, strict=True))
    waits = tuple(_waits(row, each, size_s) for row, each in lived if each.wait_s > 0)
    return Timeline(
        unit=unit,
        rows=rows,
        spans=(*waits, *(_runs(row, each, size_s) for row, each in lived)),
        curves=_curves(simulation, gpu, size_s),
        end=simulation.makespan_s.p95 / size_s,
    )


def _runs(row: str, lived: SimulatedJob, size_s: float) -> Span:
    return Span(
        row=row, job=lived.job.name, kind="runs",
        start=lived.start_s / size_s, end=lived.end_s.p50 / size_s,
        end_low=lived.end_s.p05 / size_s, end_high=lived.end_s.p95 / size_s,
        hint=f"ends after {units.seconds(lived.end_s)}",
    )  # fmt: skip


def _waits(row: str, lived: SimulatedJob, size_s: float) -> Span:
    return Span(
        row=row, job=lived.job.name, kind="waits",
        start=lived.arrival_s / size_s, end=lived.start_s / size_s,
        hint=f"waits {units.duration(lived.wait_s)}",
    )  # fmt: skip


def _curves(simulation: Simulation, gpu: Gpu, size_s: float) -> tuple[Curve, ...]:
    def curve(name: str, most: float, value_of: Callable[[Usage], float | None]) -> Curve:
        readings = (
            Reading(each.start_s / size_s, each.end_s / size_s, value_of(each))
            for each in simulation.usage
        )
        return Curve(name, most, tuple(readings))

    most_gib, most_w = gpu.memory_mib / _MIB_PER_GIB, gpu.power_limit_w
    peak_w = max(each.power_w or 0.0 for each in simulation.usage)
    return (
        curve("GPU busy, %", 100.0, lambda use: _percent(use.gract)),
        curve("SMs busy, %", 100.0, lambda use: _percent(use.smact)),
        curve("memory, GiB", most_gib, lambda use: use.memory_mib / _MIB_PER_GIB),
        curve("power, W", peak_w if most_w is None else most_w, lambda use: use.power_w),
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
