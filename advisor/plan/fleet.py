"""Many jobs, or several GPUs: the best schedule of each way to group the jobs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

from advisor.errors import InvalidInput, NothingFits
from advisor.plan import step
from advisor.plan.candidate_space import Space
from advisor.plan.fleet_groups import GpuQueue, PlacedGroup, Placement, Problem, dealt
from advisor.plan.fleet_search import FleetSearch
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.group_pool import GroupPool
from advisor.plan.job_sets import Kinds, Members, Sets, with_one
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.rules import (
    EXACT_JOBS,
    Conditions,
    check_each_fits,
    refuse_confined,
    refuse_protected,
)
from advisor.plan.schedule import schedule, under_caps
from advisor.plan.tables import Beside, Goal, Nothing, Stage, Table
from advisor.plan.values import GpuPlan, GpuPool, Question, Schedule
from advisor.sharing import Group, Hybrid, Serial
from advisor.sharing.groups import in_turn, relabelled

_MOST_EFFORT = 100
# Times the effort that is proposed where a search ends before there is nothing more to compare.
_LONGER = 4


def grouped(
    pools: Sequence[GpuPool], questions: Sequence[Question], effort: float
) -> tuple[list[Schedule], int, str, float | None]:
    """Search the best schedule of each way to group the jobs of `pools` on their GPUs.

    The other values are the number of groups that were compared, how they were searched, and an
    effort with which the search goes on, if there is more to compare. `effort` 1 is the work that a
    search for so many jobs usually takes; `questions` are those of one GPU of each pool.

    Raises:
        InvalidInput: A job is protected, plans are confined, or `effort` is out of range.
        NothingFits: A job is too big for every GPU, even alone, or takes more GPUs than a host has.
    """
    jobs, conditions = pools[0].jobs, questions[0].conditions
    objective, level = OBJECTIVES[questions[0].objective], questions[0].level
    if not 0 < effort <= _MOST_EFFORT:
        raise InvalidInput(
            f"the effort of a search is above 0 and at most {_MOST_EFFORT}, got {effort:g}"
        )
    refuse_protected(jobs)
    refuse_confined(conditions)
    kinds = Kinds(jobs)
    problem = Problem(kinds, objective, pools)
    groups = [GroupPool(at, problem, each) for at, each in enumerate(questions)]
    _check_each_runs_somewhere(kinds, problem, groups, conditions)
    search = FleetSearch(problem, groups, effort)
    gangs = max(problem.widths) > 1
    search.run(_in_every_order(problem, groups) if gangs else _divided(problem, groups, questions))
    placements = sorted(search.best.items(), key=lambda each: problem.rank(each[1]))
    schedules = [
        schedule(pools, list(_gpu_plans(placement, problem)), way) for way, placement in placements
    ]
    if conditions.power_caps:
        schedules += under_caps(schedules, pools, questions)
    schedules.sort(
        key=lambda each: (len(each.late(level)), known_cost(each, objective.name).at(level))
    )
    compared, predicted = map(sum, zip(*(each.sizes for each in groups), strict=True))
    exact = placements[0][0] == "exact"
    searched = f"{compared:,} groups and queues compared, {predicted} predicted in full: " + (
        "every way to divide the jobs among the GPUs"
        if exact
        else "the best of obvious plans, improved"
    )
    longer = _LONGER * effort if search.cut_short and not exact else None
    return schedules, compared, searched, longer


# Most jobs of which some take several GPUs: groups of five in every order are 540 plans.
_MOST_ORDERED = 5


def _in_every_order(problem: Problem, pools: Sequence[GroupPool]) -> Iterator[Placement]:
    """Yield all plans that deal batches out in some order, each to where it ends soonest."""
    jobs = problem.jobs if len(problem.jobs) <= _MOST_ORDERED else ()
    for batches in dict.fromkeys(_partitions(jobs)):
        queues = [GpuQueue(members, len(members)) for members in batches]
        of_pools = [pool.predicted(queues) for pool in pools]
        items = [[group for group in groups if group] for groups in zip(*of_pools, strict=True)]
        if items and all(items):
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
            yield tuple(sorted((*batches[:at], with_one(batch, first), *batches[at + 1 :])))


# Plans of the tables of all sets that are predicted.
_PREDICTED = 4


def _divided(
    problem: Problem, pools: Sequence[GroupPool], questions: Sequence[Question]
) -> Iterator[Placement]:
    """Yield the best few plans that run sets of jobs on the GPUs in the ways that suit each set.

    The table of a GPU has a way for every set: in phases, on MIG instances, under equal limits.
    """
    if len(problem.jobs) > EXACT_JOBS:
        return
    sets, idle_w = Sets(problem.pools[0].jobs), [pool.idle_power_w or 0.0 for pool in problem.pools]
    all_idle_w = sum(pool.gpus * own for pool, own in zip(problem.pools, idle_w, strict=True))
    spaces = [
        Space(sets.with_jobs(pool.jobs), question, all_idle_w - own)
        for pool, question, own in zip(pools, questions, idle_w, strict=True)
    ]
    objective, terms = problem.objective, replace(spaces[0].goal.terms, watts=(all_idle_w,))
    goal = Goal(sets, objective if objective.in_seconds else OBJECTIVES["makespan"], terms)
    table: Table = Nothing(goal)
    gpus = list[int]()
    for at, space in enumerate(spaces):
        own = [gpu for gpu, pool in enumerate(problem.pool_of) if pool == at]
        for gpu in own[: len(problem.jobs)]:
            step()
            table = Beside(space.in_turn, table)
            gpus.insert(0, gpu)
    before = set[frozenset[tuple[int, tuple[Stage, ...]]]]()
    for way in table.in_order(sets.everything):
        on = {
            gpu: tuple(stage for place, stage in way if place == at) for at, gpu in enumerate(gpus)
        }
        mark = frozenset((problem.pool_of[gpu], stages) for gpu, stages in on.items())
        if mark in before:
            continue
        before.add(mark)
        plan = []
        for gpu, stages in on.items():
            at = problem.pool_of[gpu]
            chosen = sum(batch.chosen for stage in stages for batch in stage.batches)
            if members := tuple(sets.tenants[chosen]):
                group = pools[at].predict(members, spaces[at].sharing_of(stages, members))
                plan.append(PlacedGroup(group, (gpu,), 0.0) if group else None)
        if all(plan):
            yield tuple(filter(None, plan))
        if len(before) == _PREDICTED:
            return


def _check_each_runs_somewhere(
    kinds: Kinds, problem: Problem, groups: Sequence[GroupPool], conditions: Conditions
) -> None:
    widest = max(pool.host_gpus for pool in problem.pools)
    for kind, job in enumerate(kinds.jobs):
        if job.gpus > widest:
            raise NothingFits(
                f"{job.name} takes {job.gpus} GPUs of one host, and a host has {widest}. Leave "
                f"the job out, or name larger hosts, as --gpus 1x{job.gpus}."
            )
        if not any(group.holds[kind] for group in groups):
            pool = problem.pools[-1]
            mix = pool.predictor.predict([groups[-1].jobs[kind].profile], Serial())
            check_each_fits(mix, pool.gpu, conditions)
        if not any(group.allows(GpuQueue((kind,), 1)) for group in groups):
            raise NothingFits(
                f"{job.name} holds {job.profile.host_memory_mib or 0:,.0f} MiB of host memory, "
                "more than the equal part of a GPU. Pass more --host-memory, or fewer GPUs per "
                "host."
            )


def _gpu_plans(plan: Sequence[PlacedGroup], problem: Problem) -> Iterator[GpuPlan]:
    """Yield the plan of each GPU of `plan`, by GPU number."""
    left = [list(positions) for positions in problem.kinds.positions]
    queues: dict[int, list[tuple[_Timed, list[int]]]] = {}
    for timed in _in_seconds(plan, problem):
        numbers = [left[kind].pop(0) + 1 for kind in timed.placed.group.members]
        for gpu in timed.placed.gpus:
            queues.setdefault(gpu, []).append((timed, numbers))
    for gpu, queue in sorted(queues.items()):
        pool = problem.pools[problem.pool_of[gpu]]
        own = sorted(number for _, numbers in queue for number in numbers)
        renamed: list[Group | Hybrid] = []
        waits_s, free_s, before = dict[int, float](), 0.0, None
        for (placed, start_s, runs_s), numbers in queue:
            group = placed.group
            renamed += relabelled(group.sharing, [own.index(one) + 1 for one in numbers])
            free_s += problem.pause_s(before, group)
            waits_s |= dict.fromkeys(numbers, start_s - free_s)
            free_s, before = free_s + runs_s, group
        members, sharing = tuple(pool.jobs[number - 1] for number in own), in_turn(renamed)
        yield GpuPlan(
            number=gpu,
            gpu=pool.gpu,
            job_numbers=tuple(own),
            members=members,
            forecast=forecast(Mixes(members, pool.predictor), sharing),
            waits_s=tuple(waits_s[number] for number in own),
        )


class _Timed(NamedTuple):
    """A placed group, its start, and how long it runs, in seconds."""

    placed: PlacedGroup
    start_s: float
    runs_s: float


def _in_seconds(plan: Sequence[PlacedGroup], problem: Problem) -> list[_Timed]:
    """The groups of `plan` in the order of their starts; for throughput, it is in other units."""
    ordered = sorted(plan, key=lambda each: (each.start_s, each.gpus))
    if problem.objective.in_seconds:
        return [_Timed(each, each.start_s, each.group.runs_s) for each in ordered]
    timed, free_s = list[_Timed](), [0.0] * len(problem.pool_of)
    for placed in ordered:
        pool = problem.pools[placed.group.pool]
        members = [pool.jobs[problem.kinds.positions[kind][0]] for kind in placed.group.members]
        runs_s = forecast(Mixes(members, pool.predictor), placed.group.sharing).makespan_s or 0.0
        timed.append(_Timed(placed, max(free_s[gpu] for gpu in placed.gpus), runs_s))
        for gpu in placed.gpus:
            free_s[gpu] = timed[-1].start_s + runs_s
    return timed
