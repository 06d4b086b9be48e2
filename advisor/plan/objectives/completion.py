"""Objectives of when jobs end: the last one, one on average, and each by its deadline."""

from collections.abc import Sequence
from math import fsum
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor.plan.objectives.objective import (
    LENGTHS_MISSING,
    Arrays,
    Awake,
    EndsOf,
    GroupScores,
    Objective,
    Sums,
    Turn,
)
from advisor.plan.recommendation import Forecast
from advisor.plan.search.cost_table import Outcomes
from advisor.plan.search.fleet.placement import PlacedGroup, Problem, job_ends_s, soonest_s
from advisor.plan.search.job_sets import Sets
from advisor.prediction.interval import LEVELS, Interval, around
from advisor.prediction.trace import Floats
from advisor.workload.job import Job

if TYPE_CHECKING:
    from advisor.plan.search.fleet.cp_model import PackingModel
    from advisor.plan.search.fleet.packing import CoverBounds


class Makespan(Objective):
    """Seconds until the last job ends."""

    name = "makespan"
    unit = "s"
    choice = "all done soonest"
    measure = "until all are done"

    def cost(self, forecast: Forecast) -> Interval | None:
        return forecast.makespan_interval_s

    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        return f"all done in {shown}, {gain} as fast as one after another"

    def after(self, before: Sums, group: GroupScores, turn: Turn) -> Sums:
        return before[0] + turn.pause_s + group.time_s, 0.0


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

    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        return f"a job is done in {shown} on average, {gain} as soon as one after another"

    def turn(self, job: Job) -> float:
        return job.alone_s or 0.0

    def of_limits(self, slowdowns: Floats, ends_s: EndsOf, deadlines_s: Floats) -> Floats:
        return np.asarray(ends_s().mean(axis=1))

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        return total / awake.jobs, most

    def after(self, before: Sums, group: GroupScores, turn: Turn) -> Sums:
        waits_s = turn.pause_s * turn.left + group.time_s * (turn.left - group.jobs)
        return before[0] + group.cost + waits_s, 0.0

    def fleet_cost(self, plan: Sequence[PlacedGroup], problem: Problem) -> float:
        return fsum(end_s for _, end_s in job_ends_s(plan)) / sum(problem.counts)

    def least_cost(self, problem: Problem, places: int) -> float | None:
        each_s = problem.of_every_job(problem.least_s)
        return soonest_s(each_s, places) / len(each_s)

    def bound(self, bounds: "CoverBounds") -> float:
        return bounds.mean_completion_s()

    def minimised(self, model: "PackingModel") -> Any:
        return model.sum_of_ends()

    def packed_cost(self, wanted: float, model: "PackingModel", jobs: int) -> float:
        return wanted * model.unit_s / jobs


class Deadlines(Objective):
    """Largest ratio of the end of a job to its deadline; above 1 a job is late.

    The cost of a plan for several GPUs is the number of late jobs.
    """

    name = "deadlines"
    unit = "ratio"
    choice = "deadlines kept"
    measure = "tightest job over deadline"
    explained = (
        "When the tightest job ends, over its deadline: at 1x just in time, above it is late."
    )
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

    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        kept = "every deadline is kept" if cost.p50 <= 1 else "not every deadline is kept"
        return (
            f"{kept}: the tightest job takes {cost.p50:.0%} of its time, {gain} as soon as one "
            f"after another"
        )

    def turn(self, job: Job) -> float:
        return job.deadline_s or np.inf

    def of_limits(self, slowdowns: Floats, ends_s: EndsOf, deadlines_s: Floats) -> Floats:
        return np.asarray((ends_s() / deadlines_s).max(axis=1))

    def of_sets(self, outcomes: Outcomes, sets: Sets) -> Arrays:
        deadlines_s = np.array([job.deadline_s or np.inf for job in sets.jobs])
        return sets.largest(outcomes.ends_s / deadlines_s), outcomes.summed_ends_s(sets)

    def after(self, before: Sums, group: GroupScores, turn: Turn) -> Sums:
        cost, worst = before
        start_s = cost + turn.pause_s
        late = max(((start_s + end) / due for end, due in group.due), default=0.0)
        return start_s + group.time_s, max(worst, late)

    def of_phases(self, cost: float, worst: float, jobs: int) -> float:
        return worst

    def fleet_cost(self, plan: Sequence[PlacedGroup], problem: Problem) -> float:
        return float(sum(problem.late(kind, end_s) for kind, end_s in job_ends_s(plan)))

    def least_cost(self, problem: Problem, places: int) -> float | None:
        of_kinds = zip(problem.least_s, problem.counts, strict=True)
        return float(sum(n for kind, (s, n) in enumerate(of_kinds) if problem.late(kind, s)))

    def bound(self, bounds: "CoverBounds") -> float:
        return 0.0

    def minimised(self, model: "PackingModel") -> Any:
        return (model.latest + 1) * model.late_jobs() + model.end

    def packed_cost(self, wanted: float, model: "PackingModel", jobs: int) -> float:
        return wanted // (model.latest + 1)
