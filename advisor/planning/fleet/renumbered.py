"""A sharing of some jobs, said of the same jobs under other numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from advisor.sharing import (
    Compute,
    Divided,
    Group,
    Hybrid,
    Mig,
    Mps,
    Naive,
    Phases,
    Place,
    Serial,
    Sharing,
    Slot,
    one_job_each,
)


def groups_of(sharing: Sharing, numbers: Sequence[int]) -> tuple[Group | Hybrid, ...]:
    """What `sharing` consists of, one after another.

    Args:
        sharing: Of jobs numbered from 1.
        numbers: What each of them is called from now on, shape (jobs,).
    """
    match sharing:
        case Phases(groups):
            return tuple(_renamed(group, numbers) for group in groups)
        case Hybrid():
            return (_renamed(sharing, numbers),)
        case Mig(instances):
            return (_renamed(one_job_each(instances), numbers),)
        case Serial() | Naive() | Mps():
            return (Group(tuple(numbers), sharing),)
        case _:
            assert_never(sharing)


def in_turn(groups: Sequence[Group | Hybrid]) -> Sharing:
    """`groups`, one after another, of jobs numbered from 1; jobs alone in a row are one group."""
    joined: list[Group | Hybrid] = []
    for group in groups:
        last = joined[-1] if joined else None
        if isinstance(last, Group) and _alone(last) and isinstance(group, Group) and _alone(group):
            joined[-1] = Group((*last.jobs, *group.jobs), Serial())
        else:
            joined.append(Group(group.jobs, Serial()) if _alone(group) else group)
    return Phases(tuple(joined)) if len(joined) > 1 else _of_all(joined[0])


def _alone(group: Group | Hybrid) -> bool:
    """Whether each of its jobs has the whole GPU, and no limit."""
    if isinstance(group, Hybrid):
        return False
    return isinstance(group.sharing, Serial) or (len(group.jobs) == 1 and group.sharing == Naive())


def _of_all(group: Group | Hybrid) -> Sharing:
    if isinstance(group, Hybrid):
        return group
    if isinstance(group.sharing, Mps) and group.sharing.limits:
        limit = dict(zip(group.jobs, group.sharing.limits, strict=True))
        return Mps(tuple(limit[number] for number in sorted(limit)))
    return group.sharing


def _renamed(group: Group | Hybrid, numbers: Sequence[int]) -> Group | Hybrid:
    if isinstance(group, Group):
        return replace(group, jobs=_names(group.jobs, numbers))
    return Hybrid(tuple(_place(place, numbers) for place in group.places))


def _place(place: Place, numbers: Sequence[int]) -> Place:
    if isinstance(place, Slot):
        return replace(place, jobs=_names(place.jobs, numbers))
    return Divided(place.instance, tuple(_part(part, numbers) for part in place.parts))


def _part(part: Compute, numbers: Sequence[int]) -> Compute:
    return replace(part, jobs=_names(part.jobs, numbers))


def _names(jobs: Sequence[int], numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(numbers[job - 1] for job in jobs)
