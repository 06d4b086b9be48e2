"""What every set of jobs does in every partition, by the predictor or its surrogate model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.partition import partition_of
from advisor.plan.job_sets import ConstraintKey, Sets
from advisor.plan.limit_tuning import worth_trying
from advisor.plan.partitions import Option
from advisor.plan.rules import MAX_OOM_PROBABILITY, FitsMemory, Rule, first_broken
from advisor.prediction.prediction import JobPrediction, Level, MixPrediction
from advisor.prediction.surrogate_predictor import Predicts, SurrogateAnswers, Tenancy
from advisor.prediction.trace import Floats
from advisor.simulation.events import array_stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Steps, memory and power of some sets of jobs under one option.

    Attributes:
        steps_s: Seconds of a step of a job of each kind, shape (sets, kinds); 1 where the
            set has none of it.
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
        """Answers under each of `options` for every set of `sets`; the empty set fits."""
        return [self._answers(each, sets) for each in options]

    def _answers(self, option: Option, sets: Sets) -> Answers:
        steps_s = np.ones(sets.counts.shape)
        added_w = np.zeros(sets.counts.shape)
        fits = np.ones(len(sets.counts), dtype=bool)
        if option.limit is not None and not worth_trying(option.limit, int(sets.sizes.max())):
            fits[1:] = False
            return Answers(steps_s=steps_s, fits=fits, added_w=added_w)
        part, everyone = option.partition.slices is not None, int(sets.sizes.max())
        for chosen, tenants in enumerate(sets.tenants[1:], start=1):
            if part and len(tenants) == everyone > 1:  # they would leave the rest of it idle
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
        """Each job's part of the added watts, by its share of the energy; if unknown, equal."""
        if mix.power_w is None:
            return float("nan")
        if job.energy_step_j is None:
            return mix.power_w.at(self.level) / len(mix.jobs)
        own_w = job.energy_step_j.p50 / job.step_s.p50
        return own_w * mix.power_w.at(self.level) / mix.power_w.p50


@dataclass(frozen=True, slots=True)
class SurrogateSource:
    """As `PredictorSource`, by the surrogate model: medians only, and fast.

    Attributes:
        margin: Share of each memory that jobs must leave free.
    """

    surrogate: SurrogateAnswers
    margin: float

    @property
    def awake_w(self) -> float:
        return self.surrogate.model.of(self.surrogate.gpu).power.awake_w

    def answers(self, options: Sequence[Option], sets: Sets) -> list[Answers]:
        """As `PredictorSource.answers`; all options are computed at once, since sets may be few."""
        tenancies = [self._tenancy(each) for each in options]
        fits = [self.surrogate.fits(each, sets.counts, MAX_OOM_PROBABILITY, self.margin)
                for each in tenancies]  # fmt: skip
        for fit in fits:
            fit[0] = True  # the empty set
        # If a set fits, so does each of its subsets.
        crowds = list(zip(tenancies, (sets.places[each] for each in fits), strict=True))
        answered = self.surrogate.steps(crowds)
        return [
            self._answers(tenancy, sets, fit, steps_s)
            for tenancy, fit, steps_s in zip(tenancies, fits, answered, strict=True)
        ]

    def _answers(
        self, tenancy: Tenancy, sets: Sets, fits: NDArray[np.bool_], answered: Floats
    ) -> Answers:
        """Answers from the steps of the jobs in the sets that fit, shape (fitting sets, places)."""
        steps_s, asked, places = np.ones(sets.counts.shape), np.flatnonzero(fits), sets.places[fits]
        rows, columns = np.nonzero(places >= 0)
        steps_s[asked[rows], places[rows, columns]] = answered[rows, columns]
        return Answers(
            steps_s=steps_s,
            fits=fits,
            added_w=np.where(sets.counts > 0, self.surrogate.added_w(tenancy, steps_s), 0.0),
        )

    def _tenancy(self, option: Option) -> Tenancy:
        held = partition_of(self.surrogate.gpu, *option.partition)
        return Tenancy(held, option.sharing, option.limit)


Source = PredictorSource | SurrogateSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What comes of every set under one option, if its jobs start at once.

    Attributes:
        allowed: Whether memory and rules allow the set, shape (sets,).
        slowdowns: Step over step alone of each kind, shape (sets, kinds); 1 where the set has
            none.
        ends_s: Seconds until a job of each kind ends, same shape; 0 where the set has none, NaN
            where a length is unknown.
        added_j: Joules beyond those of an awake GPU until the last job ends, shape (sets,).
    """

    allowed: NDArray[np.bool_]
    slowdowns: Floats
    ends_s: Floats
    added_j: Floats

    def last_s(self, sets: Sets) -> Floats:
        """Seconds until the last job of each set ends, shape (sets,)."""
        return sets.largest(self.ends_s)

    def summed_ends_s(self, sets: Sets) -> Floats:
        """Sum of the ends of all jobs of each set, shape (sets,)."""
        return np.asarray((sets.counts * self.ends_s).sum(axis=1))


def outcomes(
    options: Sequence[Option], sets: Sets, source: Source, forbidding: Sequence[Rule]
) -> dict[Option, Outcomes]:
    """What comes of every set of `sets` under each of `options`."""
    answers = zip(options, source.answers(options, sets), strict=True)
    return {option: _outcomes(option, sets, found, forbidding) for option, found in answers}


def _outcomes(option: Option, sets: Sets, found: Answers, forbidding: Sequence[Rule]) -> Outcomes:
    there = sets.counts > 0
    ends_s, added_j = _until_the_end(found, sets)
    alone_s = np.array([job.profile.step_s for job in sets.jobs])
    return Outcomes(
        allowed=found.fits & _allowed(option, sets, forbidding),
        slowdowns=np.where(there, found.steps_s / alone_s, 1.0),
        ends_s=ends_s,
        added_j=added_j,
    )


def _until_the_end(found: Answers, sets: Sets) -> tuple[Floats, Floats]:
    """When each job ends, the rest speeding up as others end; and joules added until then."""
    work = np.array([job.work_steps or np.nan for job in sets.jobs])
    there = sets.counts > 0
    unknown = (there & np.isnan(work)).any(axis=1)
    ends_s = np.where(there & unknown[:, None], np.nan, 0.0)
    added_j = np.where(unknown, np.nan, 0.0)
    power_w = (found.added_w * sets.counts).sum(axis=1)
    for stretch in array_stretches(
        np.where(there & ~unknown[:, None], work, 0.0),
        lambda at, running: found.steps_s[sets.parts(at, running)],
    ):
        at, running, seconds = stretch
        ends_s[at] += np.where(running, seconds[:, None], 0.0)
        added_j[at] += seconds * power_w[sets.parts(at, running)]
    return ends_s, added_j


def _allowed(option: Option, sets: Sets, forbidding: Sequence[Rule]) -> NDArray[np.bool_]:
    """Whether the rules allow each set; a set may do whatever a larger one may."""

    def allows(tenants: Sequence[int]) -> bool:
        jobs = [sets.jobs[each] for each in tenants]
        sharing = option.partition.shared(len(jobs), option.of(len(jobs)))
        return first_broken(forbidding, jobs, sharing) is None

    known: dict[ConstraintKey, bool] = {(): True}
    if allows(sets.tenants[-1]):
        known = dict.fromkeys(sets.constraint_keys, True)
    for key, tenants in zip(sets.constraint_keys, sets.tenants, strict=True):
        if key not in known:
            known[key] = allows(tenants)
    return np.array([known[key] for key in sets.constraint_keys])
