"""Charts that compare all plans, and show how the jobs of one of them fare."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import altair as alt

from advisor.plan.objectives import OBJECTIVES
from advisor.plan.recommendation import Plan, Recommendation
from advisor.prediction.interval import LEVELS, Interval
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
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


def slowdown_chart(mix: MixPrediction) -> Layered:
    """Return a chart of the slowdown of each job of `mix`."""
    rows = list(_slowdown_rows(mix.jobs))
    title = "times as long as alone"
    base = chart(rows).encode(
        y=rows_of([row["row"] for row in rows], "row"), tooltip=hints("row", "hint")
    )
    x = axis("middle:Q", title, max(row["high"] for row in rows) * 1.02)
    drawn = alt.layer(
        base.mark_bar(height={"band": 0.6}).encode(
            x=x, color=by_job(each.job for each in mix.jobs)
        ),
        base.mark_bar(height=3, **OVER_BARS).encode(
            x=alt.X("low:Q", title=title), x2=alt.X2("high:Q")
        ),
    ).properties(height=alt.Step(ROW_PX))
    return described(drawn, title, (f"{row['row']} {row['hint']}" for row in rows))


def _slowdown_rows(jobs: Sequence[JobPrediction]) -> Iterator[dict[str, Any]]:
    """Return a row for each job, or for consecutive copies with equal slowdowns."""
    first = 1
    slowed = ((each.job, Interval(*map(each.slowdown_at, LEVELS))) for each in jobs)
    for (job, slow), equal in groupby(slowed):
        copies = len(list(equal))
        yield {
            "row": row_name(first, job, copies), "job": job,
            "low": slow.p05, "middle": slow.p50, "high": slow.p95,
            "hint": f"{units.times(slow)} as long as alone",
        }  # fmt: skip
        first += copies


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
