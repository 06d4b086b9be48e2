"""Partitions of a GPU, the cuts that make them, and lower bounds of what jobs cost there.

The cost of a plan follows from the largest of one score over its partitions, and from the sum of
another (`Objective.scores`): for the makespan from the largest end, for throughput from speeds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import count, islice, product
from math import isfinite
from typing import NamedTuple

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import layouts, profile_of
from advisor.hardware.partition import compute_sets
from advisor.plan.job_sets import Option, PartitionKind, Sets
from advisor.plan.progress import step
from advisor.prediction.trace import Floats
from advisor.sharing import Instance
from advisor.simulation.arrays import Bools

_Parts = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """One way to cut a GPU into instances, and some into parts of so many compute slices."""

    instances: tuple[Instance, ...]
    parts: tuple[_Parts, ...]

    @cached_property
    def places(self) -> "_Places":
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


# Partial assignments that one search extends before it completes the best one greedily.
_MOST_EXTENDED = 10_000

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


_Places = tuple[PartitionKind | tuple[PartitionKind, ...], ...]
"""Partitions, and instances that are divided into parts."""


class _Left(NamedTuple):
    """Jobs without a place yet, and their `places`; the set in the first is at most `largest`."""

    jobs: int
    places: _Places
    largest: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """A cut of the GPU, with a set of jobs in each of its first partitions.

    Attributes:
        left: What is left for the parts of an instance that is being divided, and for the next
            instances; nothing: all jobs are placed.
    """

    cut: Cut
    left: tuple[_Left, ...]
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
    bounds a partial assignment from below. So the first answer is the best, up to
    `_MOST_EXTENDED` extensions of partial assignments in all; then each is completed greedily.

    Attributes:
        scores: For each kind of partition: the scores of all sets under each option.
        allowed: For each MIG profile: the sets that may be on one instance at once, shape (sets,).
    """

    sets: Sets
    cuts: Sequence[Cut]
    scores: dict[PartitionKind, list[tuple[Option, SetScores]]]
    price: Price
    allowed: dict[str, Bools]
    _least: dict[_Places, SetScores] = field(default_factory=dict)
    _extensions: Iterator[int] = field(default_factory=count)

    def in_order(self, whole: int) -> Iterator[Assignment]:
        """Yield assignments of the jobs of the set `whole`, cheapest first; of equal ones one."""
        ticket, seen_marks = count(), set()  # tickets tell equal bounds apart
        first, then = (each[:, whole].tolist() for each in self._roots)
        heap: list[tuple[float, float, int, Assignment, Iterator[_Bounded]]] = []

        def push_next(siblings: Iterator[_Bounded], ahead: float = 0.0) -> None:
            for cost, second, partial in islice(siblings, 1):
                heappush(heap, (cost - ahead, second, next(ticket), partial, siblings))

        for cost, second, cut in zip(first, then, self.cuts, strict=True):
            if isfinite(cost):
                push_next(
                    iter([(cost, second, Assignment(cut, (_Left(whole, cut.places, whole),)))])
                )
        while heap:
            _, _, _, partial, siblings = heappop(heap)
            push_next(siblings)
            if partial.left:
                step()
                ahead = np.inf if next(self._extensions) >= _MOST_EXTENDED else 0.0
                push_next(self._extended(partial), ahead)
            elif (mark := partial.mark) not in seen_marks:
                seen_marks.add(mark)
                yield partial

    def least(self, whole: int) -> float:
        """Return the least cost of the set `whole`; infinite: instances cannot hold it."""
        return float(self._roots[0][:, whole].min(initial=np.inf))

    @cached_property
    def _roots(self) -> tuple[Floats, Floats]:
        """Least cost and tie-breaker of each set in each cut, each shape (cuts, sets)."""
        bounds = [self._least_in(cut.places) for cut in self.cuts]
        shape = len(self.cuts), len(self.sets.counts)
        most, total = (np.reshape([each[at] for each in bounds], shape) for at in (0, 1))
        return self.price(most, total)

    def _least_in(self, places: _Places) -> SetScores:
        """Compute the least of each score of every set in `places`."""
        if places not in self._least:
            if places:
                own, rest = self._least_on(places[0]), self._least_in(places[1:])
                inner, left, starts = self.sets.pairs
                self._least[places] = SetScores(
                    np.minimum.reduceat(np.maximum(own.most[inner], rest.most[left]), starts),
                    np.minimum.reduceat(own.total[inner] + rest.total[left], starts),
                )
            else:
                only_empty = np.where(self.sets.sizes, np.inf, 0.0)
                self._least[places] = SetScores(only_empty, only_empty)
        return self._least[places]

    def _least_on(self, place: PartitionKind | tuple[PartitionKind, ...]) -> SetScores:
        """The least of each score in one place; the parts of an instance share its memory."""
        if isinstance(place, PartitionKind):
            return self._best[place]
        return self._least_in(place).without(~self.allowed[str(place[0].profile)])

    @cached_property
    def _best(self) -> dict[PartitionKind, SetScores]:
        """Least of each score over the options of each kind of partition, each (sets,)."""
        return {
            partition: SetScores(
                *(np.minimum.reduce([own[at] for _, own in ways]) for at in (0, 1))
            )
            for partition, ways in self.scores.items()
        }

    def _extended(self, parent: Assignment) -> Iterator[_Bounded]:
        """`parent` with each set in its next place, in a partition by each option, the best first.

        An instance of several parts gets a set that its memory holds, which is divided next. Equal
        places take their sets in order.
        """
        (jobs, (place, *others), largest), *outer = parent.left
        inside = self.sets.inside(jobs)
        inside = inside[inside <= largest]
        rest, after = jobs - inside, self._least_in(tuple(others))
        most, total = parent.most, parent.total
        for left in outer:
            own = self._least_in(left.places)
            most, total = max(most, own.most[left.jobs]), total + own.total[left.jobs]
        ways: list[tuple[Option | None, SetScores]] = [(None, self._least_on(place))]
        if isinstance(place, PartitionKind):
            ways = [*self.scores[place]]
        bounds = [
            self.price(
                np.maximum(np.maximum(own.most[inside], after.most[rest]), most),
                own.total[inside] + after.total[rest] + total,
            )
            for _, own in ways
        ]
        cost, then = map(np.concatenate, zip(*bounds, strict=True))
        chosen, way_of = np.tile(inside, len(ways)), np.repeat(np.arange(len(ways)), len(inside))
        possible = np.flatnonzero(np.isfinite(cost) & ((chosen > 0) | (way_of == 0)))
        for at in possible[np.lexsort((then[possible], cost[possible]))].tolist():
            option, own = ways[way_of[at]]
            extended = _with(parent, int(chosen[at]), option, own)
            yield float(cost[at]), float(then[at]), extended


def _with(parent: Assignment, chosen: int, option: Option | None, own: SetScores) -> Assignment:
    """`parent` with the set `chosen` in its next place; no option: in an instance to be divided."""
    (jobs, (place, *others), _), *outer = parent.left
    largest = chosen if others[:1] == [place] else jobs
    left = [_Left(jobs - chosen, tuple(others), largest), *outer] if others else outer
    if option is None:
        assert not isinstance(place, PartitionKind), "partitions have options"
        return replace(parent, left=(_Left(chosen, place, chosen), *left))
    return Assignment(
        parent.cut,
        tuple(left),
        max(parent.most, float(own.most[chosen])),
        parent.total + float(own.total[chosen]),
        (*parent.placed, Choice(option, chosen)),
    )
