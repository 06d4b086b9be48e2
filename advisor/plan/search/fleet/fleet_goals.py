"""What is wanted of a plan of many groups on several GPUs, without the ways to do it."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.plan.objectives.fleet_objective import FleetObjective
from advisor.plan.search.fleet.fleet_groups import (
    FleetGroup,
    FleetJobs,
    PlacedGroup,
    makespan_s,
)

# Of the jobs that a GPU runs in all, those that wait while a group does: half, on the average.
WAITING = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(FleetJobs):
    """Jobs for equal GPUs, and what their plan is to be best at."""

    objective: FleetObjective

    def cost(self, plan: Sequence[PlacedGroup]) -> float:
        """What `plan` costs: the lower, the better."""
        return self.objective.fleet_cost(plan, self)

    def rank(self, plan: Sequence[PlacedGroup]) -> tuple[float, float]:
        """Its cost, then its makespan: of equal plans, the one that ends first is better."""
        return self.cost(plan), makespan_s(plan)

    def weight(self, group: FleetGroup, waiting: float = WAITING) -> float:
        """What `group` adds to the cost, about; `waiting` jobs of its GPU's wait for it, 0..1."""
        return self.objective.group_weight(group, self, waiting)
