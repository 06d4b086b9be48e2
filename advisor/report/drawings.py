"""The bars of drawings of a GPU with its jobs, of MIG instances and of time, to scale.

Each job has a row; copies next to each other share one. One panel shows memory, the other the SMs
that a job may use, both framed by its MIG instance if it has one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from math import isclose
from typing import Literal, assert_never

from advisor.hardware.gpus import Gpu, MigProfile
from advisor.hardware.mig import place, profile_of
from advisor.hardware.partition import limit_shares
from advisor.prediction.prediction import Interval, JobPrediction, MixPrediction
from advisor.report import format as units
from advisor.report.format import words_of
from advisor.sharing import Arrangement, Hybrid, SharedPartition, Sharing
from advisor.sharing.groups import instance_sets, memories, restricted, running_together
from advisor.simulation.simulate import SimulatedJob, Simulation, Usage


@dataclass(frozen=True, slots=True)
class InstanceSpot:
    """A MIG instance with the starts of its memory and, in the order of memory, of its SMs."""

    profile: MigProfile
    start_mib: float
    first_sm: float
    sms: float


@dataclass(frozen=True, slots=True)
class Spot:
    """Place of one job on the GPU.

    Attributes:
        start_mib: Start of its memory.
        first_sm: The first of the SMs that it may use, which end at `end_sm`.
        hint: Tooltip: the SMs that the job may use.
        cut: The MIG instance that it is on; None without MIG.
    """

    start_mib: float
    first_sm: float
    end_sm: float
    hint: str
    cut: InstanceSpot | None = None


def spots_of(mix: MixPrediction, gpu: Gpu) -> list[Spot]:
    """Return the spot of each job, in order; groups of phases are placed one by one."""
    sets = [list(range(len(mix.jobs)))]
    if mix.sharing.mode == "phases":
        sets = running_together(mix.sharing, len(mix.jobs))
    spots: dict[int, Spot] = {}
    for group in map(sorted, sets):
        sharing = restricted(mix.sharing, group)
        held_mib = [mix.jobs[job].memory_mib for job in group]
        spots |= zip(group, _spots_at_once(sharing, held_mib, gpu), strict=True)
    return [spots[job] for job in sorted(spots)]


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
            ends, hints = [whole] * jobs, ["all SMs, time-sliced"] * jobs
        case "mps":
            ends, hints = [whole] * jobs, ["all SMs that the others leave free"] * jobs
        case _:
            assert_never(sharing.mode)
    starts_mib = [0.0] * jobs  # in an arbitrary order
    for memory in memories(sharing, jobs):
        numbers = [number for part in memory for number in part.jobs]
        before_mib = accumulate((held_mib[number - 1] for number in numbers), initial=0.0)
        for number, start_mib in zip(numbers, before_mib, strict=False):
            starts_mib[number - 1] = start_mib
    spans = zip(starts_mib, ends, hints, strict=True)
    return [Spot(start_mib, 0.0, end, hint) for start_mib, end, hint in spans]


def _spots_on_instances(hybrid: Hybrid, held_mib: Sequence[float], gpu: Gpu) -> list[Spot]:
    spots: dict[int, Spot] = {}
    for instance, cut in zip(hybrid.places, _cuts(hybrid, gpu), strict=True):
        held = (held_mib[number - 1] for number in instance.jobs)
        starts_mib = dict(zip(instance.jobs, accumulate(held, initial=cut.start_mib), strict=False))
        left = cut.first_sm
        for part in instance.partitions:
            name, slices = cut.profile.name, part.slices or cut.profile.compute_slices
            right = left + cut.sms * slices / cut.profile.compute_slices
            whole = name if part.slices is None else f"{part.slices}c of {name}"
            shared = "" if len(part.jobs) == 1 else f", shared by {len(part.jobs)} jobs"
            hint = f"the {right - left:.0f} SMs of its {whole}{shared}"
            spots |= {job: Spot(starts_mib[job], left, right, hint, cut) for job in part.jobs}
            left = right
    return [spots[number] for number in sorted(spots)]


def _cuts(hybrid: Hybrid, gpu: Gpu) -> list[InstanceSpot]:
    """The instance of each place; unknown SMs follow from its share of the memory."""
    slice_mib = gpu.memory_mib / gpu.memory_slices
    placed = place(gpu, hybrid.instances)
    starts = [each.start or 0 for each in placed]
    cuts: dict[int, InstanceSpot] = {}
    left = 0.0
    for index in sorted(range(len(starts)), key=starts.__getitem__):
        profile = profile_of(gpu, placed[index].profile)
        sms = profile.sms or gpu.sms * profile.memory_slices / gpu.memory_slices
        cuts[index] = InstanceSpot(profile, starts[index] * slice_mib, left, sms)
        left += sms
    return [cuts[index] for index in sorted(cuts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of memory, SMs or time in the row of one job.

    Attributes:
        row: Number and name of the job, e.g. ``"2 · resnet26-cifar10-bs128"``, or of several
            copies, e.g. ``"2-41 · resnet26-cifar10-bs128 x40"``.
        job: The job's name, equal for copies.
        kind: ``"job"``: its share of the GPU; ``"instance"``: its MIG instance; or its state in
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
        caption: Meaning of the drawing, in a sentence.
    """

    rows: tuple[str, ...]
    memory: tuple[Bar, ...]
    sms: tuple[Bar, ...]
    memory_gib: float
    sm_count: int
    caption: str

    @property
    def used_gib(self) -> float:
        """Right end of the memory panel's bars and intervals."""
        return max(bar.end if bar.end_high is None else bar.end_high for bar in self.memory)


def drawing(mix: MixPrediction, gpu: Gpu) -> Drawing:
    """Draw the jobs of `mix` in `gpu`, to scale.

    Raises:
        NothingFits: A MIG instance has no place on `gpu`.
    """
    placed: list[_Placed] = []  # consecutive copies in the same place as one
    for number, (job, spot) in enumerate(zip(mix.jobs, spots_of(mix, gpu), strict=True), start=1):
        more = placed[-1].with_copy(job, spot) if placed else None
        if more is not None:
            placed[-1] = more
        else:
            placed.append(_Placed(number, job, spot))
    return Drawing(
        rows=tuple(each.row for each in placed),
        memory=(*_frames(placed, of_memory=True), *map(_memory_bar, placed)),
        sms=(
            *_frames(placed, of_memory=False),
            *(
                Bar(
                    row=each.row, job=each.job.job, kind="job", start=each.spot.first_sm,
                    end=each.spot.end_sm, hint=each.spot.hint,
                )
                for each in placed
            ),
        ),
        memory_gib=gpu.memory_mib / units.MIB_PER_GIB,
        sm_count=gpu.sms,
        caption=words_of(mix.sharing).caption,
    )  # fmt: skip


def row_name(first: int, job: str, copies: int = 1) -> str:
    """Return the row's name of `copies` of `job`, the first of which has the number `first`."""
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

    def with_copy(self, job: JobPrediction, spot: Spot) -> "_Placed | None":
        """The same with one more copy; None if `job` is another one, or is in another place."""
        equal = (job.job, job.memory_interval_mib) == (self.job.job, self.job.memory_interval_mib)
        if not equal or replace(spot, start_mib=self.spot.start_mib) != self.spot:
            return None
        after_mib = spot.start_mib - self.spot.start_mib
        at_once = isclose(after_mib, self.copies * job.memory_mib, rel_tol=1e-9)
        if not (at_once or after_mib == 0) or (self.copies > 1 and at_once != self.at_once):
            return None
        return replace(self, copies=self.copies + 1, at_once=at_once)


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
    adjacent = placed.copies if placed.at_once else 1  # copies whose memory adds up
    range_mib = each_mib.scaled(adjacent)
    each = "takes" if placed.copies == 1 else "each takes"
    together = f", together {units.gib(range_mib)}" if placed.at_once else ""
    return Bar(
        row=placed.row,
        job=job.job,
        kind="job",
        start=start_mib / units.MIB_PER_GIB,
        end=(start_mib + adjacent * job.memory_mib) / units.MIB_PER_GIB,
        end_low=(start_mib + range_mib.p05) / units.MIB_PER_GIB,
        end_high=(start_mib + range_mib.p95) / units.MIB_PER_GIB,
        hint=f"{each} {units.gib(each_mib)}{together}",
    )


@dataclass(frozen=True, slots=True)
class CurveReading:
    """Value of a curve while the same jobs run; None: not measured."""

    start: float
    end: float
    value: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity of the GPU over time.

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
        rows: A row for each job, or for copies with equal times, from the top.
        spans: Bars of waiting and running, in `unit`.
        end: Right end of the drawing: the upper end of the makespan.
    """

    unit: str
    rows: tuple[str, ...]
    spans: tuple[Bar, ...]
    curves: tuple[Curve, ...]
    end: float


def timeline(simulation: Simulation, gpu: Gpu) -> Timeline:
    """Draw the jobs of `simulation`, all of which run on one `gpu`."""
    rows, first = [], 1
    for _, equal in groupby(simulation.jobs, _fate):  # copies share a row
        copies = list(equal)
        rows.append((row_name(first, copies[0].job.name, len(copies)), copies[0]))
        first += len(copies)
    makespan_s = simulation.makespan_s
    return in_rows(rows, makespan_s, _curves(simulation, gpu, units.time_unit(makespan_s.p50)[1]))


def _fate(run: SimulatedJob) -> tuple[str, float, float, str]:
    return run.job.name, run.arrival_s, run.start_s, units.seconds(run.end_s)


def in_rows(
    jobs: Sequence[tuple[str, SimulatedJob]], makespan_s: Interval, curves: tuple[Curve, ...] = ()
) -> Timeline:
    """Draw jobs, each in the named row."""
    unit, size_s = units.time_unit(makespan_s.p50)
    waits = (
        Bar(
            row=row, job=each.job.name, kind="waits",
            start=each.arrival_s / size_s, end=each.start_s / size_s,
            hint=f"waits {units.duration(each.wait_s)}",
        )
        for row, each in jobs if each.wait_s > 0
    )  # fmt: skip
    runs = (
        Bar(
            row=row, job=each.job.name, kind="runs",
            start=each.start_s / size_s, end=each.end_s.p50 / size_s,
            end_low=each.end_s.p05 / size_s, end_high=each.end_s.p95 / size_s,
            hint=f"ends after {units.seconds(each.end_s)}",
        )
        for row, each in jobs
    )  # fmt: skip
    return Timeline(
        unit=unit, rows=tuple(row for row, _ in jobs), spans=(*waits, *runs), curves=curves,
        end=makespan_s.p95 / size_s,
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
        curve("GPU busy, %", 100.0, lambda use: None if use.gract is None else 100 * use.gract),
        curve("SMs busy, %", 100.0, lambda use: None if use.smact is None else 100 * use.smact),
        curve("memory, GiB", peak_gib, lambda use: use.memory_mib / units.MIB_PER_GIB),
        curve("power, W", peak_w if most_w is None else most_w, lambda use: use.power_w),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A MIG instance, a compute instance inside one, or a free slice.

    Attributes:
        row: Title of the blocks of one row.
        start: Left end, in memory slices from the first; a part of an instance lies in its share.
        end: Right end, in the same unit.
        label: Its profile and its jobs.
        jobs: Numbers of the jobs that have all of it.
    """

    row: str
    start: float
    end: float
    label: str
    kind: Literal["instance", "compute instance", "free"]
    jobs: tuple[int, ...] = ()


def blocks(sharing: Sharing, gpu: Gpu) -> tuple[Block, ...]:
    """Return all blocks of `sharing`, one set of instances after another; none without MIG.

    Raises:
        NothingFits: An instance has no place on `gpu`.
    """
    sets = instance_sets(sharing)
    names = ["GPU"] if len(sets) == 1 else [f"set {number}" for number in range(1, len(sets) + 1)]
    return tuple(
        block for name, each in zip(names, sets, strict=True) for block in _blocks(name, each, gpu)
    )


def _blocks(name: str, hybrid: Hybrid, gpu: Gpu) -> Iterator[Block]:
    row, inside = f"{name}: instances", f"{name}: inside"
    free = set(range(gpu.memory_slices))
    for instance, divided in zip(place(gpu, hybrid.instances), hybrid.places, strict=True):
        profile, first = profile_of(gpu, instance.profile), instance.start or 0
        size = profile.memory_slices
        free -= set(range(first, first + size))
        whole = [part for part in divided.partitions if part.slices is None]
        yield Block(
            row=row, start=first, end=first + size,
            label=instance.profile + "".join(f": {_jobs_on(part)}" for part in whole),
            kind="instance", jobs=tuple(job for part in whole for job in part.jobs),
        )  # fmt: skip
        whole_slices, left = profile.compute_slices, 0  # compute instances share the memory
        for part in divided.partitions:
            if part.slices is None:
                break
            start, left = left, left + part.slices
            yield Block(
                row=inside, start=first + size * start / whole_slices,
                end=first + size * left / whole_slices,
                label=f"{part.slices}c: {_jobs_on(part)}", kind="compute instance", jobs=part.jobs,
            )  # fmt: skip
    for at in sorted(free):
        yield Block(row=row, start=at, end=at + 1, label="free", kind="free")


def _jobs_on(part: SharedPartition) -> str:
    if len(part.jobs) == 1:
        return f"job {part.jobs[0]}"
    return f"jobs {', '.join(map(str, part.jobs))} by {part.sharing}"
