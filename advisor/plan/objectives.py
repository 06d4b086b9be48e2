"""Objectives: the cost of a plan, of thousands of candidates at once, and how sure a lead is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal

import numpy as np

from advisor.plan import ObjectiveName
from advisor.plan.job_sets import Outcomes, deadlines_s
from advisor.plan.partitions import Assignment, Choice
from advisor.plan.values import Forecast
from advisor.prediction.prediction import LEVELS, Interval, Level, MixPrediction, around
from advisor.prediction.trace import Floats
from advisor.sharing.groups import one_by_one, sets_in_turn, without_phases
from advisor.simulation.turns import set_spans
from advisor.workload.job import Job

Arrays = tuple[Floats, Floats]
Sums = tuple[float, float]
LENGTHS_MISSING = "needs every job's length; set examples_per_epoch in the profiles"
POWER_MISSING = "needs the power of every job, which was not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseGroup:
    """A group of a plan in phases, whose jobs share the GPU until the last of them ends.

    Attributes:
        setup: A key of the instances and MPS daemons that the group needs.
        due: For each kind of job with a deadline: when its last job ends, and the deadline.
    """

    chosen: int
    placement: Choice | Assignment
    setup: object
    jobs: int
    time_s: float
    cost: float
    due: tuple[tuple[float, float], ...]

    def beats(self, other: "PhaseGroup") -> bool:
        """Check that it is nowhere worse than `other`, a group of the same jobs."""
        return (
            self.time_s <= other.time_s
            and self.cost <= other.cost
            and all(mine[0] <= yours[0] for mine, yours in zip(self.due, other.due, strict=True))
        )


class Objective(ABC):
    """A goal of plans, always as a cost: the lower, the better.

    Plans are ranked by `cost`, which is exact. The other methods estimate it for thousands of
    candidates at once: `scores` and `price` for jobs at once, in partitions that do not slow each
    other, `of_group`, `after` and `of_phases` for groups one after another. The defaults are those
    of a plan that costs its makespan.

    Attributes:
        explained: How to read a `cost` that has no unit; empty where it has one.
        instead: Objectives to rank by where this cost cannot be computed, each with the reason. The
            last one always can be computed.
        then: The objective that decides between plans whose costs are tied; None: none does.
        in_seconds: Whether times are in seconds. For throughput, each job's time alone is the unit,
            and pauses between groups do not count.
        within_group: The objective by which one group is searched, where it differs. Deadlines
            count from the start of the whole plan, and the start of a group is not known.
    """

    name: ClassVar[ObjectiveName]
    unit: ClassVar[Literal["s", "J", "ratio"]]
    choice: ClassVar[str]
    measure: ClassVar[str]
    explained: ClassVar[str] = ""
    instead: ClassVar[tuple[tuple[ObjectiveName, str], ...]] = (("throughput", LENGTHS_MISSING),)
    uses_deadlines: ClassVar[bool] = False
    then: ClassVar[Literal["makespan"] | None] = None
    per_job: ClassVar[bool] = False
    order_matters: ClassVar[bool] = False
    in_seconds: ClassVar[bool] = True
    within_group: ClassVar[ObjectiveName | None] = None

    @property
    def saves_energy(self) -> bool:
        """True if the cost is in joules: a power cap slows jobs, and lowers no other cost."""
        return self.unit == "J"

    @abstractmethod
    def cost(self, forecast: Forecast) -> Interval | None:
        """Cost of `forecast`, in `unit`; None where it cannot be computed."""

    def turn(self, job: Job) -> float:
        """Return a key: one after another, jobs of increasing keys cost least."""
        return 0.0

    def scores(self, outcomes: Outcomes) -> Arrays:
        """Compute the two scores of each set of jobs, of which a plan counts maximum and sum."""
        return outcomes.largest(outcomes.ends_s), outcomes.summed(outcomes.ends_s)

    def price(self, most: Floats, total: Floats, awake_w: float) -> Arrays:
        """Compute the cost of jobs that run at once, a sum for a mean, and a tie-breaker.

        Both grow with `most` and `total`, of their `scores`, so lower bounds of these bound the
        cost. A GPU on which jobs run takes `awake_w` watts before what they add.
        """
        return most, total

    def of_group(self, price: float, jobs: int) -> float:
        """Compute the part of a group of so many jobs in the cost of phases, from its `price`."""
        return price

    def after(
        self, sums: Sums, group: PhaseGroup, pause_s: float, left: int, idle_w: float
    ) -> Sums:
        """Add `group`, after a pause with so many jobs left, to a sum and a maximum over groups."""
        return sums[0] + group.cost, 0.0

    def of_phases(self, cost: float, worst: float, jobs: int) -> float:
        """Compute the cost of groups that run one after another from the numbers of `after`."""
        return cost / jobs if self.per_job else cost


class Makespan(Objective):
    """Seconds until the last job ends."""

    name = "makespan"
    unit = "s"
    choice = "all done soonest"
    measure = "total time"

    def cost(self, forecast: Forecast) -> Interval | None:
        return forecast.makespan_interval_s

    def after(
        self, sums: Sums, group: PhaseGroup, pause_s: float, left: int, idle_w: float
    ) -> Sums:
        return sums[0] + pause_s + group.time_s, 0.0


class MeanCompletion(Objective):
    """Mean over the jobs of the seconds until a job ends."""

    name = "mean-completion"
    unit = "s"
    choice = "each done soon"
    measure = "until a job ends, on average"
    per_job = True
    order_matters = True

    def cost(self, forecast: Forecast) -> Interval | None:
        if forecast.ends_s is None:
            return None
        return around([fmean(end.at(level) for end in forecast.ends_s) for level in LEVELS])

    def turn(self, job: Job) -> float:
        return job.alone_s or 0.0

    def price(self, most: Floats, total: Floats, awake_w: float) -> Arrays:
        return total, most

    def after(
        self, sums: Sums, group: PhaseGroup, pause_s: float, left: int, idle_w: float
    ) -> Sums:
        waits_s = pause_s * left + group.time_s * (left - group.jobs)
        return sums[0] + group.cost + waits_s, 0.0


class Deadlines(Objective):
    """Largest ratio of the end of a job to its deadline; on several GPUs, the late jobs."""

    name = "deadlines"
    unit = "ratio"
    choice = "deadlines kept"
    measure = "tightest job over deadline"
    explained = "End of the tightest job over its deadline: at 1x just in time, above it is late."
    instead = (
        ("makespan", "needs a job that has one: deadline_s in a file of jobs"),
        ("throughput", LENGTHS_MISSING),
    )
    uses_deadlines = True
    then = "makespan"
    order_matters = True
    within_group = "mean-completion"

    def cost(self, forecast: Forecast) -> Interval | None:
        pairs = zip(forecast.ends_s or (), forecast.deadlines_s, strict=forecast.ends_s is not None)
        due = [(end, deadline_s) for end, deadline_s in pairs if deadline_s is not None]
        if not due:
            return None
        return around([max(end.at(level) / due_s for end, due_s in due) for level in LEVELS])

    def turn(self, job: Job) -> float:
        return job.deadline_s or np.inf

    def scores(self, outcomes: Outcomes) -> Arrays:
        tightness = outcomes.largest(outcomes.ends_s / outcomes.deadlines_s)
        return tightness, outcomes.summed(outcomes.ends_s)

    def after(
        self, sums: Sums, group: PhaseGroup, pause_s: float, left: int, idle_w: float
    ) -> Sums:
        start_s = sums[0] + pause_s
        late = max(((start_s + end) / due for end, due in group.due), default=0.0)
        return start_s + group.time_s, max(sums[1], late)

    def of_phases(self, cost: float, worst: float, jobs: int) -> float:
        return worst


class Throughput(Objective):
    """Time in which a plan does what serial does in a unit of time, whatever each job has to do."""

    name = "throughput"
    unit = "ratio"
    choice = "most work per hour"
    measure = "time against serial"
    explained = (
        "At 0.5x, half an hour does what one after another does in an hour, all jobs having equal "
        "parts of it: the work of each counts by how long it takes alone. The gain in throughput "
        "is the inverse."
    )
    in_seconds = False
    per_job = True

    def cost(self, forecast: Forecast) -> Interval | None:
        return _throughput_cost(forecast.prediction)

    def scores(self, outcomes: Outcomes) -> Arrays:
        return outcomes.largest(outcomes.slowdowns), -outcomes.summed(1 / outcomes.slowdowns)

    def price(self, most: Floats, total: Floats, awake_w: float) -> Arrays:
        return np.where(total < 0, -1 / np.minimum(total, -1e-300), np.inf), most

    def of_group(self, price: float, jobs: int) -> float:
        return price * jobs


def throughput(mix: MixPrediction, level: Level) -> float:
    """Compute the work per time of the jobs of `mix`, that of serial being 1, at `level`."""
    return 1 / _throughput_cost(mix).at(level)


def _throughput_cost(mix: MixPrediction) -> Interval:
    if mix.sharing.mode == "serial" and mix.power_cap_w is None:
        return Interval(1.0, 1.0, 1.0)
    at_levels = [[job.slowdown_at(level) for job in mix.jobs] for level in LEVELS]
    if without_phases(mix.sharing) is None:  # jobs wait for others; all take equally long alone
        return around([sum(set_spans(mix.sharing, slowed)) / len(slowed) for slowed in at_levels])
    # In turn, each job has its whole speed for its part of the time.
    turns = len(mix.jobs) if mix.sharing.mode == "serial" else 1
    return around([turns / sum(1 / each for each in slowed) for slowed in at_levels])


class Energy(Objective):
    """Joules until the last job ends; for several GPUs, those of idle ones too."""

    name = "energy"
    unit = "J"
    choice = "least energy"
    measure = "total energy"
    instead = (("makespan", POWER_MISSING), ("throughput", LENGTHS_MISSING))

    def cost(self, forecast: Forecast) -> Interval | None:
        return forecast.energy_j

    def scores(self, outcomes: Outcomes) -> Arrays:
        return outcomes.largest(outcomes.ends_s), outcomes.added_j

    def price(self, most: Floats, total: Floats, awake_w: float) -> Arrays:
        return awake_w * most + total, most

    def after(
        self, sums: Sums, group: PhaseGroup, pause_s: float, left: int, idle_w: float
    ) -> Sums:
        return sums[0] + group.cost + idle_w * pause_s, 0.0


_ALL = (Makespan(), Throughput(), Energy(), MeanCompletion(), Deadlines())
OBJECTIVES: dict[ObjectiveName, Objective] = {each.name: each for each in _ALL}


def costs_of_ways(
    objective: Objective, jobs: Sequence[Job], slowdowns: Floats, ends_s: Floats
) -> Floats:
    """Compute a cost of each way to run all `jobs` to order them by, from values (ways, jobs)."""
    outcomes = Outcomes(
        counts=np.ones(ends_s.shape, dtype=np.intp),
        deadlines_s=deadlines_s(jobs),
        allowed=np.ones(len(ends_s), dtype=bool),
        slowdowns=slowdowns,
        ends_s=ends_s,
        added_j=np.zeros(len(ends_s)),
    )
    return objective.price(*objective.scores(outcomes), awake_w=1.0)[0]


def cost(forecast: Forecast, objective: ObjectiveName) -> Interval | None:
    """Compute the cost of `forecast` by `objective`; None where that is impossible."""
    return OBJECTIVES[objective].cost(forecast)


def known_cost(forecast: Forecast, objective: ObjectiveName) -> Interval:
    """Compute the cost of `forecast` by the objective that plans were ranked by."""
    if (price := cost(forecast, objective)) is None:
        raise ValueError(f"a plan that was ranked has a cost, but {forecast.sharing} has none")
    return price


def rankable_by(
    forecasts: Sequence[Forecast], objective: ObjectiveName
) -> tuple[ObjectiveName, str | None]:
    """Choose the objective that ranks all `forecasts`; and say why, if it is not `objective`."""

    def ranks_all(name: ObjectiveName) -> bool:
        return all(cost(each, name) is not None for each in forecasts)

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
    one: Forecast, other: Forecast, objective: ObjectiveName, level: Level = "p50"
) -> Interval:
    """Return the joint interval of the cost of `one` over that of `other`, around that at `level`.

    With serial as `one`, it is the gain of `other`, which ends at the number of jobs at once.
    """
    first, second = (_with_error(each, objective) for each in (one, other))
    ratio = joint_ratio(first, second, same_way=one.sharing == other.sharing)
    ratio = ratio.scaled(first.at(level) / second.at(level) / ratio.p50)
    least = 1 / most_gain(one, objective) if one_by_one(other.sharing) else 0.0
    return ratio.held_in(least, most_gain(other, objective) if one_by_one(one.sharing) else np.inf)


def most_gain(plan: Forecast, objective: ObjectiveName) -> float:
    """Return the most that `plan` gains over jobs one by one; infinite where that has no end."""
    goal, jobs = OBJECTIVES[objective], len(plan.prediction.jobs)
    if goal.saves_energy or goal.uses_deadlines:
        return np.inf
    # Of a mean, the order of the jobs gains too.
    return jobs if goal.order_matters else max(each for _, each in sets_in_turn(plan.sharing, jobs))


def _with_error(forecast: Forecast, objective: ObjectiveName) -> Interval:
    """The cost with the error of its pace, the unit of throughput for jobs that run one by one."""
    cost = known_cost(forecast, objective)
    if objective != "throughput" or not one_by_one(forecast.sharing):
        return cost
    steps_s = [job.step_s for job in forecast.prediction.jobs]
    return cost.times(
        around([fmean(each.at(level) / each.p50 for each in steps_s) for level in LEVELS])
    )


def holds_one(ratio: Interval) -> bool:
    """Check whether two numbers of this `ratio` are equal within our error."""
    either_way = ratio.p05 < 1 - _ROUNDED and ratio.p95 > 1 + _ROUNDED
    return either_way or abs(ratio.p50 - 1) <= _ROUNDED


def tied(one: Forecast, other: Forecast, objective: ObjectiveName, level: Level = "p50") -> bool:
    """Check whether the costs of two plans are equal within our error."""
    return holds_one(cost_ratio(one, other, objective, level))
