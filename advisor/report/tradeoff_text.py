"""Time against energy, in words: the Pareto front, and the plans that are not on the chart."""

from collections.abc import Sequence

from advisor.plan.objectives.objective import LENGTHS_MISSING, POWER_MISSING
from advisor.plan.recommendation import Plan, Recommendation
from advisor.plan.tradeoff import TradeoffPoint
from advisor.report import units
from advisor.report.headline import plan_kind


def front_text(advised: Recommendation, points: Sequence[TradeoffPoint], shown: Plan) -> str:
    """The plans on the Pareto front, fastest first, and the intervals of the plan `shown`."""
    front = sorted((each for each in points if each.on_front), key=lambda each: each.makespan_s.p50)
    named = ", ".join(_named(advised, each.plan) for each in front)
    return (
        f"On the dashed line, the Pareto front: {named}. By medians no plan is faster than these "
        f"without taking more energy. In the ring, {_named(advised, shown)}: "
        f"{units.seconds(shown.makespan_interval_s)} and {units.joules(shown.energy_j)}."
    )


def missing_text(advised: Recommendation, points: Sequence[TradeoffPoint]) -> str:
    """The plans without a point, and why; empty where all have one."""
    known = {each.number for each in points}
    missing = [plan for number, plan in enumerate(advised.plans) if number not in known]
    if not missing:
        return ""
    why = LENGTHS_MISSING if missing[0].makespan_interval_s is None else POWER_MISSING
    named = ", ".join(_named(advised, plan) for plan in missing)
    return f"Not on the chart: {named}. Energy until all are done {why}."


def _named(advised: Recommendation, plan: Plan) -> str:
    return f"{plan.rank} ({plan_kind(advised, plan)})"
