"""What a sharing says of some of its jobs. Positions count from 0, in the order asked for."""

from collections.abc import Sequence
from typing import assert_never

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.sharing.hybrid import Arrangement, Compute, Divided, Hybrid, Place, Slot, one_job_each
from advisor.sharing.modes import Mig, Mps, Naive, Serial
from advisor.sharing.phases import Group, Phases, Sharing


def check_count(sharing: Sharing, jobs: int) -> None:
    """Refuse a sharing that speaks of others than the first `jobs` jobs.

    Raises:
        InvalidInput: It has more or fewer limits or instances, or names other jobs.
    """
    match sharing:
        case Mps(limits) if limits:
            said, what = len(limits), "limit"
        case Mig(instances):
            said, what = len(instances), "instance"
        case Hybrid() | Phases():
            if sorted(sharing.jobs) != list(range(1, jobs + 1)):
                named = ", ".join(map(str, sorted(sharing.jobs)))
                raise InvalidInput(
                    f"{sharing}: it names job {named} of {counted(jobs, 'job')}. Name each of "
                    f"them once."
                )
            return
        case _:
            return
    if said != jobs:
        raise InvalidInput(
            f"{sharing}: {counted(said, what)} for {counted(jobs, 'job')}. Give one for each job, "
            f"in order."
        )


def only(sharing: Sharing, running: Sequence[int]) -> Arrangement:
    """How the jobs at `running` share while the others do not run.

    Each keeps its limit or instance; of phases, the running jobs are of one group.
    """
    match sharing:
        case Mps(limits) if limits:
            return Mps(tuple(limits[job] for job in running))
        case Mig(instances):
            return Mig(tuple(instances[job] for job in running))
        case Hybrid(places):
            numbers = {job + 1: number for number, job in enumerate(running, start=1)}
            kept = [_kept_place(place, numbers) for place in places]
            return Hybrid(tuple(place for place in kept if place is not None))
        case Phases(groups):
            group = next(each for each in groups if running[0] + 1 in each.jobs)
            return only(group, running) if isinstance(group, Hybrid) else _of_group(group, running)
        case _:
            return sharing


def _of_group(group: Group, running: Sequence[int]) -> Serial | Naive | Mps:
    if isinstance(group.sharing, Mps) and group.sharing.limits:
        limit = dict(zip(group.jobs, group.sharing.limits, strict=True))
        return Mps(tuple(limit[job + 1] for job in running))
    return group.sharing


def _kept_place(place: Place, numbers: dict[int, int]) -> Place | None:
    if isinstance(place, Slot):
        kept = _kept(place, numbers)
        return None if kept is None else Slot(place.instance, *kept)
    parts = [(part, _kept(part, numbers)) for part in place.parts]
    left = [Compute(part.slices, *kept) for part, kept in parts if kept is not None]
    return Divided(place.instance, tuple(left)) if left else None


def _kept(
    room: Slot | Compute, numbers: dict[int, int]
) -> tuple[tuple[int, ...], Naive | Mps] | None:
    jobs = tuple(numbers[job] for job in room.jobs if job in numbers)
    if not jobs:
        return None
    if not isinstance(room.sharing, Mps) or not room.sharing.limits:
        return jobs, room.sharing
    pairs = zip(room.jobs, room.sharing.limits, strict=True)
    return jobs, Mps(tuple(limit for job, limit in pairs if job in numbers))


def at_once(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Which jobs are on the GPU at the same time, by their positions: each set after the other."""
    match sharing:
        case Serial():
            return [[job] for job in range(jobs)]
        case Phases(groups):
            return [run for group in groups for run in _runs(group)]
        case Naive() | Mps() | Mig() | Hybrid():
            return [list(range(jobs))]
        case _:
            assert_never(sharing)


def places_named(sharing: Sharing) -> int:
    """How many jobs run at once where `sharing` says so; else 1."""
    match sharing:
        case Mps(limits):
            return len(limits) or 1
        case Mig(instances):
            return len(instances)
        case Hybrid():
            return len(sharing.jobs)
        case Phases():
            return max(map(len, at_once(sharing, len(sharing.jobs))))
        case _:
            return 1


def _runs(group: Group | Hybrid) -> list[list[int]]:
    positions = [job - 1 for job in group.jobs]
    one_by_one = isinstance(group, Group) and isinstance(group.sharing, Serial)
    return [[job] for job in positions] if one_by_one else [positions]


def memories(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Jobs that run in one memory at the same time, by their positions."""
    match sharing:
        case Mig():
            return [[job] for job in range(jobs)]
        case Hybrid(places):
            return [[job - 1 for job in place.jobs] for place in places]
        case Phases(groups):
            return [
                each
                for group in groups
                for each in (memories(group, jobs) if isinstance(group, Hybrid) else _runs(group))
            ]
        case Serial() | Naive() | Mps():
            return at_once(sharing, jobs)
        case _:
            assert_never(sharing)


def hybrids(sharing: Sharing) -> list[Hybrid]:
    """Every set of MIG instances of `sharing`, with the numbers of the jobs on them."""
    match sharing:
        case Mig(instances):
            return [one_job_each(instances)]
        case Hybrid():
            return [sharing]
        case Phases(groups):
            return [group for group in groups if isinstance(group, Hybrid)]
        case _:
            return []


def mps_servers(sharing: Sharing, jobs: int) -> list[list[int]]:
    """Jobs that share an MPS server, by their positions, a list for each server."""
    match sharing:
        case Mps():
            return [list(range(jobs))]
        case Hybrid():
            rooms = [room for room in sharing.rooms if isinstance(room.sharing, Mps)]
            return [[job - 1 for job in room.jobs] for room in rooms]
        case Phases(groups):
            return [server for group in groups for server in _servers_of(group)]
        case Serial() | Naive() | Mig():
            return []
        case _:
            assert_never(sharing)


def _servers_of(group: Group | Hybrid) -> list[list[int]]:
    if isinstance(group, Hybrid):
        return mps_servers(group, len(group.jobs))
    return [[job - 1 for job in group.jobs]] if isinstance(group.sharing, Mps) else []
