"""Where and when some groups run that make up all jobs: in good orders, on GPUs equally long."""

from collections.abc import Iterator, Sequence
from math import inf

from advisor.planning.fleet.columns import Column, Placed, dealt, queued
from advisor.planning.fleet.goals import IN_TURN, Problem

# Less than this is rounding, as a share of the time of the GPU that ends last.
_DUST = 1e-9


def arranged(columns: Sequence[Column], problem: Problem) -> tuple[Placed, ...]:
    """The best plan of these `columns` that is soon found."""
    best = roughly_arranged(columns, problem)
    return best if problem.aim in IN_TURN else min(best, levelled(best, problem), key=problem.rank)


def roughly_arranged(columns: Sequence[Column], problem: Problem) -> tuple[Placed, ...]:
    """Likewise, sooner: dealt out to the GPUs in the best of some orders."""
    plans = (dealt(order, problem.gpus) for order in _orders(columns, problem))
    return min(plans, key=problem.rank)


def _orders(columns: Sequence[Column], problem: Problem) -> Iterator[list[Column]]:
    def due_s(column: Column) -> float:
        return min(problem.deadlines_s[kind] or inf for kind in column.team)

    yield sorted(columns, key=lambda each: -each.runs_s)
    if problem.aim not in IN_TURN:
        return
    yield sorted(columns, key=lambda each: each.runs_s / len(each.team))
    yield sorted(columns, key=lambda each: min(problem.alone_s[kind] for kind in each.team))
    if problem.aim == "deadlines":
        yield sorted(columns, key=lambda each: (due_s(each), each.runs_s))


def levelled(plan: Sequence[Placed], problem: Problem) -> tuple[Placed, ...]:
    """`plan` with groups moved from the GPU that ends last, or swapped, until none ends sooner."""
    queues: list[list[Column]] = [[] for _ in range(problem.gpus)]
    for each in plan:
        queues[each.gpu].append(each.column)
    while (better := _less_long(queues)) is not None:
        queues = better
    return queued([sorted(queue, key=lambda each: -each.runs_s) for queue in queues])


def _less_long(queues: Sequence[Sequence[Column]]) -> list[list[Column]] | None:
    """`queues` after the move or swap that helps the longest most; None where none does."""
    takes_s = [sum(each.runs_s for each in queue) for queue in queues]
    most_s = max(takes_s)
    longest = takes_s.index(most_s)
    best_s, best = most_s * (1 - _DUST), None
    for column in queues[longest]:
        for other, queue in enumerate(queues):
            for swapped in (None, *queue) if other != longest else ():
                less_s = column.runs_s - (swapped.runs_s if swapped else 0.0)
                ends_s = max(most_s - less_s, takes_s[other] + less_s)
                if ends_s < best_s:
                    best_s, best = ends_s, (column, other, swapped)
    return None if best is None else _moved(queues, longest, *best)


def _moved(
    queues: Sequence[Sequence[Column]],
    longest: int,
    column: Column,
    other: int,
    swapped: Column | None,
) -> list[list[Column]]:
    found = [list(queue) for queue in queues]
    found[longest].remove(column)
    found[other].append(column)
    if swapped is not None:
        found[other].remove(swapped)
        found[longest].append(swapped)
    return found
