"""The objective of how fast jobs run while all do."""

from collections.abc import Sequence

import numpy as np

from advisor.plan.objectives.objective import Arrays, Awake, EndsOf, Objective, Sums
from advisor.plan.recommendation import Forecast
from advisor.plan.search.cost_table import Outcomes
from advisor.plan.search.job_sets import Sets
from advisor.prediction.interval import LEVELS, Interval, Level, around
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.trace import Floats
from advisor.sharing import Sharing
from advisor.sharing.traversal import running_together


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

    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        return f"{gain} the throughput of one after another"

    def of_limits(self, slowdowns: Floats, ends_s: EndsOf, deadlines_s: Floats) -> Floats:
        return np.asarray(-(1 / slowdowns).sum(axis=1))

    def of_sets(self, outcomes: Outcomes, sets: Sets) -> Arrays:
        return sets.largest(outcomes.slowdowns), -(sets.counts / outcomes.slowdowns).sum(axis=1)

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        return np.where(total < 0, -1 / np.minimum(total, -1e-300), np.inf), most

    def of_group(self, most: float, total: float, awake: Awake) -> Sums:
        return _time(total, awake.jobs), 0.0


def throughput(mix: MixPrediction, level: Level) -> float:
    """Work per time of the jobs of `mix`, that of serial being 1, judged at `level`."""
    return 1 / _throughput_cost(mix).at(level)


def _throughput_cost(mix: MixPrediction) -> Interval:
    if mix.sharing.mode == "serial" and mix.power_cap_w is None:
        return Interval(1.0, 1.0, 1.0)
    at_levels = [[job.slowdown_at(level) for job in mix.jobs] for level in LEVELS]
    if mix.sharing.mode == "phases":
        at_levels = [_with_waiting(mix.sharing, each) for each in at_levels]
    # In turn, each job has its whole speed for its part of the time.
    turns = len(mix.jobs) if mix.sharing.mode == "serial" else 1
    return around([turns / sum(1 / slowed for slowed in each) for each in at_levels])


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
