"""Sets of some jobs, as rows of arrays, the cuts of a GPU, and the outcome of each set in a part.

The predictor gives the outcome, or its surrogate model. Copies of a job are one kind with a count.
"""

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import product, zip_longest
from typing import NamedTuple

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import layouts, profile_of
from advisor.hardware.partition import compute_sets, partition_of
from advisor.plan import step
from advisor.plan.rules import MAX_OOM_PROBABILITY, broken_rule, memory_problem
from advisor.plan.values import Question
from advisor.prediction.mix_steps import SurrogatePredictor, Tenancy, paced_steps
from advisor.prediction.prediction import JobPrediction, Level, MixPrediction
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Concurrent, Hybrid, Instance, Mps, Naive, Part, Place
from advisor.simulation.turns import Bools, Indices, array_stretches
from advisor.workload.job import Job

Members = tuple[int, ...]
"""Numbers of the kinds of jobs that share a GPU, increasing; copies repeat theirs."""


def without(members: Members, kind: int) -> Members:
    """Return `members` without one job of `kind`."""
    at = members.index(kind)
    return (*members[:at], *members[at + 1 :])


def with_one(members: Members, kind: int) -> Members:
    """Return `members` with one more job of `kind`."""
    return tuple(sorted((*members, kind)))


class Kinds:
    """Jobs grouped into kinds of equal ones, in the order of the first of each, shapes (kinds,).

    Attributes:
        positions: Positions of the jobs of each kind among all, from 0.
        kind_of: The kind of each job, shape (jobs,).
        ruled_as: The first kind for which all rules have the same result.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        first = [jobs.index(job) for job in jobs]  # a profile is long: comparing beats hashing
        places = {at: tuple(i for i, other in enumerate(first) if other == at) for at in first}
        self.jobs = tuple(jobs[at] for at in places)
        self.positions = tuple(places.values())
        self.copies = tuple(map(len, self.positions))
        self.kind_of = tuple(list(places).index(at) for at in first)
        ruled = [(job.user, job.isolated, job.data_parallel) for job in self.jobs]
        self.ruled_as = [ruled.index(each) for each in ruled]

    def of(self, members: Members) -> tuple[Job, ...]:
        """Return the jobs of `members`, in the same order."""
        return tuple(self.jobs[kind] for kind in members)

    def allows(self, members: Members) -> bool:
        """Check that there are enough jobs of each kind for `members`."""
        return all(count <= self.copies[kind] for kind, count in Counter(members).items())


class Sets(Kinds):
    """All sets of some jobs, by number: 0 is the empty one, the last one contains all jobs.

    The number of a set minus that of a smaller one within it is the number of what is left.
    `counts` are the jobs of each kind in each set, shape (sets, kinds), `sizes` their sums, and
    `tenants` the kinds of the jobs in each set, in order, once for each copy.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__(jobs)
        self._shape = tuple(copies + 1 for copies in self.copies)
        self.counts: Indices = np.array(list(product(*map(range, self._shape))), dtype=np.intp)
        self.sizes: Indices = self.counts.sum(axis=1)
        self.tenants = [np.repeat(np.arange(len(own)), own).tolist() for own in self.counts]

    def with_jobs(self, jobs: Sequence[Job]) -> "Sets":
        """Return the same sets of other jobs, one of each kind, e.g. as profiled on another GPU."""
        others = copy(self)
        others.jobs = tuple(jobs)
        return others

    @property
    def everything(self) -> int:
        """Number of the set of all jobs."""
        return len(self.counts) - 1

    def number(self, kinds: Sequence[int]) -> int:
        """Return the set of jobs of these `kinds`, one for each time that it is named."""
        counts = np.bincount(kinds, minlength=len(self.copies))
        return int(np.ravel_multi_index(tuple(counts), self._shape))

    def inside(self, whole: int) -> Indices:
        """Return the sets within the set `whole`, increasing."""
        return np.flatnonzero((self.counts <= self.counts[whole]).all(axis=1))

    @cached_property
    def pairs(self) -> tuple[Indices, Indices, Indices]:
        """Every set in every set, and the rest, (pairs,); where each outer set starts, (sets,)."""
        outer, inner = np.nonzero((self.counts[None] <= self.counts[:, None]).all(axis=2))
        return inner, outer - inner, np.searchsorted(outer, np.arange(len(self.counts)))

    @cached_property
    def layers(self) -> list[tuple[Indices, Indices, Indices, Indices]]:
        """Return, for each number of jobs from 1: the sets of so many jobs, shape (sets,).

        And every set in each of these but the empty one, and the rest, both (pairs,); and where
        the pairs of each set start, (sets,).
        """
        inner, left, _ = self.pairs
        some, outer = inner > 0, inner + left
        layers = []
        for size in range(1, int(self.sizes[-1]) + 1):
            own = np.flatnonzero(some & (self.sizes[outer] == size))
            sets, starts = np.unique(outer[own], return_index=True)
            layers.append((sets, inner[own], left[own], starts))
        return layers

    def parts(self, whole: Indices, kept: Bools) -> Indices:
        """Return the sets that remain of each set if only the kinds `kept`, (sets, kinds), do."""
        return np.asarray(np.ravel_multi_index((self.counts[whole] * kept).T, self._shape))

    @cached_property
    def places(self) -> Indices:
        """Kind of the job in each place of each set, shape (sets, most jobs); -1: empty."""
        columns = list(zip_longest(*self.tenants, fillvalue=-1))
        return np.ascontiguousarray(np.array(columns, dtype=np.intp).T)


# Equal limits that are tried, in per cent: multiples of a compute slice of MIG, k/7. Limits with a
# smaller sum than the least leave SMs unused.
EQUAL_GRID, _LEAST_SUM = (14, 28, 43, 57, 71, 86), 90


def equal_limits(jobs: int) -> list[int]:
    """Return the limits of `EQUAL_GRID` with which `jobs` jobs may use all SMs or nearly all."""
    return [limit for limit in EQUAL_GRID if limit * jobs >= _LEAST_SUM]


class PartitionKind(NamedTuple):
    """A GPU instance of `profile`, or `slices` compute slices of one; both None: the whole GPU."""

    profile: str | None = None
    slices: int | None = None


WHOLE_GPU = PartitionKind()


class Option(NamedTuple):
    """A partition and how jobs share it; limits are equal for all jobs, in per cent."""

    partition: PartitionKind
    sharing: Concurrent
    limit: float | None = None

    def of(self, jobs: int) -> Concurrent:
        """Return how `jobs` jobs share the partition."""
        return self.sharing if self.limit is None else Mps((self.limit,) * jobs)

    def on_gpu(self, jobs: int) -> Arrangement:
        """Return how `jobs` jobs share a GPU on which only this partition is used."""
        profile, slices = self.partition
        if profile is None:
            return self.of(jobs)
        part = Part(tuple(range(1, jobs + 1)), self.of(jobs), slices)
        return Hybrid((Place(Instance(profile), (part,)),))


def options(partition: PartitionKind) -> list[Option]:
    """Return the ways to share `partition` that are tried; limits only on the whole GPU."""
    limits = EQUAL_GRID if partition == WHOLE_GPU else ()
    limited = [Option(partition, Mps(), float(limit)) for limit in limits]
    return [Option(partition, Naive()), Option(partition, Mps()), *limited]


Answers = tuple[Floats, Bools, Floats]
"""The answers about all sets of jobs under one option, NaN where unknown: seconds of a step of a
job of each kind, shape (sets, kinds), 1 where the set has none; whether memory suffices, (sets,);
and watts that each such job adds to the power of a GPU that is awake, (sets, kinds)."""


def predicted_answers(option: Option, sets: Sets, question: Question, awake_w: float) -> Answers:
    """Ask the predictor about each set: exact, but slow where it replays traces."""
    gpu, level, margin = question.gpu, question.level, question.conditions.memory_margin
    steps_s, added_w = np.ones(sets.counts.shape), np.zeros(sets.counts.shape)
    fits = np.ones(len(sets.counts), dtype=bool)
    for chosen, tenants in enumerate(sets.tenants[1:], start=1):
        step()
        profiles = [sets.jobs[kind].profile for kind in tenants]
        mix = question.predictor.predict(profiles, option.on_gpu(len(tenants)))
        fits[chosen] = memory_problem(mix, gpu, margin) is None
        steps_s[chosen, tenants] = [job.step_s.at(level) for job in mix.jobs]
        own_awake_w = awake_w / len(mix.jobs)
        added_w[chosen, tenants] = [_own_w(job, mix, level) - own_awake_w for job in mix.jobs]
    return steps_s, fits, added_w


def _own_w(job: JobPrediction, mix: MixPrediction, level: Level) -> float:
    """Power of a job by its share of the energy; if unknown, equal for all jobs."""
    if mix.power_w is None:
        return float("nan")
    if job.energy_step_j is None:
        return mix.power_w.at(level) / len(mix.jobs)
    return job.energy_step_j.p50 / job.paced_s.p50 * mix.power_w.at(level) / mix.power_w.p50


def estimated_answers(
    options: Sequence[Option], sets: Sets, surrogate: SurrogatePredictor, margin: float
) -> list[Answers]:
    """Ask the surrogate model about each set, all options at once: medians only, and fast."""
    tenancies = [
        Tenancy(partition_of(surrogate.gpu, *each.partition), each.sharing, each.limit)
        for each in options
    ]
    fits = [surrogate.fits(each, sets.counts, MAX_OOM_PROBABILITY, margin) for each in tenancies]
    for fit in fits:
        fit[0] = True  # the empty set
    # If a set fits, so does each of its subsets.
    crowds = list(zip(tenancies, (sets.places[each] for each in fits), strict=True))
    answers = []
    for tenancy, fit, own_s in zip(tenancies, fits, surrogate.steps(crowds), strict=True):
        steps_s, places = np.ones(sets.counts.shape), sets.places[fit]
        rows, columns = np.nonzero(places >= 0)
        steps_s[np.flatnonzero(fit)[rows], places[rows, columns]] = own_s[rows, columns]
        added_w = np.where(sets.counts > 0, surrogate.added_w(tenancy, steps_s), 0.0)
        answers.append((steps_s, fit, added_w))
    return answers


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of every set under one option, if its jobs start at once.

    Attributes:
        counts: Number of jobs of each kind in each set, shape (sets, kinds).
        allowed: Whether memory and rules allow the set, shape (sets,).
        slowdowns: Step over step alone of each kind, shape (sets, kinds); 1: the set has none.
        ends_s: Seconds until a job of each kind ends, same shape; 0: none, NaN: unknown length.
        added_j: Joules beyond those of an awake GPU until the last job ends, shape (sets,).
    """

    counts: Indices
    allowed: Bools
    slowdowns: Floats
    ends_s: Floats
    added_j: Floats

    def largest(self, values: Floats) -> Floats:
        """Return the largest of the `values` of the kinds that each set has, shape (sets,)."""
        return np.asarray(np.where(self.counts > 0, values, 0.0).max(axis=1))

    def summed(self, values: Floats) -> Floats:
        """Return the sum of the `values` of all jobs of each set, shape (sets,)."""
        return np.asarray((self.counts * values).sum(axis=1))


def deadlines_s(jobs: Sequence[Job]) -> Floats:
    """Return the deadlines of `jobs`, infinite for none, shape (jobs,)."""
    return np.array([job.deadline_s or np.inf for job in jobs])


def outcomes(option: Option, answers: Answers, sets: Sets, question: Question) -> Outcomes:
    """Compute the outcome of every set of `sets` under `option`; jobs speed up as others end."""
    steps_s, fits, added_w = answers
    work = np.array([job.work_steps or np.nan for job in sets.jobs])
    alone_s = np.array([job.profile.step_s for job in sets.jobs])
    present = sets.counts > 0
    unknown = (present & np.isnan(work)).any(axis=1)
    ends_s = np.where(present & unknown[:, None], np.nan, 0.0)
    added_j = np.where(unknown, np.nan, 0.0)
    power_w = (added_w * sets.counts).sum(axis=1)
    takes_s = paced_steps([job.profile for job in sets.jobs], steps_s)
    for at, running, _, seconds in array_stretches(
        np.where(present & ~unknown[:, None], work, 0.0),
        lambda at, running: takes_s[sets.parts(at, running)],
    ):
        ends_s[at] += np.where(running, seconds[:, None], 0.0)
        added_j[at] += seconds * power_w[sets.parts(at, running)]
    slowdowns = np.where(present, steps_s / alone_s, 1.0)
    allowed = fits & _allowed(option, sets, question)
    return Outcomes(sets.counts, allowed, slowdowns, ends_s, added_j)


def _allowed(option: Option, sets: Sets, question: Question) -> Bools:
    """Check each set by the rules, shape (sets,); a set may do whatever a larger one may."""

    def allows(tenants: Sequence[int]) -> bool:
        jobs = [sets.jobs[kind] for kind in tenants]
        sharing = option.on_gpu(len(jobs))
        return broken_rule(jobs, sharing, question.gpu, question.conditions) is None

    if allows(sets.tenants[-1]):
        return np.ones(len(sets.counts), dtype=bool)
    keys = [tuple(sorted(sets.ruled_as[kind] for kind in tenants)) for tenants in sets.tenants]
    allowed: dict[Members, bool] = {(): True}
    for key, tenants in zip(keys, sets.tenants, strict=True):
        if key not in allowed:
            allowed[key] = allows(tenants)
    return np.array([allowed[key] for key in keys])


_Parts = tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """One way to cut a GPU into instances, and some into parts of so many compute slices."""

    instances: tuple[Instance, ...]
    parts: tuple[_Parts, ...]

    @cached_property
    def places(self) -> tuple[PartitionKind | tuple[PartitionKind, ...], ...]:
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


def allowed_cuts(question: Question) -> tuple[Cut, ...]:
    """Return the cuts of the question's GPU that its conditions allow."""
    gpu, conditions = question.gpu, question.conditions
    if conditions.instances is not None:
        return (cut_into(gpu, conditions.instances),)
    every = cuts(gpu) if gpu.mig and conditions.root else ()
    return tuple(each for each in every if conditions.mig == "any" or not any(each.parts))
