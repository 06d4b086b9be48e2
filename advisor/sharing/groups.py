"""The only code that asks for the type of a sharing: its groups, partitions, and subsets of jobs.

Positions count from 0 and numbers from 1, in the order in which the user gave the jobs. Other code
calls these functions, or asks for `mode`, `limits` and `instances`.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    PartitionSharing,
    Phases,
    Place,
    Serial,
    SharedPartition,
    Sharing,
    one_job_each,
)

_Within = TypeVar("_Within", Concurrent, PartitionSharing)
_Limited = TypeVar("_Limited", Mps, Concurrent, Arrangement)


def named_jobs(sharing: Sharing) -> tuple[int, ...]:
    """Numbers of the jobs that `sharing` mentions, increasing; empty: it suits any jobs."""
    if isinstance(sharing, Hybrid | Phases):
        return tuple(sorted(sharing.jobs))
    settings = sharing.limits or sharing.instances
    return tuple(range(1, len(settings) + 1))


def check_count(sharing: Sharing, jobs: int) -> None:
    """Check that `sharing` is one for `jobs` jobs; raise InvalidInput if not."""
    named = named_jobs(sharing)
    if named in ((), tuple(range(1, jobs + 1))):
        return
    if sharing.mode in ("hybrid", "phases"):
        raise InvalidInput(
            f"{sharing}: it names job {', '.join(map(str, named))} of {counted(jobs, 'job')}. "
            f"Name each of them once."
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
    """`sharing` if all jobs have the whole GPU at the same time, else None."""
    return sharing if isinstance(sharing, Concurrent) else None


def without_idle_limits(sharing: _Limited) -> _Limited:
    """`sharing`, without its limits if they are all 100 % and so take no SM from any job."""
    if isinstance(sharing, Mps) and set(sharing.limits) == {100.0}:
        return replace(sharing, limits=())
    return sharing


def one_at_a_time(sharing: Arrangement, jobs: int) -> bool:
    """Return whether each of so many jobs has all of the GPU while it runs."""
    shared = together(without_idle_limits(sharing))
    return sharing.mode == "serial" or (jobs == 1 and shared is not None and not shared.limits)


def without_phases(sharing: Sharing) -> Arrangement | None:
    """`sharing` if it sets up the GPU once; None if it is one of phases."""
    return None if isinstance(sharing, Phases) else sharing


def groups(sharing: Sharing, jobs: int) -> tuple[Group | Hybrid, ...]:
    """The groups that `sharing` of `jobs` jobs consists of, in the order in which they run."""
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
    """Each set of MIG instances that exist at the same time, with their jobs."""
    every = groups(sharing, len(named_jobs(sharing)) or 1)
    return tuple(group for group in every if isinstance(group, Hybrid))


def partitions(sharing: Sharing, jobs: int) -> tuple[SharedPartition, ...]:
    """The partitions of all groups, one group after another."""
    return tuple(part for group in groups(sharing, jobs) for part in group.partitions)


def running_together(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Positions of the jobs that run at the same time, one set after another."""
    return [[number - 1 for number in run] for group in groups(sharing, jobs)
            for run in group.running_together]  # fmt: skip


def one_by_one(sharing: Sharing) -> bool:
    """Return whether each job has the whole GPU to itself, one after another in any order."""
    if isinstance(sharing, Phases):
        return all(isinstance(group, Group) and group.sharing.mode == "serial"
                   for group in sharing.groups)  # fmt: skip
    return sharing.mode == "serial"


def kind_of(sharing: Sharing) -> Mode:
    """Its mode; that of serial for jobs one after another in whatever order."""
    return "serial" if one_by_one(sharing) else sharing.mode


def places_named(sharing: Sharing) -> int:
    """Return how many jobs run at once if `sharing` fixes it; else 1."""
    return max(map(len, running_together(sharing, len(named_jobs(sharing)) or 1)))


def memories(sharing: Sharing, jobs: int) -> tuple[tuple[SharedPartition, ...], ...]:
    """Partitions grouped by memory: the whole GPU's, or an instance's."""
    return tuple(memory for group in groups(sharing, jobs) for memory in group.memories)


def mps_servers(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Return the positions of the jobs that share each MPS server."""
    parts = partitions(sharing, jobs)
    return [[number - 1 for number in part.jobs] for part in parts if part.sharing.under_mps]


def restricted(sharing: Sharing, running: Sequence[int]) -> Arrangement:
    """Return how the jobs at `running` share while no others run; in phases, jobs of one group."""
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
    """`group` with only the jobs in `names`, and with their new numbers."""
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
    """The groups of `sharing`, job n being called by the n-th of `numbers`."""
    names = dict(enumerate(numbers, start=1))
    return tuple(_renamed_group(group, names) for group in groups(sharing, len(numbers)))


def of_one_group(group: Group | Hybrid) -> Arrangement:
    """The sharing of `group`, if its jobs are all there are and are numbered from 1."""
    if isinstance(group, Hybrid):
        return group
    return group.sharing.among(sorted(range(len(group.jobs)), key=group.jobs.__getitem__))


@overload
def relocated(sharing: Arrangement, instances: Sequence[Instance]) -> Arrangement: ...
@overload
def relocated(sharing: Sharing, instances: Sequence[Instance]) -> Sharing: ...
def relocated(sharing: Sharing, instances: Sequence[Instance]) -> Sharing:
    """`sharing` with its instances replaced by `instances`, in order."""
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
    """`sharing`; instances with a job each lose their places."""
    if isinstance(sharing, Mig):
        return Mig(tuple(Instance(each.profile) for each in sharing.instances))
    return sharing


def simplest(hybrid: Hybrid) -> Hybrid | Mig:
    """`hybrid`, as a `Mig` if every job has a whole instance of its own."""
    if any(part.slices is not None or len(part.jobs) > 1 for part in hybrid.partitions):
        return hybrid
    alone = sorted(hybrid.places, key=lambda place: place.jobs)
    return Mig(tuple(place.instance for place in alone))


def in_turn(groups: Sequence[Group | Hybrid]) -> Sharing:
    """The sharing in which `groups`, of jobs numbered from 1, run one after another.

    Groups of a single job in increasing order become one serial group, which runs them in that
    order.
    """
    singly: list[Group | Hybrid] = []
    for group in groups:  # one that runs its jobs one at a time, without limits, is several
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
    return Phases(tuple(joined)) if len(joined) > 1 else of_one_group(joined[0])


def _one_by_one(group: Group | Hybrid | None) -> TypeGuard[Group]:
    return isinstance(group, Group) and isinstance(group.sharing, Serial)
