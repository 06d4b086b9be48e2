"""Partitions of a GPU, the cuts that make them, and lower bounds of what jobs cost there.

The cost of a plan follows from the largest of one score over its partitions, and from the sum of
another (`Objective.scores`): for the makespan from the largest end, for throughput from speeds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import count, islice, product
from math import isfinite
from typing import NamedTuple

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import layouts, profile_of
from advisor.hardware.partition import compute_sets
from advisor.plan.job_sets import Option, PartitionKind, Sets
from advisor.prediction.trace import Floats
from advisor.sharing import Instance
from advisor.simulation.arrays import Bools, Indices

_Parts = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """One way to cut a GPU into instances, and some into parts of so many compute slices."""

    instances: tuple[Instance, ...]
    parts: tuple[_Parts, ...]

    @cached_property
    def partitions(self) -> tuple[PartitionKind, ...]:
        """The kind of each partition, those of one instance next to each other."""
        return tuple(
            PartitionKind(instance.profile, part)
            for instance, parts in zip(self.instances, self.parts, strict=True)
            for part in parts or (None,)
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
        divisions = ([(), *(own for own in compute_sets(gpu, each.profile) if len(own) > 1)]
                     for each in layout)  # fmt: skip
        for chosen in product(*divisions):
            pairs = sorted(zip(layout, chosen, strict=True), key=place)
            cut = Cut(tuple(each for each, _ in pairs), tuple(own for _, own in pairs))
            distinct.setdefault(tuple((each.profile, own) for each, own in pairs), cut)
    return tuple(distinct.values())


def cut_into(gpu: Gpu, names: Sequence[str]) -> Cut:
    """Return the cut of `gpu` into undivided instances of these profiles."""
    largest = sorted(names, key=lambda name: -profile_of(gpu, name).compute_slices)
    return Cut(tuple(map(Instance, largest)), ((),) * len(largest))


Price = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""Largest and sum over partitions -> cost, and what decides between equal costs."""


class SetScores(NamedTuple):
    """Scores of every set, (sets,): a plan counts the largest of `most`, the sum of `total`."""

    most: Floats
    total: Floats

    def without(self, these: Bools) -> "SetScores":
        """Make the scores infinite for the sets where `these`, shape (sets,), is true."""
        return SetScores(*(np.where(these, np.inf, each) for each in self))


class Choice(NamedTuple):
    """A set of jobs in a partition."""

    option: Option
    chosen: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """A cut of the GPU, with a set of jobs in each of its first partitions; some are `left`."""

    cut: Cut
    left: int
    most: float = 0.0
    total: float = 0.0
    placed: tuple[Choice, ...] = ()

    @property
    def mark(self) -> tuple[object, ...]:
        """A key that is equal where only the places or the order of equal instances differ."""
        held: dict[int, list[tuple[object, ...]]] = {}
        for at, choice in zip(self.cut.instance_at, self.placed, strict=True):
            if choice.chosen:
                slices = choice.option.partition.slices or 0
                own = (slices, str(choice.option.sharing), choice.chosen)
                held.setdefault(at, []).append(own)
        instances = self.cut.instances
        return tuple(sorted((instances[at].profile, *sorted(own)) for at, own in held.items()))


_Bounded = tuple[float, float, Assignment]
"""A lower bound of the cost, what decides between equal ones, and the partial assignment."""


@dataclass(frozen=True)
class AssignmentSearch:
    """Searches all assignments of jobs to the partitions of `cuts`; `price` turns scores into cost.

    The search is best-first: the least cost of the remaining jobs in the remaining partitions
    bounds a partial assignment from below. So the first answer is the best.

    Attributes:
        scores: For each kind of partition: the scores of all sets under each option.
        allowed: For each MIG profile: the sets that may be on one instance at once, shape (sets,).
    """

    sets: Sets
    cuts: Sequence[Cut]
    scores: dict[PartitionKind, list[tuple[Option, SetScores]]]
    price: Price
    allowed: dict[str, Bools]
    _least: dict[tuple[PartitionKind, ...], SetScores] = field(default_factory=dict)

    def in_order(self, whole: int) -> Iterator[Assignment]:
        """Yield assignments of the jobs of the set `whole`, cheapest first; of equal ones one."""
        ticket, seen_marks = count(), set()  # tickets tell equal bounds apart
        first, then = (each[:, whole].tolist() for each in self._roots)
        heap: list[tuple[float, float, int, Assignment, Iterator[_Bounded]]] = [
            (cost, second, next(ticket), Assignment(cut, whole), iter(()))
            for cost, second, cut in zip(first, then, self.cuts, strict=True) if isfinite(cost)
        ]  # fmt: skip
        heapify(heap)

        def push_next(siblings: Iterator[_Bounded]) -> None:
            for cost, second, partial in islice(siblings, 1):
                heappush(heap, (cost, second, next(ticket), partial, siblings))

        while heap:
            _, _, _, partial, siblings = heappop(heap)
            push_next(siblings)
            if len(partial.placed) < len(partial.cut.partitions):
                push_next(self._extended(partial))
            elif (mark := partial.mark) not in seen_marks:
                seen_marks.add(mark)
                yield partial

    def least(self, whole: int) -> float:
        """Return the least cost of the set `whole`; infinite: instances cannot hold it."""
        return float(self._roots[0][:, whole].min(initial=np.inf))

    @cached_property
    def _roots(self) -> tuple[Floats, Floats]:
        """Least cost and tie-breaker of each set in each cut, each shape (cuts, sets)."""
        bounds = [self._least_in(cut.partitions) for cut in self.cuts]
        shape = len(self.cuts), len(self.sets.counts)
        most, total = (np.reshape([each[at] for each in bounds], shape) for at in (0, 1))
        return self.price(most, total)

    def _least_in(self, partitions: tuple[PartitionKind, ...]) -> SetScores:
        """Compute the least of each score of every set in `partitions`."""
        if partitions not in self._least:
            if partitions:
                rest, own = self._least_in(partitions[1:]), self._best[partitions[0]]
                _, left, starts = self.sets.pairs
                self._least[partitions] = SetScores(
                    np.minimum.reduceat(np.maximum(own.most, rest.most[left]), starts),
                    np.minimum.reduceat(own.total + rest.total[left], starts),
                )
            else:
                only_empty = np.where(self.sets.sizes, np.inf, 0.0)
                self._least[partitions] = SetScores(only_empty, only_empty)
        return self._least[partitions]

    @cached_property
    def _best(self) -> dict[PartitionKind, SetScores]:
        """Least of each score over the options of each kind of partition, each (pairs,)."""
        inner = self.sets.pairs[0]
        return {
            partition: SetScores(*(
                np.minimum.reduce([own[at] for _, own in ways])[inner] for at in (0, 1)
            ))
            for partition, ways in self.scores.items()
        }  # fmt: skip

    def _extended(self, parent: Assignment) -> Iterator[_Bounded]:
        """`parent` with each set in its next partition under each option, the best first."""
        number, partitions = len(parent.placed), parent.cut.partitions
        inside = self.sets.inside(parent.left)
        inside = inside[self._may_be_next(parent, inside)]
        left = parent.left - inside
        least = self._least_in(partitions[number + 1 :])
        ways, columns = self.scores[partitions[number]], []
        for _, own in ways:
            most = np.maximum(parent.most, own.most[inside])
            total = parent.total + own.total[inside]
            bound = self.price(np.maximum(most, least.most[left]), total + least.total[left])
            columns.append((inside, left, most, total, *bound))
        chosen, left, most, total, cost, then = map(np.concatenate, zip(*columns, strict=True))
        way_of = np.repeat(np.arange(len(ways)), len(inside))
        possible = np.flatnonzero(np.isfinite(cost) & ((chosen > 0) | (way_of == 0)))
        for at in possible[np.lexsort((then[possible], cost[possible]))].tolist():
            placed = (*parent.placed, Choice(ways[way_of[at]][0], int(chosen[at])))
            after = Assignment(parent.cut, int(left[at]), float(most[at]), float(total[at]), placed)
            yield float(cost[at]), float(then[at]), after

    def _may_be_next(self, parent: Assignment, inside: Indices) -> Bools:
        """Sets allowed next: they fit on the instance; equal partitions take theirs in order."""
        number, cut = len(parent.placed), parent.cut
        instance_at, partitions = cut.instance_at, cut.partitions
        in_part = partitions[number].slices is not None
        may = np.ones(len(inside), dtype=bool)
        equal = number and partitions[number] == partitions[number - 1]
        if equal and (instance_at[number] == instance_at[number - 1] or not in_part):
            may = inside <= parent.placed[-1].chosen
        if in_part:
            held = sum(each.chosen for each, at in zip(parent.placed, instance_at, strict=False)
                       if at == instance_at[number])  # fmt: skip
            may &= self.allowed[str(partitions[number].profile)][inside + held]
        return np.asarray(may)
