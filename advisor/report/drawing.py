"""The jobs of a plan in the memory and the SMs of a GPU, to scale, as values that charts draw.

Each job has a row; copies next to each other share one. One panel shows memory, the other the SMs
that a job may use, both framed by its MIG instance if it has one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from math import isclose
from typing import Literal

from advisor.hardware.gpus import Gpu, MigProfile
from advisor.hardware.mig import place, profile_of
from advisor.hardware.partition import limit_shares
from advisor.prediction.prediction import JobPrediction, MixPrediction
from advisor.report import format as units
from advisor.report.format import words_of
from advisor.report.simulation import Bar, row_name
from advisor.sharing import Arrangement, Hybrid, SharedPartition, Sharing
from advisor.sharing.groups import instance_sets, memories, restricted, sets_in_turn


@dataclass(frozen=True, slots=True)
class Spot:
    """Place of a job, or of a MIG instance, in the GPU's memory and SMs.

    Attributes:
        frame: The MIG instance that a job is on; None without MIG.
    """

    start_mib: float
    size_mib: float
    first_sm: float
    end_sm: float
    hint: str
    frame: "Spot | None" = None

    @property
    def end_mib(self) -> float:
        return self.start_mib + self.size_mib


def _spots(mix: MixPrediction, gpu: Gpu) -> list[Spot]:
    """The spot of each job, in order; groups of phases are placed one by one.

    Every so many jobs of a queue have one place, as large as the largest of them.
    """
    spots: dict[int, Spot] = {}
    for run, at_once in sets_in_turn(mix.sharing, len(mix.jobs)):
        group = sorted(run)
        held_mib = [mix.jobs[job].memory_mib for job in group]
        own = _spots_at_once(restricted(mix.sharing, group), held_mib, gpu)
        spots |= zip(group, own, strict=True)
        start_mib = 0.0
        for lane in range(at_once if at_once < len(run) else 0):
            followers = run[lane::at_once]
            spots |= {job: replace(spots[job], start_mib=start_mib) for job in followers}
            start_mib += max(spots[job].size_mib for job in followers)
    return [spots[job] for job in sorted(spots)]


_ALL_SMS = {
    "serial": "all SMs, one job after another",
    "naive": "all SMs, time-sliced",
    "mps": "all SMs that the others leave free",
}


def _spots_at_once(sharing: Arrangement, held_mib: Sequence[float], gpu: Gpu) -> list[Spot]:
    if sharing.instances:
        (hybrid,) = instance_sets(sharing)
        return _spots_on_instances(hybrid, held_mib, gpu)
    if sharing.limits:
        ends = [gpu.sms * each for each in limit_shares(sharing.limits, gpu.sms)]
        hints = [f"at most {cap:g} % of the SMs" for cap in sharing.limits]
    else:
        ends = [float(gpu.sms)] * len(held_mib)
        hints = [_ALL_SMS[sharing.mode]] * len(held_mib)
    spots: dict[int, Spot] = {}
    for memory in memories(sharing, len(held_mib)):
        start_mib = 0.0
        for job in [number - 1 for part in memory for number in part.jobs]:
            spots[job] = Spot(start_mib, held_mib[job], 0.0, ends[job], hints[job])
            start_mib += held_mib[job]
    return [spots[job] for job in sorted(spots)]


def _spots_on_instances(hybrid: Hybrid, held_mib: Sequence[float], gpu: Gpu) -> list[Spot]:
    spots: dict[int, Spot] = {}
    for instance, (profile, frame) in zip(hybrid.places, _frames(hybrid, gpu), strict=True):
        start_mib, left = frame.start_mib, frame.first_sm
        for part in instance.partitions:
            slices, name = profile.compute_slices, profile.name
            right = left + (frame.end_sm - frame.first_sm) * (part.slices or slices) / slices
            whole = name if part.slices is None else f"{part.slices}c of {name}"
            shared = "" if len(part.jobs) == 1 else f", shared by {len(part.jobs)} jobs"
            hint = f"the {right - left:.0f} SMs of its {whole}{shared}"
            for job in part.jobs:
                spots[job] = Spot(start_mib, held_mib[job - 1], left, right, hint, frame)
                start_mib += held_mib[job - 1]
            left = right
    return [spots[number] for number in sorted(spots)]


def _frames(hybrid: Hybrid, gpu: Gpu) -> list[tuple[MigProfile, Spot]]:
    """The instance of each place; unknown SMs follow from its share of the memory."""
    slice_mib = gpu.memory_mib / gpu.memory_slices
    placed = place(gpu, hybrid.instances)
    frames: dict[int, tuple[MigProfile, Spot]] = {}
    left = 0.0
    for index in sorted(range(len(placed)), key=lambda index: placed[index].start or 0):
        profile, start = profile_of(gpu, placed[index].profile), placed[index].start or 0
        sms = profile.sms or gpu.sms * profile.memory_slices / gpu.memory_slices
        hint = f"{profile.name}: {profile.memory_mib:,} MiB, {sms:.0f} SMs"
        spot = Spot(start * slice_mib, profile.memory_mib, left, left + sms, hint)
        frames[index] = profile, spot
        left += sms
    return [frames[index] for index in sorted(frames)]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Rows and bars of one plan: memory in GiB from 0 to `memory_gib`, SMs from 0 to `sm_count`."""

    rows: Sequence[str]
    memory: Sequence[Bar]
    sms: Sequence[Bar]
    memory_gib: float
    sm_count: int
    caption: str

    @property
    def used_gib(self) -> float:
        """Right end of the memory panel's bars and intervals."""
        return max(bar.end if bar.end_high is None else bar.end_high for bar in self.memory)


_Copies = list[tuple[JobPrediction, Spot]]
"""A job, or consecutive copies of it in one place, which are drawn as one."""


def drawing(mix: MixPrediction, gpu: Gpu) -> Drawing:
    """Draw the jobs of `mix` in `gpu`, to scale."""
    placed: list[_Copies] = []
    for pair in zip(mix.jobs, _spots(mix, gpu), strict=True):
        if placed and _goes_on(placed[-1], *pair):
            placed[-1].append(pair)
        else:
            placed.append([pair])
    rows: list[str] = []
    memory: list[Bar] = []
    sms: list[Bar] = []
    first = 1
    for copies in placed:
        job, spot = copies[0]
        row, first = row_name(first, job.job, len(copies)), first + len(copies)
        if (frame := spot.frame) is not None:
            start, end = frame.start_mib / units.MIB_PER_GIB, frame.end_mib / units.MIB_PER_GIB
            memory.append(Bar(row, job.job, "instance", start, end, frame.hint))
            sms.append(Bar(row, job.job, "instance", frame.first_sm, frame.end_sm, frame.hint))
        rows.append(row)
        memory.append(_memory_bar(row, copies))
        sms.append(Bar(row, job.job, "job", spot.first_sm, spot.end_sm, spot.hint))
    memory_gib, caption = gpu.memory_mib / units.MIB_PER_GIB, words_of(mix.sharing).caption
    return Drawing(rows, memory, sms, memory_gib, gpu.sms, caption)


def _goes_on(copies: _Copies, job: JobPrediction, spot: Spot) -> bool:
    """Check whether `job` is one more copy in the same place, at the same time or after them."""
    first, its = copies[0]
    equal = (job.job, job.memory_interval_mib) == (first.job, first.memory_interval_mib)
    if not equal or replace(spot, start_mib=its.start_mib) != its:
        return False
    if spot.start_mib == its.start_mib:
        return len(copies) == 1 or not _at_once(copies)
    stacked = isclose(spot.start_mib - its.start_mib, len(copies) * job.memory_mib, rel_tol=1e-9)
    return stacked and (len(copies) == 1 or _at_once(copies))


def _at_once(copies: _Copies) -> bool:
    """Check whether copies hold memory at the same time, not one after another."""
    return copies[0][1].start_mib < copies[-1][1].start_mib


def _memory_bar(row: str, copies: _Copies) -> Bar:
    (job, spot), each_mib = copies[0], copies[0][0].memory_interval_mib
    adjacent = len(copies) if _at_once(copies) else 1  # copies whose memory adds up
    range_mib = each_mib.scaled(adjacent)
    hint = f"{'takes' if len(copies) == 1 else 'each takes'} {units.gib(each_mib)}"
    hint += f", together {units.gib(range_mib)}" if adjacent > 1 else ""
    sizes_mib = (0.0, adjacent * job.memory_mib, range_mib.p05, range_mib.p95)
    start, end, low, high = ((spot.start_mib + size) / units.MIB_PER_GIB for size in sizes_mib)
    return Bar(row, job.job, "job", start, end, hint, low, high)


@dataclass(frozen=True, slots=True)
class Block:
    """A MIG instance, a compute instance inside one, or a free slice.

    Attributes:
        start: Left end, in memory slices from the first; a part of an instance lies in its share.
        jobs: Numbers of the jobs that have all of it.
    """

    row: str
    start: float
    end: float
    label: str
    kind: Literal["instance", "compute instance", "free"]
    jobs: tuple[int, ...] = ()


def blocks(sharing: Sharing, gpu: Gpu) -> tuple[Block, ...]:
    """Return all blocks of `sharing`, one set of instances after another; none without MIG."""
    sets = instance_sets(sharing)
    names = ["GPU"] if len(sets) == 1 else [f"set {number}" for number in range(1, len(sets) + 1)]
    return tuple(chain.from_iterable(map(_blocks, names, sets, repeat(gpu))))


def _blocks(name: str, hybrid: Hybrid, gpu: Gpu) -> Iterator[Block]:
    row, inside = f"{name}: instances", f"{name}: inside"
    free = set(range(gpu.memory_slices))
    for instance, divided in zip(place(gpu, hybrid.instances), hybrid.places, strict=True):
        profile, first = profile_of(gpu, instance.profile), instance.start or 0
        size, left = profile.memory_slices, 0  # compute instances share the memory
        free -= set(range(first, first + size))
        whole = [part for part in divided.partitions if part.slices is None]
        label = instance.profile + "".join(f": {_jobs_on(part)}" for part in whole)
        jobs = tuple(job for part in whole for job in part.jobs)
        yield Block(row, first, first + size, label, "instance", jobs)
        for part in divided.partitions:
            if part.slices is not None:
                start = first + size * left / profile.compute_slices
                left += part.slices
                end = first + size * left / profile.compute_slices
                label = f"{part.slices}c: {_jobs_on(part)}"
                yield Block(inside, start, end, label, "compute instance", part.jobs)
    for at in sorted(free):
        yield Block(row, at, at + 1, "free", "free")


def _jobs_on(part: SharedPartition) -> str:
    if len(part.jobs) == 1:
        return f"job {part.jobs[0]}"
    return f"jobs {', '.join(map(str, part.jobs))} by {part.sharing}"
