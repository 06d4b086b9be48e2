"""Which groups run, where and when, by OR-Tools CP-SAT; and lower bounds of what they cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor
from time import monotonic
from typing import Any, NamedTuple

from advisor.plan.search.fleet.cp_model import PackingModel
from advisor.plan.search.fleet.placement import (
    FleetGroup,
    PlacedGroup,
    Problem,
    arranged,
    dealt,
    soonest_s,
)

# With more than one worker the plan found would depend on the number of cores.
_WORKERS, _SEED = 1, 1
# Limits of a search for a plan, and for a cover of all jobs, in CP-SAT's deterministic time, which
# does not depend on the machine: about three seconds, and a quarter of a second.
_EFFORT, _COVER_EFFORT = 1.0, 0.25


@dataclass(frozen=True, slots=True)
class Packing:
    """The best plan found of some groups, and a lower bound of the others.

    Attributes:
        cost: Cost of `plan`, as of `Problem.cost`.
        bound: Lower bound of all plans of these groups.
        in_time: Whether the search ended before its time was up; then `cost` equals `bound`, up to
            rounding.
    """

    plan: tuple[PlacedGroup, ...]
    cost: float
    bound: float
    in_time: bool


def packed(
    groups: Sequence[FleetGroup], problem: Problem, limit_s: float, hint: Sequence[PlacedGroup]
) -> Packing:
    """The best plan of `groups` that runs each job once.

    A plan may take a group as often as there are jobs for it. `hint` is a plan to start from, which
    is returned where no better one is found in time.
    """
    from ortools.sat.python import cp_model

    began_s = monotonic()
    starts = [tuple(hint), *quick_plans(groups, problem, limit_s)]
    best = min(starts, key=problem.rank)
    search = PackingModel(cp_model.CpModel(), groups, problem)
    search.ask(best)
    solver = _solver(max(0.0, began_s + limit_s - monotonic()), _EFFORT)
    status = solver.solve(search.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = dealt(search.taken(solver.value), problem.gpus)
        best = min(found, best, key=problem.rank)
    cost, least = problem.cost(best), search.cost_of(solver.best_objective_bound)
    return Packing(best, cost, min(cost, least), status == cp_model.OPTIMAL)


def _solver(limit_s: float, effort: float) -> Any:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.max_deterministic_time = effort
    solver.parameters.num_workers = _WORKERS
    solver.parameters.catch_sigint_signal = False  # or the first Ctrl-C would only end this search
    solver.parameters.random_seed = _SEED
    return solver


# Weights are integer multiples of the largest over this; rounded down, to bound from below.
_PARTS = 10**6
# Shares of a GPU's jobs that wait for a group, with which plans are looked for.
_WAITING = (0.25, 0.5, 1.0)


class Cover(NamedTuple):
    """Groups that together make up all jobs; no others weigh less than `bound`."""

    groups: list[FleetGroup]
    bound: float


def cover(
    groups: Sequence[FleetGroup], weights: Sequence[float], problem: Problem, limit_s: float
) -> Cover | None:
    """Groups of little weight that make up all jobs; None where time was too short.

    Each of `groups`, with its weight in `weights`, may be taken as often as there are jobs for it.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    most = max(problem.counts)
    taken = [model.new_int_var(0, most, "") for _ in groups]
    for kind, count in enumerate(problem.counts):
        model.add(
            sum(each.members.count(kind) * n for each, n in zip(groups, taken, strict=True)
                if kind in each.members) == count
        )  # fmt: skip
    part = max(map(abs, weights)) / _PARTS or 1.0
    model.minimize(sum(floor(w / part) * n for w, n in zip(weights, taken, strict=True)))
    solver = _solver(limit_s, _COVER_EFFORT)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    chosen = [each for each, n in zip(groups, taken, strict=True) for _ in range(solver.value(n))]
    return Cover(chosen, part * solver.best_objective_bound)


def quick_plans(
    groups: Sequence[FleetGroup], problem: Problem, limit_s: float
) -> Iterator[tuple[PlacedGroup, ...]]:
    """Promising plans, of groups of little weight."""
    for share in _WAITING if problem.objective.order_matters else (0.0,):
        weights = [problem.weight(each, share) for each in groups]
        if found := cover(groups, weights, problem, limit_s):
            yield arranged(found.groups, problem)


def bound(groups: Sequence[FleetGroup], problem: Problem, limit_s: float) -> float:
    """Lower bound of all plans of `groups`; 0 where nothing is known, or time was too short."""
    return problem.objective.bound(CoverBounds(groups, problem, limit_s))


@dataclass(frozen=True, slots=True)
class CoverBounds:
    """Lower bounds of plans of some groups, from the lightest covers of all jobs; 0: unknown."""

    groups: Sequence[FleetGroup]
    problem: Problem
    limit_s: float

    def least_sum(self, weights: Sequence[float]) -> float:
        found = cover(self.groups, weights, self.problem, self.limit_s)
        return 0.0 if found is None else max(0.0, found.bound)

    def mean_completion_s(self) -> float:
        """Lower bound of the mean end of a job.

        Each job is given a share of the time that its group holds a GPU, equal in all groups, such
        that the shares of no group exceed its time. Jobs in later groups wait for the shares of
        those before. Two jobs on one GPU wait for at least the smaller share, unless they are in
        one group. Shortest first makes the sum of these waits least.
        """
        shares_s = _shares_s(self.groups, self.problem)
        if shares_s is None:
            return 0.0
        weights = []
        for each in self.groups:
            ordered = sorted(shares_s[kind] for kind in each.members)
            within_s = sum(share * (len(ordered) - 1 - at) for at, share in enumerate(ordered))
            weights.append(sum(each.ends_s) - within_s)
        found = cover(self.groups, weights, self.problem, self.limit_s)
        if found is None:
            return 0.0
        return (_waits_s(shares_s, self.problem) + found.bound) / sum(self.problem.counts)


def _shares_s(groups: Sequence[FleetGroup], problem: Problem) -> list[float] | None:
    """The shares with the largest sum, of a job of each kind, shape (kinds,)."""
    import numpy as np
    from scipy.optimize import linprog

    kinds = range(len(problem.counts))
    members = np.array([[each.members.count(kind) for kind in kinds] for each in groups])
    takes_s = np.array([each.runs_s for each in groups])
    found = linprog(-np.array(problem.counts), A_ub=members, b_ub=takes_s, bounds=(0, None))
    return [float(each) for each in found.x] if found.success else None


def _waits_s(shares_s: Sequence[float], problem: Problem) -> float:
    """Sum of the starts of all jobs, if each runs alone for its share, shortest first."""
    every = problem.of_every_job(shares_s)
    return soonest_s(every, problem.gpus) - sum(every)
