"""Each way to share at its best, as rows of a table that is also a chart."""

from dataclasses import dataclass
from math import floor, log10

from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.prediction import Interval
from advisor.report import format as units
from advisor.report.forecast import best_of_each_way, plan_name, shown_cost
from advisor.report.headline import plan_words


@dataclass(frozen=True, slots=True, kw_only=True)
class WayRow:
    """A way to share, at its best.

    Attributes:
        plan: Its notation, which `named_plan` finds again.
        words: The same plan in words.
        low: Start of the 90 % interval, as a share of the axis, 0..1.
        middle: Median, as a share of the axis.
        high: End of the interval, as a share of the axis.
        text: Number that ranks the plan: a cost with its unit, or for throughput the gain.
        estimated: Whether no real run of this kind supports the numbers.
        tie: Whether another plan is the best, and it ties with this one within the error.
    """

    plan: str
    words: str
    low: float
    middle: float
    high: float
    text: str
    gain: str
    memory: str
    estimated: bool
    best: bool
    tie: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysTable:
    """All ways, the best plan first.

    Attributes:
        measure: Quantity that ranks the plans, and the unit of the axis.
        ticks: Shares of the axis, 0..1, with the numbers that stand there.
    """

    measure: str
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[WayRow, ...]


def named_plan(advised: Recommendation, name: str) -> Plan | None:
    """Return the plan whose `plan_name` is `name`, shortened or not; None: there is none."""
    names = ((plan, plan_name(advised, plan)) for plan in advised.plans)
    return next((plan for plan, own in names if name in (own, units.shortened(own))), None)


def ranked_quantity(advised: Recommendation, plan: Plan) -> Interval:
    """Return the quantity that ranks a plan: its cost, or for throughput its gain."""
    by = advised.ranked_by
    return plan.gain if by == "throughput" else known_cost(plan, by)


def ways_table(advised: Recommendation, plans: tuple[Plan, ...] = ()) -> WaysTable:
    """Return a row for each way at its best, and for each other one of `plans`."""
    by = OBJECTIVES[advised.ranked_by]
    best = [*best_of_each_way(advised).values()]
    shown = sorted({plan.rank: plan for plan in (*best, *plans)}.items())
    values = [ranked_quantity(advised, plan) for _, plan in shown]
    most = max(value.p95 for value in values)
    unit, size = units.axis_unit(by.unit, max(value.p50 for value in values))
    write = units.times if by.unit == "ratio" else shown_cost(advised.ranked_by)
    rows = tuple(
        WayRow(
            plan=units.shortened(plan_name(advised, plan)),
            words=plan_words(advised, plan),
            low=value.p05 / most,
            middle=value.p50 / most,
            high=value.p95 / most,
            text=write(value),
            gain=units.times(plan.gain),
            memory=units.gib_of(plan.prediction.memory_total_mib),
            estimated=not plan.confirmed_on_hardware,
            best=plan is advised.best,
            tie=plan.ties_best and plan is not advised.best,
        )
        for (_, plan), value in zip(shown, values, strict=True)
    )
    return WaysTable(
        measure=f"{by.measure}, {unit}" if unit else by.measure,
        ticks=tuple((at * size / most, f"{at:g}") for at in _ticks(most / size)),
        rows=rows,
    )


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 to `most`, four to nine of them."""
    step = 10.0 ** floor(log10(most / 4))
    step *= next(each for each in (1, 2, 5) if most / (step * each) < 9)
    return [round(number * step, 12) for number in range(int(most / step) + 1)]
