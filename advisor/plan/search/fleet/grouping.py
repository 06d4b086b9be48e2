"""Groups of jobs by greedy rules, and small changes to the groups of a plan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import NamedTuple

from advisor.plan.search.fleet.fleet_groups import Kinds, Team
from advisor.plan.search.fleet.group_pool import MOST_TOGETHER, Pool
from advisor.plan.search.fleet.placement import Problem

# Jobs in a batch.
SIZES = (2, 3, 4, 5, 6, 8)
# Share of the time in which a GPU works that jobs together may need of it, each alone.
_BUSY = (1.0, 1.5, 2.0)

MayShare = Callable[[Team], bool]
"""Whether the jobs of a team may share a GPU, and fit on it."""


def drafts(kinds: Kinds, problem: Problem, may: MayShare) -> Iterator[list[Team]]:
    """Teams that make up all jobs: in batches of so many, and by best fit, each in some orders."""
    seen = set()
    for order in _orders(problem):
        filled = [batches(order, size, may) for size in SIZES]
        filled += [best_fit(order, busy, kinds, may) for busy in _BUSY]
        for teams in filled:
            mark = tuple(sorted(teams))
            if mark not in seen:
                seen.add(mark)
                yield teams


def batches(order: Sequence[int], size: int, may: MayShare) -> list[Team]:
    """Jobs in this order, each in the first batch that has a place and memory for it."""
    filled: list[Team] = []
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


def best_fit(order: Sequence[int], most_busy: float, kinds: Kinds, may: MayShare) -> list[Team]:
    """Jobs in this order, each where it leaves the GPU least idle without asking too much of it."""
    busy = [job.profile.busy_share or 1.0 for job in kinds.jobs]
    filled: list[Team] = []
    for kind in order:
        asked = [(sum(busy[mate] for mate in team) + busy[kind], at)
                 for at, team in enumerate(filled) if len(team) < max(SIZES)]  # fmt: skip
        for total, at in sorted(asked, reverse=True):
            larger = tuple(sorted((*filled[at], kind)))
            if total <= most_busy and may(larger):
                filled[at] = larger
                break
        else:
            filled.append((kind,))
    return filled


def _orders(problem: Problem) -> Iterator[list[int]]:
    """Kinds of all jobs: the longest first; where turns count, the shortest and the first due."""
    every = [kind for kind, count in enumerate(problem.counts) for _ in range(count)]
    yield sorted(every, key=lambda kind: -problem.alone_s[kind])
    if problem.objective.order_matters:
        yield sorted(every, key=lambda kind: problem.alone_s[kind])
    if problem.objective.uses_deadlines:
        due_s = [float("inf") if each is None else each for each in problem.deadlines_s]
        yield sorted(every, key=lambda kind: due_s[kind])


# Changes that are looked at in a round, of all blocks and of each at least, and rounds.
_LOOKED_AT, _OF_EACH, _ROUNDS = 600, 20, 8
# A gain below this is rounding, as a share of what the block weighs.
_DUST = 1e-6


class Change(NamedTuple):
    """Teams of a plan, by where they stand, that become others."""

    old: tuple[int, ...]
    new: tuple[Team, ...]


def changes(teams: Sequence[Team]) -> Iterator[Change]:
    """Jobs that swap places, a job that joins others, and one that goes alone."""
    for one, other in combinations(range(len(teams)), 2):
        yield from _swaps(teams, one, other)
        yield from _joined(teams, one, other)
        yield from _joined(teams, other, one)
    for at, team in enumerate(teams):
        for kind in set(team) if len(team) > 1 else ():
            yield Change((at,), (_without(team, kind), (kind,)))


def _swaps(teams: Sequence[Team], one: int, other: int) -> Iterator[Change]:
    if len(teams[one]) == len(teams[other]) == 1:
        return
    for leaves in set(teams[one]) - set(teams[other]):
        for comes in set(teams[other]) - set(teams[one]):
            ours = _with(_without(teams[one], leaves), comes)
            theirs = _with(_without(teams[other], comes), leaves)
            yield Change((one, other), (ours, theirs))


def _joined(teams: Sequence[Team], source: int, target: int) -> Iterator[Change]:
    if len(teams[target]) == MOST_TOGETHER or (len(teams[source]) == 1 and source > target):
        return
    for kind in set(teams[source]):
        rest = _without(teams[source], kind)
        joined = _with(teams[target], kind)
        yield Change((source, target), (rest, joined) if rest else (joined,))


def _without(team: Team, kind: int) -> Team:
    at = team.index(kind)
    return (*team[:at], *team[at + 1 :])


def _with(team: Team, kind: int) -> Team:
    return tuple(sorted((*team, kind)))


def some_of(found: Iterator[Change], most: int, draw: Random) -> list[Change]:
    """At most so many of them, drawn."""
    every = list(found)
    return every if len(every) <= most else draw.sample(every, most)


def rebatched(
    blocks: Sequence[Sequence[Team]], pool: Pool, problem: Problem, draw: Random
) -> list[list[Team]]:
    """Lighter teams of the jobs of each block, as far as is known of teams.

    Args:
        blocks: Teams of which each block's jobs stay in it.
        pool: Knows what teams come to.
        problem: What makes a team light.
        draw: Which changes are looked at, where there are many.
    """
    found = [list(block) for block in blocks]
    moving = list(range(len(found)))
    for _ in range(_ROUNDS):
        if not pool.in_time():
            break
        most = max(_OF_EACH, _LOOKED_AT // max(1, len(moving)))
        looked = {at: some_of(changes(found[at]), most, draw) for at in moving}
        own = [team for at in moving for team in found[at]]
        new = [team for some in looked.values() for change in some for team in change.new]
        known = pool.estimates([*own, *new])
        weights = {team: problem.weight(column) for team, column in known.items()}
        better = {at: _changed(found[at], some, weights) for at, some in looked.items()}
        for at, teams in better.items():
            found[at] = teams or found[at]
        moving = [at for at, teams in better.items() if teams]
    return found


def _changed(
    teams: Sequence[Team], looked: Sequence[Change], weights: Mapping[Team, float]
) -> list[Team] | None:
    """`teams` after the best changes that do not touch each other; None where none is better."""
    gains = []
    for change in looked:
        if all(team in weights for team in change.new):
            before = sum(weights.get(teams[at], 0.0) for at in change.old)
            after = sum(weights[team] for team in change.new)
            if after < before * (1 - _DUST):
                gains.append((before - after, change))
    touched: set[int] = set()
    added: list[Team] = []
    for _, change in sorted(gains, key=lambda each: -each[0]):
        if touched.isdisjoint(change.old):
            touched.update(change.old)
            added += change.new
    if not touched:
        return None
    return [team for at, team in enumerate(teams) if at not in touched] + added
