"""Plans that anybody would think of: what no answer may be worse than."""

from collections.abc import Callable, Iterator, Sequence

from advisor.plan.search.fleet.fleet_goals import Problem
from advisor.plan.search.fleet.fleet_groups import Kinds, Team

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
