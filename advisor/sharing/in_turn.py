"""Groups of jobs, one after another, as one sharing."""

from collections.abc import Sequence
from itertools import chain
from typing import TypeGuard

from advisor.sharing import Group, Hybrid, Naive, Phases, Serial, Sharing
from advisor.sharing.traversal import of_one_group


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


def _singly(group: Group | Hybrid) -> Sequence[Group | Hybrid]:
    """`group`, or each of its jobs where nobody shares and nobody has a limit."""
    alone = len(group.jobs) == 1 and isinstance(group, Group) and group.sharing == Naive()
    by_one = alone or _one_by_one(group)
    return [Group((job,), Serial()) for job in group.jobs] if by_one else [group]


def _one_by_one(group: Group | Hybrid | None) -> TypeGuard[Group]:
    return isinstance(group, Group) and isinstance(group.sharing, Serial)
