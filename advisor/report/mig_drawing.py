"""The layout of MIG instances for drawing: memory by memory slices, SMs side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.mig_layouts import place, profile_of
from advisor.sharing import (
    Arrangement,
    Hybrid,
    Place,
    SharedPartition,
    Sharing,
)
from advisor.sharing.traversal import instance_sets


@dataclass(frozen=True, slots=True)
class DrawnInstance:
    """One GPU instance.

    Attributes:
        start_mib: Where its memory begins.
        first_sm: Where its SMs begin, in the order of memory.
    """

    profile: MigProfile
    start_mib: float
    first_sm: float
    sms: float

    @property
    def memory_mib(self) -> float:
        return self.profile.memory_mib

    @property
    def hint(self) -> str:
        return f"{self.profile.name}: {self.profile.memory_mib:,} MiB, {self.sms:.0f} SMs"


def cuts(hybrid: Hybrid, gpu: Gpu) -> list[DrawnInstance]:
    """The instance of each place of `hybrid`.

    Raises:
        NothingFits: One has no place on `gpu`.
    """
    slice_mib = gpu.memory_mib / gpu.memory_slices
    placed = place(gpu, hybrid.instances)
    starts = [each.start or 0 for each in placed]
    profiles = [profile_of(gpu, each.profile) for each in placed]
    firsts: dict[int, float] = {}
    left = 0.0
    for index in sorted(range(len(starts)), key=starts.__getitem__):
        firsts[index] = left
        left += _sms_of(profiles[index], gpu)
    return [
        DrawnInstance(profile, start * slice_mib, firsts[index], _sms_of(profile, gpu))
        for index, (profile, start) in enumerate(zip(profiles, starts, strict=True))
    ]


def cuts_of_jobs(sharing: Arrangement, gpu: Gpu, jobs: int) -> Sequence[DrawnInstance | None]:
    """The instance that each of `jobs` jobs is on; None without MIG."""
    for instances in instance_sets(sharing):
        pairs = zip(instances.places, cuts(instances, gpu), strict=True)
        found = {job: cut for each, cut in pairs for job in each.jobs}
        return [found[job] for job in sorted(found)]
    return [None] * jobs


def sms_on_instances(hybrid: Hybrid, gpu: Gpu) -> list[tuple[float, float, str]]:
    """The SMs that each job may use, from where to where, and a hint, in the jobs' order."""
    found: dict[int, tuple[float, float, str]] = {}
    for each, cut in zip(hybrid.places, cuts(hybrid, gpu), strict=True):
        left = cut.first_sm
        for part in each.partitions:
            slices = part.slices or cut.profile.compute_slices
            right = left + cut.sms * slices / cut.profile.compute_slices
            mates = "" if len(part.jobs) == 1 else f", shared by {len(part.jobs)} jobs"
            hint = f"the {right - left:.0f} SMs of its {_name(part, cut)}{mates}"
            found |= dict.fromkeys(part.jobs, (left, right, hint))
            left = right
    return [found[job] for job in sorted(found)]


def _name(part: SharedPartition, cut: DrawnInstance) -> str:
    return cut.profile.name if part.slices is None else f"{part.slices}c of {cut.profile.name}"


def _sms_of(profile: MigProfile, gpu: Gpu) -> float:
    """SMs of an instance; its share of the memory slices if they are not known."""
    return profile.sms or gpu.sms * profile.memory_slices / gpu.memory_slices


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """An instance, what lies inside one, or what is left.

    Attributes:
        row: Title of the blocks side by side.
        start: Left end, in memory slices from the first; a part of an instance lies in its share.
        end: Right end, in the same unit.
        label: What it is called, and whose it is.
        kind: What it is.
    """

    row: str
    start: float
    end: float
    label: str
    kind: Literal["instance", "compute instance", "free"]


def blocks(sharing: Sharing, gpu: Gpu) -> tuple[Block, ...]:
    """All blocks of `sharing`, a set of instances after the other; none without MIG.

    Raises:
        NothingFits: An instance has no place on `gpu`.
    """
    sets = instance_sets(sharing)
    names = ["GPU"] if len(sets) == 1 else [f"set {number}" for number in range(1, len(sets) + 1)]
    return tuple(
        block for name, each in zip(names, sets, strict=True) for block in _blocks(name, each, gpu)
    )


def _blocks(name: str, hybrid: Hybrid, gpu: Gpu) -> Iterator[Block]:
    free = set(range(gpu.memory_slices))
    for instance, each in zip(place(gpu, hybrid.instances), hybrid.places, strict=True):
        first, size = instance.start or 0, profile_of(gpu, instance.profile).memory_slices
        free -= set(range(first, first + size))
        whole = [part for part in each.partitions if part.slices is None]
        whose = "".join(f": {_whose(part)}" for part in whole)
        yield Block(
            row=f"{name}: instances", start=first, end=first + size,
            label=f"{instance.profile}{whose}", kind="instance",
        )  # fmt: skip
        yield from _inside(f"{name}: inside", each, first, size, gpu)
    for slice_ in sorted(free):
        yield Block(
            row=f"{name}: instances", start=slice_, end=slice_ + 1, label="free", kind="free"
        )


def _inside(row: str, divided: Place, first: int, size: int, gpu: Gpu) -> Iterator[Block]:
    """The compute instances of an instance, side by side; they share its memory."""
    whole, left = profile_of(gpu, divided.instance.profile).compute_slices, 0
    for part in divided.partitions:
        if part.slices is None:
            return
        start, left = left, left + part.slices
        yield Block(
            row=row, start=first + size * start / whole, end=first + size * left / whole,
            label=f"{part.slices}c: {_whose(part)}", kind="compute instance",
        )  # fmt: skip


def _whose(part: SharedPartition) -> str:
    if len(part.jobs) == 1:
        return f"job {part.jobs[0]}"
    return f"jobs {', '.join(map(str, part.jobs))} by {part.sharing}"
