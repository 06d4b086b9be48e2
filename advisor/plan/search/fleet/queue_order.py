"""Groups and order on each GPU where a plan's cost leaves them open: so that jobs end early."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from advisor.plan.search.fleet.placement import (
    FleetGroup,
    PlacedGroup,
    Problem,
    job_ends_s,
    makespan_s,
    queued,
)

# Less is rounding, as a share of the time of a GPU.
_DUST = 1e-9
# Other groups are formed where that spares so much of the jobs' ends, as a share: a choice.
_WORTH = 0.01
# How many ways to group the jobs of a GPU are looked at.
_GROUPINGS = 200


def soonest_first(
    plan: Sequence[PlacedGroup], problem: Problem, known: Sequence[FleetGroup] = ()
) -> tuple[PlacedGroup, ...]:
    """`plan` with the jobs of each GPU in groups and order such that one ends soonest on average.

    No GPU ends later, and all of it costs no more: where it would, groups and order stay. So they
    do where the order counts for the cost, or times are no seconds.

    Args:
        plan: The plan.
        problem: What it is for.
        known: Groups that may be formed.
    """
    if problem.objective.order_matters or not problem.objective.in_seconds:
        return tuple(plan)
    queues: list[list[FleetGroup]] = [[] for _ in range(problem.gpus)]
    for placed in sorted(plan, key=lambda each: each.start_s):
        queues[placed.gpu].append(placed.group)
    queues = [_soonest_first(queue) for queue in queues]
    for gpu, queue in enumerate(queues):
        other = [*queues[:gpu], _regrouped(queue, known), *queues[gpu + 1 :]]
        if problem.cost(queued(other)) <= (1 + _DUST) * problem.cost(queued(queues)):
            queues = other
    return queued(queues)


def _soonest_first(queue: Sequence[FleetGroup]) -> list[FleetGroup]:
    """By Smith's rule: those first that take least time for each job that then need not wait."""
    sooner = sorted(queue, key=lambda each: each.runs_s / len(each.members))
    return sooner if _end_s(sooner) <= (1 + _DUST) * _end_s(queue) else list(queue)


def _regrouped(queue: list[FleetGroup], known: Sequence[FleetGroup]) -> list[FleetGroup]:
    """The jobs of `queue` in those of the groups `known` in which they end soonest on average."""
    jobs = Counter(kind for group in queue for kind in group.members)
    groupings = islice(_groupings(jobs, known), _GROUPINGS)
    latest_s = (1 + _DUST) * _end_s(queue)
    found = [each for each in map(_soonest_first, groupings) if _end_s(each) <= latest_s]
    best = min(found, key=_sum_of_ends_s, default=queue)
    return best if _sum_of_ends_s(best) < (1 - _WORTH) * _sum_of_ends_s(queue) else queue


def _groupings(jobs: Counter[int], known: Sequence[FleetGroup]) -> Iterator[list[FleetGroup]]:
    """Every way to group `jobs`, counted by kind, into groups of `known`."""
    usable = [each for each in known if Counter(each.members) <= jobs]
    if not jobs:
        yield []
        return
    first = min(jobs)
    for each in usable:
        if first in each.members:
            left = jobs - Counter(each.members)
            yield from ([each, *others] for others in _groupings(left, usable))


def _sum_of_ends_s(queue: Sequence[FleetGroup]) -> float:
    return sum(end_s for _, end_s in job_ends_s(queued([queue])))


def _end_s(queue: Sequence[FleetGroup]) -> float:
    return makespan_s(queued([queue])) if queue else 0.0
