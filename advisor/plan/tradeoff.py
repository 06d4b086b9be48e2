"""Time against energy: the plans as points, and which of them are on the Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from advisor.plan.recommendation import Plan
from advisor.prediction.interval import Interval


@dataclass(frozen=True, slots=True)
class TradeoffPoint:
    """A plan whose time and energy are known.

    Attributes:
        number: Position of the plan among all, from 0.
        on_front: Whether no other plan is at least as good in both medians and better in one.
    """

    number: int
    plan: Plan
    makespan_s: Interval
    energy_j: Interval
    on_front: bool


def tradeoff(plans: Sequence[Plan]) -> tuple[TradeoffPoint, ...]:
    """A point for each of `plans` whose time and energy are known, in their order."""
    known = [
        (number, plan, plan.makespan_interval_s, plan.energy_j)
        for number, plan in enumerate(plans)
        if plan.makespan_interval_s is not None and plan.energy_j is not None
    ]
    front = pareto_front([(time_s.p50, energy_j.p50) for _, _, time_s, energy_j in known])
    return tuple(TradeoffPoint(*each, at in front) for at, each in enumerate(known))


def pareto_front(points: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """Positions of the points that no other point dominates, sorted by their first number.

    A point dominates another if it is nowhere higher and somewhere lower. Equal points do not
    dominate each other.
    """
    found: list[int] = []
    lowest = inf
    for at in sorted(range(len(points)), key=points.__getitem__):
        if points[at][1] < lowest or (found and points[at] == points[found[-1]]):
            found.append(at)
            lowest = points[at][1]
    return tuple(found)
