"""The objectives by name, and which of them a set of plans can be ranked by.

A new objective is a name in `advisor.plan.ObjectiveName`, a class in `completion`, `pace` or
`energy`, and its place in the table here.
"""

from collections.abc import Sequence

from advisor.plan import ObjectiveName
from advisor.plan.objectives.completion import (
    Deadlines,
    Makespan,
    MeanCompletion,
)
from advisor.plan.objectives.energy import Energy
from advisor.plan.objectives.objective import Objective
from advisor.plan.objectives.pace import Throughput
from advisor.plan.recommendation import Forecast
from advisor.prediction.interval import Interval

OBJECTIVES: dict[ObjectiveName, Objective] = {
    each.name: each
    for each in (
        Makespan(), Throughput(), Energy(), MeanCompletion(), Deadlines(),
    )
}  # fmt: skip


def cost(forecast: Forecast, objective: ObjectiveName) -> Interval | None:
    """Cost of `forecast` by `objective`, the lower the better; None where it cannot be computed."""
    return OBJECTIVES[objective].cost(forecast)


def known_cost(forecast: Forecast, objective: ObjectiveName) -> Interval:
    """Cost of `forecast` by an objective that all ranked plans have.

    Raises:
        ValueError: The cost cannot be computed, so no plan was ranked by it.
    """
    if (found := cost(forecast, objective)) is None:
        raise ValueError(f"a plan that was ranked has a cost, but {forecast.sharing} has none")
    return found


def rankable_by(
    forecasts: Sequence[Forecast], objective: ObjectiveName
) -> tuple[ObjectiveName, str | None]:
    """The objective that all `forecasts` have; and why, if it is not the one asked for."""

    def known(asked: ObjectiveName) -> bool:
        return all(cost(each, asked) is not None for each in forecasts)

    if known(objective):
        return objective, None
    instead, why = next(each for each in OBJECTIVES[objective].instead if known(each[0]))
    return instead, f"{objective} {why}"


def tied(one: Interval, other: Interval) -> bool:
    """Whether two costs are equal within our error: a median lies in the other's interval."""
    return one.contains(other.p50) or other.contains(one.p50)
