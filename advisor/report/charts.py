"""Charts for the page, in altair, from the drawings of the other modules."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

import altair as alt

from advisor.plan.trials import Trials
from advisor.report.chart_parts import (
    ESTIMATE_COLOUR,
    FRAME_COLOUR,
    FREE_COLOUR,
    ROW_PX,
    SURE_COLOUR,
    Layered,
    axis,
    by_job,
    chart,
    rows_of,
)
from advisor.report.gpu_drawing import Bar, Drawing
from advisor.report.mig_text import Block
from advisor.report.simulation_drawing import Curve, Timeline

_CURVE_PX = 150


def memory_chart(drawn: Drawing, until_gib: float | None = None) -> Layered:
    """What each job takes of the GPU's memory; the thin line is where its end may lie.

    Args:
        drawn: The plan.
        until_gib: Where the axis ends; None: where the plan's memory does.
    """
    title = f"GiB of the GPU's {drawn.memory_gib:.0f}"
    return _panel(drawn, drawn.memory, until_gib or drawn.used_gib, title)


def sm_chart(drawn: Drawing) -> Layered:
    """Which SMs each job may use; in the rows of `memory_chart`."""
    title = f"SMs that it may use, of {drawn.sm_count}"
    return _panel(drawn, drawn.sms, drawn.sm_count, title)


def trials_chart(found: Trials) -> Layered:
    """Trials that end in an hour by how many run at once, with their intervals."""
    rows = [
        {"copies": row.copies, "low": rate.p05, "middle": rate.p50, "high": rate.p95,
         "sharing": str(row.prediction.sharing)}
        for row in found.copies.rows
        for rate in [found.per_hour(row)]
    ]  # fmt: skip
    title = "trials per hour"
    base = chart(rows).encode(
        x=alt.X("copies:O", title="at once", axis=alt.Axis(labelAngle=0)), tooltip=["sharing:N"]
    )
    spread = base.mark_bar(width=3, color=SURE_COLOUR).encode(
        y=alt.Y("low:Q", title=title), y2="high:Q"
    )
    middle = base.mark_point(filled=True, size=90, opacity=1, color=SURE_COLOUR).encode(
        y=alt.Y("middle:Q", title=title)
    )
    return alt.layer(spread, middle)


def slices_chart(cut: Sequence[Block], memory_slices: int) -> Layered:
    """How MIG cuts up a GPU of so many memory slices; what is free is pale."""
    title = f"memory slices of the GPU, {memory_slices} in all"
    rows = [asdict(each) | {"middle": (each.start + each.end) / 2} for each in cut]
    base = chart(rows).encode(
        y=rows_of(list(dict.fromkeys(each.row for each in cut)), "row"),
        tooltip=["label:N", "kind:N"],
    )
    boxes = base.mark_bar(stroke=FRAME_COLOUR, height={"band": 0.9}).encode(
        x=axis("start:Q", title, memory_slices, memory_slices),
        x2="end:Q",
        color=alt.condition(
            "datum.kind == 'free'", alt.value(FREE_COLOUR), alt.value(ESTIMATE_COLOUR)
        ),
    )
    names = base.mark_text().encode(
        x="middle:Q",
        text="label:N",
        color=alt.condition("datum.kind == 'free'", alt.value(FRAME_COLOUR), alt.value("black")),
    )
    return alt.layer(boxes, names).properties(height=alt.Step(ROW_PX))


def lanes_chart(line: Timeline, jobs: Iterable[str]) -> Layered:
    """When each job waits (pale), runs and ends; the thin line is where its end may lie.

    Args:
        line: What is drawn.
        jobs: Names of all that are asked about, in order: they say who has which colour.
    """
    title = f"time, {line.unit}"

    def spans(kind: str) -> alt.Chart:
        return chart([asdict(each) for each in line.spans if each.kind == kind]).encode(
            y=rows_of(line.rows, "row"),
            x=axis("start:Q", title, line.end),
            x2="end:Q",
            tooltip=["row:N", "hint:N"],
        )

    layers = [
        spans("waits").mark_bar(height={"band": 0.6}, color=FREE_COLOUR),
        spans("runs").mark_bar(height={"band": 0.6}).encode(color=by_job(jobs)),
        spans("runs")
        .mark_bar(height=2, color=FRAME_COLOUR)
        .encode(x=alt.X("end_low:Q", title=title), x2="end_high:Q"),
    ]
    return alt.layer(*layers).properties(height=alt.Step(ROW_PX))


def curve_chart(line: Timeline, curve: Curve) -> alt.Chart:
    """One of the curves of `line`, a step for each set of jobs that run."""
    drawn: alt.Chart = (
        chart([asdict(each) for each in curve.readings])
        .mark_rect(color=SURE_COLOUR, opacity=0.7)
        .encode(
            x=axis("start:Q", f"time, {line.unit}", line.end),
            x2="end:Q",
            y2=alt.datum(0),
            y=alt.Y("value:Q", title=curve.name, scale=alt.Scale(domain=[0, curve.most])),
            tooltip=[alt.Tooltip("value:Q", title=curve.name, format=",.1f")],
        )
        .properties(height=_CURVE_PX)
    )
    return drawn


def _panel(drawn: Drawing, bars: Sequence[Bar], most: float, title: str) -> Layered:
    x = axis("start:Q", title, most)
    y = rows_of(drawn.rows, "row")

    def boxes(shown: Sequence[Bar]) -> alt.Chart:
        tooltip = ["row:N", "hint:N"]
        return chart([asdict(each) for each in shown]).encode(y=y, x=x, x2="end:Q", tooltip=tooltip)

    jobs = [bar for bar in bars if bar.kind == "job"]
    layers = [
        boxes([bar for bar in bars if bar.kind == "instance"]).mark_bar(
            filled=False, stroke=FRAME_COLOUR, strokeWidth=1.5, height={"band": 0.95}
        ),
        boxes(jobs).mark_bar(height={"band": 0.6}).encode(color=by_job([bar.job for bar in jobs])),
        boxes([bar for bar in jobs if bar.end_low is not None])
        .mark_bar(height=2, color=FRAME_COLOUR)
        .encode(x=alt.X("end_low:Q", title=title), x2="end_high:Q"),
    ]
    return alt.layer(*layers).properties(height=alt.Step(ROW_PX))
