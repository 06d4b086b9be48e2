"""Objectives: the cost of a plan, of thousands of candidates at once, and which plan comes first.

A plan comes first by the least cost, with a handicap for how it shares. Ranges play no part in it,
so that a poor description of a job does not choose the simplest way.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from advisor.plan import ObjectiveName
from advisor.plan.job_sets import Outcomes, deadlines_s
from advisor.plan.values import Outcome, Precedence, Totals
from advisor.prediction.prediction import LEVELS, Interval, Level, all_known, around
from advisor.prediction.trace import Floats
from advisor.sharing import Mode, Sharing
from advisor.sharing.groups import kind_of, sets_in_turn
from advisor.simulation.turns import Indices
from advisor.workload.job import Job

LENGTHS_MISSING = "needs every job's length; set examples_per_epoch in the profiles"
# Weight of what decides between ways of equal cost.
_TIE = 1e-6
POWER_MISSING = "needs the power of every job, which was not measured"


class Ways(NamedTuple):
    """Outcomes of thousands of ways to run some jobs from second 0, infinite where impossible.

    Attributes:
        span_s: Seconds until the last job ends, shape (...).
        ends_s: Sum over the jobs of the seconds until a job ends, same shape.
        extra: What the objective adds up besides, same shape: joules, or the time for equal work.
        last_s: Seconds until the last job of each kind ends, shape (..., kinds), 0 without one; no
            kinds where the objective has no deadlines.
    """

    span_s: Floats
    ends_s: Floats
    extra: Floats
    last_s: Floats


@dataclass(frozen=True, slots=True)
class Terms:
    """The numbers by which an objective weighs `Ways`, and compares those of a place in several.

    Attributes:
        deadlines_s: Deadline of each kind of job, infinite for none, shape (kinds,).
        watts: For joules, what a second until the last job ends costs besides, by each criterion.
        waits_s: For deadlines, seconds until the jobs start, by each criterion.
    """

    deadlines_s: Floats
    watts: tuple[float, ...] = (0.0,)
    waits_s: tuple[float, ...] = (0.0,)


class Objective(ABC):
    """A goal of plans, always as a cost: the lower, the better.

    Plans are ranked by `cost`, which is exact. `criteria` orders thousands of ways at once.

    Attributes:
        explained: How to read a `cost` that has no unit; empty where it has one.
        instead: Objectives to rank by where this cost cannot be computed, each with the reason. The
            last one always can be computed.
        then: The objective that decides between plans whose costs are tied; None: none does.
        in_seconds: Whether times are in seconds. For throughput, each job's time alone is the unit,
            and pauses between groups do not count.
    """

    name: ClassVar[ObjectiveName]
    unit: ClassVar[Literal["s", "J", "ratio"]]
    choice: ClassVar[str]
    measure: ClassVar[str]
    explained: ClassVar[str] = ""
    instead: ClassVar[tuple[tuple[ObjectiveName, str], ...]] = (("throughput", LENGTHS_MISSING),)
    uses_deadlines: ClassVar[bool] = False
    then: ClassVar[Literal["makespan"] | None] = None
    order_matters: ClassVar[bool] = False
    in_seconds: ClassVar[bool] = True

    @property
    def saves_energy(self) -> bool:
        """True if the cost is in joules: a power cap slows jobs, and lowers no other cost."""
        return self.unit == "J"

    @abstractmethod
    def value(self, totals: Totals) -> float | None:
        """Compute the cost, in `unit`; None where a number that it needs is unknown."""

    def cost(self, outcome: Outcome) -> Interval | None:
        """Return the cost of `outcome`, in `unit`; None where it cannot be computed."""
        values = all_known(self.value(outcome.at(level)) for level in LEVELS)
        return None if values is None else around(values)

    def turn(self, job: Job) -> float:
        """Return a key: one after another, jobs of increasing keys cost least."""
        return 0.0

    def extra(self, outcomes: Outcomes) -> Floats:
        """Compute what this objective adds up over jobs that start at once, shape (sets,)."""
        return np.zeros(len(outcomes.counts))

    def extra_beside(
        self, one: Floats, other: Floats, one_jobs: Indices, other_jobs: Indices
    ) -> Floats:
        """Compute the `extra` of two places at once, of those of each and its numbers of jobs."""
        return one + other

    @abstractmethod
    def criteria(self, ways: Ways, terms: Terms) -> Floats:
        """Compute costs of `ways` to order them by, shape (criteria, ...), the plan's own first."""


class Makespan(Objective):
    """Seconds until the last job ends."""

    name = "makespan"
    unit = "s"
    choice = "all done soonest"
    measure = "total time"

    def value(self, totals: Totals) -> float | None:
        return totals.makespan_s

    def criteria(self, ways: Ways, terms: Terms) -> Floats:
        return (ways.span_s + _TIE * ways.ends_s)[None]


class MeanCompletion(Objective):
    """Mean over the jobs of the seconds until a job ends."""

    name = "mean-completion"
    unit = "s"
    choice = "each done soon"
    measure = "mean completion time"
    order_matters = True

    def value(self, totals: Totals) -> float | None:
        return None if totals.ends_s is None else fmean(totals.ends_s)

    def turn(self, job: Job) -> float:
        return job.alone_s or 0.0

    def criteria(self, ways: Ways, terms: Terms) -> Floats:
        return (ways.ends_s + _TIE * ways.span_s)[None]


class Deadlines(Objective):
    """Largest ratio of the end of a job to its deadline."""

    name = "deadlines"
    unit = "ratio"
    choice = "deadlines kept"
    measure = "end over deadline"
    explained = "End over deadline is that of the tightest job: above 1x the job is late."
    instead = (
        ("makespan", "needs a job with a deadline: set deadline_s in a job file"),
        ("throughput", LENGTHS_MISSING),
    )
    uses_deadlines = True
    then = "makespan"
    order_matters = True

    def value(self, totals: Totals) -> float | None:
        pairs = zip(totals.ends_s or (), totals.deadlines_s, strict=False)
        return max((end_s / due_s for end_s, due_s in pairs if due_s is not None), default=None)

    def turn(self, job: Job) -> float:
        return job.deadline_s or np.inf

    def criteria(self, ways: Ways, terms: Terms) -> Floats:
        late = [
            np.where(ways.last_s > 0, (ways.last_s + wait_s) / terms.deadlines_s, 0.0).max(axis=-1)
            for wait_s in terms.waits_s
        ]
        return np.array(late) + _TIE * ways.span_s


class Throughput(Objective):
    """Time in which a plan does what serial does in a unit of time, whatever each job has to do."""

    name = "throughput"
    unit = "ratio"
    choice = "most work per hour"
    measure = "work an hour"
    explained = (
        "At 1.67x, an hour does what one after another does in 1.67 hours. All jobs have equal "
        "parts of it: the work of each counts by how long it takes alone."
    )
    in_seconds = False

    def value(self, totals: Totals) -> float | None:
        return totals.equal_work

    def extra(self, outcomes: Outcomes) -> Floats:
        # Equal work of all jobs takes so many times that of one alone.
        with np.errstate(divide="ignore", invalid="ignore"):
            times = outcomes.counts.sum(axis=1) / outcomes.summed(1 / outcomes.slowdowns)
        return np.where(outcomes.counts.any(axis=1), times, 0.0)

    def extra_beside(
        self, one: Floats, other: Floats, one_jobs: Indices, other_jobs: Indices
    ) -> Floats:
        jobs, rate = one_jobs + other_jobs, np.zeros(len(one))
        for times, own in ((one, one_jobs), (other, other_jobs)):
            rate += np.divide(own, times, out=np.zeros(len(rate)), where=own > 0)
        together = np.divide(jobs, rate, out=np.zeros(len(rate)), where=rate > 0)
        return np.where(np.isfinite(one + other), together, np.inf)

    def criteria(self, ways: Ways, terms: Terms) -> Floats:
        return ways.extra[None]


class Energy(Objective):
    """Joules until the last job ends; for several GPUs, those of idle ones too."""

    name = "energy"
    unit = "J"
    choice = "least energy"
    measure = "total energy"
    instead = (("makespan", POWER_MISSING), ("throughput", LENGTHS_MISSING))

    def value(self, totals: Totals) -> float | None:
        return totals.energy_j

    def extra(self, outcomes: Outcomes) -> Floats:
        return outcomes.added_j

    def criteria(self, ways: Ways, terms: Terms) -> Floats:
        return np.array([ways.extra + watts * ways.span_s for watts in terms.watts])


_ALL = (Makespan(), Throughput(), Energy(), MeanCompletion(), Deadlines())
OBJECTIVES: dict[ObjectiveName, Objective] = {each.name: each for each in _ALL}


def ways_of(objective: Objective, outcomes: Outcomes) -> Ways:
    """Return `outcomes` as ways, shape (sets,), those that are not allowed infinite."""
    never = np.where(outcomes.allowed, 0.0, np.inf)
    kinds = outcomes.counts.shape[1] if objective.uses_deadlines else 0
    return Ways(
        outcomes.largest(outcomes.ends_s) + never,
        outcomes.summed(outcomes.ends_s) + never,
        objective.extra(outcomes) + never,
        np.where(outcomes.counts > 0, outcomes.ends_s, 0.0)[:, :kinds],
    )


def costs_of_ways(
    objective: Objective, jobs: Sequence[Job], slowdowns: Floats, ends_s: Floats
) -> Floats:
    """Compute a cost of each way to run all `jobs` to order them by, from values (ways, jobs)."""
    outcomes = Outcomes(
        counts=np.ones(ends_s.shape, dtype=np.intp),
        allowed=np.ones(len(ends_s), dtype=bool),
        slowdowns=slowdowns,
        ends_s=ends_s,
        added_j=np.zeros(len(ends_s)),
    )
    terms = Terms(deadlines_s(jobs), watts=(1.0,))
    return np.asarray(objective.criteria(ways_of(objective, outcomes), terms)[0])


def cost(outcome: Outcome, objective: ObjectiveName) -> Interval | None:
    """Compute the cost of `outcome` by `objective`; None where that is impossible."""
    return OBJECTIVES[objective].cost(outcome)


def known_cost(outcome: Outcome, objective: ObjectiveName) -> Interval:
    """Compute the cost of `outcome` by the objective that plans were ranked by."""
    if (price := cost(outcome, objective)) is None:
        raise ValueError(f"a plan that was ranked by {objective} has a cost, but one has none")
    return price


def rankable_by(
    outcomes: Sequence[Outcome], objective: ObjectiveName
) -> tuple[ObjectiveName, str | None]:
    """Choose the objective that ranks all `outcomes`; and say why, if it is not `objective`."""

    def ranks_all(name: ObjectiveName) -> bool:
        return all(cost(each, name) is not None for each in outcomes)

    if ranks_all(objective):
        return objective, None
    instead, why = next(each for each in OBJECTIVES[objective].instead if ranks_all(each[0]))
    return instead, f"{objective} {why}"


COMMON = 0.75
"""Share of the errors of two ways to share, serial too, that has the same cause: the costs of two
plans for the same jobs rest on the same profiles and host, so their ratio is surer than either.

Real runs of the same jobs on one host in two ways, each job predicted without its family: of 1588
pairs on an H200, 94 % of the measured ratios lie in their joint intervals, and at least 93 % of
those of any two kinds; on an H100, 96 % of 250. The largest share that covers 90 % is 0.8 or 0.85,
whichever family is left out, but on a checked host, of which less is unsure, it is 0.7. Intervals
are a third narrower than if errors were independent. No pair is of MIG: the share is taken over."""

_ROUNDED = 1e-9


def joint_ratio(first: Interval, second: Interval, *, same_way: bool) -> Interval:
    """Return the first number over the second, of two plans for the same jobs.

    If both share in the same way, they differ by the power cap of one: all else cancels.
    """
    return first.over_alike(second) if same_way else first.over(second, COMMON)


def cost_ratio(
    one: Outcome, other: Outcome, objective: ObjectiveName, level: Level = "p50"
) -> Interval:
    """Return the joint interval of the cost of `one` over that of `other`, around that at `level`.

    With serial as `one`, it is the gain of `other`, which ends at the number of jobs at once.
    """
    first, second = (_with_error(each, objective) for each in (one, other))
    ratio = joint_ratio(first, second, same_way=_ways(one) == _ways(other))
    ratio = ratio.scaled(first.at(level) / second.at(level) / ratio.p50)
    least = 1 / most_gain(one, objective) if other.one_by_one else 0.0
    return ratio.held_in(least, most_gain(other, objective) if one.one_by_one else np.inf)


def _ways(outcome: Outcome) -> list[tuple[Sharing, list[str]]]:
    return [(each.sharing, [job.job for job in each.jobs]) for each in outcome.mixes]


def most_gain(outcome: Outcome, objective: ObjectiveName) -> float:
    """Return the most that it gains over jobs one by one; infinite where that has no end."""
    goal = OBJECTIVES[objective]
    if goal.saves_energy or goal.uses_deadlines:
        return np.inf
    if goal.order_matters:  # of a mean, the order of the jobs gains too
        return len(outcome.predictions)
    return max(
        at_once for mix in outcome.mixes for _, at_once in sets_in_turn(mix.sharing, len(mix.jobs))
    )


def _with_error(outcome: Outcome, objective: ObjectiveName) -> Interval:
    """The cost with the error of its pace, the unit of throughput for jobs that run one by one."""
    cost = known_cost(outcome, objective)
    if objective != "throughput" or not outcome.one_by_one:
        return cost
    steps_s = [job.step_s for job in outcome.predictions]
    return cost.times(
        around([fmean(each.at(level) / each.p50 for each in steps_s) for level in LEVELS])
    )


def holds_one(ratio: Interval) -> bool:
    """Check whether two numbers of this `ratio` are equal within our error."""
    either_way = ratio.p05 < 1 - _ROUNDED and ratio.p95 > 1 + _ROUNDED
    return either_way or abs(ratio.p50 - 1) <= _ROUNDED


def tied(one: Outcome, other: Outcome, objective: ObjectiveName, level: Level = "p50") -> bool:
    """Check whether the costs of two plans are equal within our error."""
    return holds_one(cost_ratio(one, other, objective, level))


AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)
HANDICAPS: Mapping[Mode, float] = {
    "serial": 0.0,
    "mps": 0.02,
    "queue": 0.03,
    "naive": 0.06,
    "mps-limits": 0.04,
    "phases": 0.08,
    "mig": 0.10,
    "hybrid": 0.15,
}
"""Share by which a way to share must lead one after another, for what it takes to set up.

Time-slicing takes little, but disappoints: of 66 job sets that ran in both ways on an H200, MPS was
over 3 % behind it in 4. When the shares were chosen, the first plan gave away 1.7 % of the best
measured throughput of 58 job sets, 1.5 % of 25 drawn ones, 0.9 % of 12 on an H100; from
nvidia-smi's numbers 3.5, 1.3 and 2.0 %. Without handicaps it was 1.8, 1.5 and 0.5 %; 2.9, 2.6 and
0.7 %. If leads had to exceed a part of their ranges, 2.0, 1.2 and 0.9 %; 3.9, 2.0 and 3.9 %. No job
set ran on MIG, in a queue or in phases: their shares are choices."""

# Of a power cap on top: a choice.
_CAP = 0.02
# Of limits that differ: the best of hundreds of vectors is often one whose error is lucky. With it,
# plans from nvidia-smi's numbers lose 4.1 % by the full profiles of 28 drawn sets, without 4.9 %;
# from counters without a trace 5.9 %, without 9.2 %.
_DIFFERENT = 0.03

STARVED = 10.0
"""A job that is slowed more than this many times starves: a choice."""

SPARING = 0.1
"""Share that it may cost that no job starves, or that fewer jobs are late: a choice."""


def handicap(sharing: Sharing) -> float:
    """Return the share of `HANDICAPS`, more if limits differ; phases with MIG count as hybrid."""
    mixed = sharing.mode == "phases" and sharing.instances
    share = HANDICAPS["hybrid" if mixed else kind_of(sharing)]
    return share + _DIFFERENT * (len(set(sharing.limits)) > 1)


def weighed(cost: float, sharing: Sharing) -> float:
    """Return `cost` with the handicap of `sharing`: the plan of the least comes first."""
    return cost * (1 + handicap(sharing))


def first_plan(
    plans: Sequence[AnyOutcome], objective: ObjectiveName, level: Level = "p50"
) -> tuple[AnyOutcome, Precedence]:
    """Return the plan of `plans` to recommend, and the last rule that chose it.

    Fewest late jobs count first where the cost is in joules; then that no job starves, and where
    the cost is in something else that fewest are late.
    """
    by, decides = OBJECTIVES[objective], objective
    rule: Precedence = "deadlines"

    def price(each: AnyOutcome) -> float:
        return known_cost(each, decides).at(level)

    def weight(each: AnyOutcome) -> float:
        most = max(weighed(price(each), mix.sharing) for mix in each.mixes)
        capped = any(mix.power_cap_w is not None for mix in each.mixes)
        return most * (1 + _CAP * capped)

    def simplicity(each: AnyOutcome) -> int:
        return max(list(HANDICAPS).index(kind_of(mix.sharing)) for mix in each.mixes)

    pool = fewest_late(plans, level) if by.saves_energy else [*plans]
    most = (1 + SPARING) * min(map(price, pool))
    spared = [each for each in pool if not starved(each, level)]
    if len(spared) < len(pool) and any(price(each) <= most for each in spared):
        pool, rule = spared, "starvation"
    affordable = [each for each in pool if price(each) <= most]
    punctual = fewest_late(affordable, level)
    if by.then is not None:
        pool, decides, rule = punctual, by.then, "makespan"
    elif len(punctual) < len(affordable):
        pool, rule = punctual, "deadlines"
    best = min(pool, key=lambda each: (weight(each), simplicity(each)))
    return best, rule if price(best) <= min(map(price, pool)) else "simplicity"


def fewest_late(plans: Sequence[AnyOutcome], level: Level) -> list[AnyOutcome]:
    """Return those of `plans` in which fewest jobs miss their deadlines."""
    fewest = min(len(each.late(level)) for each in plans)
    return [each for each in plans if len(each.late(level)) == fewest]


def starved(outcome: Outcome, level: Level) -> dict[int, float]:
    """Return the positions and slowdowns of the jobs that are slowed more than `STARVED` times."""
    slowdowns = enumerate(job.slowdown_at(level) for job in outcome.predictions)
    return {at: times for at, times in slowdowns if times > STARVED}
