"""The objective in joules, until the last job ends."""

from collections.abc import Sequence
from math import fsum
from typing import TYPE_CHECKING, Any

from advisor.plan.objectives.objective import (
    LENGTHS_MISSING,
    POWER_MISSING,
    Arrays,
    Awake,
    GroupScores,
    Objective,
    Sums,
    Turn,
)
from advisor.plan.recommendation import Forecast
from advisor.plan.search.cost_table import Outcomes
from advisor.plan.search.fleet.placement import FleetGroup, PlacedGroup, Problem, makespan_s
from advisor.plan.search.job_sets import Sets
from advisor.prediction.interval import Interval
from advisor.prediction.trace import Floats

if TYPE_CHECKING:
    from advisor.plan.search.fleet.cp_model import PackingModel
    from advisor.plan.search.fleet.packing import CoverBounds


class Energy(Objective):
    """Joules until the last job ends; for several GPUs, those of idle ones too."""

    name = "energy"
    unit = "J"
    choice = "least energy"
    measure = "energy until all are done"
    instead = (("makespan", POWER_MISSING), ("throughput", LENGTHS_MISSING))

    def cost(self, forecast: Forecast) -> Interval | None:
        return forecast.energy_j

    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        return f"{shown} (one after another: {gain} as much)"

    def of_sets(self, outcomes: Outcomes, sets: Sets) -> Arrays:
        return outcomes.last_s(sets), outcomes.added_j

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        return awake.power_w * most + total, most

    def of_group(self, most: float, total: float, awake: Awake) -> Sums:
        return awake.power_w * most + total, 0.0

    def after(self, before: Sums, group: GroupScores, turn: Turn) -> Sums:
        return before[0] + group.cost + turn.idle_w * turn.pause_s, 0.0

    def fleet_cost(self, plan: Sequence[PlacedGroup], problem: Problem) -> float:
        held_s = problem.gpus * makespan_s(plan)
        free_s = held_s - fsum(each.group.runs_s for each in plan)
        used_j = fsum(each.group.energy_j or 0.0 for each in plan)
        return used_j + free_s * (problem.idle_power_w or 0.0)

    def group_weight(self, group: FleetGroup, problem: Problem, waiting: float) -> float:
        return group.runs_s if group.energy_j is None else group.energy_j

    def least_cost(self, problem: Problem, places: int) -> float | None:
        return None

    def bound(self, bounds: "CoverBounds") -> float:
        return bounds.least_sum([each.energy_j or 0.0 for each in bounds.groups])

    def minimised(self, model: "PackingModel") -> Any:
        return model.joules()

    def packed_cost(self, wanted: float, model: "PackingModel", jobs: int) -> float:
        return wanted * model.part_j
