"""All subsets of some jobs, as rows of arrays; copies of a job are one kind with a count."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.trace import Floats
from advisor.workload.job import Job

Indices = NDArray[np.intp]
ConstraintKey = tuple[tuple[str, bool, bool], ...]

# The most sets. If batch sizes would make more, jobs keep the sizes asked for.
_MOST_SETS = 20_000


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
    """Sets of jobs; a job of several batch sizes is in a set with one of them.

    A *state* is a set regardless of batch sizes: jobs that are still to be placed, for example.

    Attributes:
        variants: One job of each kind at each of its batch sizes, shape (variants,).
        kind_of: The kind of each variant, shape (variants,).
        positions: Positions of the jobs of each kind among all, from 0, shape (kinds,).
        counts: Number of jobs of each variant in each set, shape (sets, variants); the first set is
            empty.
        batches_fixed: Whether there were too many batch sizes to try, so that only those asked for
            are.
    """

    variants: tuple[Job, ...]
    kind_of: tuple[int, ...]
    positions: tuple[tuple[int, ...], ...]
    counts: Indices
    batches_fixed: bool

    @cached_property
    def totals(self) -> Indices:
        """Number of jobs of each kind, shape (kinds,)."""
        return np.array([len(each) for each in self.positions])

    @cached_property
    def of_kind(self) -> Indices:
        """Number of jobs of each kind in each set, shape (sets, kinds)."""
        kinds = np.eye(len(self.positions), dtype=np.intp)[list(self.kind_of)]
        return np.asarray(self.counts @ kinds)

    @cached_property
    def _weights(self) -> Indices:
        """What one job of each kind adds to the number of a state, shape (kinds,)."""
        return np.concatenate([[1], np.cumprod(self.totals + 1)[:-1]]).astype(np.intp)

    @cached_property
    def state(self) -> Indices:
        """The state of each set, as a number, shape (sets,)."""
        return np.asarray(self.of_kind @ self._weights)

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
        state, chosen = np.nonzero((self.of_kind[None] <= kinds[:, None]).all(axis=2))
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
            kept: Whether the jobs of each variant remain, shape (chosen, variants).
        """
        weights, codes, order = self._codes
        wanted = (self.counts[chosen] * kept) @ weights
        return np.asarray(order[np.searchsorted(codes[order], wanted)])

    @cached_property
    def _codes(self) -> tuple[Indices, Indices, Indices]:
        """Weight of each variant in a set's code, the codes of all sets, and their order."""
        radix = self.totals[list(self.kind_of)] + 1
        weights = np.concatenate([[1], np.cumprod(radix)[:-1]]).astype(np.intp)
        codes = self.counts @ weights
        return weights, codes, np.argsort(codes)

    @cached_property
    def places(self) -> Indices:
        """Variant of the job in each place of each set, shape (sets, most jobs); -1: empty."""
        rows = np.full((len(self.counts), max(1, int(self.sizes.max()))), -1, dtype=np.intp)
        for own, tenants in zip(rows, self.tenants, strict=True):
            own[: len(tenants)] = tenants
        return rows

    @cached_property
    def constraint_keys(self) -> list[ConstraintKey]:
        """For each set a key of all that rules look at: sets with equal keys obey equal rules."""
        seen = [(job.user or "", job.isolated, job.data_parallel) for job in self.variants]
        return [tuple(sorted(seen[each] for each in tenants)) for tenants in self.tenants]

    def largest(self, values: Floats) -> Floats:
        """Largest of the `values` of the variants that each set has, shape (sets,)."""
        return np.asarray(np.where(self.counts > 0, values, 0.0).max(axis=1))

    @cached_property
    def tenants(self) -> list[list[int]]:
        """Variants of the jobs in each set, in order, once for each copy."""
        variants = np.arange(len(self.variants))
        return [np.repeat(variants, chosen).tolist() for chosen in self.counts]


def sets_of(jobs: Sequence[Job]) -> Sets:
    """All subsets of `jobs`, the empty one first."""
    found = kinds(jobs)
    pairs = zip(found.jobs, found.counts, strict=True)
    parts = [_parts(copies, len(job.variants)) for job, copies in pairs]
    if prod(map(len, parts)) > _MOST_SETS:
        return replace(sets_of([job.variants[0] for job in jobs]), batches_fixed=True)
    rows = [sum(each, ()) for each in product(*parts)]
    return Sets(
        variants=tuple(variant for job in found.jobs for variant in job.variants),
        kind_of=tuple(kind for kind, job in enumerate(found.jobs) for _ in job.variants),
        positions=found.positions,
        counts=np.array(rows, dtype=np.intp),
        batches_fixed=False,
    )


def _parts(copies: int, variants: int) -> list[tuple[int, ...]]:
    """All counts of `variants` variants that add up to at most `copies`."""
    grid = product(range(copies + 1), repeat=variants)
    return [each for each in grid if sum(each) <= copies]
