"""Which groups run, where and when, by OR-Tools CP-SAT."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.planning.fleet.columns import Column, Placed
from advisor.planning.fleet.constraints import Search
from advisor.planning.fleet.goals import Problem

# Each worker searches in a way of its own, so that more of them than cores are faster too.
_WORKERS, _SEED = 8, 1


@dataclass(frozen=True, slots=True)
class Packing:
    """The best plan found, and how good any plan of the same columns can be at most.

    Attributes:
        cost: Of `plan`, as `Problem.cost` says.
        bound: No plan of these columns costs less.
        in_time: Whether the search ended before its time did: then `gap` is rounding.
    """

    plan: tuple[Placed, ...]
    cost: float
    bound: float
    in_time: bool

    @property
    def gap(self) -> float:
        """Share of the cost that a better plan of these columns might save, 0..1."""
        return max(0.0, 1 - self.bound / self.cost) if self.cost > 0 else 0.0


def packed(
    columns: Sequence[Column], problem: Problem, limit_s: float, hint: Sequence[Placed]
) -> Packing:
    """The best plan of `columns` that runs each job once.

    Args:
        columns: Of which a plan may take any as often as there are jobs for it.
        problem: What it is to be best at, on how many GPUs.
        limit_s: Seconds to search at most.
        hint: A plan of `columns`, and the answer where nothing better is found in time.
    """
    from ortools.sat.python import cp_model

    search = Search(cp_model.CpModel(), columns, problem)
    search.ask(hint)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = _WORKERS
    solver.parameters.random_seed = _SEED
    status = solver.solve(search.model)
    best = tuple(hint)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = dealt(search.taken(solver.value), problem.gpus)
        best = min(found, best, key=problem.rank)
    bound = search.cost_of(solver.best_objective_bound)
    cost = problem.cost(best)
    return Packing(best, cost, min(cost, bound), status == cp_model.OPTIMAL)


def dealt(columns: Sequence[Column], gpus: int) -> tuple[Placed, ...]:
    """`columns` in this order, each on the GPU that is free first, as early as it can start.

    The first on a GPU finds it set up.
    """
    free_s, plan = [0.0] * gpus, []
    for number, column in enumerate(columns):
        gpu = free_s.index(min(free_s))
        start_s = free_s[gpu] + (column.set_up_s if number >= gpus else 0.0)
        plan.append(Placed(column, gpu, start_s))
        free_s[gpu] = start_s + column.runs_s + column.clear_s
    return tuple(plan)
