"""Objectives of how fast jobs run while all do, whatever is to run of each."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor.plan.objectives.objective import Arrays, Awake, EndsOf, Objective, Sums
from advisor.plan.recommendation import Forecast
from advisor.plan.search.cost_table import Outcomes
from advisor.plan.search.fleet.placement import PlacedGroup, Problem, job_ends_s, soonest_s
from advisor.plan.search.job_sets import Sets
from advisor.prediction.interval import LEVELS, Interval, Level, around
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.trace import Floats
from advisor.sharing import Sharing
from advisor.sharing.traversal import running_together

if TYPE_CHECKING:
    from advisor.plan.search.fleet.cp_model import PackingModel
    from advisor.plan.search.fleet.packing import CoverBounds


class _PaceObjective(Objective):
    """An objective of the pace of the jobs while all run, however much each has to do."""

    unit = "ratio"
    per_job = True

    def of_sets(self, outcomes: Outcomes, sets: Sets, awake: Awake) -> Arrays:
        return sets.largest(outcomes.slowdowns), -(sets.counts / outcomes.slowdowns).sum(axis=1)


class Throughput(_PaceObjective):
    """Time in which a plan does what serial does in a unit of time."""

    name = "throughput"
    choice = "most work per hour"
    measure = "time against serial"
    explained = (
        "At 0.5x, half an hour does what one after another does in an hour, all jobs having equal "
        "parts of it: the work of each counts by how long it takes alone. The gain in throughput "
        "is the inverse."
    )
    in_seconds = False

    def cost(self, forecast: Forecast) -> Interval | None:
        return _throughput_cost(forecast.prediction)

    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        return f"{gain} the throughput of one after another"

    def of_limits(self, slowdowns: Floats, ends_s: EndsOf, deadlines_s: Floats) -> Floats:
        return np.asarray(-(1 / slowdowns).sum(axis=1))

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        return np.where(total < 0, -1 / np.minimum(total, -1e-300), np.inf), most

    def of_group(self, most: float, total: float, awake: Awake) -> Sums:
        return _time(total, awake.jobs), 0.0


class Fairness(_PaceObjective):
    """The same time for the job that fares worst, where serial gives each an equal share of time.

    The cost of a plan for several GPUs is the largest ratio of the end of a job to its time alone.
    """

    name = "fairness"
    choice = "nobody left behind"
    measure = "the worst slowdown, over serial's"
    explained = (
        "How much longer the job that fares worst takes than with an equal share of the GPU's "
        "time: below 1x no job is worse off than taking turns."
    )
    order_matters = True
    within_group = "mean-completion"

    def cost(self, forecast: Forecast) -> Interval | None:
        # In phases a job whose mates are faster has less of its group's time: it may fare worse.
        return _of_paces(forecast.prediction, lambda own, turns: max(_of_shares(own, turns)))

    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        return f"the job that fares worst runs {gain} as fast as its share of the time gives"

    def of_limits(self, slowdowns: Floats, ends_s: EndsOf, deadlines_s: Floats) -> Floats:
        return np.asarray(slowdowns.max(axis=1))

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        return most / awake.jobs, total

    def of_group(self, most: float, total: float, awake: Awake) -> Sums:
        cost = _time(total, awake.jobs)
        return cost, most / cost

    def of_phases(self, cost: float, worst: float, jobs: int) -> float:
        return cost * worst / jobs

    def fleet_cost(self, plan: Sequence[PlacedGroup], problem: Problem) -> float:
        return max(end_s / problem.alone_s[kind] for kind, end_s in job_ends_s(plan))

    def least_cost(self, problem: Problem, places: int) -> float | None:
        slowed = [s / alone_s for s, alone_s in zip(problem.least_s, problem.alone_s, strict=True)]
        least_s = soonest_s(problem.of_every_job(problem.least_s), places)
        return max(*slowed, least_s / sum(problem.of_every_job(problem.alone_s)))

    def bound(self, bounds: "CoverBounds") -> float:
        # Ends are at most the worst slowdown times what each job takes alone.
        mean_alone_s = fmean(bounds.problem.of_every_job(bounds.problem.alone_s))
        return bounds.mean_completion_s() / mean_alone_s

    def minimised(self, model: "PackingModel") -> Any:
        return model.worst_slowdown()

    def packed_cost(self, wanted: float, model: "PackingModel", jobs: int) -> float:
        return model.slowdown(wanted)


def throughput(mix: MixPrediction, level: Level) -> float:
    """Work per time of the jobs of `mix`, that of serial being 1, judged at `level`."""
    return 1 / _throughput_cost(mix).at(level)


def over_equal_shares(mix: MixPrediction) -> tuple[Interval, ...]:
    """Step of each job over the step that an equal share of the GPU's time would give it."""

    def of(job: int) -> Interval:
        return _of_paces(mix, lambda own, turns: _of_shares(own, turns)[job])

    return tuple(map(of, range(len(mix.jobs))))


def _of_shares(slowed: Sequence[float], turns: int) -> list[float]:
    return [turns * each / len(slowed) for each in slowed]


def _throughput_cost(mix: MixPrediction) -> Interval:
    # In turn, each job has its whole speed for its part of the time.
    return _of_paces(mix, lambda slowed, turns: turns / sum(1 / each for each in slowed))


def _of_paces(mix: MixPrediction, cost: Callable[[Sequence[float], int], float]) -> Interval:
    """`cost` of the slowdowns and of the number of turns; 1 for serial without a power cap."""
    if mix.sharing.mode == "serial" and mix.power_cap_w is None:
        return Interval(1.0, 1.0, 1.0)
    turns = len(mix.jobs) if mix.sharing.mode == "serial" else 1
    at_levels = [[job.slowdown_at(level) for job in mix.jobs] for level in LEVELS]
    if mix.sharing.mode == "phases":
        at_levels = [_with_waiting(mix.sharing, each) for each in at_levels]
    return around([cost(each, turns) for each in at_levels])


def _with_waiting(phases: Sharing, running: Sequence[float]) -> list[float]:
    """Slowdowns that count waiting for other groups, if all jobs take equally long alone."""
    waiting = list(running)
    groups = running_together(phases, len(running))
    takes = [len(group) / sum(1 / running[job] for job in group) for group in groups]
    for group, each in zip(groups, takes, strict=True):
        for job in group:
            waiting[job] *= sum(takes) / each
    return waiting


def _time(total: float, jobs: int) -> float:
    """Time for one unit of each job, where `total` is minus the sum of their speeds."""
    return jobs / -total if total < 0 else np.inf
