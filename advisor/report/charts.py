"""Charts for the page, in altair, from the drawings of the other modules."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import altair as alt

from advisor.plan.recommendation import Plan, Recommendation
from advisor.plan.trials import Trials
from advisor.report.gpu_drawing import Bar, Drawing
from advisor.report.headline import basis, gain, kind
from advisor.report.mig_text import Block
from advisor.report.simulation_drawing import Curve, Timeline

_ROW_PX = 32
_FRAME_COLOUR = "#808080"
_SURE_COLOUR, _ESTIMATE_COLOUR, _FREE_COLOUR = "#1f77b4", "#b0b0b0", "#eeeeee"
_CURVE_PX = 150


def memory_chart(drawn: Drawing) -> alt.LayerChart | alt.FacetChart:
    """What each job takes of the GPU's memory; the thin line is where its end may lie."""
    title = f"memory of the GPU, {drawn.memory_gib:.0f} GiB in all"
    return _panel(drawn, drawn.memory, drawn.memory_gib, title, labelled=True)


def sm_chart(drawn: Drawing) -> alt.LayerChart | alt.FacetChart:
    """Which SMs each job may use; its rows are aligned with those of `memory_chart`."""
    title = f"SMs that it may use, of {drawn.sm_count}"
    return _panel(drawn, drawn.sms, drawn.sm_count, title, labelled=False)


def plans_chart(advised: Recommendation) -> alt.LayerChart | alt.FacetChart:
    """How much better each plan is than one after another, with its interval.

    A click on a point chooses: the selection ``chosen`` holds the plan's `number`, from 0.
    """
    rows = [_plan_row(advised, number) for number in range(len(advised.plans))]
    title, axis = f"gain over one after another, by {advised.ranked_by}", alt.Axis(tickCount=8)
    base = _chart(rows).encode(
        y=_rows([row["plan"] for row in rows], "plan", labelled=True),
        x=alt.X("low:Q", title=title, scale=alt.Scale(zero=False), axis=axis),
        color=_by_basis(advised.plans),
        tooltip=["plan:N", "sharing:N", "why:N"],
    )
    spread = base.mark_bar(height=3).encode(x2="high:Q")
    chosen = alt.selection_point("chosen", fields=["number"])
    middle = (
        base.mark_point(filled=True, size=90, opacity=1)
        .encode(x=alt.X("middle:Q", title=title, axis=axis))
        .add_params(chosen)
    )
    equal = _chart([{"one": 1}]).mark_rule(strokeDash=[4, 4], color=_FRAME_COLOUR)
    equal = equal.encode(x=alt.X("one:Q", title=title, axis=axis))
    return alt.layer(equal, spread, middle).properties(height=alt.Step(_ROW_PX))


def trials_chart(found: Trials) -> alt.LayerChart | alt.FacetChart:
    """Trials that end in an hour by how many run at once, with their intervals."""
    rows = [
        {"copies": row.copies, "low": rate.p05, "middle": rate.p50, "high": rate.p95,
         "sharing": str(row.prediction.sharing)}
        for row in found.copies.rows
        for rate in [found.per_hour(row)]
    ]  # fmt: skip
    title = "trials per hour"
    base = _chart(rows).encode(x=alt.X("copies:O", title="at once"), tooltip=["sharing:N"])
    spread = base.mark_bar(width=3, color=_SURE_COLOUR).encode(
        y=alt.Y("low:Q", title=title), y2="high:Q"
    )
    middle = base.mark_point(filled=True, size=90, opacity=1, color=_SURE_COLOUR).encode(
        y=alt.Y("middle:Q", title=title)
    )
    return alt.layer(spread, middle)


def slices_chart(cut: Sequence[Block], memory_slices: int) -> alt.LayerChart | alt.FacetChart:
    """How MIG cuts up a GPU of so many memory slices; what is free is pale."""
    title = f"memory slices of the GPU, {memory_slices} in all"
    rows = [asdict(each) | {"middle": (each.start + each.end) / 2} for each in cut]
    base = _chart(rows).encode(
        y=_rows(list(dict.fromkeys(each.row for each in cut)), "row", labelled=True),
        tooltip=["label:N", "kind:N"],
    )
    boxes = base.mark_bar(stroke=_FRAME_COLOUR, height={"band": 0.9}).encode(
        x=_axis("start:Q", title, memory_slices, memory_slices),
        x2="end:Q",
        color=alt.condition(
            "datum.kind == 'free'", alt.value(_FREE_COLOUR), alt.value(_ESTIMATE_COLOUR)
        ),
    )
    names = base.mark_text().encode(x="middle:Q", text="label:N")
    return alt.layer(boxes, names).properties(height=alt.Step(_ROW_PX))


def lanes_chart(line: Timeline) -> alt.LayerChart | alt.FacetChart:
    """When each job waits (pale), runs and ends; the thin line is where its end may lie."""
    title = f"time, {line.unit}"

    def chart(kind: str) -> alt.Chart:
        return _chart([asdict(each) for each in line.spans if each.kind == kind]).encode(
            y=_rows(line.rows, "row", labelled=True),
            x=_axis("start:Q", title, line.end),
            x2="end:Q",
            tooltip=["row:N", "hint:N"],
        )

    layers = [
        chart("waits").mark_bar(height={"band": 0.6}, color=_FREE_COLOUR),
        chart("runs").mark_bar(height={"band": 0.6}).encode(color=_by_job(line.spans)),
        chart("runs")
        .mark_bar(height=2, color=_FRAME_COLOUR)
        .encode(x=alt.X("end_low:Q", title=title), x2="end_high:Q"),
    ]
    return alt.layer(*layers).properties(height=alt.Step(_ROW_PX))


def curve_chart(line: Timeline, curve: Curve) -> alt.Chart:
    """One of the curves of `line`, a step for each set of jobs that run."""
    drawn: alt.Chart = (
        _chart([asdict(each) for each in curve.readings])
        .mark_rect(color=_SURE_COLOUR, opacity=0.7)
        .encode(
            x=_axis("start:Q", f"time, {line.unit}", line.end),
            x2="end:Q",
            y2=alt.datum(0),
            y=alt.Y("value:Q", title=curve.name, scale=alt.Scale(domain=[0, curve.most])),
            tooltip=[alt.Tooltip("value:Q", title=curve.name, format=",.1f")],
        )
        .properties(height=_CURVE_PX)
    )
    return drawn


def _plan_row(advised: Recommendation, number: int) -> dict[str, Any]:
    plan = advised.plans[number]
    better = gain(advised, plan)
    return {
        "number": number,
        "plan": f"{plan.rank}  {kind(plan.sharing)}",
        "sharing": str(plan.sharing),
        "why": plan.why,
        "low": better.p05,
        "middle": better.p50,
        "high": better.p95,
        "basis": basis(plan.prediction),
    }


def _panel(
    drawn: Drawing, bars: Sequence[Bar], most: float, title: str, *, labelled: bool
) -> alt.LayerChart | alt.FacetChart:
    x = _axis("start:Q", title, most)
    y = _rows(drawn.rows, "row", labelled=labelled)

    def chart(shown: Sequence[Bar]) -> alt.Chart:
        tooltip = ["row:N", "hint:N"]
        return _chart([asdict(each) for each in shown]).encode(
            y=y, x=x, x2="end:Q", tooltip=tooltip
        )

    jobs = [bar for bar in bars if bar.kind == "job"]
    layers = [
        chart([bar for bar in bars if bar.kind == "instance"]).mark_bar(
            filled=False, stroke=_FRAME_COLOUR, strokeWidth=1.5, height={"band": 0.95}
        ),
        chart(jobs).mark_bar(height={"band": 0.6}).encode(color=_by_job(jobs)),
        chart([bar for bar in jobs if bar.end_low is not None])
        .mark_bar(height=2, color=_FRAME_COLOUR)
        .encode(x=alt.X("end_low:Q", title=title), x2="end_high:Q"),
    ]
    return alt.layer(*layers).properties(height=alt.Step(_ROW_PX))


def _axis(field: str, title: str, most: float, ticks: int = 7) -> alt.X:
    scale = alt.Scale(domain=[0, most], nice=False)
    return alt.X(field, title=title, scale=scale, axis=alt.Axis(tickCount=ticks))


def _by_job(drawn: Sequence[Bar]) -> alt.Color:
    """A colour for each job, the same for copies."""
    return alt.Color("job:N", sort=list(dict.fromkeys(each.job for each in drawn)), legend=None)


def _by_basis(plans: Sequence[Plan]) -> alt.Color:
    """What real runs stand behind has a colour; all others are grey."""
    sure = {basis(each.prediction): each.prediction.confirmed_on_hardware for each in plans}
    colours = [_SURE_COLOUR if confirmed else _ESTIMATE_COLOUR for confirmed in sure.values()]
    return alt.Color(
        "basis:N",
        title=None,
        scale=alt.Scale(domain=list(sure), range=colours),
        legend=alt.Legend(orient="bottom", labelLimit=400),
    )


def _chart(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]  # altair's own


def _rows(names: Sequence[str], field: str, *, labelled: bool) -> alt.Y:
    axis = alt.Axis(labelLimit=260, ticks=False, domain=False, labelPadding=8)
    return alt.Y(f"{field}:N", sort=list(names), title=None, axis=axis if labelled else None)
