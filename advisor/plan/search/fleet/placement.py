"""What is wanted of a plan of many groups on several GPUs, and where and when its groups run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from advisor.plan.objectives.fleet_objective import FleetObjective
from advisor.plan.search.fleet.fleet_groups import (
    FleetGroup,
    FleetJobs,
    PlacedGroup,
    dealt,
    makespan_s,
    queued,
)
from advisor.prediction.trace import Floats

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


# Less than this is rounding, as a share of the time of the GPU that ends last.
_DUST = 1e-9


def arranged(groups: Sequence[FleetGroup], problem: Problem) -> tuple[PlacedGroup, ...]:
    """The best plan of these `groups` that is soon found."""
    best = roughly_arranged(groups, problem)
    return (
        best
        if problem.objective.order_matters
        else min(best, levelled(best, problem), key=problem.rank)
    )


def roughly_arranged(groups: Sequence[FleetGroup], problem: Problem) -> tuple[PlacedGroup, ...]:
    """As `arranged`, sooner: dealt out to the GPUs in the best of some orders."""
    plans = (dealt(order, problem.gpus) for order in _orders(groups, problem))
    return min(plans, key=problem.rank)


def _orders(groups: Sequence[FleetGroup], problem: Problem) -> Iterator[list[FleetGroup]]:
    def due_s(group: FleetGroup) -> float:
        return min(problem.deadlines_s[kind] or inf for kind in group.members)

    yield sorted(groups, key=lambda each: -each.runs_s)
    if not problem.objective.order_matters:
        return
    yield sorted(groups, key=lambda each: each.runs_s / len(each.members))
    yield sorted(groups, key=lambda each: min(problem.alone_s[kind] for kind in each.members))
    if problem.objective.uses_deadlines:
        yield sorted(groups, key=lambda each: (due_s(each), each.runs_s))


def replaced(
    plan: Sequence[PlacedGroup], old: Sequence[FleetGroup], new: Sequence[FleetGroup], gpus: int
) -> tuple[PlacedGroup, ...] | None:
    """`plan` with `new` groups where `old` ones were, the longest in place of the longest.

    Those that are more go to the GPU that has least to do; None where `plan` lacks an old one.
    """
    left, places = list(plan), []
    for group in sorted(old, key=lambda each: -each.runs_s):
        found = next((each for each in left if each.group is group), None)
        if found is None:
            return None
        left.remove(found)
        places.append(found)
    coming = sorted(new, key=lambda each: -each.runs_s)
    left += [PlacedGroup(group, each.gpu, each.start_s)
             for group, each in zip(coming, places, strict=False)]  # fmt: skip
    queues: list[list[FleetGroup]] = [[] for _ in range(gpus)]
    for placed in sorted(left, key=lambda each: each.start_s):
        queues[placed.gpu].append(placed.group)
    for group in coming[len(places) :]:
        min(queues, key=lambda queue: sum(each.runs_s for each in queue)).append(group)
    return queued(queues)


def levelled(plan: Sequence[PlacedGroup], problem: Problem) -> tuple[PlacedGroup, ...]:
    """`plan` with groups moved from the GPU that ends last, or swapped, until none ends sooner."""
    groups = [each.group for each in plan]
    runs_s = np.array([each.runs_s for each in groups])
    where = np.array([each.gpu for each in plan])
    while _less_long(runs_s, where, problem.gpus):
        pass
    longest_first = np.argsort(-runs_s, kind="stable")
    return queued([
        [groups[at] for at in longest_first if where[at] == gpu] for gpu in range(problem.gpus)
    ])  # fmt: skip


def _less_long(runs_s: Floats, where: NDArray[np.intp], gpus: int) -> bool:
    """Change `where` groups run by the move or swap that helps the longest GPU most, if any does.

    Args:
        runs_s: Of each group, shape (groups,).
        where: The GPU of each, shape (groups,).
        gpus: How many there are.
    """
    takes_s = np.bincount(where, weights=runs_s, minlength=gpus)
    longest = int(takes_s.argmax())
    own, others = np.flatnonzero(where == longest), np.flatnonzero(where != longest)
    targets = np.concatenate([where[others], np.delete(np.arange(gpus), longest)])
    comes_s = np.concatenate([runs_s[others], np.zeros(gpus - 1)])
    if not targets.size:
        return False
    less_s = runs_s[own][:, None] - comes_s
    ends_s = np.maximum(takes_s[longest] - less_s, takes_s[targets] + less_s)
    leaves, comes = np.unravel_index(ends_s.argmin(), ends_s.shape)
    if ends_s[leaves, comes] >= takes_s[longest] * (1 - _DUST):
        return False
    where[own[leaves]] = targets[comes]
    if comes < len(others):
        where[others[comes]] = longest
    return True
