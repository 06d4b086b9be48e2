"""How MIG cuts up a GPU, as blocks: each where it lies and whose it is, and what is left."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from advisor.hardware.catalogue import Gpu
from advisor.hardware.mig_layouts import place, profile_of
from advisor.sharing import Hybrid, Place, SharedPartition, Sharing
from advisor.sharing.traversal import instance_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """An instance, what lies inside one, or what is left.

    Attributes:
        row: Title of the blocks side by side.
        start: Left end, in memory slices from the first; a part of an instance lies in its share.
        end: Right end, in the same unit.
        label: What it is called, and whose it is.
        kind: What it is.
        jobs: Numbers of those that have all of it.
    """

    row: str
    start: float
    end: float
    label: str
    kind: Literal["instance", "compute instance", "free"]
    jobs: tuple[int, ...] = ()


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
            jobs=tuple(job for part in whole for job in part.jobs),
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
            jobs=part.jobs,
        )  # fmt: skip


def _whose(part: SharedPartition) -> str:
    if len(part.jobs) == 1:
        return f"job {part.jobs[0]}"
    return f"jobs {', '.join(map(str, part.jobs))} by {part.sharing}"
