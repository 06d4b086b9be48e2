"""Many jobs, or several GPUs: the best schedule of each way to group the jobs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advisor.errors import InvalidInput, NothingFits
from advisor.plan.fleet_groups import GpuQueue, PlacedGroup, Problem
from advisor.plan.fleet_search import FleetSearch
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.group_pool import GroupPool
from advisor.plan.job_sets import Kinds
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.rules import Conditions, check_each_fits, refuse_confined, refuse_protected
from advisor.plan.schedule import schedule, under_caps
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
    search.run(questions)
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


def _check_each_runs_somewhere(
    kinds: Kinds, problem: Problem, groups: Sequence[GroupPool], conditions: Conditions
) -> None:
    widest = max(pool.host_gpus for pool in problem.pools)
    for kind, job in enumerate(kinds.jobs):
        if job.gpus > widest:
            raise NothingFits(
                f"{job.name} takes {job.gpus} GPUs of one host, and a host has {widest}. Leave it "
                f"out, or name larger hosts, as --gpus 1x{job.gpus}."
            )
        if not any(group.holds[kind] for group in groups):
            pool = problem.pools[-1]
            mix = pool.predictor.predict([groups[-1].jobs[kind].profile], Serial())
            check_each_fits(mix, pool.gpu, conditions)
        if not any(group.allows(GpuQueue((kind,), 1)) for group in groups):
            raise NothingFits(
                f"{job.name} holds {job.profile.host_memory_mib or 0:,.0f} MiB of the host, more "
                f"than the equal part of a GPU. Name more --host-memory, or fewer GPUs a host."
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
