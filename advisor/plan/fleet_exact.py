"""The best plan for few jobs on several GPUs: every way to divide the jobs among the GPUs.

What a set of jobs costs on one GPU is the answer of `candidate_space.Space`: in phases, on MIG
instances, under equal limits. A dynamic program over the GPUs adds these up.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import inf
from typing import NamedTuple

from advisor.plan.candidate_space import Label, Space, labels_of_sets
from advisor.plan.fleet_groups import GpuQueue, GroupPool
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.job_sets import Members
from advisor.plan.placement import PlacedGroup, Placement, Problem, dealt
from advisor.plan.rules import EXACT_JOBS
from advisor.plan.values import Question

# Most divisions kept for each set of jobs, of those that no other beats; and plans predicted.
_MOST_KEPT, _PREDICTED = 12, 4


class _Division(NamedTuple):
    """Sets of jobs on the GPUs so far: the largest of one score, the sum of the other."""

    most: float
    total: float
    on: tuple[tuple[int, int, Label], ...]  # GPU, set of jobs, and how they run there


def exact_plans(
    problem: Problem, pools: Sequence[GroupPool], questions: Sequence[Question]
) -> Iterator[Placement]:
    """Yield the best few plans for few jobs; none where there are too many."""
    if max(problem.widths) > 1:
        yield from _in_every_order(problem, pools)
        return
    if sum(problem.counts) > EXACT_JOBS:
        return
    spaces = [Space(pool.jobs, question)
              for pool, question in zip(problem.pools, questions, strict=True)]  # fmt: skip
    if any(space.sets.positions != spaces[0].sets.positions for space in spaces):
        return  # jobs that differ on one model are equal on another: sets have other numbers there
    everything = spaces[0].sets.everything
    reached: dict[int, list[_Division]] = {0: [_Division(-inf, 0.0, ())]}
    for at, space in enumerate(spaces):
        ways = _scored(space, problem, at)
        for gpu in problem.gpus_of(at)[: sum(problem.counts)]:
            reached = _with_gpu(reached, gpu, ways, space)
    whole = sorted(reached.get(everything, []), key=lambda each: _cost(each, problem))
    for division in whole[:_PREDICTED]:
        if plan := _predicted(division, problem, pools, spaces):
            yield plan


_Ways = dict[int, list[tuple[float, float, Label]]]
"""By set of jobs: the two scores that it adds to a plan, and how it runs."""


# Most jobs of which some take several GPUs: groups of five in every order are 540 plans.
_MOST_ORDERED = 5


def _in_every_order(problem: Problem, pools: Sequence[GroupPool]) -> Iterator[Placement]:
    """Yield all plans that deal batches out in some order, each to where it ends soonest."""
    jobs = problem.of_every_job(range(len(problem.counts)))
    if len(jobs) > _MOST_ORDERED:
        return
    for batches in dict.fromkeys(_partitions(jobs)):
        items = []
        for members in batches:
            groups = [pool.predicted([GpuQueue(members, len(members))])[0] for pool in pools]
            items.append([group for group in groups if group is not None])
        if all(items):
            yield from (dealt(order, problem) for order in permutations(items))


def _partitions(jobs: Sequence[int]) -> Iterator[tuple[Members, ...]]:
    """Every way to divide `jobs` into batches; of equal jobs, some more than once."""
    if not jobs:
        yield ()
        return
    first, *rest = jobs
    for batches in _partitions(rest):
        yield tuple(sorted(((first,), *batches)))
        for at, batch in enumerate(batches):
            yield tuple(sorted((*batches[:at], tuple(sorted((first, *batch))), *batches[at + 1 :])))


def _scored(space: Space, problem: Problem, pool: int) -> _Ways:
    """Return the two scores that each set of jobs adds to a plan on a GPU of `pool`."""
    idle_w = problem.pools[pool].idle_power_w or 0.0
    scored = {}
    for chosen, labels in labels_of_sets(space, EXACT_JOBS).items():
        scored[chosen] = [(*_scores(label, space, idle_w), label) for label in labels]
    return scored


def _scores(label: Label, space: Space, idle_w: float) -> tuple[float, float]:
    match space.objective.name:
        case "mean-completion":
            return 0.0, label.cost
        case "deadlines":
            return label.worst, label.cost
        case "energy":  # beyond that of an idle GPU, which counts until the last job ends
            runs_s = sum(group.time_s for group in label.groups)
            return runs_s, label.cost - idle_w * runs_s
        case _:
            return label.cost, label.cost


def _cost(division: _Division, problem: Problem) -> tuple[float, float]:
    if problem.objective.name == "mean-completion":
        return division.total, 0.0
    if problem.objective.saves_energy:
        idle_w = sum(pool.gpus * (pool.idle_power_w or 0.0) for pool in problem.pools)
        return division.total + idle_w * division.most, division.most
    return division.most, division.total


def _with_gpu(
    before: dict[int, list[_Division]], gpu: int,
    ways: _Ways, space: Space,
) -> dict[int, list[_Division]]:  # fmt: skip
    """Divisions after one more GPU, which runs some set of the jobs that are left, or none."""
    after = {done: list(divisions) for done, divisions in before.items()}
    for done, divisions in before.items():
        for chosen in space.sets.inside(space.sets.everything - done).tolist():
            for most, total, label in ways.get(chosen, ()):
                kept = after.setdefault(done + chosen, [])
                for division in divisions:
                    new = _Division(
                        max(division.most, most), division.total + total,
                        (*division.on, (gpu, chosen, label)),
                    )  # fmt: skip
                    _keep(kept, new)
    return after


def _keep(kept: list[_Division], new: _Division) -> None:
    """Keep `new` unless another is nowhere worse; drop those that it beats."""
    if any(each.most <= new.most and each.total <= new.total for each in kept):
        return
    kept[:] = [each for each in kept if each.most < new.most or each.total < new.total]
    kept.append(new)
    if len(kept) > _MOST_KEPT:
        kept.sort()
        kept.pop()


def _predicted(
    division: _Division, problem: Problem, pools: Sequence[GroupPool], spaces: Sequence[Space]
) -> Placement:
    """Predict the groups of a division; empty where one does not fit."""
    plan = []
    for gpu, chosen, label in division.on:
        at = problem.pool_of[gpu]
        pool, space = pools[at], spaces[at]
        members = tuple(space.sets.tenants[chosen])
        sharing = space.sharing_of([group.placement for group in label.groups], members)
        mixes = Mixes([pool.jobs[kind] for kind in members], space.question.predictor)
        group = pool.of_forecast(members, forecast(mixes, sharing))
        if group is None:
            return ()
        plan.append(PlacedGroup(group, (gpu,), 0.0))
    return tuple(plan)
