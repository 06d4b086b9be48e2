"""Groups of jobs by greedy rules, and small changes to the groups of a plan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import NamedTuple

from advisor.plan.search.fleet.group_pool import MOST_TOGETHER, GroupPool
from advisor.plan.search.fleet.placement import Problem
from advisor.plan.search.job_sets import Kinds, Members

# Numbers of jobs in a batch.
SIZES = (2, 3, 4, 5, 6, 8)
# Largest sum of the jobs' busy shares of a GPU, each measured alone, in best fit.
_BUSY = (1.0, 1.5, 2.0)

MayShare = Callable[[Members], bool]
"""Whether the jobs of a group may share a GPU, and fit on it."""


def greedy_groups(kinds: Kinds, problem: Problem, may: MayShare) -> Iterator[list[Members]]:
    """Groupings of all jobs: batches of several sizes and best fit, each in several orders."""
    seen = set()
    for order in _orders(problem):
        filled = [batches(order, size, may) for size in SIZES]
        filled += [best_fit(order, busy, kinds, may) for busy in _BUSY]
        for member_sets in filled:
            mark = tuple(sorted(member_sets))
            if mark not in seen:
                seen.add(mark)
                yield member_sets


def batches(order: Sequence[int], size: int, may: MayShare) -> list[Members]:
    """Batches of `size` jobs: each job joins the first batch that has a place and memory for it."""
    filled: list[Members] = []
    open_from = 0
    for kind in order:
        for at in range(open_from, len(filled)):
            larger = tuple(sorted((*filled[at], kind)))
            if len(larger) <= size and may(larger):
                filled[at] = larger
                break
        else:
            filled.append((kind,))
        while open_from < len(filled) and len(filled[open_from]) == size:
            open_from += 1
    return filled


def best_fit(order: Sequence[int], most_busy: float, kinds: Kinds, may: MayShare) -> list[Members]:
    """Each job joins the group that it fills best without exceeding `most_busy` of a GPU."""
    busy = [job.profile.busy_share or 1.0 for job in kinds.jobs]
    filled: list[Members] = []
    for kind in order:
        asked = [(sum(busy[mate] for mate in members) + busy[kind], at)
                 for at, members in enumerate(filled) if len(members) < max(SIZES)]  # fmt: skip
        for total, at in sorted(asked, reverse=True):
            larger = tuple(sorted((*filled[at], kind)))
            if total <= most_busy and may(larger):
                filled[at] = larger
                break
        else:
            filled.append((kind,))
    return filled


def _orders(problem: Problem) -> Iterator[list[int]]:
    """Orders of all jobs: longest first; if the order counts, also shortest and first due first."""
    every = [kind for kind, count in enumerate(problem.counts) for _ in range(count)]
    longest_first = sorted(every, key=lambda kind: -problem.alone_s[kind])
    yield longest_first
    if problem.objective.order_matters:
        yield longest_first[::-1]
    if problem.objective.uses_deadlines:
        due_s = [float("inf") if each is None else each for each in problem.deadlines_s]
        yield sorted(every, key=lambda kind: due_s[kind])


# Most changes looked at in a round over all blocks, least of each block, and number of rounds.
_LOOKED_AT, _OF_EACH, _ROUNDS = 600, 20, 8
# Gains below this share of the weight of a block are rounding.
_DUST = 1e-6


class Change(NamedTuple):
    """Positions of groups in a plan, and the groups that replace them."""

    old: tuple[int, ...]
    new: tuple[Members, ...]


def changes(member_sets: Sequence[Members]) -> Iterator[Change]:
    """Every swap of two jobs, every move of a job to another group, every job split off alone."""
    for one, other in combinations(range(len(member_sets)), 2):
        yield from _swaps(member_sets, one, other)
        yield from _joined(member_sets, one, other)
        yield from _joined(member_sets, other, one)
    for at, members in enumerate(member_sets):
        for kind in set(members) if len(members) > 1 else ():
            yield Change((at,), (_without(members, kind), (kind,)))


def _swaps(member_sets: Sequence[Members], one: int, other: int) -> Iterator[Change]:
    if len(member_sets[one]) == len(member_sets[other]) == 1:
        return
    for leaves in set(member_sets[one]) - set(member_sets[other]):
        for comes in set(member_sets[other]) - set(member_sets[one]):
            ours = _with(_without(member_sets[one], leaves), comes)
            theirs = _with(_without(member_sets[other], comes), leaves)
            yield Change((one, other), (ours, theirs))


def _joined(member_sets: Sequence[Members], source: int, target: int) -> Iterator[Change]:
    if len(member_sets[target]) == MOST_TOGETHER or (
        len(member_sets[source]) == 1 and source > target
    ):
        return
    for kind in set(member_sets[source]):
        rest = _without(member_sets[source], kind)
        joined = _with(member_sets[target], kind)
        yield Change((source, target), (rest, joined) if rest else (joined,))


def _without(members: Members, kind: int) -> Members:
    at = members.index(kind)
    return (*members[:at], *members[at + 1 :])


def _with(members: Members, kind: int) -> Members:
    return tuple(sorted((*members, kind)))


def some_of(found: Iterator[Change], most: int, draw: Random) -> list[Change]:
    """At most `most` of `found`, drawn at random by `draw`."""
    every = list(found)
    return every if len(every) <= most else draw.sample(every, most)


def rebatched(
    blocks: Sequence[Sequence[Members]], pool: GroupPool, problem: Problem, draw: Random
) -> list[list[Members]]:
    """Lighter groups of the jobs of each block, by what is known of groups.

    Where there are many changes, `draw` chooses those that are looked at.
    """
    found = [list(block) for block in blocks]
    moving = list(range(len(found)))
    for _ in range(_ROUNDS):
        if not pool.in_time():
            break
        most = max(_OF_EACH, _LOOKED_AT // max(1, len(moving)))
        looked = {at: some_of(changes(found[at]), most, draw) for at in moving}
        own = [members for at in moving for members in found[at]]
        new = [members for some in looked.values() for change in some for members in change.new]
        known = pool.estimates([*own, *new])
        weights = {members: problem.weight(group) for members, group in known.items()}
        better = {at: _changed(found[at], some, weights) for at, some in looked.items()}
        for at, member_sets in better.items():
            found[at] = member_sets or found[at]
        moving = [at for at, member_sets in better.items() if member_sets]
    return found


def _changed(
    member_sets: Sequence[Members], looked: Sequence[Change], weights: Mapping[Members, float]
) -> list[Members] | None:
    """`member_sets` after the best changes of disjoint groups; None where none helps."""
    gains = []
    for change in looked:
        if all(members in weights for members in change.new):
            before = sum(weights.get(member_sets[at], 0.0) for at in change.old)
            after = sum(weights[members] for members in change.new)
            if after < before * (1 - _DUST):
                gains.append((before - after, change))
    touched: set[int] = set()
    added: list[Members] = []
    for _, change in sorted(gains, key=lambda each: -each[0]):
        if touched.isdisjoint(change.old):
            touched.update(change.old)
            added += change.new
    if not touched:
        return None
    return [members for at, members in enumerate(member_sets) if at not in touched] + added
