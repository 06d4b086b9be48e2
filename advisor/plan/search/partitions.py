"""Partitions of a GPU, the cuts that make them, and lower bounds of what jobs cost there.

The cost of a plan follows from the largest of one score over its partitions, and from the sum of
another (`Objective.of_sets`). For the makespan it is the largest end, for throughput the sum of
speeds, and for energy both, since the GPU is awake until the last job ends.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import compute_sets
from advisor.hardware.mig_layouts import layouts, profile_of
from advisor.plan.search.job_sets import Sets
from advisor.plan.search.limit_tuning import EQUAL_GRID
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Concurrent, Hybrid, Instance, Mps, Naive, Part, Place


class PartitionKind(NamedTuple):
    """A GPU instance of `profile`, or `slices` compute slices of one; both None: the whole GPU."""

    profile: str | None = None
    slices: int | None = None

    def shared(self, jobs: int, sharing: Concurrent) -> Arrangement:
        """`jobs` jobs that share it by `sharing`, and nothing else on the GPU."""
        if self.profile is None:
            return sharing
        numbers = tuple(range(1, jobs + 1))
        instance = Instance(self.profile)
        return Hybrid((Place(instance, (Part(numbers, sharing, self.slices),)),))


WHOLE = PartitionKind()


class Option(NamedTuple):
    """A partition and how jobs share it; limits are equal for all jobs, in per cent."""

    partition: PartitionKind
    sharing: Concurrent
    limit: float | None = None

    def of(self, jobs: int) -> Concurrent:
        """How `jobs` jobs share it."""
        return self.sharing if self.limit is None else Mps((self.limit,) * jobs)


def options(partition: PartitionKind) -> list[Option]:
    """The ways to share `partition` that are tried; limits only on the whole GPU."""
    found = [Option(partition, Naive()), Option(partition, Mps())]
    limits = EQUAL_GRID if partition == WHOLE else ()
    return found + [Option(partition, Mps(), float(limit)) for limit in limits]


_Parts = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """One way to cut a GPU into partitions.

    Attributes:
        instances: GPU instances with their places.
        parts: Compute slices of the parts of each instance, largest first; empty: the instance is
            whole.
    """

    instances: tuple[Instance, ...]
    parts: tuple[_Parts, ...]

    @cached_property
    def partitions(self) -> tuple[PartitionKind, ...]:
        """The kind of each partition, those of one instance next to each other."""
        return tuple(
            partition
            for instance, parts in zip(self.instances, self.parts, strict=True)
            for partition in _partitions(instance.profile, parts)
        )

    @cached_property
    def instance_at(self) -> tuple[int, ...]:
        """Index of the instance of each partition, shape (partitions,)."""
        return tuple(
            index for index, parts in enumerate(self.parts) for _ in range(max(1, len(parts)))
        )


def _partitions(profile: str, parts: Sequence[int]) -> list[PartitionKind]:
    return [PartitionKind(profile, part) for part in parts] or [PartitionKind(profile)]


def cuts(gpu: Gpu) -> tuple[Cut, ...]:
    """All cuts of `gpu` that leave no room for another instance; of symmetric ones, one."""
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


Price = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""Largest and sum over partitions -> cost, and what decides between equal costs."""


@dataclass(frozen=True, slots=True)
class SetScores:
    """Two scores of every set under one option; infinite where the set is not allowed.

    Attributes:
        most: Score of which a plan counts the largest, shape (sets,).
        total: Score of which a plan counts the sum, shape (sets,).
    """

    most: Floats
    total: Floats

    def without(self, these: NDArray[np.bool_]) -> "SetScores":
        """The same scores, infinite for the sets where `these`, shape (sets,), is true."""
        return SetScores(*(np.where(these, np.inf, each) for each in (self.most, self.total)))


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of the two scores that the cost of a plan follows from.

    Attributes:
        cuts: Cuts of the GPU.
        scores: For each kind of partition: the scores of all sets under each option.
    """

    sets: Sets
    cuts: Sequence[Cut]
    scores: dict[PartitionKind, list[tuple[Option, SetScores]]]
    _known: dict[tuple[PartitionKind, ...], tuple[Floats, Floats]] = field(default_factory=dict)

    @cached_property
    def of_cuts(self) -> tuple[Floats, Floats]:
        """Least largest and least summed score of each state in each cut, each (cuts, states)."""
        if not self.cuts:
            nothing = np.full((0, self.sets.states), np.inf)
            return nothing, nothing
        bounds = [self.least(cut.partitions) for cut in self.cuts]
        most, total = (np.stack(each) for each in zip(*bounds, strict=True))
        return most, total

    def least(self, partitions: tuple[PartitionKind, ...]) -> tuple[Floats, Floats]:
        """Least largest and summed score of each state in `partitions`, each (states,)."""
        if (found := self._known.get(partitions)) is None:
            found = self._known[partitions] = self._worked_out(partitions)
        return found

    def _worked_out(self, partitions: tuple[PartitionKind, ...]) -> tuple[Floats, Floats]:
        if not partitions:
            empty = np.full(self.sets.states, np.inf)
            empty[0] = 0.0
            return empty, empty
        most, total = self.least(partitions[1:])
        own_most, own_total = self._best[partitions[0]]
        _, _, left = self.sets.pairs
        starts = self.sets.first_pairs
        largest = np.maximum(own_most, most[left])
        return (
            np.minimum.reduceat(largest, starts),
            np.minimum.reduceat(own_total + total[left], starts),
        )

    @cached_property
    def _best(self) -> dict[PartitionKind, tuple[Floats, Floats]]:
        """Least of each score over the options of each kind of partition, each (pairs,)."""
        _, chosen, _ = self.sets.pairs
        return {
            partition: (
                np.minimum.reduce([own.most for _, own in ways])[chosen],
                np.minimum.reduce([own.total for _, own in ways])[chosen],
            )
            for partition, ways in self.scores.items()
        }
