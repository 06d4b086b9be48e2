"""Which groups of jobs are thought of: pairs first, then what suits the best of them."""

from collections.abc import Callable, Iterable, Sequence

from advisor.planning.fleet.columns import Column, Kinds, Team
from advisor.planning.fleet.goals import Problem

# Jobs in a group at most: what was ever measured together.
MOST_TOGETHER = 8
# Of each size, the best groups of each kind of job that are kept, pairs and others: so many up to
# so many kinds, and fewer of more.
_PAIRS_KEPT, _KEPT, _KINDS = 8, 3, 24

Estimates = Callable[[Sequence[Team]], Iterable[Column]]
"""What comes of teams; those of which nothing comes are left out. It may stop early."""


def grown(kinds: Kinds, problem: Problem, estimates: Estimates) -> list[Column]:
    """Groups of two and more jobs that gain most, with every kind of job in some.

    Each kept group grows by each kind of job: whoever fits into what the others leave free.
    """
    kept: list[Column] = []
    best: list[Team] = [(kind,) for kind in range(len(kinds.jobs))]
    for size in range(2, min(MOST_TOGETHER, sum(kinds.counts)) + 1):
        found = list(estimates(_larger(best, kinds)))
        most = _PAIRS_KEPT if size == 2 else _KEPT
        most = max(1, most * _KINDS // max(_KINDS, len(kinds.jobs)))
        chosen = _best_of_each(found, problem, most)
        if not chosen:
            break
        kept += chosen
        best = [each.team for each in chosen]
    return kept


def beside(teams: Iterable[Team], kinds: Kinds) -> list[Team]:
    """Groups that differ from one of `teams` in one job: one leaves, or another takes its place."""
    found = set()
    for team in teams:
        for at in range(len(team)):
            rest = (*team[:at], *team[at + 1 :])
            found |= {rest, *_larger([rest], kinds)}
    return sorted(team for team in found if len(team) > 1)


def gain(column: Column, problem: Problem) -> float:
    """How much faster its jobs are done than in turn."""
    return sum(problem.alone_s[kind] for kind in column.team) / column.runs_s


def _larger(teams: Iterable[Team], kinds: Kinds) -> list[Team]:
    everyone = range(len(kinds.jobs))
    larger = {tuple(sorted((*team, kind))) for team in teams for kind in everyone}
    return sorted(team for team in larger if kinds.allows(team))


def _best_of_each(found: Sequence[Column], problem: Problem, most: int) -> list[Column]:
    ordered = sorted(found, key=lambda each: -gain(each, problem))
    places = [0] * len(problem.counts)
    chosen = []
    for column in ordered:
        if any(places[kind] < most for kind in column.team):
            chosen.append(column)
            for kind in set(column.team):
                places[kind] += 1
    return chosen
