"""What no plan of some groups can fall below, without looking at plans."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.plan.objectives.completion import soonest_s
from advisor.plan.search.fleet.cp_packing import partition
from advisor.plan.search.fleet.fleet_goals import Problem
from advisor.plan.search.fleet.fleet_groups import FleetGroup
from advisor.plan.search.fleet.group_pool import MOST_TOGETHER


def least_cost(problem: Problem) -> float | None:
    """No plan costs less that runs at most `MOST_TOGETHER` jobs at once on a GPU; None: not known.

    Nothing of the kind is known of joules.
    """
    return problem.objective.least_cost(problem, problem.gpus * MOST_TOGETHER)


def bound(groups: Sequence[FleetGroup], problem: Problem, limit_s: float) -> float:
    """No plan of `groups` costs less; 0 where nothing is known, or time was too short."""
    return problem.objective.bound(_PartitionBounds(groups, problem, limit_s))


@dataclass(frozen=True, slots=True)
class _PartitionBounds:
    """Bounds by the lightest groups that make up all jobs; see `GroupBounds`."""

    groups: Sequence[FleetGroup]
    fleet: Problem
    limit_s: float

    def least_sum(self, weights: Sequence[float]) -> float:
        found = partition(self.groups, weights, self.fleet, self.limit_s)
        return 0.0 if found is None else max(0.0, found.bound)

    def mean_completion_s(self) -> float:
        """No plan ends its jobs earlier on average.

        Every job is given a share of the time that its group holds a GPU, the same in all groups,
        so that the shares of no group exceed its time. Jobs in later groups wait for the shares of
        those before: two jobs on one GPU wait for at least the smaller share, unless their group is
        the same. The shortest-first order makes the sum of these waits least.
        """
        shares_s = _shares_s(self.groups, self.fleet)
        if shares_s is None:
            return 0.0
        weights = []
        for each in self.groups:
            ordered = sorted(shares_s[kind] for kind in each.team)
            within_s = sum(share * (len(ordered) - 1 - at) for at, share in enumerate(ordered))
            weights.append(sum(each.ends_s) - within_s)
        found = partition(self.groups, weights, self.fleet, self.limit_s)
        if found is None:
            return 0.0
        return (_waits_s(shares_s, self.fleet) + found.bound) / sum(self.fleet.counts)


def _shares_s(columns: Sequence[FleetGroup], problem: Problem) -> list[float] | None:
    """The largest shares in all, of a job of each kind, shape (kinds,)."""
    import numpy as np
    from scipy.optimize import linprog

    kinds = range(len(problem.counts))
    members = np.array([[each.team.count(kind) for kind in kinds] for each in columns])
    takes_s = np.array([each.runs_s for each in columns])
    found = linprog(-np.array(problem.counts), A_ub=members, b_ub=takes_s, bounds=(0, None))
    return [float(each) for each in found.x] if found.success else None


def _waits_s(shares_s: Sequence[float], problem: Problem) -> float:
    """Sum of the times at which the jobs start, each alone for its share, the shortest first."""
    every = problem.of_every_job(shares_s)
    return soonest_s(every, problem.gpus) - sum(every)
