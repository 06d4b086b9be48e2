"""Which groups make up all jobs, where times do not matter but each group has its weight.

That is a small question, quickly answered. Its answers, arranged on the GPUs, are
where the search for a plan begins; `advisor.planning.fleet.bounds` bounds plans by it.
"""

from collections.abc import Iterator, Sequence
from math import floor
from typing import NamedTuple

from advisor.planning.fleet.arranging import arranged
from advisor.planning.fleet.columns import Column, Placed
from advisor.planning.fleet.goals import IN_TURN, Problem

# Weights are whole numbers of these parts of the largest; rounded down, to bound from below.
_PARTS = 10**6
_SEED = 1
# What a question may take at most, in units of CP-SAT's own: about a quarter of a second.
_EFFORT = 0.25
# Jobs that wait for a group on a GPU, as a share of those that the GPU has in all.
_WAITING = (0.25, 0.5, 1.0)


class Partition(NamedTuple):
    """Groups that make up all jobs; no others weigh less in all than `bound`."""

    columns: list[Column]
    bound: float


def partition(
    columns: Sequence[Column], weights: Sequence[float], problem: Problem, limit_s: float
) -> Partition | None:
    """Groups that make up all jobs and weigh little together; None where time was too short.

    Args:
        columns: Of which any may be taken as often as there are jobs for it.
        weights: Of each of `columns`.
        problem: Whose jobs they are.
        limit_s: Seconds to search at most.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    most = max(problem.counts)
    taken = [model.new_int_var(0, most, "") for _ in columns]
    for kind, count in enumerate(problem.counts):
        model.add(
            sum(each.team.count(kind) * n for each, n in zip(columns, taken, strict=True)
                if kind in each.team) == count
        )  # fmt: skip
    part = max(map(abs, weights)) / _PARTS or 1.0
    model.minimize(sum(floor(w / part) * n for w, n in zip(weights, taken, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.max_deterministic_time = _EFFORT
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False
    solver.parameters.random_seed = _SEED
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    chosen = [each for each, n in zip(columns, taken, strict=True) for _ in range(solver.value(n))]
    return Partition(chosen, part * solver.best_objective_bound)


def quick_plans(
    columns: Sequence[Column], problem: Problem, limit_s: float
) -> Iterator[tuple[Placed, ...]]:
    """Plans that may be good: of light groups.

    Args:
        columns: Of which a plan may consist.
        problem: What it is to be best at.
        limit_s: Seconds that each may take to find.
    """
    for share in _WAITING if problem.aim in IN_TURN else (0.0,):
        weights = [problem.weight(each, share) for each in columns]
        if found := partition(columns, weights, problem, limit_s):
            yield arranged(found.columns, problem)
