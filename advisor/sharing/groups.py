"""The only code that asks for the type of a sharing: its groups, partitions, and subsets of jobs.

Positions count from 0 and numbers from 1, in the order in which the user gave the jobs. Other code
calls these functions, or asks for `mode`, `limits` and `instances`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard, TypeVar, overload

from advisor.errors import InvalidInput, counted
from advisor.sharing.modes import (
    Arrangement,
    Concurrent,
    Group,
    Hybrid,
    Instance,
    Mig,
    Mode,
    Mps,
    Naive,
    Part,
    Phases,
    Queue,
    Serial,
    SharedPartition,
    Sharing,
    one_job_each,
    plain_group,
)

_Limited = TypeVar("_Limited", Mps, Concurrent, Arrangement)


def named_jobs(sharing: Sharing) -> tuple[int, ...]:
    """Return the numbers of the jobs that `sharing` mentions, increasing; empty: any jobs."""
    if isinstance(sharing, Hybrid | Phases):
        return tuple(sorted(sharing.jobs))
    settings = sharing.limits or sharing.instances
    return tuple(range(1, len(settings) + 1))


def check_count(sharing: Sharing, jobs: int) -> None:
    """Check that `sharing` is one for `jobs` jobs; raise InvalidInput if not."""
    named = named_jobs(sharing)
    if named in ((), tuple(range(1, jobs + 1))):
        return
    if isinstance(sharing, Hybrid | Phases):
        raise InvalidInput(
            f"{sharing} names job {', '.join(map(str, named))} of {counted(jobs, 'job')}. Name "
            "each of them once."
        )
    what = "limit" if sharing.limits else "instance"
    words = f"one {what} for each job, in order"
    if len(named) == 1:
        mode, _, setting = str(sharing).partition("=")
        words = f"{mode}={','.join([setting] * jobs)}"
    raise InvalidInput(
        f"{sharing}: {counted(len(named), what)} for {counted(jobs, 'job')}. Write {words}."
    )


def together(sharing: Sharing) -> Concurrent | None:
    """Return `sharing` if all jobs have the whole GPU at the same time, else None."""
    return sharing if isinstance(sharing, Concurrent) else None


def without_idle_limits(sharing: _Limited) -> _Limited:
    """Return `sharing`, without its limits if all of them are 100 %."""
    if isinstance(sharing, Mps) and set(sharing.limits) == {100.0}:
        return replace(sharing, limits=())
    return sharing


def one_at_a_time(sharing: Arrangement, jobs: int) -> bool:
    """Return whether each of so many jobs has all of the GPU while it runs."""
    shared = together(without_idle_limits(sharing))
    return sharing.mode == "serial" or (jobs == 1 and shared is not None and not shared.limits)


def without_phases(sharing: Sharing) -> Arrangement | None:
    """Return `sharing` if all jobs start at once; None if some wait for others."""
    return None if isinstance(sharing, Phases | Queue) or orders_jobs(sharing) else sharing


def orders_jobs(sharing: Sharing) -> bool:
    """Return whether it names the jobs that start first: in phases, a queue or lines."""
    in_lines = isinstance(sharing, Hybrid) and sharing.at_once < len(sharing.jobs)
    return in_lines or isinstance(sharing, Phases)


def lines_of(group: Group | Hybrid) -> list[tuple[tuple[int, ...], int]]:
    """Return the numbers of the jobs of each partition of `group`, and how many run at once."""
    if isinstance(group, Group):
        return [(group.jobs, group.at_once)]
    return [(part.jobs, part.at_once or len(part.jobs)) for part in group.partitions]


def chooses_layouts(sharing: Sharing) -> bool:
    """Return whether it is MIG in layouts that a simulation chooses for the jobs that wait."""
    return isinstance(sharing, Mig) and not sharing.instances


def with_a_queue(sharing: Sharing, jobs: int) -> bool:
    """Return whether any of `jobs` jobs wait in a queue."""
    return any(part.at_once is not None for part in partitions(sharing, jobs))


def without_idle_queue(sharing: Sharing, jobs: int) -> Sharing:
    """Return `sharing`; for a queue with room for all `jobs` at once, that of its jobs."""
    plain = isinstance(sharing, Queue) and sharing.at_once >= jobs
    return sharing.sharing if isinstance(sharing, Queue) and plain else sharing


def groups(sharing: Sharing, jobs: int) -> tuple[Group | Hybrid, ...]:
    """Return the groups of `sharing` of `jobs` jobs, in the order in which they run."""
    match sharing:
        case Mig(instances):
            return (one_job_each(instances),)
        case Hybrid():
            return (sharing,)
        case Phases():
            return sharing.groups
        case _:
            return (plain_group(Group(tuple(range(1, jobs + 1)), sharing)),)


def instance_sets(sharing: Sharing) -> tuple[Hybrid, ...]:
    """Return each set of MIG instances that exist at the same time, with their jobs."""
    every = groups(sharing, len(named_jobs(sharing)) or 1)
    return tuple(group for group in every if isinstance(group, Hybrid))


def partitions(sharing: Sharing, jobs: int) -> tuple[SharedPartition, ...]:
    """Return the partitions of all groups, one group after another."""
    return tuple(part for group in groups(sharing, jobs) for part in group.partitions)


def jobs_apart(sharing: Sharing, jobs: int) -> set[int]:
    """Return the positions of the jobs that share neither the GPU nor an instance with another."""
    held = (parts for group in groups(sharing, jobs) for parts in group.memories)
    together = ([job - 1 for part in parts for job in part.jobs] for parts in held)
    return {each[0] for each in together if len(each) == 1}


def sets_in_turn(sharing: Sharing, jobs: int) -> list[tuple[list[int], int]]:
    """Return positions of jobs that do not wait for another set, and how many run at once.

    Fewer are at once only of a queue, which starts them in this order.
    """
    return [
        ([number - 1 for number in run], group.at_once)
        for group in groups(sharing, jobs)
        for run in group.running_together
    ]


def running_together(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Return positions of jobs that run at the same time, set after set; of a queue all."""
    return [run for run, _ in sets_in_turn(sharing, jobs)]


def one_by_one(sharing: Sharing) -> bool:
    """Return whether each job has the whole GPU to itself, one after another in any order."""
    if isinstance(sharing, Phases):
        return all(
            isinstance(group, Group) and group.sharing.mode == "serial" for group in sharing.groups
        )
    return sharing.mode == "serial"


def kind_of(sharing: Sharing) -> Mode:
    """Return its mode: serial for jobs in turn in any order, MIG for jobs on instances."""
    if isinstance(sharing, Hybrid) and all(
        part.slices is None and (part.at_once or len(part.jobs)) == 1 for part in sharing.partitions
    ):
        return "mig"
    return "serial" if one_by_one(sharing) else sharing.mode


def places_named(sharing: Sharing) -> int:
    """Return how many jobs run at once if `sharing` fixes it; else 1."""
    if isinstance(sharing, Queue):
        return sharing.at_once
    if chooses_layouts(sharing):
        return 1
    return most_at_once(sharing, len(named_jobs(sharing)) or 1)


def most_at_once(sharing: Sharing, jobs: int) -> int:
    """Return how many of `jobs` jobs run at the same time at most."""
    return max(at_once for _, at_once in sets_in_turn(sharing, jobs))


def memories(sharing: Sharing, jobs: int) -> tuple[tuple[SharedPartition, ...], ...]:
    """Return partitions grouped by memory: the whole GPU's, or an instance's."""
    return tuple(memory for group in groups(sharing, jobs) for memory in group.memories)


def mps_servers(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Return the positions of the jobs that share each MPS server."""
    parts = partitions(sharing, jobs)
    return [[number - 1 for number in part.jobs] for part in parts if part.sharing.under_mps]


def restricted(sharing: Sharing, running: Sequence[int]) -> Arrangement:
    """Return how the jobs at `running` share while no others run; in phases, jobs of one group.

    Jobs of a queue share as its `sharing` has it, however many they are.
    """
    match sharing:
        case Mig(instances):
            return Mig(tuple(instances[job] for job in running))
        case Hybrid():
            return _restricted_group(sharing, running)
        case Phases():
            group = next(each for each in sharing.groups if running[0] + 1 in each.jobs)
            return _restricted_group(group, running)
        case _:
            return sharing.among(running)


def _restricted_group(group: Group | Hybrid, running: Sequence[int]) -> Arrangement:
    if isinstance(group, Hybrid):
        return _renamed(group, {job + 1: number for number, job in enumerate(running, start=1)})
    return group.sharing.among([group.jobs.index(job + 1) for job in running])


def _renamed(hybrid: Hybrid, names: Mapping[int, int]) -> Hybrid:
    """`hybrid` with only the jobs in `names`, and with their new numbers."""

    def kept(part: Part) -> Part:
        left = [place for place, job in enumerate(part.jobs) if job in names]
        return part.among(left, [names[part.jobs[place]] for place in left])

    places = [
        (place, [kept(part) for part in place.parts if not names.keys().isdisjoint(part.jobs)])
        for place in hybrid.places
    ]
    return Hybrid(tuple(replace(place, parts=tuple(parts)) for place, parts in places if parts))


def left_of(group: Group | Hybrid, positions: Sequence[int]) -> Sharing:
    """Return how the jobs of `group` at `positions` go on when its others have ended."""
    if isinstance(group, Group) and isinstance(group.sharing, Queue):
        names = {position + 1: number for number, position in enumerate(positions, start=1)}
        return in_turn([replace(group, jobs=tuple(names[j] for j in group.jobs if j in names))])
    return _restricted_group(group, positions)


def without_ended(sharing: Sharing, jobs: int, left: Sequence[int]) -> Sharing:
    """Return how those of `jobs` jobs share that are at the positions `left`, called 1, 2...

    Args:
        sharing: Of all jobs.
        jobs: How many these are.
        left: Positions of the others than those that have ended, increasing.
    """
    names = {position: number for number, position in enumerate(left, start=1)}
    rests: list[Group | Hybrid] = []
    for group in groups(sharing, jobs):
        if own := [job - 1 for job in sorted(group.jobs) if job - 1 in names]:
            rests += relabelled(left_of(group, own), [names[position] for position in own])
    return in_turn(rests)


def relabelled(sharing: Sharing, numbers: Sequence[int]) -> tuple[Group | Hybrid, ...]:
    """Return the groups of `sharing`, job n being called by the n-th of `numbers`."""
    names = dict(enumerate(numbers, start=1))
    return tuple(
        _renamed(group, names)
        if isinstance(group, Hybrid)
        else replace(group, jobs=tuple(names[job] for job in group.jobs))
        for group in groups(sharing, len(numbers))
    )


def of_one_group(group: Group | Hybrid) -> Arrangement:
    """Return how the jobs of `group` share if they run alone, numbered from 1."""
    return _restricted_group(group, range(len(group.jobs)))


@overload
def relocated(sharing: Hybrid, instances: Iterable[Instance]) -> Hybrid: ...
@overload
def relocated(sharing: Arrangement, instances: Iterable[Instance]) -> Arrangement: ...
@overload
def relocated(sharing: Sharing, instances: Iterable[Instance]) -> Sharing: ...
def relocated(sharing: Sharing, instances: Iterable[Instance]) -> Sharing:
    """Return `sharing` with its instances replaced by `instances`, in order."""
    left = iter(instances)
    match sharing:
        case Mig():
            return Mig(tuple(instances))
        case Hybrid():
            return Hybrid(tuple(replace(each, instance=next(left)) for each in sharing.places))
        case Phases(groups):
            moved = (relocated(g, left) if isinstance(g, Hybrid) else g for g in groups)
            return Phases(tuple(moved))
        case _:
            return sharing


def without_starts(sharing: Sharing) -> Sharing:
    """Return `sharing` without the places of instances that have a job each."""
    if isinstance(sharing, Mig):
        return Mig(tuple(Instance(each.profile) for each in sharing.instances))
    return sharing


def simplest(hybrid: Hybrid) -> Hybrid | Mig:
    """Return `hybrid`, as a `Mig` if every job has a whole instance of its own."""
    if any(part.slices is not None or len(part.jobs) > 1 for part in hybrid.partitions):
        return hybrid
    alone = sorted(hybrid.places, key=lambda place: place.jobs)
    return Mig(tuple(place.instance for place in alone))


def in_turn(groups: Sequence[Group | Hybrid]) -> Sharing:
    """Return the sharing in which `groups`, of jobs numbered from 1, run one after another.

    Groups of a single job in increasing order become one serial group, which runs them in that
    order. A queue with room for all its jobs at once is none.
    """
    singly: list[Group | Hybrid] = []
    for each in groups:
        group = plain_group(each) if isinstance(each, Group) else each
        # One that runs its jobs one at a time, without limits, is several.
        naive = isinstance(group, Group) and group.sharing == Naive()
        several = _one_by_one(group) or (naive and len(group.jobs) == 1)
        singly += [Group((job,), Serial()) for job in group.jobs] if several else [group]
    joined: list[Group | Hybrid] = []
    for group in singly:
        last = joined[-1] if joined else None
        if _one_by_one(last) and _one_by_one(group) and last.jobs[-1] < group.jobs[0]:
            joined[-1] = Group((*last.jobs, *group.jobs), Serial())
        else:
            joined.append(group)
    first, *later = joined
    if isinstance(first, Group) and isinstance(first.sharing, Queue) and not later:
        return first.sharing if sorted(first.jobs) == [*first.jobs] else Phases((first,))
    return Phases(tuple(joined)) if later else of_one_group(first)


def _one_by_one(group: Group | Hybrid | None) -> TypeGuard[Group]:
    return isinstance(group, Group) and isinstance(group.sharing, Serial)
