"""The order of groups on each GPU where a plan's cost leaves it open: so that jobs end early."""

from collections.abc import Sequence

from advisor.plan.search.fleet.placement import FleetGroup, PlacedGroup, Problem, queued

# Less is rounding, as a share of the time of a GPU.
_DUST = 1e-9


def soonest_first(plan: Sequence[PlacedGroup], problem: Problem) -> tuple[PlacedGroup, ...]:
    """`plan` with the groups of each GPU in the order in which a job ends soonest on average.

    No GPU ends later: where more pauses between groups would make it, its order stays. So it does
    where the order counts for the cost, or times are no seconds.
    """
    if problem.objective.order_matters or not problem.objective.in_seconds:
        return tuple(plan)
    queues: list[list[FleetGroup]] = [[] for _ in range(problem.gpus)]
    for placed in sorted(plan, key=lambda each: each.start_s):
        queues[placed.gpu].append(placed.group)
    return queued([_soonest_first(queue) for queue in queues])


def _soonest_first(queue: Sequence[FleetGroup]) -> Sequence[FleetGroup]:
    """By Smith's rule: those first that take least time for each job that then need not wait."""
    sooner = sorted(queue, key=lambda each: each.runs_s / len(each.members))
    return sooner if _end_s(sooner) <= (1 + _DUST) * _end_s(queue) else queue


def _end_s(queue: Sequence[FleetGroup]) -> float:
    return max((each.start_s + each.group.runs_s for each in queued([queue])), default=0.0)
