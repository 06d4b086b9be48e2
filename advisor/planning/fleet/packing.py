"""Which groups run, where and when, by OR-Tools CP-SAT."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from advisor.planning.fleet.columns import Column, Placed, dealt
from advisor.planning.fleet.constraints import Search
from advisor.planning.fleet.goals import Problem
from advisor.planning.fleet.partition import quick_plans

# One worker: more of them would find other plans on other numbers of cores.
_WORKERS, _SEED = 1, 1
# What a search may take at most, in units of CP-SAT's own that are the same on any machine: about
# three seconds.
_EFFORT = 1.0


@dataclass(frozen=True, slots=True)
class Packing:
    """The best plan found, and how good any plan of the same columns can be at most.

    Attributes:
        cost: Of `plan`, as `Problem.cost` says.
        bound: No plan of these columns costs less.
        in_time: Whether the search ended before its time did: then `cost` is `bound`, rounded.
    """

    plan: tuple[Placed, ...]
    cost: float
    bound: float
    in_time: bool


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

    began_s = monotonic()
    starts = [tuple(hint), *quick_plans(columns, problem, limit_s)]
    best = min(starts, key=problem.rank)
    search = Search(cp_model.CpModel(), columns, problem)
    search.ask(best)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.0, began_s + limit_s - monotonic())
    solver.parameters.max_deterministic_time = _EFFORT
    solver.parameters.num_workers = _WORKERS
    solver.parameters.catch_sigint_signal = False  # or the first Ctrl-C would only end this search
    solver.parameters.random_seed = _SEED
    status = solver.solve(search.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = dealt(search.taken(solver.value), problem.gpus)
        best = min(found, best, key=problem.rank)
    cost, least = problem.cost(best), search.cost_of(solver.best_objective_bound)
    return Packing(best, cost, min(cost, least), status == cp_model.OPTIMAL)
