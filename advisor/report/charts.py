"""Charts for the page, in altair, from the drawings of the other modules."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

import altair as alt

from advisor.plan.trials import Trials
from advisor.report.chart_parts import (
    ESTIMATE_COLOUR,
    FRAME_COLOUR,
    FREE_COLOUR,
    OVER_BARS,
    ROW_PX,
    Layered,
    axis,
    by_basis,
    by_job,
    chart,
    described,
    hints,
    ink_on,
    job_colours,
    rows_of,
)
from advisor.report.gpu_drawing import Bar, Drawing
from advisor.report.headline import short_basis
from advisor.report.mig_blocks import Block
from advisor.report.simulation_drawing import Curve, Timeline

_CURVE_PX, _CURVE_LABELS_PX = 150, 30


def memory_chart(drawn: Drawing, until_gib: float | None = None) -> Layered:
    """Each job's part of the GPU's memory; the thin line is the interval of its end.

    Args:
        drawn: The plan.
        until_gib: Where the axis ends; None: where the plan's memory does.
    """
    title = f"GiB of the GPU's {drawn.memory_gib:.0f}"
    rows = rows_of(drawn.rows, "row")
    return _panel(drawn.memory, rows, title, until_gib or drawn.used_gib)


def sm_chart(drawn: Drawing) -> Layered:
    """Which SMs each job may use; in the rows of `memory_chart`, named by the jobs' numbers."""
    title = f"SMs that it may use, of {drawn.sm_count}"
    rows = rows_of(drawn.rows, "row", "split(datum.label, ' ')[0]")
    return _panel(drawn.sms, rows, title, drawn.sm_count)


def trials_chart(found: Trials) -> Layered:
    """Trials trained in an hour by how many run at once, with intervals; a ring: as advised."""
    rows = [
        {"copies": row.copies, "low": rate.p05, "middle": rate.p50, "high": rate.p95,
         "sharing": str(row.prediction.sharing), "basis": short_basis(row.prediction),
         "advised": row.copies == found.at_once}
        for row in found.copies.rows
        for rate in [found.trained_per_hour(row)]
    ]  # fmt: skip
    x = alt.X("copies:O", title="at once", axis=alt.Axis(labelAngle=0))
    title = "trials trained per hour"
    base = chart(rows).encode(
        x=x, tooltip=hints("sharing"), color=by_basis(row.prediction for row in found.copies.rows)
    )
    middle = alt.Y("middle:Q", title=title)
    drawn = alt.layer(
        base.mark_bar(width=3).encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q")),
        chart([row for row in rows if row["advised"]])
        .mark_point(size=300, color=FRAME_COLOUR)
        .encode(x=x, y=middle),
        base.mark_point(filled=True, size=90, opacity=1).encode(y=middle),
    )
    return described(drawn, title, (f"{row['copies']} at once {row['middle']:.3g}" for row in rows))


def slices_chart(cut: Sequence[Block], memory_slices: int, jobs: Sequence[str]) -> Layered:
    """How MIG cuts up a GPU of so many memory slices; what is free is pale.

    What one of `jobs` has alone is of its colour, and what several share, or divide, is grey.
    """
    title = f"memory slices of the GPU, {memory_slices} in all"
    rows = [
        asdict(each) | {"middle": (each.start + each.end) / 2, "fill": fill, "ink": ink_on(fill)}
        for each in cut
        for fill in [_fill(each, jobs)]
    ]
    base = chart(rows).encode(
        y=rows_of(list(dict.fromkeys(each.row for each in cut)), "row"),
        tooltip=hints("label", "kind"),
    )
    boxes = base.mark_bar(stroke=FRAME_COLOUR, height={"band": 0.9}).encode(
        x=axis("start:Q", title, memory_slices, memory_slices),
        x2=alt.X2("end:Q"),
        color=alt.Color("fill:N", scale=None),
    )
    names = base.mark_text().encode(
        x=alt.X("middle:Q"),
        text=alt.Text("label:N"),
        color=alt.Color("ink:N", scale=None),
    )
    drawn = alt.layer(boxes, names).properties(height=alt.Step(ROW_PX))
    return described(drawn, title, (f"{each.row} {each.label}" for each in cut))


def _fill(block: Block, jobs: Sequence[str]) -> str:
    if block.kind == "free":
        return FREE_COLOUR
    if len(block.jobs) != 1:
        return ESTIMATE_COLOUR
    return job_colours(jobs)[jobs[block.jobs[0] - 1]]


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
            x2=alt.X2("end:Q"),
            tooltip=hints("row", "hint"),
        )

    layers = [
        spans("waits").mark_bar(height={"band": 0.6}, color=FREE_COLOUR),
        spans("runs").mark_bar(height={"band": 0.6}).encode(color=by_job(jobs)),
        spans("runs")
        .mark_bar(height=3, **OVER_BARS)
        .encode(x=alt.X("end_low:Q", title=title), x2=alt.X2("end_high:Q")),
    ]
    drawn = alt.layer(*layers).properties(height=alt.Step(ROW_PX))
    return described(drawn, title, (f"{each.row} {each.hint}" for each in line.spans))


def curve_chart(line: Timeline, curve: Curve) -> Layered:
    """One of the curves of `line`, a step for each set of jobs that run."""
    drawn = (
        chart([asdict(each) for each in curve.readings])
        .mark_rect(color=FRAME_COLOUR, opacity=0.6)
        .encode(
            x=axis("start:Q", f"time, {line.unit}", line.end),
            x2=alt.X2("end:Q"),
            y2=alt.datum(0),
            y=alt.Y(
                "value:Q",
                title=curve.name,
                scale=alt.Scale(domain=[0, curve.most]),
                axis=alt.Axis(minExtent=_CURVE_LABELS_PX),
            ),
            tooltip=[alt.Tooltip("value:Q", title=curve.name, format=",.1f")],
        )
        .properties(height=_CURVE_PX)
    )
    said = (
        f"{each.value:,.1f} from {each.start:.1f} to {each.end:.1f} {line.unit}"
        for each in curve.readings
    )
    return described(drawn, curve.name, said)


def _panel(bars: Sequence[Bar], y: alt.Y, title: str, most: float) -> Layered:
    x = axis("start:Q", title, most)

    def boxes(shown: Sequence[Bar]) -> alt.Chart:
        return chart([asdict(each) for each in shown]).encode(
            y=y, x=x, x2=alt.X2("end:Q"), tooltip=hints("row", "hint")
        )

    jobs = [bar for bar in bars if bar.kind == "job"]
    layers = [
        boxes([bar for bar in bars if bar.kind == "instance"]).mark_bar(
            filled=False, stroke=FRAME_COLOUR, strokeWidth=1.5, height={"band": 0.95}
        ),
        boxes(jobs).mark_bar(height={"band": 0.6}).encode(color=by_job([bar.job for bar in jobs])),
        boxes([bar for bar in jobs if bar.end_low is not None])
        .mark_bar(height=3, **OVER_BARS)
        .encode(x=alt.X("end_low:Q", title=title), x2=alt.X2("end_high:Q")),
    ]
    drawn = alt.layer(*layers).properties(height=alt.Step(ROW_PX))
    return described(drawn, title, (f"{bar.row} {bar.hint}" for bar in jobs))
