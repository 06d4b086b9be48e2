"""The cuts of a GPU into MIG instances, and of these into compute instances."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import layouts, profile_of
from advisor.hardware.partition import compute_sets
from advisor.plan.job_sets import PartitionKind
from advisor.sharing import Instance

_Parts = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """One way to cut a GPU into instances, and some into parts of so many compute slices."""

    instances: tuple[Instance, ...]
    parts: tuple[_Parts, ...]

    @cached_property
    def places(self) -> tuple[PartitionKind | tuple[PartitionKind, ...], ...]:
        """The kind of each instance, or of each part of it."""
        return tuple(
            tuple(PartitionKind(instance.profile, part) for part in parts)
            or PartitionKind(instance.profile)
            for instance, parts in zip(self.instances, self.parts, strict=True)
        )

    @property
    def partitions(self) -> tuple[PartitionKind, ...]:
        """The kind of each partition, those of one instance next to each other."""
        return tuple(
            part
            for each in self.places
            for part in ([each] if isinstance(each, PartitionKind) else each)
        )

    @cached_property
    def instance_at(self) -> tuple[int, ...]:
        """Index of the instance of each partition, shape (partitions,)."""
        return tuple(at for at, parts in enumerate(self.parts) for _ in parts or (None,))


def cuts(gpu: Gpu) -> tuple[Cut, ...]:
    """Return the cuts of `gpu` that leave no room for an instance; of symmetric ones, one."""
    slices = {each.name: each.compute_slices for each in gpu.mig}

    def place(pair: tuple[Instance, _Parts]) -> tuple[int, str, _Parts, int]:
        instance, parts = pair
        return -slices[instance.profile], instance.profile, parts, instance.start or 0

    distinct: dict[tuple[tuple[str, _Parts], ...], Cut] = {}
    for layout in layouts(gpu):
        divisions = (
            [(), *(own for own in compute_sets(gpu, each.profile) if len(own) > 1)]
            for each in layout
        )
        for chosen in product(*divisions):
            pairs = sorted(zip(layout, chosen, strict=True), key=place)
            cut = Cut(tuple(each for each, _ in pairs), tuple(own for _, own in pairs))
            distinct.setdefault(tuple((each.profile, own) for each, own in pairs), cut)
    return tuple(distinct.values())


def cut_into(gpu: Gpu, names: Sequence[str]) -> Cut:
    """Return the cut of `gpu` into undivided instances of these profiles."""
    largest = sorted(names, key=lambda name: -profile_of(gpu, name).compute_slices)
    return Cut(tuple(map(Instance, largest)), ((),) * len(largest))
