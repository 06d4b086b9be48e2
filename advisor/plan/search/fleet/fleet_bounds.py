"""What no plan of some groups can fall below, without looking at plans."""

from collections.abc import Iterator, Sequence
from heapq import heapreplace
from operator import truediv
from statistics import fmean

from advisor.plan.search.fleet.columns import Column
from advisor.plan.search.fleet.cp_packing import partition
from advisor.plan.search.fleet.fleet_goals import Problem
from advisor.plan.search.fleet.group_pool import MOST_TOGETHER


def least_cost(problem: Problem) -> float | None:
    """No plan costs less that runs at most `MOST_TOGETHER` jobs at once on a GPU; None: not known.

    No job is faster than alone: so the predictor has it, by construction. So each job holds one of
    so many places for as long as it takes alone at least. Nothing of the kind is known of joules.
    """
    each_s = _of_every_job(problem.least_s, problem)
    places = problem.gpus * MOST_TOGETHER
    match problem.aim:
        case "makespan" | "throughput":
            return max(*each_s, sum(each_s) / places)
        case "mean-completion":
            return _soonest_s(each_s, places) / len(each_s)
        case "fairness":
            slowed: Iterator[float] = map(truediv, problem.least_s, problem.alone_s)
            alone_s = sum(_of_every_job(problem.alone_s, problem))
            return max(*slowed, _soonest_s(each_s, places) / alone_s)
        case "deadlines":
            kinds_due = zip(problem.least_s, problem.deadlines_s, problem.counts, strict=True)
            return float(sum(n for s, due_s, n in kinds_due if due_s is not None and s > due_s))
        case _:
            return None


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
            mean_alone_s = fmean(_of_every_job(problem.alone_s, problem))
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
    takes_s = np.array([each.runs_s for each in columns])
    found = linprog(-np.array(problem.counts), A_ub=members, b_ub=takes_s, bounds=(0, None))
    return [float(each) for each in found.x] if found.success else None


def _waits_s(shares_s: Sequence[float], problem: Problem) -> float:
    """Sum of the times at which the jobs start, each alone for its share, the shortest first."""
    every = _of_every_job(shares_s, problem)
    return _soonest_s(every, problem.gpus) - sum(every)


def _soonest_s(takes_s: Sequence[float], places: int) -> float:
    """Least sum of the times at which jobs end, each in a place that it has alone: shortest first.

    Args:
        takes_s: Of each job.
        places: Equal ones that there are.
    """
    free_s = [0.0] * places
    ends_s = 0.0
    for each_s in sorted(takes_s):
        ends_s += heapreplace(free_s, free_s[0] + each_s) + each_s
    return ends_s


def _of_every_job(of_kinds: Sequence[float], problem: Problem) -> list[float]:
    """What each kind of job has, once for every job of it."""
    return [each for each, n in zip(of_kinds, problem.counts, strict=True) for _ in range(n)]
