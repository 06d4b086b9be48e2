"""What has SMs of its own, and the ways to cut a GPU into it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

from advisor.hardware.catalogue import Gpu
from advisor.hardware.compute_instances import compute_sets
from advisor.hardware.mig_layouts import layouts, profile_of
from advisor.sharing import (
    Arrangement,
    Compute,
    Divided,
    Hybrid,
    Instance,
    Mps,
    Naive,
    Slot,
)


@dataclass(frozen=True, slots=True)
class Room:
    """A GPU instance of `profile`, or so many `slices` of one; all None: the whole GPU."""

    profile: str | None = None
    slices: int | None = None

    def shared(self, jobs: int, sharing: Naive | Mps) -> Arrangement:
        """So many jobs in it under `sharing`, and nothing beside it."""
        if self.profile is None:
            return sharing
        numbers = tuple(range(1, jobs + 1))
        instance = Instance(self.profile)
        if self.slices is None:
            return Hybrid((Slot(instance, numbers, sharing),))
        return Hybrid((Divided(instance, (Compute(self.slices, numbers, sharing),)),))


WHOLE = Room()

_Parts = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """One way to cut a GPU up.

    Attributes:
        instances: GPU instances with their places.
        parts: Compute slices of each one's parts, the largest first; empty: it is whole.
    """

    instances: tuple[Instance, ...]
    parts: tuple[_Parts, ...]

    @cached_property
    def rooms(self) -> tuple[Room, ...]:
        """All of them, those of an instance next to each other."""
        return tuple(
            room
            for instance, parts in zip(self.instances, self.parts, strict=True)
            for room in _rooms(instance.profile, parts)
        )

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """Which instance each room lies in, shape (rooms,)."""
        return tuple(
            home for home, parts in enumerate(self.parts) for _ in range(max(1, len(parts)))
        )


def _rooms(profile: str, parts: Sequence[int]) -> list[Room]:
    return [Room(profile, part) for part in parts] or [Room(profile)]


def cuts(gpu: Gpu) -> tuple[Cut, ...]:
    """Every way to cut `gpu` up to which nothing can be added, up to symmetry."""
    names = dict.fromkeys(each.profile for layout in layouts(gpu) for each in layout)
    offered = tuple(
        (name, profile_of(gpu, name).compute_slices, tuple(_divisions(gpu, name))) for name in names
    )
    return _cuts(layouts(gpu), offered)


def _divisions(gpu: Gpu, profile: str) -> Iterator[_Parts]:
    yield ()
    yield from (each for each in compute_sets(gpu, profile) if len(each) > 1)


@cache
def _cuts(
    maximal: Sequence[Sequence[Instance]], offered: Sequence[tuple[str, int, Sequence[_Parts]]]
) -> tuple[Cut, ...]:
    slices = {name: own for name, own, _ in offered}
    divisions = {name: each for name, _, each in offered}
    found: dict[tuple[tuple[str, _Parts], ...], Cut] = {}

    def place(pair: tuple[Instance, _Parts]) -> tuple[int, str, _Parts, int]:
        instance, parts = pair
        return -slices[instance.profile], instance.profile, parts, instance.start or 0

    for layout in maximal:
        for parts in product(*(divisions[each.profile] for each in layout)):
            pairs = sorted(zip(layout, parts, strict=True), key=place)
            kind = tuple((instance.profile, own) for instance, own in pairs)
            cut = Cut(tuple(each for each, _ in pairs), tuple(own for _, own in pairs))
            found.setdefault(kind, cut)
    return tuple(found.values())
