"""Sets of some jobs, as rows of arrays, and what each does in each partition of a GPU.

The predictor says so, or its surrogate model. Copies of a job are one kind with a count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.partition import partition_of
from advisor.plan.rules import MAX_OOM_PROBABILITY, FitsMemory, Rule, first_broken
from advisor.prediction.mix_steps import Predicts, SurrogatePredictor, Tenancy
from advisor.prediction.prediction import JobPrediction, Level, MixPrediction
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Concurrent, Hybrid, Instance, Mps, Naive, Part, Place
from advisor.simulation.events import array_stretches
from advisor.workload.job import Job

Indices = NDArray[np.intp]
ConstraintKey = tuple[tuple[str, bool, bool], ...]

Members = tuple[int, ...]
"""Numbers of the kinds of jobs that share a GPU, increasing; copies repeat theirs."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """Jobs grouped into kinds of equal ones: one job of each, and the positions of all of it."""

    jobs: tuple[Job, ...]
    positions: tuple[tuple[int, ...], ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.positions))

    def of(self, members: Members) -> tuple[Job, ...]:
        """Return the jobs of `members`, in the same order."""
        return tuple(self.jobs[kind] for kind in members)

    def allows(self, members: Members) -> bool:
        """Check that there are enough jobs of each kind for `members`."""
        return all(count <= len(self.positions[kind]) for kind, count in Counter(members).items())


def kinds(jobs: Sequence[Job]) -> Kinds:
    """Group `jobs` into kinds, in the order of the first of each."""
    first = [jobs.index(job) for job in jobs]  # a profile is long: comparing is less than hashing
    places = {at: tuple(i for i, other in enumerate(first) if other == at) for at in first}
    return Kinds(tuple(jobs[at] for at in places), tuple(places.values()))


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
        """The number that one job of each kind adds to that of a state, shape (kinds,)."""
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
        """Return the sets within `state`, and the states that they leave."""
        own = slice(*self._ends[state : state + 2])
        return self.pairs[1][own], self.pairs[2][own]

    def parts(self, chosen: Indices, kept: NDArray[np.bool_]) -> Indices:
        """Return the sets that remain of `chosen`, shape (chosen,), if only kinds `kept` are left.

        `kept` has the shape (chosen, kinds).
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
        """Return the largest of the `values` of the kinds that each set has, shape (sets,)."""
        return np.asarray(np.where(self.counts > 0, values, 0.0).max(axis=1))

    @cached_property
    def tenants(self) -> list[list[int]]:
        """Kinds of the jobs in each set, in order, once for each copy."""
        return [np.repeat(np.arange(len(self.jobs)), own).tolist() for own in self.counts]


def sets_of(jobs: Sequence[Job]) -> Sets:
    """Return all subsets of `jobs`, the empty one first."""
    distinct = kinds(jobs)
    rows = list(product(*(range(copies + 1) for copies in distinct.counts)))
    counts = np.array(rows, dtype=np.intp)
    return Sets(jobs=distinct.jobs, positions=distinct.positions, counts=counts)


# Equal limits that are tried, in per cent: multiples of a compute slice of MIG, k/7. Those that
# leave SMs unused are skipped.
EQUAL_GRID = (14, 28, 43, 57, 71, 86)

# Limits with a smaller sum, in per cent, leave SMs unused.
_LEAST_SUM = 90


def worth_trying(limit: float, jobs: int) -> bool:
    """Check whether `jobs` jobs with one `limit`, in per cent, may use all SMs or nearly all."""
    return limit * jobs >= _LEAST_SUM


class PartitionKind(NamedTuple):
    """A GPU instance of `profile`, or `slices` compute slices of one; both None: the whole GPU."""

    profile: str | None = None
    slices: int | None = None

    def shared(self, jobs: int, sharing: Concurrent) -> Arrangement:
        """Return the sharing of `jobs` jobs on it by `sharing`, with nothing else on the GPU."""
        if self.profile is None:
            return sharing
        numbers = tuple(range(1, jobs + 1))
        instance = Instance(self.profile)
        return Hybrid((Place(instance, (Part(numbers, sharing, self.slices),)),))


WHOLE_GPU = PartitionKind()


class Option(NamedTuple):
    """A partition and how jobs share it; limits are equal for all jobs, in per cent."""

    partition: PartitionKind
    sharing: Concurrent
    limit: float | None = None

    def of(self, jobs: int) -> Concurrent:
        """Return how `jobs` jobs share it."""
        return self.sharing if self.limit is None else Mps((self.limit,) * jobs)


def options(partition: PartitionKind) -> list[Option]:
    """Return the ways to share `partition` that are tried; limits only on the whole GPU."""
    limits = EQUAL_GRID if partition == WHOLE_GPU else ()
    limited = [Option(partition, Mps(), float(limit)) for limit in limits]
    return [Option(partition, Naive()), Option(partition, Mps()), *limited]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Steps, memory and power of some sets of jobs under one option.

    Attributes:
        steps_s: Seconds of a step of a job of each kind, shape (sets, kinds); 1: the set has none.
        fits: Whether memory suffices, shape (sets,).
        added_w: Watts that each such job adds to the power of a GPU that is awake, shape (sets,
            kinds); NaN: not known.
    """

    steps_s: Floats
    fits: NDArray[np.bool_]
    added_w: Floats


@dataclass(frozen=True, slots=True)
class PredictorSource:
    """Asks the predictor about each set: exact, but slow where it replays traces.

    Attributes:
        awake_w: Power of a GPU that is awake, before what its jobs add.
    """

    predictor: Predicts
    fits: FitsMemory
    level: Level
    awake_w: float

    def answers(self, options: Sequence[Option], sets: Sets) -> list[Answers]:
        """Answer under each of `options` for every set of `sets`; the empty set fits."""
        return [self._answers(each, sets) for each in options]

    def _answers(self, option: Option, sets: Sets) -> Answers:
        steps_s = np.ones(sets.counts.shape)
        added_w = np.zeros(sets.counts.shape)
        fits = np.ones(len(sets.counts), dtype=bool)
        part, most = option.partition.slices is not None, int(sets.sizes.max())
        if option.limit is not None and not worth_trying(option.limit, most):
            fits[1:] = False
            return Answers(steps_s=steps_s, fits=fits, added_w=added_w)
        for chosen, tenants in enumerate(sets.tenants[1:], start=1):
            if part and len(tenants) == most > 1:  # they would leave the rest of it idle
                fits[chosen] = False
                continue
            sharing = option.partition.shared(len(tenants), option.of(len(tenants)))
            profiles = [sets.jobs[each].profile for each in tenants]
            mix = self.predictor.predict(profiles, sharing)
            fits[chosen] = self.fits.broken(mix) is None
            steps_s[chosen, tenants] = [job.step_s.at(self.level) for job in mix.jobs]
            awake_w = self.awake_w / len(mix.jobs)
            added_w[chosen, tenants] = [self._own_w(job, mix) - awake_w for job in mix.jobs]
        return Answers(steps_s=steps_s, fits=fits, added_w=added_w)

    def _own_w(self, job: JobPrediction, mix: MixPrediction) -> float:
        """Power of a job by its share of the energy; if unknown, equal for all jobs."""
        if mix.power_w is None:
            return float("nan")
        if job.energy_step_j is None:
            return mix.power_w.at(self.level) / len(mix.jobs)
        own_w = job.energy_step_j.p50 / job.step_s.p50
        return own_w * mix.power_w.at(self.level) / mix.power_w.p50


@dataclass(frozen=True, slots=True)
class SurrogateSource:
    """Asks the surrogate model about each set: medians only, and fast.

    Attributes:
        margin: Share of each memory that jobs must leave free.
    """

    surrogate: SurrogatePredictor
    margin: float

    @property
    def awake_w(self) -> float:
        return self.surrogate.model.of(self.surrogate.gpu).power.awake_w

    def answers(self, options: Sequence[Option], sets: Sets) -> list[Answers]:
        """Answer as `PredictorSource.answers`, all options at once, since sets may be few."""
        gpu = self.surrogate.gpu
        tenancies = [Tenancy(partition_of(gpu, *each.partition), each.sharing, each.limit)
                     for each in options]  # fmt: skip
        fits = [self.surrogate.fits(each, sets.counts, MAX_OOM_PROBABILITY, self.margin)
                for each in tenancies]  # fmt: skip
        for fit in fits:
            fit[0] = True  # the empty set
        # If a set fits, so does each of its subsets.
        crowds = list(zip(tenancies, (sets.places[each] for each in fits), strict=True))
        answers = []
        for tenancy, fit, own_s in zip(tenancies, fits, self.surrogate.steps(crowds), strict=True):
            steps_s, places = np.ones(sets.counts.shape), sets.places[fit]
            rows, columns = np.nonzero(places >= 0)
            steps_s[np.flatnonzero(fit)[rows], places[rows, columns]] = own_s[rows, columns]
            added_w = np.where(sets.counts > 0, self.surrogate.added_w(tenancy, steps_s), 0.0)
            answers.append(Answers(steps_s=steps_s, fits=fit, added_w=added_w))
        return answers


Source = PredictorSource | SurrogateSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The outcome of every set under one option, if its jobs start at once.

    Attributes:
        allowed: Whether memory and rules allow the set, shape (sets,).
        slowdowns: Step over step alone of each kind, shape (sets, kinds); 1: the set has none.
        ends_s: Seconds until a job of each kind ends, same shape; 0: none, NaN: unknown length.
        added_j: Joules beyond those of an awake GPU until the last job ends, shape (sets,).
    """

    allowed: NDArray[np.bool_]
    slowdowns: Floats
    ends_s: Floats
    added_j: Floats

    def last_s(self, sets: Sets) -> Floats:
        """Return the seconds until the last job of each set ends, shape (sets,)."""
        return sets.largest(self.ends_s)

    def summed_ends_s(self, sets: Sets) -> Floats:
        """Return the sum of the ends of all jobs of each set, shape (sets,)."""
        return np.asarray((sets.counts * self.ends_s).sum(axis=1))


def outcomes(
    options: Sequence[Option], sets: Sets, source: Source, forbidding: Sequence[Rule]
) -> dict[Option, Outcomes]:
    """Compute the outcome of every set of `sets` under each of `options`."""
    alone_s = np.array([job.profile.step_s for job in sets.jobs])
    result = {}
    for option, answers in zip(options, source.answers(options, sets), strict=True):
        ends_s, added_j = _until_the_end(answers, sets)
        result[option] = Outcomes(
            allowed=answers.fits & _allowed(option, sets, forbidding), ends_s=ends_s,
            slowdowns=np.where(sets.counts > 0, answers.steps_s / alone_s, 1.0), added_j=added_j,
        )  # fmt: skip
    return result


def _until_the_end(answers: Answers, sets: Sets) -> tuple[Floats, Floats]:
    """When each job ends, the rest speeding up as others end; and joules added until then."""
    work = np.array([job.work_steps or np.nan for job in sets.jobs])
    present = sets.counts > 0
    unknown = (present & np.isnan(work)).any(axis=1)
    ends_s = np.where(present & unknown[:, None], np.nan, 0.0)
    added_j = np.where(unknown, np.nan, 0.0)
    power_w = (answers.added_w * sets.counts).sum(axis=1)
    for at, running, seconds in array_stretches(
        np.where(present & ~unknown[:, None], work, 0.0),
        lambda at, running: answers.steps_s[sets.parts(at, running)],
    ):
        ends_s[at] += np.where(running, seconds[:, None], 0.0)
        added_j[at] += seconds * power_w[sets.parts(at, running)]
    return ends_s, added_j


def _allowed(option: Option, sets: Sets, forbidding: Sequence[Rule]) -> NDArray[np.bool_]:
    """Whether the rules allow each set; a set may do whatever a larger one may."""

    def allows(tenants: Sequence[int]) -> bool:
        jobs = [sets.jobs[each] for each in tenants]
        sharing = option.partition.shared(len(jobs), option.of(len(jobs)))
        return first_broken(forbidding, jobs, sharing) is None

    if allows(sets.tenants[-1]):
        return np.ones(len(sets.counts), dtype=bool)
    allowed: dict[ConstraintKey, bool] = {(): True}
    for key, tenants in zip(sets.constraint_keys, sets.tenants, strict=True):
        if key not in allowed:
            allowed[key] = allows(tenants)
    return np.array([allowed[key] for key in sets.constraint_keys])
