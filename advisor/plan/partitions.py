"""Partitions of a GPU, the cuts that make them, and lower bounds of what jobs cost there.

The cost of a plan follows from the largest of one score over its partitions, and from the sum of
another (`Objective.of_sets`). For the makespan it is the largest end, for throughput the sum of
speeds, and for energy both, since the GPU is awake until the last job ends.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from heapq import heapify, heappop, heappush
from itertools import count, product
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import layouts, profile_of
from advisor.hardware.partition import compute_sets
from advisor.plan.job_sets import Indices, Option, PartitionKind, Sets
from advisor.prediction.trace import Floats
from advisor.sharing import Instance

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
    offered = []
    for name in names:
        divisions = [each for each in compute_sets(gpu, name) if len(each) > 1]
        offered.append((name, profile_of(gpu, name).compute_slices, ((), *divisions)))
    return _cuts(layouts(gpu), tuple(offered))


@cache
def _cuts(
    maximal: Sequence[Sequence[Instance]], offered: Sequence[tuple[str, int, Sequence[_Parts]]]
) -> tuple[Cut, ...]:
    slices = {name: own for name, own, _ in offered}
    divisions = {name: each for name, _, each in offered}
    distinct: dict[tuple[tuple[str, _Parts], ...], Cut] = {}

    def place(pair: tuple[Instance, _Parts]) -> tuple[int, str, _Parts, int]:
        instance, parts = pair
        return -slices[instance.profile], instance.profile, parts, instance.start or 0

    for layout in maximal:
        for parts in product(*(divisions[each.profile] for each in layout)):
            pairs = sorted(zip(layout, parts, strict=True), key=place)
            kind = tuple((instance.profile, own) for instance, own in pairs)
            cut = Cut(tuple(each for each, _ in pairs), tuple(own for _, own in pairs))
            distinct.setdefault(kind, cut)
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

    def without(self, these: NDArray[np.bool_]) -> "SetScores":
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
        """Least largest and least summed score of each state in each cut, each (cuts, states)."""
        if not self.cuts:
            nothing = np.full((0, self.sets.states), np.inf)
            return nothing, nothing
        bounds = [self.least(cut.partitions) for cut in self.cuts]
        most, total = (np.stack(each) for each in zip(*bounds, strict=True))
        return most, total

    def least(self, partitions: tuple[PartitionKind, ...]) -> tuple[Floats, Floats]:
        """Compute the least largest and summed score of each state in `partitions`, (states,)."""
        if partitions not in self._least:
            if partitions:
                most, total = self.least(partitions[1:])
                own_most, own_total = self._best[partitions[0]]
                left, starts = self.sets.pairs[2], self.sets.first_pairs
                self._least[partitions] = (
                    np.minimum.reduceat(np.maximum(own_most, most[left]), starts),
                    np.minimum.reduceat(own_total + total[left], starts),
                )
            else:
                empty = np.full(self.sets.states, np.inf)
                empty[0] = 0.0
                self._least[partitions] = empty, empty
        return self._least[partitions]

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
        pairs = zip(self.cut.partitions, self.cut.instance_at, self.partitions, strict=True)
        for partition, at, choice in pairs:
            if choice.chosen:
                own = (partition.slices or 0, str(choice.option.sharing), choice.chosen)
                held.setdefault(at, []).append(own)
        instances = self.cut.instances
        return tuple(sorted((instances[at].profile, *sorted(own)) for at, own in held.items()))


@dataclass(frozen=True, slots=True)
class _Open:
    """A partial assignment: a cut, of which some partitions have their sets."""

    cut: Cut
    state: int
    most: float = 0.0
    total: float = 0.0
    taken: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class _Siblings:
    """The choices for the next partition of `parent`, best first."""

    parent: _Open
    options: Sequence[int]
    chosen: Indices
    rest: Indices
    scores: tuple[Floats, Floats]
    bounds: tuple[Floats, Floats]


_Entry = tuple[float, float, int, _Siblings | _Open, int]
"""A cost, what decides between equal ones, a ticket that tells all apart, and what is open."""


@dataclass(frozen=True)
class AssignmentSearch:
    """Searches all assignments of jobs to partitions; `price` turns scores into costs.

    The search is best-first: the least cost of the remaining jobs in the remaining partitions
    bounds a partial assignment from below. So each answer costs no less than those before it, and
    the first is the best.

    Attributes:
        allowed_states: For each MIG profile: the states that may be on one instance at once, shape
            (states,).
    """

    bounds: Bounds
    price: Price
    allowed_states: dict[str, NDArray[np.bool_]]

    def in_order(self, state: int) -> Iterator[Assignment]:
        """Yield assignments of the jobs of `state`, cheapest first; of equal ones the first."""
        ticket, seen_marks = count(), set()
        first, second = (each[:, state].tolist() for each in self._roots)
        heap: list[_Entry] = [
            (cost, then, next(ticket), _Open(cut, state), 0)
            for cost, then, cut in zip(first, second, self.bounds.cuts, strict=True)
            if isfinite(cost)
        ]
        heapify(heap)

        def push(siblings: _Siblings, at: int) -> None:
            if at < len(siblings.chosen):
                costs = float(siblings.bounds[0][at]), float(siblings.bounds[1][at])
                heappush(heap, (*costs, next(ticket), siblings, at))

        while heap:
            cost, _, _, entry, at = heappop(heap)
            if isinstance(entry, _Siblings):
                push(entry, at + 1)
                partial = self._after(entry, at)
            else:
                partial = entry
            if len(partial.taken) == len(partial.cut.partitions):
                plan = Assignment(cost, partial.cut, partial.taken)
                if plan.mark not in seen_marks:
                    seen_marks.add(plan.mark)
                    yield plan
            else:
                push(self._next(partial), 0)

    def least(self, state: int) -> float:
        """Return the least cost of the jobs of `state`; infinite: instances cannot hold them."""
        return float(self._roots[0][:, state].min(initial=np.inf))

    @cached_property
    def _roots(self) -> tuple[Floats, Floats]:
        """Least cost and tie-breaker of each state in each cut, each shape (cuts, states)."""
        return self.price(*self.bounds.of_cuts)

    def _after(self, siblings: _Siblings, at: int) -> _Open:
        parent = siblings.parent
        partition = parent.cut.partitions[len(parent.taken)]
        option = self.bounds.scores[partition][siblings.options[at]][0]
        most, total = (float(each[at]) for each in siblings.scores)
        taken = (*parent.taken, Choice(option, int(siblings.chosen[at])))
        return _Open(parent.cut, int(siblings.rest[at]), most, total, taken)

    def _next(self, parent: _Open) -> _Siblings:
        number = len(parent.taken)
        partitions = parent.cut.partitions
        inside, left = self.bounds.sets.inside(parent.state)
        keep = self._may(parent, inside)
        inside, left = inside[keep], left[keep]
        least = self.bounds.least(partitions[number + 1 :])
        columns = []
        for option, (_, own) in enumerate(self.bounds.scores[partitions[number]]):
            most = np.maximum(parent.most, own.most[inside])
            total = parent.total + own.total[inside]
            bound = self.price(np.maximum(most, least[0][left]), total + least[1][left])
            columns.append((np.full(len(inside), option), inside, left, most, total, *bound))
        options, chosen, rest, most, total, *bounds = map(
            np.concatenate, zip(*columns, strict=True)
        )
        possible = np.flatnonzero(np.isfinite(bounds[0]) & ((chosen > 0) | (options == 0)))
        order = possible[np.lexsort((bounds[1][possible], bounds[0][possible]))]
        return _Siblings(
            parent, options[order].tolist(), chosen[order], rest[order],
            (most[order], total[order]), (bounds[0][order], bounds[1][order]),
        )  # fmt: skip

    def _may(self, parent: _Open, inside: Indices) -> NDArray[np.bool_]:
        """Sets allowed next: they fit on the instance; equal partitions take theirs in order."""
        number, cut = len(parent.taken), parent.cut
        instance_at, partitions = cut.instance_at, cut.partitions
        in_part = bool(cut.parts[instance_at[number]])
        may = np.ones(len(inside), dtype=bool)
        equal = number and partitions[number] == partitions[number - 1]
        if equal and (instance_at[number] == instance_at[number - 1] or not in_part):
            may = inside <= parent.taken[-1].chosen
        if in_part:
            own = [each.chosen for each, index in zip(parent.taken, instance_at, strict=False)
                   if index == instance_at[number]]  # fmt: skip
            held = self.bounds.sets.state[inside] + int(self.bounds.sets.state[own].sum())
            may &= self.allowed_states[str(partitions[number].profile)][held]
        return np.asarray(may)
