"""Partitions of a GPU, the cuts that make them, and lower bounds of what jobs cost there.

The cost of a plan follows from the largest of one score over its partitions, and from the sum of
another (`Objective.scores`): for the makespan from the largest end, for throughput from speeds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from heapq import heapify, heappop, heappush
from itertools import count, islice, product
from math import isfinite

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import layouts, profile_of
from advisor.hardware.partition import compute_sets
from advisor.plan.job_sets import Option, PartitionKind, Sets
from advisor.prediction.trace import Floats
from advisor.sharing import Instance
from advisor.simulation.events import Bools, Indices

_Parts = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """One way to cut a GPU into partitions.

    Attributes:
        parts: Compute slices of the parts of each instance, largest first; empty: the instance is
            whole.
    """

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
    names = dict.fromkeys(each.profile for layout in layouts(gpu) for each in layout)
    divisions = (tuple(each for each in compute_sets(gpu, name) if len(each) > 1) for name in names)
    slices = (profile_of(gpu, name).compute_slices for name in names)
    return _cuts(layouts(gpu), tuple(zip(names, slices, divisions, strict=True)))


def cut_into(gpu: Gpu, names: Sequence[str]) -> Cut:
    """Return the cut of `gpu` into undivided instances of these profiles."""
    largest = sorted(names, key=lambda name: -profile_of(gpu, name).compute_slices)
    return Cut(tuple(map(Instance, largest)), ((),) * len(largest))


@cache
def _cuts(
    maximal: Sequence[Sequence[Instance]], offered: Sequence[tuple[str, int, Sequence[_Parts]]]
) -> tuple[Cut, ...]:
    slices = {name: own for name, own, _ in offered}
    divisions = {name: ((), *parts) for name, _, parts in offered}

    def place(pair: tuple[Instance, _Parts]) -> tuple[int, str, _Parts, int]:
        instance, parts = pair
        return -slices[instance.profile], instance.profile, parts, instance.start or 0

    distinct: dict[tuple[tuple[str, _Parts], ...], Cut] = {}
    for layout in maximal:
        for chosen in product(*(divisions[each.profile] for each in layout)):
            pairs = sorted(zip(layout, chosen, strict=True), key=place)
            cut = Cut(tuple(each for each, _ in pairs), tuple(own for _, own in pairs))
            distinct.setdefault(tuple((each.profile, own) for each, own in pairs), cut)
    return tuple(distinct.values())


Price = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""Largest and sum over partitions -> cost, and what decides between equal costs."""


@dataclass(frozen=True, slots=True)
class SetScores:
    """Two scores of every set under one option, shape (sets,); infinite: the set is not allowed.

    A plan counts the largest of `most`, and the sum of `total`.
    """

    most: Floats
    total: Floats

    def without(self, these: Bools) -> "SetScores":
        """Make the scores infinite for the sets where `these`, shape (sets,), is true."""
        return SetScores(*(np.where(these, np.inf, each) for each in (self.most, self.total)))


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of the two scores that the cost of a plan follows from.

    `scores` holds for each kind of partition the scores of all sets under each option.
    """

    sets: Sets
    cuts: Sequence[Cut]
    scores: dict[PartitionKind, list[tuple[Option, SetScores]]]
    _least: dict[tuple[PartitionKind, ...], tuple[Floats, Floats]] = field(default_factory=dict)

    @cached_property
    def of_cuts(self) -> tuple[Floats, Floats]:
        """Least largest and least summed score of each set in each cut, each (cuts, sets)."""
        if not self.cuts:
            nothing = np.full((0, len(self.sets.counts)), np.inf)
            return nothing, nothing
        bounds = [self.least(cut.partitions) for cut in self.cuts]
        most, total = (np.stack(each) for each in zip(*bounds, strict=True))
        return most, total

    def least(self, partitions: tuple[PartitionKind, ...]) -> tuple[Floats, Floats]:
        """Compute the least largest and summed score of each set in `partitions`, (sets,)."""
        if partitions not in self._least:
            if partitions:
                most, total = self.least(partitions[1:])
                own_most, own_total = self._best[partitions[0]]
                _, left, starts = self.sets.pairs
                self._least[partitions] = (
                    np.minimum.reduceat(np.maximum(own_most, most[left]), starts),
                    np.minimum.reduceat(own_total + total[left], starts),
                )
            else:
                only_empty = np.full(len(self.sets.counts), np.inf)
                only_empty[0] = 0.0
                self._least[partitions] = only_empty, only_empty
        return self._least[partitions]

    @cached_property
    def _best(self) -> dict[PartitionKind, tuple[Floats, Floats]]:
        """Least of each score over the options of each kind of partition, each (pairs,)."""
        inner = self.sets.pairs[0]
        return {
            partition: (
                np.minimum.reduce([own.most for _, own in ways])[inner],
                np.minimum.reduce([own.total for _, own in ways])[inner],
            )
            for partition, ways in self.scores.items()
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of jobs in a partition."""

    option: Option
    chosen: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """A cut of the GPU, with a set of jobs in each partition, in order; the empty set: unused.

    Attributes:
        cost: Cost if partitions do not slow each other.
    """

    cost: float
    cut: Cut
    partitions: tuple[Choice, ...]

    @property
    def mark(self) -> tuple[object, ...]:
        """A key that is equal where only the places or the order of equal instances differ."""
        held: dict[int, list[tuple[object, ...]]] = {}
        for at, choice in zip(self.cut.instance_at, self.partitions, strict=True):
            if choice.chosen:
                slices = choice.option.partition.slices or 0
                own = (slices, str(choice.option.sharing), choice.chosen)
                held.setdefault(at, []).append(own)
        instances = self.cut.instances
        return tuple(sorted((instances[at].profile, *sorted(own)) for at, own in held.items()))


@dataclass(frozen=True, slots=True)
class _Open:
    """A cut, of which the first partitions have their sets; the set `left` is to be placed."""

    cut: Cut
    left: int
    most: float = 0.0
    total: float = 0.0
    taken: tuple[Choice, ...] = ()


_Bounded = tuple[float, float, _Open]
"""A lower bound of the cost, what decides between equal ones, and the partial assignment."""


@dataclass(frozen=True)
class AssignmentSearch:
    """Searches all assignments of jobs to partitions; `price` turns scores into costs.

    The search is best-first: the least cost of the remaining jobs in the remaining partitions
    bounds a partial assignment from below. So the first answer is the best.

    Attributes:
        allowed: For each MIG profile: the sets that may be on one instance at once, shape (sets,).
    """

    bounds: Bounds
    price: Price
    allowed: dict[str, Bools]

    def in_order(self, whole: int) -> Iterator[Assignment]:
        """Yield assignments of the jobs of the set `whole`, cheapest first; of equal ones one."""
        ticket, seen_marks = count(), set()  # tickets tell equal bounds apart
        first, second = (each[:, whole].tolist() for each in self._roots)
        heap: list[tuple[float, float, int, _Open, Iterator[_Bounded]]] = [
            (cost, then, next(ticket), _Open(cut, whole), iter(()))
            for cost, then, cut in zip(first, second, self.bounds.cuts, strict=True)
            if isfinite(cost)
        ]
        heapify(heap)

        def push_next(siblings: Iterator[_Bounded]) -> None:
            for cost, then, partial in islice(siblings, 1):
                heappush(heap, (cost, then, next(ticket), partial, siblings))

        while heap:
            cost, _, _, partial, siblings = heappop(heap)
            push_next(siblings)
            if len(partial.taken) < len(partial.cut.partitions):
                push_next(self._extended(partial))
                continue
            plan = Assignment(cost, partial.cut, partial.taken)
            if plan.mark not in seen_marks:
                seen_marks.add(plan.mark)
                yield plan

    def least(self, whole: int) -> float:
        """Return the least cost of the set `whole`; infinite: instances cannot hold it."""
        return float(self._roots[0][:, whole].min(initial=np.inf))

    @cached_property
    def _roots(self) -> tuple[Floats, Floats]:
        """Least cost and tie-breaker of each set in each cut, each shape (cuts, sets)."""
        return self.price(*self.bounds.of_cuts)

    def _extended(self, parent: _Open) -> Iterator[_Bounded]:
        """`parent` with each set in its next partition under each option, the best first."""
        number, partitions = len(parent.taken), parent.cut.partitions
        inside = self.bounds.sets.inside(parent.left)
        inside = inside[self._may_be_next(parent, inside)]
        left = parent.left - inside
        least = self.bounds.least(partitions[number + 1 :])
        ways, columns = self.bounds.scores[partitions[number]], []
        for _, own in ways:
            most = np.maximum(parent.most, own.most[inside])
            total = parent.total + own.total[inside]
            bound = self.price(np.maximum(most, least[0][left]), total + least[1][left])
            columns.append((inside, left, most, total, *bound))
        chosen, left, most, total, cost, then = map(np.concatenate, zip(*columns, strict=True))
        way_of = np.repeat(np.arange(len(ways)), len(inside))
        possible = np.flatnonzero(np.isfinite(cost) & ((chosen > 0) | (way_of == 0)))
        for at in possible[np.lexsort((then[possible], cost[possible]))].tolist():
            taken = (*parent.taken, Choice(ways[way_of[at]][0], int(chosen[at])))
            after = _Open(parent.cut, int(left[at]), float(most[at]), float(total[at]), taken)
            yield float(cost[at]), float(then[at]), after

    def _may_be_next(self, parent: _Open, inside: Indices) -> Bools:
        """Sets allowed next: they fit on the instance; equal partitions take theirs in order."""
        number, cut = len(parent.taken), parent.cut
        instance_at, partitions = cut.instance_at, cut.partitions
        in_part = partitions[number].slices is not None
        may = np.ones(len(inside), dtype=bool)
        equal = number and partitions[number] == partitions[number - 1]
        if equal and (instance_at[number] == instance_at[number - 1] or not in_part):
            may = inside <= parent.taken[-1].chosen
        if in_part:
            held = sum(each.chosen for each, at in zip(parent.taken, instance_at, strict=False)
                       if at == instance_at[number])  # fmt: skip
            may &= self.allowed[str(partitions[number].profile)][inside + held]
        return np.asarray(may)
