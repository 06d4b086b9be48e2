"""The best ways to run every set of jobs on a place: a GPU, a MIG instance, a part of one, a fleet.

A MIG instance is a small GPU, and a fleet is a large one cut into GPUs. So two operations make all
tables from those of batches, which start all their jobs at once:

- `Beside`: some jobs on one place, the others on the next ones. Places do not slow each other.
- `InTurn`: a batch on a place, and when it has ended the others, in batches of their own.

A table keeps a few ways for each set, each the best by another criterion of the objective. It costs
one pass of array operations over all pairs of a set and a set within it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from advisor.plan import step
from advisor.plan.job_sets import Cut, Option, Outcomes, Sets
from advisor.plan.objectives import Objective, Terms, Ways, ways_of
from advisor.prediction.trace import Floats
from advisor.simulation.turns import Bools, Indices

# Costs that differ by less than this share are equal: the first way of them is taken.
_EQUAL = 1e-9


@dataclass(frozen=True)
class Goal:
    """The goal of the tables of `sets`; `terms` has the criteria by which a few ways are kept."""

    sets: Sets
    objective: Objective
    terms: Terms

    def costs(self, ways: Ways) -> Floats:
        """Return the costs by each criterion, shape (criteria, ...), infinite where unknown."""
        with np.errstate(invalid="ignore"):  # of ways that are impossible
            costs = self.objective.criteria(ways, self.terms)
        return np.where(np.isnan(costs), np.inf, costs)

    def choose(self, ways: Ways, starts: Indices) -> Indices:
        """Choose the best of each run of `ways` by each criterion, shape (criteria, runs)."""
        costs, sizes = self.costs(ways), np.diff([*starts, len(ways.span_s)])
        rows = []
        for own in costs:
            least = np.repeat(np.minimum.reduceat(own, starts), sizes)
            hits = np.flatnonzero(own <= least * (1 + _EQUAL))
            rows.append(hits[np.searchsorted(hits, starts)])
        return np.array(rows)


class Batch(NamedTuple):
    """A set of jobs that start at once in a partition."""

    option: Option
    chosen: int


class Stage(NamedTuple):
    """Batches at once: one in each partition of `cut`, or one on a place that is not cut."""

    batches: tuple[Batch, ...]
    cut: Cut | None = None


Way = tuple[tuple[int, Stage], ...]
"""A way to run some jobs: numbers of places from 0, each with a stage, those of one in turn."""

_Key = tuple[int, ...]


class Table(ABC):
    """The best ways for every set on some places.

    Attributes:
        places: Number of places.
        ways: Outcomes, shape (ways, sets), as many ways as the goal has criteria.
    """

    goal: Goal
    ways: Ways
    places: int = 1

    @abstractmethod
    def candidates(self, chosen: int) -> tuple[Ways, Sequence[_Key]]:
        """Return all ways that were compared for a set, shape (candidates,), and a key of each."""

    @abstractmethod
    def way(self, chosen: int, key: _Key) -> Way:
        """Return the way of a set that has this key."""

    def best(self, chosen: int, number: int = 0) -> Way:
        """Return the best way of a set by the criterion of this number."""
        ways, keys = self.candidates(chosen)
        best = self.goal.choose(ways, np.zeros(1, np.intp))
        return self.way(chosen, keys[best[number, 0]])

    def ranked(self, chosen: int) -> list[tuple[float, _Key]]:
        """Return cost and key of each way for a set that is possible, the cheapest first."""
        ways, keys = self.candidates(chosen)
        costs = self.goal.costs(ways)[0]
        order = np.argsort(costs, kind="stable").tolist()
        return [(float(costs[at]), keys[at]) for at in order if np.isfinite(costs[at])]

    def in_order(self, chosen: int) -> Iterator[Way]:
        """Yield the ways that were compared for a set, the cheapest first."""
        return (self.way(chosen, key) for _, key in self.ranked(chosen))

    def least(self, chosen: int) -> float:
        """Return the least cost of a set; infinite: the places cannot hold it."""
        return float(self.goal.costs(_at(self.ways, np.array([chosen])))[0].min())


def _at(ways: Ways, sets: Indices) -> Ways:
    """Return those of `ways`, shape (ways, sets), that are of `sets`."""
    return Ways(*(each[:, sets] for each in ways))


def _best_of(goal: Goal, every: Ways) -> Ways:
    """Return the best of ways, shape (ways, sets), for each set by each criterion."""
    number, sets = every.span_s.shape
    flat = Ways(
        *(np.moveaxis(each, 0, 1).reshape(number * sets, *each.shape[2:]) for each in every)
    )
    best = goal.choose(flat, np.arange(sets) * number)
    return Ways(*(each[best] for each in flat))


def _paired(one: Ways, rest: Ways) -> tuple[Ways, Ways]:
    """Repeat ways, shapes (ways, sets), so that each of one set meets each of the other's.

    The result is flat: set by set, and way by way of each.
    """
    ones, rests = len(one.span_s), len(rest.span_s)
    pairs = []
    for mine, its in zip(one, rest, strict=True):
        shape = (mine.shape[1], ones, rests, *mine.shape[2:])
        sides = np.moveaxis(mine, 0, 1)[:, :, None], np.moveaxis(its, 0, 1)[:, None]
        all_pairs = prod(shape[:3])  # no -1: there may be no kinds
        pairs.append([np.broadcast_to(own, shape).reshape(all_pairs, *shape[3:]) for own in sides])
    first, second = zip(*pairs, strict=True)
    return Ways(*first), Ways(*second)


def _pair_keys(inner: Indices, one: Ways, rest: Ways) -> list[_Key]:
    """Return the set and the numbers of both ways for each of what `_paired` returns."""
    ways = range(len(one.span_s)), range(len(rest.span_s))
    return [(own, mine, its) for own in inner.tolist() for mine in ways[0] for its in ways[1]]


class Batches(Table):
    """All jobs at once, in the best of some options, each with its outcomes."""

    def __init__(self, goal: Goal, outcomes: Sequence[tuple[Option, Outcomes]]) -> None:
        self.goal, self._options = goal, [option for option, _ in outcomes]
        every = [ways_of(goal.objective, own) for _, own in outcomes]
        self._every = Ways(*map(np.array, zip(*every, strict=True)))
        self.ways = _best_of(goal, self._every)

    def candidates(self, chosen: int) -> tuple[Ways, Sequence[_Key]]:
        own = Ways(*(each[:, chosen] for each in self._every))
        return own, [(at,) for at in range(len(self._options))]

    def way(self, chosen: int, key: _Key) -> Way:
        return ((0, Stage((Batch(self._options[key[0]], chosen),))),)


class Either(Table):
    """The best of the ways of some tables, of the same places."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.goal, self._tables, self.places = tables[0].goal, tables, tables[0].places
        every = zip(*(each.ways for each in tables), strict=True)
        self._every = Ways(*(np.concatenate(each) for each in every))
        self._keys = [(at, way) for at, own in enumerate(tables) for way in range(len(own.ways[0]))]
        self.ways = _best_of(self.goal, self._every)

    def candidates(self, chosen: int) -> tuple[Ways, Sequence[_Key]]:
        return Ways(*(each[:, chosen] for each in self._every)), self._keys

    def way(self, chosen: int, key: _Key) -> Way:
        table, number = key
        return self._tables[table].best(chosen, number)


class Nothing(Table):
    """No place at all: only the empty set runs there."""

    places = 0

    def __init__(self, goal: Goal) -> None:
        self.goal, sets = goal, goal.sets
        never = np.where(sets.sizes > 0, np.inf, 0.0)[None]
        kinds = sets.counts.shape[1] if goal.objective.uses_deadlines else 0
        self.ways = Ways(never, never, never, np.zeros((*never.shape, kinds)))

    def candidates(self, chosen: int) -> tuple[Ways, Sequence[_Key]]:
        return Ways(*(each[:, chosen] for each in self.ways)), [()]

    def way(self, chosen: int, key: _Key) -> Way:  # noqa: ARG002 - of any table
        return ()


class Beside(Table):
    """Some jobs on the places of one table and the others on those of another, at the same time.

    `allowed` are the sets that both together may hold, shape (sets,); None: all.
    """

    def __init__(self, one: Table, rest: Table, allowed: Bools | None = None) -> None:
        self.goal, self._one, self._rest = rest.goal, one, rest
        self.places = one.places + rest.places
        inner, left, starts = self.goal.sets.pairs
        every = self._joined(inner, left)
        best = self.goal.choose(every, starts * (len(every.span_s) // len(inner)))
        self.ways = Ways(*(own[best] for own in every))
        if allowed is not None:
            never = np.where(allowed, 0.0, np.inf)
            span_s, ends_s, extra, last_s = self.ways
            self.ways = Ways(span_s + never, ends_s + never, extra + never, last_s)

    def _joined(self, inner: Indices, left: Indices) -> Ways:
        one, rest = _paired(_at(self._one.ways, inner), _at(self._rest.ways, left))
        each, sizes = len(one.span_s) // len(inner), self.goal.sets.sizes
        jobs = np.repeat(sizes[inner], each), np.repeat(sizes[left], each)
        return Ways(
            np.maximum(one.span_s, rest.span_s),
            one.ends_s + rest.ends_s,
            self.goal.objective.extra_beside(one.extra, rest.extra, *jobs),
            np.maximum(one.last_s, rest.last_s),
        )

    def candidates(self, chosen: int) -> tuple[Ways, Sequence[_Key]]:
        inner = self.goal.sets.inside(chosen)
        keys = _pair_keys(inner, self._one.ways, self._rest.ways)
        return self._joined(inner, chosen - inner), keys

    def way(self, chosen: int, key: _Key) -> Way:
        inner, one, rest = key
        others = self._rest.best(chosen - inner, rest)
        after = tuple((self._one.places + place, stage) for place, stage in others)
        return (*self._one.best(inner, one), *after)


class OnGpu(Table):
    """The ways of `table`, on the partitions of `cut`, as what the whole GPU does.

    `awake_w` watts are added while jobs run. Where times are not in seconds, what a GPU takes for
    equal work of its jobs is its time: several GPUs end with the last.
    """

    def __init__(self, goal: Goal, table: Table, cut: Cut | None, *, awake_w: float) -> None:
        self.goal, self._table, self._cut, self._awake_w = goal, table, cut, awake_w
        self.ways = self._moved(table.ways)

    def _moved(self, ways: Ways) -> Ways:
        if not self.goal.objective.in_seconds:
            return ways._replace(span_s=ways.extra, ends_s=ways.extra)
        if self._awake_w:
            return ways._replace(extra=ways.extra + self._awake_w * ways.span_s)
        return ways

    def candidates(self, chosen: int) -> tuple[Ways, Sequence[_Key]]:
        ways, keys = self._table.candidates(chosen)
        return self._moved(ways), keys

    def way(self, chosen: int, key: _Key) -> Way:
        return self._on_gpu(self._table.way(chosen, key))

    def best(self, chosen: int, number: int = 0) -> Way:
        return self._on_gpu(self._table.best(chosen, number))

    def _on_gpu(self, way: Way) -> Way:
        if self._cut is None:
            return way
        batches = (batch for _, stage in way for batch in stage.batches)
        return ((0, Stage(tuple(batches), self._cut)),)


class InTurn(Table):
    """A batch of `first` that starts at once, and then the other jobs in the same manner."""

    def __init__(self, first: Table) -> None:
        self.goal, self._first = first.goal, first
        nothing, number = Nothing(self.goal).ways, len(first.ways.span_s)
        self.ways = Ways(*(np.repeat(each, number, axis=0) for each in nothing))
        for outer, inner, left, starts in self.goal.sets.layers:
            step()
            every = self._joined(inner, left)
            best = self.goal.choose(every, starts * (len(every.span_s) // len(inner)))
            for own, each in zip(self.ways, every, strict=True):
                own[:, outer] = each[best]

    def _joined(self, inner: Indices, left: Indices) -> Ways:
        first, rest = _paired(_at(self._first.ways, inner), _at(self.ways, left))
        each, kinds = len(first.span_s) // len(inner), first.last_s.shape[1]
        waiting = np.repeat(self.goal.sets.counts[left], each, axis=0)
        later_s = rest.last_s + first.span_s[:, None]
        with np.errstate(invalid="ignore"):  # no job waits for a batch that is impossible
            waits_s = first.span_s * waiting.sum(axis=1)
        return Ways(
            first.span_s + rest.span_s,
            first.ends_s + rest.ends_s + waits_s,
            first.extra + rest.extra,
            np.maximum(first.last_s, np.where(waiting[:, :kinds] > 0, later_s, 0.0)),
        )

    def candidates(self, chosen: int) -> tuple[Ways, Sequence[_Key]]:
        inner = self.goal.sets.inside(chosen)[1 if chosen else 0 :]
        keys = _pair_keys(inner, self._first.ways, self.ways)
        return self._joined(inner, chosen - inner), keys

    def way(self, chosen: int, key: _Key) -> Way:
        inner, one, rest = key
        later = self.best(chosen - inner, rest) if chosen - inner else ()
        return (*self._first.best(inner, one), *later) if chosen else ()
