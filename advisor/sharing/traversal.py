"""The one place that looks at what a sharing consists of: groups, partitions, some of its jobs.

Positions count from 0 and numbers from 1, in the order in which the jobs were asked for. Code
elsewhere asks these functions, or a sharing's own `mode`, `limits` and `instances`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, overload

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.sharing import (
    Arrangement,
    Concurrent,
    Group,
    Hybrid,
    Instance,
    Mig,
    Mode,
    Mps,
    Part,
    PartitionSharing,
    Phases,
    Place,
    SharedPartition,
    Sharing,
    one_job_each,
)

_Within = TypeVar("_Within", Concurrent, PartitionSharing)
_Limited = TypeVar("_Limited", Mps, Concurrent, Arrangement)


def named_jobs(sharing: Sharing) -> tuple[int, ...]:
    """Numbers of the jobs of which `sharing` itself speaks, increasing; empty: of any jobs."""
    if isinstance(sharing, Hybrid | Phases):
        return tuple(sorted(sharing.jobs))
    given = sharing.limits or sharing.priorities or sharing.instances
    return tuple(range(1, len(given) + 1))


def check_count(sharing: Sharing, jobs: int) -> None:
    """Refuse a sharing that speaks of others than the first `jobs` jobs.

    Raises:
        InvalidInput: It has more or fewer limits, priorities or instances, or names other jobs.
    """
    named = named_jobs(sharing)
    if named in ((), tuple(range(1, jobs + 1))):
        return
    if sharing.mode in ("hybrid", "phases"):
        raise InvalidInput(
            f"{sharing}: it names job {', '.join(map(str, named))} of {counted(jobs, 'job')}. "
            f"Name each of them once."
        )
    what = "limit" if sharing.limits else "priority" if sharing.priorities else "instance"
    raise InvalidInput(
        f"{sharing}: {counted(len(named), what)} for {counted(jobs, 'job')}. Give one for each "
        f"job, in order."
    )


def together(sharing: Sharing) -> Concurrent | None:
    """How all jobs have the whole GPU at the same time; None where they do not."""
    return sharing if isinstance(sharing, Concurrent) else None


def without_idle_limits(sharing: _Limited) -> _Limited:
    """`sharing` of a whole GPU without its limits where none of them takes an SM from its job."""
    if isinstance(sharing, Mps) and set(sharing.limits) == {100.0}:
        return replace(sharing, limits=())
    return sharing


def plain_mode(sharing: Sharing) -> Mode:
    """The mode of `sharing` but for priorities, from which what these do not change is known."""
    if sharing.mode != "mps-priority":
        return sharing.mode
    return "mps-limits" if sharing.limits else "mps"


def without_phases(sharing: Sharing) -> Arrangement | None:
    """`sharing` where the GPU is set up once; None of groups one after another."""
    return None if isinstance(sharing, Phases) else sharing


def groups(sharing: Sharing, jobs: int) -> tuple[Group | Hybrid, ...]:
    """What `sharing` of so many jobs consists of, one after another."""
    match sharing:
        case Mig(instances):
            return (one_job_each(instances),)
        case Hybrid():
            return (sharing,)
        case Phases():
            return sharing.groups
        case _:
            return (Group(tuple(range(1, jobs + 1)), sharing),)


def instance_sets(sharing: Sharing) -> tuple[Hybrid, ...]:
    """Every set of MIG instances that is there at once, with the numbers of the jobs on them."""
    every = groups(sharing, len(named_jobs(sharing)) or 1)
    return tuple(group for group in every if isinstance(group, Hybrid))


def partitions(sharing: Sharing, jobs: int) -> tuple[SharedPartition, ...]:
    """What has SMs of its own, of each group after the other."""
    return tuple(part for group in groups(sharing, jobs) for part in group.partitions)


def running_together(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Which jobs are on the GPU at the same time, by their positions: each set after the other."""
    each_after_other = groups(sharing, jobs)
    return [[number - 1 for number in run] for group in each_after_other
            for run in group.running_together]  # fmt: skip


def places_named(sharing: Sharing) -> int:
    """How many jobs run at once where `sharing` says so; else 1."""
    jobs = len(named_jobs(sharing)) or 1
    return max(map(len, running_together(sharing, jobs)))


def memories(sharing: Sharing, jobs: int) -> tuple[tuple[SharedPartition, ...], ...]:
    """Partitions that have one memory at the same time: the whole GPU's, or an instance's."""
    return tuple(memory for group in groups(sharing, jobs) for memory in group.memories)


def mps_servers(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Jobs that share an MPS server, by their positions, a list for each server."""
    parts = partitions(sharing, jobs)
    return [[number - 1 for number in part.jobs] for part in parts if part.sharing.under_mps]


def restricted(sharing: Sharing, running: Sequence[int]) -> Arrangement:
    """How the jobs at positions `running`, of phases of one group, share while no other runs."""
    names = {job + 1: number for number, job in enumerate(running, start=1)}
    match sharing:
        case Mig(instances):
            return Mig(tuple(instances[job] for job in running))
        case Hybrid():
            return _renamed(sharing, names)
        case Phases():
            group = next(each for each in sharing.groups if running[0] + 1 in each.jobs)
            return of_one_group(_renamed_group(group, names))
        case _:
            return sharing.among(running)


def _renamed_group(group: Group | Hybrid, names: Mapping[int, int]) -> Group | Hybrid:
    """What is left of `group` for the jobs that `names` has, under these names."""
    if isinstance(group, Hybrid):
        return _renamed(group, names)
    return Group(*_renamed_jobs(group.jobs, group.sharing, names))


def _renamed(hybrid: Hybrid, names: Mapping[int, int]) -> Hybrid:
    def kept(parts: Sequence[Part]) -> tuple[Part, ...]:
        return tuple(
            Part(*_renamed_jobs(part.jobs, part.sharing, names), part.slices)
            for part in parts if not names.keys().isdisjoint(part.jobs)
        )  # fmt: skip

    places = [(place.instance, kept(place.parts)) for place in hybrid.places]
    return Hybrid(tuple(Place(instance, parts) for instance, parts in places if parts))


def _renamed_jobs(
    jobs: Sequence[int], sharing: _Within, names: Mapping[int, int]
) -> tuple[tuple[int, ...], _Within]:
    left = [place for place, job in enumerate(jobs) if job in names]
    return tuple(names[jobs[place]] for place in left), sharing.among(left)


def relabelled(sharing: Sharing, numbers: Sequence[int]) -> tuple[Group | Hybrid, ...]:
    """What `sharing` of jobs numbered from 1 consists of, each called by its one of `numbers`."""
    names = dict(enumerate(numbers, start=1))
    return tuple(_renamed_group(group, names) for group in groups(sharing, len(numbers)))


def of_one_group(group: Group | Hybrid) -> Arrangement:
    """How the jobs of `group` share, where these are all there are, numbered from 1."""
    if isinstance(group, Hybrid):
        return group
    return group.sharing.among(sorted(range(len(group.jobs)), key=group.jobs.__getitem__))


@overload
def relocated(sharing: Arrangement, instances: Sequence[Instance]) -> Arrangement: ...
@overload
def relocated(sharing: Sharing, instances: Sequence[Instance]) -> Sharing: ...
def relocated(sharing: Sharing, instances: Sequence[Instance]) -> Sharing:
    """`sharing` with `instances` in place of its own, in their order."""
    match sharing:
        case Mig():
            return Mig(tuple(instances))
        case Hybrid():
            return _relocated_set(sharing, iter(instances))
        case Phases(groups):
            left = iter(instances)
            return Phases(tuple(_relocated_set(each, left) if isinstance(each, Hybrid) else each
                                for each in groups))  # fmt: skip
        case _:
            return sharing


def _relocated_set(hybrid: Hybrid, instances: Iterator[Instance]) -> Hybrid:
    return Hybrid(tuple(replace(place, instance=next(instances)) for place in hybrid.places))


def without_starts(sharing: Sharing) -> Sharing:
    """`sharing` with the instances of a job each told apart by their profiles alone."""
    if not isinstance(sharing, Mig):
        return sharing
    return Mig(tuple(Instance(each.profile) for each in sharing.instances))


def simplest(hybrid: Hybrid) -> Hybrid | Mig:
    """The plain word for it where every job has a whole instance of its own."""
    if any(part.slices is not None or len(part.jobs) > 1 for part in hybrid.partitions):
        return hybrid
    alone = sorted(hybrid.places, key=lambda place: place.jobs)
    return Mig(tuple(place.instance for place in alone))
