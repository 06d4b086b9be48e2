"""The bars of a drawing of a GPU with its jobs, to scale, for text and charts.

Each job has a row. One panel shows its memory, the other the SMs that it may use, both with the
MIG instance around them if there is one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, assert_never

from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.gpu_partition import limit_shares
from advisor.hardware.mig_layouts import place, profile_of
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.report import units
from advisor.sharing import Arrangement, Hybrid, Mode, Sharing
from advisor.sharing.traversal import instance_sets, memories, restricted, running_together

_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of memory, of SMs or of time on the row of one job.

    Attributes:
        row: Names the job and tells copies apart, e.g. ``"2 · resnet26-cifar10-bs128"``.
        job: Its name, the same for copies.
        kind: ``"job"``: what the job takes; ``"instance"``: the MIG instance it is in; or what it
            does in that time.
        start: Left end, in GiB, SMs or a unit of time.
        end: Right end, in the same unit.
        end_low: Where the right end may lie at least; None if it is certain.
        end_high: Upper end of the interval of the right end.
        hint: One line on what this is.
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
        rows: One for each job, in order, from the top.
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


def drawing(mix: MixPrediction, gpu: Gpu) -> Drawing:
    """The jobs of `mix` in `gpu`, to scale.

    Raises:
        NothingFits: A MIG instance has no place on `gpu`.
    """
    rows = row_names([job.job for job in mix.jobs])
    placed = list(zip(rows, mix.jobs, _spots(mix, gpu), strict=True))
    return Drawing(
        rows=rows,
        memory=(*_frames(placed, of_memory=True), *(_memory_bar(*each) for each in placed)),
        sms=(*_frames(placed, of_memory=False), *(_sm_bar(*each) for each in placed)),
        memory_gib=gpu.memory_mib / _MIB_PER_GIB,
        sm_count=gpu.sms,
        caption=_caption(mix.sharing),
    )


def row_names(jobs: Sequence[str]) -> tuple[str, ...]:
    """What the row of each of `jobs` is called, which tells copies apart."""
    return tuple(f"{number} · {job}" for number, job in enumerate(jobs, start=1))


@dataclass(frozen=True, slots=True)
class _Cut:
    """A MIG instance: where its memory begins, and where its SMs begin in the order of memory."""

    profile: MigProfile
    start_mib: float
    first_sm: float
    sms: float


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where one job lies.

    Attributes:
        start_mib: Where its memory begins.
        first_sm: The first of the SMs that it may use, which end at `end_sm`.
        hint: What is said of these.
        cut: The instance that it is on; None without MIG.
    """

    start_mib: float
    first_sm: float
    end_sm: float
    hint: str
    cut: _Cut | None = None


def _spots(mix: MixPrediction, gpu: Gpu) -> list[_Spot]:
    """The spot of each job, in order; of phases, of one group of jobs after another."""
    sets = [list(range(len(mix.jobs)))]
    if mix.sharing.mode == "phases":
        sets = running_together(mix.sharing, len(mix.jobs))
    found: dict[int, _Spot] = {}
    for group in map(sorted, sets):
        sharing = restricted(mix.sharing, group)
        held_mib = [mix.jobs[job].memory_mib for job in group]
        found |= zip(group, _spots_at_once(sharing, held_mib, gpu), strict=True)
    return [found[job] for job in sorted(found)]


def _spots_at_once(sharing: Arrangement, held_mib: Sequence[float], gpu: Gpu) -> list[_Spot]:
    jobs, whole = len(held_mib), float(gpu.sms)
    match sharing.mode:
        case "mig" | "hybrid" | "phases":
            (instances,) = instance_sets(sharing)
            return _spots_on_instances(instances, held_mib, gpu)
        case "mps-limits":
            ends = [whole * each for each in limit_shares(sharing.limits, gpu.sms)]
            hints = [f"at most {cap:g} % of the SMs" for cap in sharing.limits]
        case "mps-priority":
            shares = limit_shares(sharing.limits, gpu.sms) or [1.0] * jobs
            ends = [whole * each for each in shares]
            hints = ["SMs after" if late else "SMs before" for late in sharing.priorities]
            hints = [f"{hint} the jobs of the other priority" for hint in hints]
        case "serial":
            ends, hints = [whole] * jobs, ["all SMs, one job after another"] * jobs
        case "naive":
            ends, hints = [whole] * jobs, ["all SMs, in turns"] * jobs
        case "mps":
            ends, hints = [whole] * jobs, ["whatever SMs the others leave free"] * jobs
        case _:
            assert_never(sharing.mode)
    spans = zip(_memory_starts(sharing, held_mib), ends, hints, strict=True)
    return [_Spot(start_mib, 0.0, end, hint) for start_mib, end, hint in spans]


def _memory_starts(sharing: Arrangement, held_mib: Sequence[float]) -> list[float]:
    """Where each job's memory begins, MiB; without MIG the order says nothing."""
    starts = [0.0] * len(held_mib)
    for memory in memories(sharing, len(held_mib)):
        numbers = [number for part in memory for number in part.jobs]
        before_mib = accumulate((held_mib[number - 1] for number in numbers), initial=0.0)
        for number, start_mib in zip(numbers, before_mib, strict=False):
            starts[number - 1] = start_mib
    return starts


def _spots_on_instances(hybrid: Hybrid, held_mib: Sequence[float], gpu: Gpu) -> list[_Spot]:
    found: dict[int, _Spot] = {}
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
            found |= {job: _Spot(starts_mib[job], left, right, hint, cut) for job in part.jobs}
            left = right
    return [found[number] for number in sorted(found)]


def _cuts(hybrid: Hybrid, gpu: Gpu) -> list[_Cut]:
    """The instance of each place; its SMs by its share of the memory where they are not known."""
    slice_mib = gpu.memory_mib / gpu.memory_slices
    placed = place(gpu, hybrid.instances)
    starts = [each.start or 0 for each in placed]
    found: dict[int, _Cut] = {}
    left = 0.0
    for index in sorted(range(len(starts)), key=starts.__getitem__):
        profile = profile_of(gpu, placed[index].profile)
        sms = profile.sms or gpu.sms * profile.memory_slices / gpu.memory_slices
        found[index] = _Cut(profile, starts[index] * slice_mib, left, sms)
        left += sms
    return [found[index] for index in sorted(found)]


_Placed = tuple[str, JobPrediction, _Spot]


def _frames(placed: Sequence[_Placed], *, of_memory: bool) -> Iterator[Bar]:
    """The outlines of the MIG instances in one of the panels; none without MIG."""
    for row, job, spot in placed:
        if (cut := spot.cut) is None:
            continue
        start, length = cut.first_sm, cut.sms
        if of_memory:
            start, length = cut.start_mib / _MIB_PER_GIB, cut.profile.memory_mib / _MIB_PER_GIB
        yield Bar(
            row=row, job=job.job, kind="instance", start=start, end=start + length,
            hint=f"{cut.profile.name}: {cut.profile.memory_mib:,} MiB, {cut.sms:.0f} SMs",
        )  # fmt: skip


def _memory_bar(row: str, job: JobPrediction, spot: _Spot) -> Bar:
    range_mib = job.memory_interval_mib
    return Bar(
        row=row,
        job=job.job,
        kind="job",
        start=spot.start_mib / _MIB_PER_GIB,
        end=(spot.start_mib + job.memory_mib) / _MIB_PER_GIB,
        end_low=(spot.start_mib + range_mib.p05) / _MIB_PER_GIB,
        end_high=(spot.start_mib + range_mib.p95) / _MIB_PER_GIB,
        hint=f"takes {units.gib(range_mib)}",
    )


def _sm_bar(row: str, job: JobPrediction, spot: _Spot) -> Bar:
    return Bar(
        row=row, job=job.job, kind="job", start=spot.first_sm, end=spot.end_sm, hint=spot.hint
    )


_SIDE_BY_SIDE: dict[Mode, str] = {
    "mps": "the jobs run side by side on whatever SMs are free.",
    "mps-limits": "a limit is a cap, so the jobs' SMs may overlap.",
    "mps-priority": "SMs that come free go to jobs of priority 0 first.",
}


def _caption(sharing: Sharing) -> str:
    match sharing.mode:
        case "serial":
            said = "One job at a time: each has all memory and all SMs to itself."
        case "naive":
            said = "Memory adds up; the jobs take turns on all SMs."
        case "mps" | "mps-limits" | "mps-priority":
            said = f"Memory adds up; {_SIDE_BY_SIDE[sharing.mode]}"
        case "mig":
            said = "Each job has memory and SMs of its own; the frame is its MIG instance."
        case "hybrid":
            said = "Jobs on one MIG instance share what it has; the frame is the instance."
        case "phases":
            said = "One group of jobs at a time: each group has all memory and all SMs to itself."
        case _:
            assert_never(sharing.mode)
    return said
