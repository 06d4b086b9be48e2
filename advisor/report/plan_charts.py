"""Charts that compare all plans, and show how the jobs of one of them fare."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import altair as alt

from advisor.plan.fair_share import Treatment
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.recommendation import Plan, Recommendation
from advisor.plan.tradeoff import TradeoffPoint
from advisor.report import units
from advisor.report.chart_parts import (
    FRAME_COLOUR,
    OVER_BARS,
    ROW_PX,
    Layered,
    axis,
    by_basis,
    by_job,
    chart,
    described,
    hints,
    rows_of,
)
from advisor.report.gpu_drawing import row_name
from advisor.report.headline import gain, plan_kind, short_basis
from advisor.report.treatment_text import UNFAIR

_PLANE_PX = 320
_NEAR = {"time": 0.05, "energy": 0.06}
"""Of what an axis spans, how far apart the ranks of two plans are at least that are told apart."""
_PLAN_PX = 22  # all plans are to be seen at once


def plans_chart(advised: Recommendation, shown: Plan) -> Layered:
    """How much better each plan is than one after another, with its interval; `shown` has a ring.

    A click on a point selects: the selection ``chosen`` holds the plan's `number`, from 0.
    """
    rows = [_plan_row(advised, number) for number in range(len(advised.plans))]
    title = f"gain over one after another: {OBJECTIVES[advised.ranked_by].choice}"
    ticks = alt.Axis(tickCount=8)
    y = rows_of([row["plan"] for row in rows], "plan")
    base = chart(rows).encode(
        y=y,
        x=alt.X("low:Q", title=title, scale=alt.Scale(zero=False), axis=ticks),
        color=by_basis(plan.prediction for plan in advised.plans),
        tooltip=hints("plan", "sharing", "why"),
    )
    spread = base.mark_bar(height=3).encode(x2=alt.X2("high:Q"))
    chosen = alt.selection_point("chosen", fields=["number"])
    middle = (
        base.mark_point(filled=True, size=90, opacity=1)
        .encode(x=alt.X("middle:Q", title=title, axis=ticks))
        .add_params(chosen)
    )
    ring = chart([rows[advised.plans.index(shown)]]).mark_point(size=300, color=FRAME_COLOUR)
    ring = ring.encode(y=y, x=alt.X("middle:Q", title=title, axis=ticks))
    equal = chart([{"one": 1}]).mark_rule(strokeDash=[4, 4], color=FRAME_COLOUR)
    equal = equal.encode(x=alt.X("one:Q", title=title, axis=ticks))
    drawn = alt.layer(equal, spread, ring, middle).properties(height=alt.Step(_PLAN_PX))
    return described(drawn, title, (f"{row['plan']} {row['gain']}" for row in rows))


def tradeoff_chart(
    advised: Recommendation, points: Sequence[TradeoffPoint], shown: Plan
) -> Layered:
    """Time and energy of each plan, with the Pareto front; a ring marks the plan `shown`.

    A click on a point selects, as in `plans_chart`.
    """
    time, second_s = units.time_unit(min(each.makespan_s.p50 for each in points))
    energy, joule_j = units.energy_unit(min(each.energy_j.p50 for each in points))
    rows = [
        _plan_row(advised, each.number)
        | _point_row(each, second_s, joule_j)
        | {"shown": each.plan is shown}
        for each in points
    ]
    plane = partial(_plane, time, energy)
    dots = plane(rows).mark_point(filled=True, size=90, opacity=1).encode(
        color=by_basis(each.plan.prediction for each in points),
        tooltip=hints("plan", "sharing", "hint", "why"),
    ).add_params(alt.selection_point("chosen", fields=["number"]))  # fmt: skip
    front = plane([row for row in rows if row["front"]])
    drawn = alt.layer(
        front.mark_line(color=FRAME_COLOUR, strokeDash=[4, 4]).encode(order=alt.Order("time:Q")),
        plane([row for row in rows if row["shown"]]).mark_point(size=300, color=FRAME_COLOUR),
        dots,
        plane(_labels(rows))
        .mark_text(dx=9, dy=-9, color=FRAME_COLOUR)
        .encode(text=alt.Text("rank:N")),
    ).properties(height=_PLANE_PX)
    return described(drawn, "time and energy", (f"{row['plan']} {row['hint']}" for row in rows))


def _labels(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """`rows` with their ranks, those together whose ranks would lie on each other on the chart."""
    apart = {name: _NEAR[name] * _span(row[name] for row in rows) for name in _NEAR}
    together: list[list[dict[str, Any]]] = []
    for row in rows:
        near = (
            same for same in together
            if all(abs(row[name] - same[0][name]) <= most for name, most in apart.items())
        )  # fmt: skip
        if (found := next(near, None)) is not None:
            found.append(row)
        else:
            together.append([row])
    return [same[0] | {"rank": ", ".join(row["rank"] for row in same)} for same in together]


def _span(values: Iterable[float]) -> float:
    known = list(values)
    return max(known) - min(known)


def _plane(time: str, energy: str, drawn: list[dict[str, Any]]) -> alt.Chart:
    """The rows `drawn`, over time and energy in these units."""
    scale, ticks = alt.Scale(zero=False, padding=20), alt.Axis(tickCount=7)
    return chart(drawn).encode(
        x=alt.X("time:Q", title=f"until all are done, {time}", scale=scale, axis=ticks),
        y=alt.Y("energy:Q", title=f"energy until then, {energy}", scale=scale, axis=ticks),
    )


def _point_row(point: TradeoffPoint, second_s: float, joule_j: float) -> dict[str, Any]:
    """Data of one plan, in units of `second_s` seconds and `joule_j` joules."""
    return {
        "time": point.makespan_s.p50 / second_s,
        "energy": point.energy_j.p50 / joule_j,
        "rank": str(point.plan.rank),
        "front": point.on_front,
        "hint": f"{units.seconds(point.makespan_s)}, {units.joules(point.energy_j)}",
    }


def slowdown_chart(fares: Sequence[Treatment]) -> Layered:
    """Slowdown of each job; the tick is where an equal share of the GPU would put it."""
    rows = list(_slowdown_rows(fares))
    title = "times as long as alone"
    base = chart(rows).encode(
        y=rows_of([row["row"] for row in rows], "row"), tooltip=hints("row", "hint")
    )
    x = axis("middle:Q", title, max(max(row["high"], row["equal"]) for row in rows) * 1.02)
    drawn = alt.layer(
        base.mark_bar(height={"band": 0.6}).encode(x=x, color=by_job(each.job for each in fares)),
        base.mark_bar(height=3, **OVER_BARS).encode(
            x=alt.X("low:Q", title=title), x2=alt.X2("high:Q")
        ),
        base.mark_tick(thickness=4, **OVER_BARS).encode(x=alt.X("equal:Q", title=title)),
    ).properties(height=alt.Step(ROW_PX))
    return described(drawn, title, (f"{row['row']} {row['hint']}" for row in rows))


def _slowdown_rows(fares: Sequence[Treatment]) -> Iterator[dict[str, Any]]:
    """A row for each job, or for consecutive copies that are treated alike."""
    first = 1
    for (job, said, unfair), alike in groupby(fares, _fate):
        copies = list(alike)
        slow, name = copies[0].slowdown, row_name(first, job, len(copies))
        yield {
            "row": f"{UNFAIR} {name}" if unfair else name, "job": job,
            "low": slow.p05, "middle": slow.p50, "high": slow.p95,
            "equal": copies[0].equal_slowdown, "hint": f"{said} as long as alone",
        }  # fmt: skip
        first += len(copies)


def _fate(fares: Treatment) -> tuple[str, str, bool]:
    return fares.job, units.times(fares.slowdown), fares.unfair


def _plan_row(advised: Recommendation, number: int) -> dict[str, Any]:
    plan = advised.plans[number]
    better = gain(advised, plan)
    return {
        "number": number,
        "plan": f"{plan.rank}  {plan_kind(advised, plan)}",
        "sharing": str(plan.sharing),
        "why": plan.why,
        "low": better.p05,
        "middle": better.p50,
        "high": better.p95,
        "gain": units.times(better),
        "basis": short_basis(plan.prediction),
    }
