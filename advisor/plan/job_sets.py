"""All subsets of some jobs, as rows of arrays; copies of a job are one kind with a count."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.trace import Floats
from advisor.workload.job import Job

Indices = NDArray[np.intp]
ConstraintKey = tuple[tuple[str, bool, bool], ...]

Members = tuple[int, ...]
"""Numbers of the kinds of jobs that share a GPU, increasing; copies repeat theirs."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """Jobs grouped into kinds: jobs of one kind are equal.

    Attributes:
        jobs: One job of each kind, shape (kinds,).
        positions: Positions of the jobs of each kind among all jobs, from 0.
    """

    jobs: tuple[Job, ...]
    positions: tuple[tuple[int, ...], ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.positions))

    @property
    def together(self) -> tuple[Job, ...]:
        """All jobs, those of one kind next to each other, in the order of the kinds."""
        pairs = zip(self.jobs, self.counts, strict=True)
        return tuple(job for job, count in pairs for _ in range(count))

    def of(self, members: Members) -> tuple[Job, ...]:
        """The jobs of `members`, in the same order."""
        return tuple(self.jobs[kind] for kind in members)

    def allows(self, members: Members) -> bool:
        """Whether there are enough jobs of each kind for `members`."""
        return all(count <= len(self.positions[kind]) for kind, count in Counter(members).items())


def kinds(jobs: Sequence[Job]) -> Kinds:
    """`jobs` by kind, in the order of the first of each."""
    first = [jobs.index(job) for job in jobs]  # a profile is long: comparing is less than hashing
    places = [tuple(at for at, other in enumerate(first) if other == each) for each in first]
    one_each = [at for at, other in enumerate(first) if other == at]
    return Kinds(tuple(jobs[at] for at in one_each), tuple(places[at] for at in one_each))


@dataclass(frozen=True)
class Sets:
    """Sets of jobs.

    A *state* is the number of a set: of jobs that are still to be placed, for example.

    Attributes:
        jobs: One job of each kind, shape (kinds,).
        positions: Positions of the jobs of each kind among all, from 0, shape (kinds,).
        counts: Number of jobs of each kind in each set, shape (sets, kinds); the first set is
            empty.
    """

    jobs: tuple[Job, ...]
    positions: tuple[tuple[int, ...], ...]
    counts: Indices

    @cached_property
    def totals(self) -> Indices:
        """Number of jobs of each kind, shape (kinds,)."""
        return np.array([len(each) for each in self.positions])

    @cached_property
    def _weights(self) -> Indices:
        """What one job of each kind adds to the number of a state, shape (kinds,)."""
        return np.concatenate([[1], np.cumprod(self.totals + 1)[:-1]]).astype(np.intp)

    @cached_property
    def state(self) -> Indices:
        """The state of each set, as a number, shape (sets,)."""
        return np.asarray(self.counts @ self._weights)

    @property
    def states(self) -> int:
        """Number of states; the last state is all jobs."""
        return int(prod(map(int, self.totals + 1)))

    @cached_property
    def sizes(self) -> Indices:
        """Number of jobs in each set, shape (sets,)."""
        return np.asarray(self.counts.sum(axis=1))

    @cached_property
    def pairs(self) -> tuple[Indices, Indices, Indices]:
        """Every set within every state: state, set, and the state that is left, each (pairs,)."""
        kinds = np.arange(self.states)[:, None] // self._weights % (self.totals + 1)
        state, chosen = np.nonzero((self.counts[None] <= kinds[:, None]).all(axis=2))
        return state, chosen, state - self.state[chosen]

    @cached_property
    def first_pairs(self) -> Indices:
        """Index of the first of the `pairs` of each state, shape (states,)."""
        return np.searchsorted(self.pairs[0], np.arange(self.states))

    @cached_property
    def _ends(self) -> list[int]:
        """Bounds of the `pairs` of each state, shape (states + 1,)."""
        return [*self.first_pairs.tolist(), len(self.pairs[0])]

    def inside(self, state: int) -> tuple[Indices, Indices]:
        """The sets within `state`, and the states that they leave."""
        own = slice(*self._ends[state : state + 2])
        return self.pairs[1][own], self.pairs[2][own]

    def parts(self, chosen: Indices, kept: NDArray[np.bool_]) -> Indices:
        """The sets that remain of `chosen` when only some of their jobs are left, shape (chosen,).

        Args:
            chosen: Indices of sets, shape (chosen,).
            kept: Whether the jobs of each kind remain, shape (chosen, kinds).
        """
        return np.asarray(self._set_of[(self.counts[chosen] * kept) @ self._weights])

    @cached_property
    def _set_of(self) -> Indices:
        """The set of each state, shape (states,)."""
        return np.argsort(self.state)

    @cached_property
    def places(self) -> Indices:
        """Kind of the job in each place of each set, shape (sets, most jobs); -1: empty."""
        rows = np.full((len(self.counts), max(1, int(self.sizes.max()))), -1, dtype=np.intp)
        for own, tenants in zip(rows, self.tenants, strict=True):
            own[: len(tenants)] = tenants
        return rows

    @cached_property
    def constraint_keys(self) -> list[ConstraintKey]:
        """For each set a key of all that rules look at: sets with equal keys obey equal rules."""
        seen = [(job.user or "", job.isolated, job.data_parallel) for job in self.jobs]
        return [tuple(sorted(seen[each] for each in tenants)) for tenants in self.tenants]

    def largest(self, values: Floats) -> Floats:
        """Largest of the `values` of the kinds that each set has, shape (sets,)."""
        return np.asarray(np.where(self.counts > 0, values, 0.0).max(axis=1))

    @cached_property
    def tenants(self) -> list[list[int]]:
        """Kinds of the jobs in each set, in order, once for each copy."""
        kinds = np.arange(len(self.jobs))
        return [np.repeat(kinds, chosen).tolist() for chosen in self.counts]


def sets_of(jobs: Sequence[Job]) -> Sets:
    """All subsets of `jobs`, the empty one first."""
    found = kinds(jobs)
    rows = list(product(*(range(copies + 1) for copies in found.counts)))
    return Sets(jobs=found.jobs, positions=found.positions, counts=np.array(rows, dtype=np.intp))
