"""What no plan of some groups can fall below, without looking at plans."""

from collections.abc import Sequence
from heapq import heapify, heapreplace

from advisor.planning.fleet.columns import Column
from advisor.planning.fleet.goals import Problem
from advisor.planning.fleet.partition import partition


def bound(columns: Sequence[Column], problem: Problem, limit_s: float) -> float:
    """No plan of `columns` costs less; 0 where nothing is known, or time was too short."""
    match problem.aim:
        case "makespan" | "throughput":
            return _least([each.runs_s for each in columns], columns, problem, limit_s) / (
                problem.gpus
            )
        case "energy":
            return _least([each.energy_j or 0.0 for each in columns], columns, problem, limit_s)
        case "mean-completion":
            return completion_bound_s(columns, problem, limit_s)
        case "fairness":  # ends are at most the worst slowdown times what each job takes alone
            jobs = zip(problem.alone_s, problem.counts, strict=True)
            mean_alone_s = sum(s * count for s, count in jobs) / sum(problem.counts)
            return completion_bound_s(columns, problem, limit_s) / mean_alone_s
        case _:
            return 0.0


def _least(
    weights: Sequence[float], columns: Sequence[Column], problem: Problem, limit_s: float
) -> float:
    found = partition(columns, weights, problem, limit_s)
    return 0.0 if found is None else max(0.0, found.bound)


def completion_bound_s(columns: Sequence[Column], problem: Problem, limit_s: float) -> float:
    """No plan of `columns` ends its jobs earlier on the average, in seconds; 0: nothing is known.

    Every job is given a share of the time that its group holds a GPU, the same in all groups, so
    that the shares of no group exceed its time. Jobs in later groups wait for the shares of those
    before: two jobs on one GPU wait for at least the smaller share, unless their group is the
    same. The shortest-first order makes the sum of these waits least.
    """
    shares_s = _shares_s(columns, problem)
    if shares_s is None:
        return 0.0
    weights = []
    for each in columns:
        ordered = sorted(shares_s[kind] for kind in each.team)
        within_s = sum(share * (len(ordered) - 1 - at) for at, share in enumerate(ordered))
        weights.append(sum(each.ends_s) - within_s)
    found = partition(columns, weights, problem, limit_s)
    if found is None:
        return 0.0
    return (_waits_s(shares_s, problem) + found.bound) / sum(problem.counts)


def _shares_s(columns: Sequence[Column], problem: Problem) -> list[float] | None:
    """The largest shares in all, of a job of each kind, shape (kinds,)."""
    import numpy as np
    from scipy.optimize import linprog

    kinds = range(len(problem.counts))
    members = np.array([[each.team.count(kind) for kind in kinds] for each in columns])
    takes_s = np.array([each.runs_s + each.clear_s for each in columns])
    found = linprog(-np.array(problem.counts), A_ub=members, b_ub=takes_s, bounds=(0, None))
    return [float(each) for each in found.x] if found.success else None


def _waits_s(shares_s: Sequence[float], problem: Problem) -> float:
    """Sum of the times at which the jobs start, each alone for its share, the shortest first."""
    every = sorted(s for s, n in zip(shares_s, problem.counts, strict=True) for _ in range(n))
    free_s = [0.0] * problem.gpus
    heapify(free_s)
    waits_s = 0.0
    for share_s in every:
        waits_s += free_s[0]
        heapreplace(free_s, free_s[0] + share_s)
    return waits_s
