"""Which job goes to which kind of place, exactly."""

from collections.abc import Sequence
from functools import cache
from math import inf


def cheapest(cost: Sequence[Sequence[float]], counts: Sequence[int]) -> tuple[int, ...] | None:
    """The kind of place for each job that makes the sum of costs smallest.

    Places of a kind are interchangeable, so the search remembers only how many of each are
    left; for seven jobs that is at most a few hundred cases.

    Args:
        cost: Of each job on each kind of place, shape (jobs, kinds); infinite: impossible.
        counts: Places of each kind, shape (kinds,); some may stay empty.

    Returns:
        A kind for each job; None where not every job can have a place.
    """

    @cache
    def rest(job: int, left: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        if job == len(cost):
            return 0.0, ()
        best: tuple[float, tuple[int, ...]] = (inf, ())
        for kind, free in enumerate(left):
            if free and cost[job][kind] < inf:
                total, kinds = rest(job + 1, (*left[:kind], free - 1, *left[kind + 1 :]))
                best = min(best, (cost[job][kind] + total, (kind, *kinds)))
        return best

    total, kinds = rest(0, tuple(counts))
    return kinds if total < inf else None


def least_worst(cost: Sequence[Sequence[float]], counts: Sequence[int]) -> tuple[int, ...] | None:
    """As `cheapest`, but the largest cost comes first, then the sum."""
    for bound in sorted({value for row in cost for value in row if value < inf}):
        within = [[value if value <= bound else inf for value in row] for row in cost]
        if found := cheapest(within, counts):
            return found
    return None
