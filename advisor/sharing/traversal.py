"""The one place that looks at what a sharing consists of: groups, partitions, some of its jobs.

Positions count from 0 and numbers from 1, in the order in which the jobs were asked for. Code
elsewhere asks these functions, or a sharing's own `mode`, `limits` and `instances`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeGuard, assert_never, overload

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.sharing.hybrid import Arrangement, Compute, Divided, Hybrid, Place, Slot, one_job_each
from advisor.sharing.modes import Instance, Mig, Mps, Naive, Serial, SharedPartition
from advisor.sharing.phases import Group, Phases, Sharing


def named_jobs(sharing: Sharing) -> tuple[int, ...]:
    """Numbers of the jobs of which `sharing` itself speaks, increasing; empty: of any jobs."""
    match sharing:
        case Serial() | Naive() | Mps():
            return tuple(range(1, len(sharing.limits) + 1))
        case Mig(instances):
            return tuple(range(1, len(instances) + 1))
        case Hybrid() | Phases():
            return tuple(sorted(sharing.jobs))
        case _:
            assert_never(sharing)


def check_count(sharing: Sharing, jobs: int) -> None:
    """Refuse a sharing that speaks of others than the first `jobs` jobs.

    Raises:
        InvalidInput: It has more or fewer limits or instances, or names other jobs.
    """
    named = named_jobs(sharing) or tuple(range(1, jobs + 1))
    if named == tuple(range(1, jobs + 1)):
        return
    if sharing.mode in ("hybrid", "phases"):
        raise InvalidInput(
            f"{sharing}: it names job {', '.join(map(str, named))} of {counted(jobs, 'job')}. "
            f"Name each of them once."
        )
    what = "limit" if sharing.limits else "instance"
    raise InvalidInput(
        f"{sharing}: {counted(len(named), what)} for {counted(jobs, 'job')}. Give one for each "
        f"job, in order."
    )


def together(sharing: Sharing) -> Naive | Mps | None:
    """How all jobs have the whole GPU at the same time; None where they do not."""
    match sharing:
        case Naive() | Mps():
            return sharing
        case Serial() | Mig() | Hybrid() | Phases():
            return None
        case _:
            assert_never(sharing)


def without_phases(sharing: Sharing) -> Arrangement | None:
    """`sharing` where the GPU is set up once; None of groups one after another."""
    match sharing:
        case Serial() | Naive() | Mps() | Mig() | Hybrid():
            return sharing
        case Phases():
            return None
        case _:
            assert_never(sharing)


def instance_sets(sharing: Sharing) -> tuple[Hybrid, ...]:
    """Every set of MIG instances that is there at once, with the numbers of the jobs on them."""
    match sharing:
        case Mig(instances):
            return (one_job_each(instances),)
        case Hybrid():
            return (sharing,)
        case Phases(groups):
            return tuple(group for group in groups if isinstance(group, Hybrid))
        case Serial() | Naive() | Mps():
            return ()
        case _:
            assert_never(sharing)


def groups(sharing: Sharing, jobs: int) -> tuple[Group | Hybrid, ...]:
    """What `sharing` of so many jobs consists of, one after another."""
    match sharing:
        case Serial() | Naive() | Mps():
            return (Group(tuple(range(1, jobs + 1)), sharing),)
        case Mig() | Hybrid():
            return instance_sets(sharing)
        case Phases():
            return sharing.groups
        case _:
            assert_never(sharing)


def partitions(sharing: Sharing, jobs: int) -> tuple[SharedPartition, ...]:
    """What has SMs of its own, of each group after the other."""
    return tuple(part for group in groups(sharing, jobs) for part in group.partitions)


def running_together(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Which jobs are on the GPU at the same time, by their positions: each set after the other."""
    sets = [run for group in groups(sharing, jobs) for run in group.running_together]
    return [_positions(run) for run in sets]


def places_named(sharing: Sharing) -> int:
    """How many jobs run at once where `sharing` says so; else 1."""
    jobs = len(named_jobs(sharing)) or 1
    return max(map(len, running_together(sharing, jobs)))


def memories(sharing: Sharing, jobs: int) -> tuple[tuple[SharedPartition, ...], ...]:
    """Partitions that have one memory at the same time: the whole GPU's, or an instance's."""
    return tuple(memory for group in groups(sharing, jobs) for memory in group.memories)


def mps_servers(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Jobs that share an MPS server, by their positions, a list for each server."""
    return [_positions(each.jobs) for each in partitions(sharing, jobs) if each.sharing.under_mps]


def _positions(numbers: Sequence[int]) -> list[int]:
    return [number - 1 for number in numbers]


def restricted(sharing: Sharing, running: Sequence[int]) -> Arrangement:
    """How the jobs at the positions `running` share while the others do not run.

    Each keeps its limit or instance; of phases, the running jobs are of one group.
    """
    match sharing:
        case Serial() | Naive():
            return sharing
        case Mps(limits):
            return Mps(tuple(limits[job] for job in running)) if limits else sharing
        case Mig(instances):
            return Mig(tuple(instances[job] for job in running))
        case Hybrid():
            return _restricted_instances(sharing, _new_numbers(running))
        case Phases():
            return _restricted_group(sharing, running)
        case _:
            assert_never(sharing)


def _new_numbers(running: Sequence[int]) -> dict[int, int]:
    return {job + 1: number for number, job in enumerate(running, start=1)}


def _restricted_group(phases: Phases, running: Sequence[int]) -> Arrangement:
    group = next(each for each in phases.groups if running[0] + 1 in each.jobs)
    if isinstance(group, Hybrid):
        return _restricted_instances(group, _new_numbers(running))
    limit = dict(zip(group.jobs, group.sharing.limits, strict=False))
    return Mps(tuple(limit[job + 1] for job in running)) if limit else group.sharing


def _restricted_instances(hybrid: Hybrid, numbers: dict[int, int]) -> Hybrid:
    """The places of the jobs that `numbers` names, under these names."""
    kept = [_restricted_place(place, numbers) for place in hybrid.places]
    return Hybrid(tuple(place for place in kept if place is not None))


def _restricted_place(place: Place, numbers: dict[int, int]) -> Place | None:
    if isinstance(place, Slot):
        kept = _restricted_part(place, numbers)
        return None if kept is None else Slot(place.instance, *kept)
    parts = [(part, _restricted_part(part, numbers)) for part in place.parts]
    left = [Compute(part.slices, *kept) for part, kept in parts if kept is not None]
    return Divided(place.instance, tuple(left)) if left else None


def _restricted_part(
    part: Slot | Compute, numbers: dict[int, int]
) -> tuple[tuple[int, ...], Naive | Mps] | None:
    jobs = tuple(numbers[job] for job in part.jobs if job in numbers)
    if not jobs:
        return None
    pairs = list(zip(part.jobs, part.sharing.limits, strict=False))
    limits = tuple(limit for job, limit in pairs if job in numbers)
    return jobs, Mps(limits) if limits else part.sharing


def relabelled(sharing: Sharing, numbers: Sequence[int]) -> tuple[Group | Hybrid, ...]:
    """What `sharing` of jobs numbered from 1 consists of, said of them under other numbers.

    Args:
        sharing: Of these jobs.
        numbers: What each of them is called from now on, shape (jobs,).
    """
    names = dict(enumerate(numbers, start=1))
    return tuple(_relabelled_group(group, names) for group in groups(sharing, len(numbers)))


def _relabelled_group(group: Group | Hybrid, names: dict[int, int]) -> Group | Hybrid:
    if isinstance(group, Hybrid):
        return _restricted_instances(group, names)
    return replace(group, jobs=tuple(names[job] for job in group.jobs))


def in_turn(groups: Sequence[Group | Hybrid]) -> Sharing:
    """`groups`, one after another, of jobs numbered from 1.

    Jobs that are each alone, with increasing numbers, become one group: it runs them in that order.
    """
    joined: list[Group | Hybrid] = []
    for group in chain.from_iterable(map(_singly, groups)):
        last = joined[-1] if joined else None
        if _one_by_one(last) and _one_by_one(group) and last.jobs[-1] < group.jobs[0]:
            joined[-1] = Group((*last.jobs, *group.jobs), Serial())
        else:
            joined.append(group)
    return Phases(tuple(joined)) if len(joined) > 1 else of_one_group(joined[0])


def of_one_group(group: Group | Hybrid) -> Arrangement:
    """How the jobs of `group` share, where these are all there are, numbered from 1."""
    if isinstance(group, Hybrid):
        return group
    limit = dict(zip(group.jobs, group.sharing.limits, strict=False))
    return Mps(tuple(limit[number] for number in sorted(limit))) if limit else group.sharing


def _singly(group: Group | Hybrid) -> Sequence[Group | Hybrid]:
    """`group`, or each of its jobs where nobody shares and nobody has a limit."""
    alone = len(group.jobs) == 1 and isinstance(group, Group) and group.sharing == Naive()
    return (
        [Group((job,), Serial()) for job in group.jobs] if alone or _one_by_one(group) else [group]
    )


def _one_by_one(group: Group | Hybrid | None) -> TypeGuard[Group]:
    return isinstance(group, Group) and isinstance(group.sharing, Serial)


@overload
def relocated(sharing: Arrangement, instances: Sequence[Instance]) -> Arrangement: ...
@overload
def relocated(sharing: Sharing, instances: Sequence[Instance]) -> Sharing: ...
def relocated(sharing: Sharing, instances: Sequence[Instance]) -> Sharing:
    """`sharing` with `instances` in place of its own, in their order."""
    match sharing:
        case Serial() | Naive() | Mps():
            return sharing
        case Mig():
            return Mig(tuple(instances))
        case Hybrid():
            return _relocated_set(sharing, iter(instances))
        case Phases(groups):
            left = iter(instances)
            moved = (_relocated_set(each, left) if isinstance(each, Hybrid) else each
                     for each in groups)  # fmt: skip
            return Phases(tuple(moved))
        case _:
            assert_never(sharing)


def _relocated_set(hybrid: Hybrid, instances: Iterator[Instance]) -> Hybrid:
    return Hybrid(tuple(replace(place, instance=next(instances)) for place in hybrid.places))


def without_starts(sharing: Sharing) -> Sharing:
    """`sharing` with the instances of a job each told apart by their profiles alone."""
    if not isinstance(sharing, Mig):
        return sharing
    return Mig(tuple(Instance(each.profile) for each in sharing.instances))


def simplest(hybrid: Hybrid) -> Hybrid | Mig:
    """The plain word for it where every job has a whole instance of its own."""
    parts = hybrid.partitions
    if any(part.slices is not None or len(part.jobs) > 1 for part in parts):
        return hybrid
    alone = {part.jobs[0]: part.instance for part in parts if part.instance is not None}
    return Mig(tuple(alone[number] for number in sorted(alone)))
