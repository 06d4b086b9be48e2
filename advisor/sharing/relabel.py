"""A sharing of some jobs, said of the same jobs under other numbers."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeGuard, assert_never

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
    """`groups`, one after another, of jobs numbered from 1.

    Jobs that are each alone, with increasing numbers, become one group: it runs them in that order.
    """
    joined: list[Group | Hybrid] = []
    for group in chain.from_iterable(map(_singly, groups)):
        last = joined[-1] if joined else None
        if _alone(last) and _alone(group) and last.jobs[-1] < group.jobs[0]:
            joined[-1] = Group((*last.jobs, *group.jobs), Serial())
        else:
            joined.append(group)
    return Phases(tuple(joined)) if len(joined) > 1 else _of_all(joined[0])


def _singly(group: Group | Hybrid) -> Sequence[Group | Hybrid]:
    """`group`, or each of its jobs where nobody shares and nobody has a limit."""
    if isinstance(group, Hybrid) or not (
        isinstance(group.sharing, Serial) or (len(group.jobs) == 1 and group.sharing == Naive())
    ):
        return [group]
    return [Group((job,), Serial()) for job in group.jobs]


def _alone(group: Group | Hybrid | None) -> TypeGuard[Group]:
    return isinstance(group, Group) and isinstance(group.sharing, Serial)


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
