"""Groups of jobs, one after another, as one sharing."""

from collections.abc import Sequence
from itertools import chain
from typing import TypeGuard

from advisor.sharing import Group, Hybrid, Naive, Phases, Serial, Sharing
from advisor.sharing.traversal import of_one_group


def in_turn(groups: Sequence[Group | Hybrid]) -> Sharing:
    """The sharing in which `groups`, of jobs numbered from 1, run one after another.

    Groups of a single job in increasing order become one serial group, which runs them in that
    order.
    """
    joined: list[Group | Hybrid] = []
    for group in chain.from_iterable(map(_singly, groups)):
        last = joined[-1] if joined else None
        if _one_by_one(last) and _one_by_one(group) and last.jobs[-1] < group.jobs[0]:
            joined[-1] = Group((*last.jobs, *group.jobs), Serial())
        else:
            joined.append(group)
    return Phases(tuple(joined)) if len(joined) > 1 else of_one_group(joined[0])


def _singly(group: Group | Hybrid) -> Sequence[Group | Hybrid]:
    """`group`; or a group for each of its jobs if they run one at a time, without limits."""
    alone = len(group.jobs) == 1 and isinstance(group, Group) and group.sharing == Naive()
    by_one = alone or _one_by_one(group)
    return [Group((job,), Serial()) for job in group.jobs] if by_one else [group]


def _one_by_one(group: Group | Hybrid | None) -> TypeGuard[Group]:
    return isinstance(group, Group) and isinstance(group.sharing, Serial)
