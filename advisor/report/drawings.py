"""The bars of a drawing of a GPU with its jobs, to scale, for text and charts.

Each job has a row; copies side by side share one. One panel shows memory, the other the SMs that a
job may use, both framed by its MIG instance if it has one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from math import isclose
from typing import Literal, assert_never

from advisor.hardware.gpus import Gpu, MigProfile
from advisor.hardware.mig import place, profile_of
from advisor.hardware.partition import limit_shares
from advisor.plan.fleet import FleetPlan
from advisor.prediction.prediction import LEVELS, Interval, JobPrediction, MixPrediction, around
from advisor.report import format as units
from advisor.report.format import words_of
from advisor.sharing import Arrangement, Hybrid
from advisor.sharing.groups import instance_sets, memories, restricted, running_together
from advisor.simulation.simulate import SimulatedJob, Simulation, Usage


@dataclass(frozen=True, slots=True)
class InstanceSpot:
    """A MIG instance: where its memory begins, and where its SMs begin in the order of memory."""

    profile: MigProfile
    start_mib: float
    first_sm: float
    sms: float


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one job lies.

    Attributes:
        start_mib: Where its memory begins.
        first_sm: The first of the SMs that it may use, which end at `end_sm`.
        hint: Tooltip: what the job holds.
        cut: The MIG instance that it is on; None without MIG.
    """

    start_mib: float
    first_sm: float
    end_sm: float
    hint: str
    cut: InstanceSpot | None = None


def spots_of(mix: MixPrediction, gpu: Gpu) -> list[Spot]:
    """The spot of each job, in order; in phases, of the jobs of one group after another."""
    sets = [list(range(len(mix.jobs)))]
    if mix.sharing.mode == "phases":
        sets = running_together(mix.sharing, len(mix.jobs))
    found: dict[int, Spot] = {}
    for group in map(sorted, sets):
        sharing = restricted(mix.sharing, group)
        held_mib = [mix.jobs[job].memory_mib for job in group]
        found |= zip(group, _spots_at_once(sharing, held_mib, gpu), strict=True)
    return [found[job] for job in sorted(found)]


def _spots_at_once(sharing: Arrangement, held_mib: Sequence[float], gpu: Gpu) -> list[Spot]:
    jobs, whole = len(held_mib), float(gpu.sms)
    match sharing.mode:
        case "mig" | "hybrid" | "phases":
            (instances,) = instance_sets(sharing)
            return _spots_on_instances(instances, held_mib, gpu)
        case "mps-limits":
            ends = [whole * each for each in limit_shares(sharing.limits, gpu.sms)]
            hints = [f"at most {cap:g} % of the SMs" for cap in sharing.limits]
        case "serial":
            ends, hints = [whole] * jobs, ["all SMs, one job after another"] * jobs
        case "naive":
            ends, hints = [whole] * jobs, ["all SMs, in turns"] * jobs
        case "mps":
            ends, hints = [whole] * jobs, ["whatever SMs the others leave free"] * jobs
        case _:
            assert_never(sharing.mode)
    spans = zip(_memory_starts(sharing, held_mib), ends, hints, strict=True)
    return [Spot(start_mib, 0.0, end, hint) for start_mib, end, hint in spans]


def _memory_starts(sharing: Arrangement, held_mib: Sequence[float]) -> list[float]:
    """Where each job's memory begins, in MiB; without MIG the order is arbitrary."""
    starts = [0.0] * len(held_mib)
    for memory in memories(sharing, len(held_mib)):
        numbers = [number for part in memory for number in part.jobs]
        before_mib = accumulate((held_mib[number - 1] for number in numbers), initial=0.0)
        for number, start_mib in zip(numbers, before_mib, strict=False):
            starts[number - 1] = start_mib
    return starts


def _spots_on_instances(hybrid: Hybrid, held_mib: Sequence[float], gpu: Gpu) -> list[Spot]:
    found: dict[int, Spot] = {}
    for each, cut in zip(hybrid.places, _cuts(hybrid, gpu), strict=True):
        held = (held_mib[number - 1] for number in each.jobs)
        starts_mib = dict(zip(each.jobs, accumulate(held, initial=cut.start_mib), strict=False))
        left = cut.first_sm
        for part in each.partitions:
            name, slices = cut.profile.name, part.slices or cut.profile.compute_slices
            right = left + cut.sms * slices / cut.profile.compute_slices
            whole = name if part.slices is None else f"{part.slices}c of {name}"
            mates = "" if len(part.jobs) == 1 else f", shared by {len(part.jobs)} jobs"
            hint = f"the {right - left:.0f} SMs of its {whole}{mates}"
            found |= {job: Spot(starts_mib[job], left, right, hint, cut) for job in part.jobs}
            left = right
    return [found[number] for number in sorted(found)]


def _cuts(hybrid: Hybrid, gpu: Gpu) -> list[InstanceSpot]:
    """The instance of each place; where its SMs are unknown, by its share of the memory."""
    slice_mib = gpu.memory_mib / gpu.memory_slices
    placed = place(gpu, hybrid.instances)
    starts = [each.start or 0 for each in placed]
    found: dict[int, InstanceSpot] = {}
    left = 0.0
    for index in sorted(range(len(starts)), key=starts.__getitem__):
        profile = profile_of(gpu, placed[index].profile)
        sms = profile.sms or gpu.sms * profile.memory_slices / gpu.memory_slices
        found[index] = InstanceSpot(profile, starts[index] * slice_mib, left, sms)
        left += sms
    return [found[index] for index in sorted(found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of memory, SMs or time in the row of one job.

    Attributes:
        row: Names the job and tells copies apart, e.g. ``"2 · resnet26-cifar10-bs128"``, or counts
            those that it stands for, e.g. ``"2-41 · resnet26-cifar10-bs128 x40"``.
        job: The job's name, equal for copies.
        kind: ``"job"``: what the job takes; ``"instance"``: its MIG instance; or what it does in
            that time.
        start: Left end, in GiB, SMs or a unit of time.
        end: Right end, in the same unit.
        end_low: Lower end of the interval of the right end; None: the right end is certain.
        end_high: Upper end of that interval.
        hint: Tooltip.
    """

    row: str
    job: str
    kind: Literal["job", "instance", "runs", "waits"]
    start: float
    end: float
    end_low: float | None = None
    end_high: float | None = None
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """All bars of one plan.

    Attributes:
        rows: One for each job, or for several copies of it, in order, from the top.
        memory: In GiB from 0 to `memory_gib`.
        sms: In SMs from 0 to `sm_count`.
        caption: What the drawing shows, in a sentence.
    """

    rows: tuple[str, ...]
    memory: tuple[Bar, ...]
    sms: tuple[Bar, ...]
    memory_gib: float
    sm_count: int
    caption: str

    @property
    def used_gib(self) -> float:
        """The right end of everything that is drawn in the memory panel."""
        return max(bar.end if bar.end_high is None else bar.end_high for bar in self.memory)


def drawing(mix: MixPrediction, gpu: Gpu) -> Drawing:
    """The jobs of `mix` in `gpu`, to scale.

    Raises:
        NothingFits: A MIG instance has no place on `gpu`.
    """
    placed = _copies_together(mix.jobs, spots_of(mix, gpu))
    return Drawing(
        rows=tuple(each.row for each in placed),
        memory=(*_frames(placed, of_memory=True), *map(_memory_bar, placed)),
        sms=(*_frames(placed, of_memory=False), *map(_sm_bar, placed)),
        memory_gib=gpu.memory_mib / units.MIB_PER_GIB,
        sm_count=gpu.sms,
        caption=words_of(mix.sharing).caption,
    )


def row_name(first: int, job: str, copies: int = 1) -> str:
    """Name of the row of `copies` of `job`, the first of which has the number `first`."""
    if copies == 1:
        return f"{first} · {job}"
    return f"{first}-{first + copies - 1} · {job} x{copies}"


@dataclass(frozen=True, slots=True)
class _Placed:
    """A job, or copies of it that are drawn as one.

    Attributes:
        first: Number of the first copy.
        at_once: Whether the copies hold memory at the same time, not one after another.
    """

    first: int
    job: JobPrediction
    spot: Spot
    copies: int = 1
    at_once: bool = False

    @property
    def row(self) -> str:
        return row_name(self.first, self.job.job, self.copies)

    @property
    def side_by_side(self) -> int:
        """Copies whose memory lies side by side."""
        return self.copies if self.at_once else 1

    def with_copy(self, job: JobPrediction, spot: Spot) -> "_Placed | None":
        """The same with one more copy; None where `job` is another one, or lies elsewhere."""
        alike = (job.job, job.memory_interval_mib) == (self.job.job, self.job.memory_interval_mib)
        if not alike or replace(spot, start_mib=self.spot.start_mib) != self.spot:
            return None
        after_mib = spot.start_mib - self.spot.start_mib
        at_once = isclose(after_mib, self.copies * job.memory_mib, rel_tol=1e-9)
        if not (at_once or after_mib == 0) or (self.copies > 1 and at_once != self.at_once):
            return None
        return replace(self, copies=self.copies + 1, at_once=at_once)


def _copies_together(jobs: Sequence[JobPrediction], spots: Sequence[Spot]) -> list[_Placed]:
    """The jobs in order, consecutive copies in the same place as one."""
    found: list[_Placed] = []
    for number, (job, spot) in enumerate(zip(jobs, spots, strict=True), start=1):
        more = found[-1].with_copy(job, spot) if found else None
        if more is not None:
            found[-1] = more
        else:
            found.append(_Placed(number, job, spot))
    return found


def _frames(placed: Sequence[_Placed], *, of_memory: bool) -> Iterator[Bar]:
    """Frames of the MIG instances in one panel; none without MIG."""
    for each in placed:
        if (cut := each.spot.cut) is None:
            continue
        start, length, size = cut.first_sm, cut.sms, 1.0
        if of_memory:
            start, length, size = cut.start_mib, cut.profile.memory_mib, units.MIB_PER_GIB
        yield Bar(
            row=each.row, job=each.job.job, kind="instance",
            start=start / size, end=(start + length) / size,
            hint=f"{cut.profile.name}: {cut.profile.memory_mib:,} MiB, {cut.sms:.0f} SMs",
        )  # fmt: skip


def _memory_bar(placed: _Placed) -> Bar:
    job, start_mib, each_mib = placed.job, placed.spot.start_mib, placed.job.memory_interval_mib
    range_mib = each_mib.scaled(placed.side_by_side)
    each = "takes" if placed.copies == 1 else "each takes"
    together = f", together {units.gib(range_mib)}" if placed.at_once else ""
    return Bar(
        row=placed.row,
        job=job.job,
        kind="job",
        start=start_mib / units.MIB_PER_GIB,
        end=(start_mib + placed.side_by_side * job.memory_mib) / units.MIB_PER_GIB,
        end_low=(start_mib + range_mib.p05) / units.MIB_PER_GIB,
        end_high=(start_mib + range_mib.p95) / units.MIB_PER_GIB,
        hint=f"{each} {units.gib(each_mib)}{together}",
    )


def _sm_bar(placed: _Placed) -> Bar:
    spot = placed.spot
    return Bar(
        row=placed.row, job=placed.job.job, kind="job", start=spot.first_sm, end=spot.end_sm,
        hint=spot.hint,
    )  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class JobOnGpu:
    """A job on one of several GPUs.

    Attributes:
        number: Of the job, from 1 in the order asked for.
        gpu: Number of the GPU, from 0.
        lived: When it starts and ends.
    """

    number: int
    gpu: int
    lived: SimulatedJob

    @property
    def late(self) -> bool:
        """Whether it misses its deadline, by medians."""
        due_s = self.lived.job.deadline_s
        return due_s is not None and self.lived.end_s.p50 > due_s

    def overlaps(self, other: "JobOnGpu") -> bool:
        """Whether both run at once on one GPU."""
        own, its = self.lived, other.lived
        at_once = own.start_s < its.end_s.p50 and its.start_s < own.end_s.p50
        return self.gpu == other.gpu and at_once


def jobs_of_queue(simulation: Simulation) -> tuple[JobOnGpu, ...]:
    """The jobs of a simulated queue that feeds several GPUs."""
    return _in_order(
        JobOnGpu(number, each.gpu, each) for number, each in enumerate(simulation.jobs, start=1)
    )


def jobs_of_plan(found: FleetPlan, simulated: Sequence[Simulation]) -> tuple[JobOnGpu, ...]:
    """The jobs of a plan; `simulated` holds the simulation of each GPU of `FleetPlan.on`."""
    return _in_order(
        JobOnGpu(number, on.number, each)
        for on, simulation in zip(found.on, simulated, strict=True)
        for number, each in zip(on.candidate.jobs, simulation.jobs, strict=True)
    )


def _in_order(jobs: Iterator[JobOnGpu]) -> tuple[JobOnGpu, ...]:
    """By GPU, and on each as they start; copies next to each other."""
    return tuple(
        sorted(jobs, key=lambda each: (each.gpu, each.lived.start_s, _name(each), each.number))
    )


def names_of(jobs: Sequence[JobOnGpu]) -> list[str]:
    """The names of the jobs, in the order asked for."""
    return [_name(each) for each in sorted(jobs, key=lambda each: each.number)]


def lanes_of(jobs: Sequence[JobOnGpu]) -> Timeline:
    """A row for each job, GPU after GPU; copies that run alike on one GPU share a row."""
    rows = []
    for (gpu, name, *_), alike in groupby(jobs, _fleet_fate):
        copies = list(alike)
        row = f"GPU {gpu} · {copies[0].number} · {units.collapsed([name] * len(copies))}"
        rows.append((row, copies[0].lived))
    ends_s = [each.lived.end_s for each in jobs]
    return in_rows(rows, around([max(each.at(level) for each in ends_s) for level in LEVELS]))


def _fleet_fate(placed: JobOnGpu) -> tuple[int, str, float, float, str]:
    own = placed.lived
    return placed.gpu, _name(placed), own.arrival_s, own.start_s, units.seconds(own.end_s)


def _name(placed: JobOnGpu) -> str:
    return placed.lived.job.name


def job_rows_of(jobs: Sequence[JobOnGpu]) -> list[dict[str, str]]:
    """A row for each job, in order; a column's name is its key."""
    return [_job_row(each, [other for other in jobs if other.overlaps(each)]) for each in jobs]


def _job_row(placed: JobOnGpu, at_once: Sequence[JobOnGpu]) -> dict[str, str]:
    own, others = placed.lived, [each.number for each in at_once if each is not placed]
    due = own.job.deadline_s
    return {
        "GPU": str(placed.gpu),
        "job": f"{placed.number} · {own.job.name}",
        "shares with": ", ".join(map(str, sorted(others))) or "none",
        "starts after": units.duration(own.start_s) if own.start_s else "0 s",
        "ends after": units.seconds(own.end_s),
        "deadline": "none" if due is None else "late" if placed.late else "holds",
    }


def gains_of(
    makespan_s: Interval, one_gpu_s: float | None, one_job_each_s: float | None
) -> list[tuple[str, str, str]]:
    """Figures by medians: title, value, and what it compares with.

    Args:
        makespan_s: Seconds until all jobs are done on the GPUs.
        one_gpu_s: The same on one GPU; None: there is only one, or it is not known.
        one_job_each_s: The same if each GPU runs one job at a time; None: not known.
    """
    low, high = (units.duration(each) for each in (makespan_s.p05, makespan_s.p95))
    cards = [("Until all are done", units.duration(makespan_s.p50), f"from {low} to {high}")]
    for name, other_s in (("one GPU", one_gpu_s), ("one job per GPU", one_job_each_s)):
        if other_s is not None:
            gain = f"{units.number(other_s / makespan_s.p50)}x"
            cards.append((f"Gain over {name}", gain, f"{name}: {units.duration(other_s)}"))
    return cards
