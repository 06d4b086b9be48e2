"""Charts of the page, in altair: plans, the GPU, time, trials, runs and speeds of slices."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import cycle, groupby
from statistics import median
from typing import Any

import altair as alt

from advisor.errors import counted
from advisor.plan.copies import WHOLE, SliceSpeed, Trials
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.prediction import LEVELS, Interval, MixPrediction
from advisor.report import format as units
from advisor.report.drawings import Bar, Block, Curve, Drawing, Timeline, row_name
from advisor.report.forecast import NOT_CONFIRMED, gain, plan_kind, short_basis
from advisor.workload.profile import Profile

Layered = alt.LayerChart | alt.FacetChart | alt.Chart
"""A chart of several layers."""

ROW_PX = 32
_AXIS_PX, _NAME_PX = 75, 30
FRAME_COLOUR = "#808080"
SURE_COLOUR, ESTIMATE_COLOUR, FREE_COLOUR = "#0072B2", "#949494", "rgba(128,128,128,0.2)"
OVER_BARS: dict[str, Any] = {"color": "#404040", "stroke": "white", "strokeWidth": 0.7}
"""Style of a mark that crosses bars and the page: one of its colours is visible on each."""

# Okabe and Ito's colours, which people with any colour vision can distinguish; the first differ
# most. Violet and brown replace their yellow, which is invisible on white, and their black.
JOB_COLOURS = (
    "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#9966FF", "#785028",
)  # fmt: skip
_DARK = ("#0072B2", "#785028")


def job_colours(jobs: Iterable[str]) -> dict[str, str]:
    """Return a colour for each of `jobs`, by name in their order; more than eight share colours."""
    return dict(zip(dict.fromkeys(jobs), cycle(JOB_COLOURS), strict=False))


def ink_on(fill: str) -> str:
    """Return the colour of words that are readable on the colour `fill`."""
    if fill == FREE_COLOUR:
        return FRAME_COLOUR
    return "white" if fill in _DARK else "black"


def by_job(jobs: Iterable[str], *, named: bool = False) -> alt.Color:
    """Return the colours of all `jobs` of the request, in order; `named`: with a legend."""
    colours = job_colours(jobs)
    below = alt.Legend(orient="bottom", columns=1, labelLimit=300, symbolOpacity=1)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color("job:N", title=None, scale=scale, legend=below if named else None)


def by_basis(mixes: Iterable[MixPrediction]) -> alt.Color:
    """Return the colours by `short_basis`: grey is not confirmed by real runs."""
    sure = {short_basis(each): each.confirmed_on_hardware for each in mixes}
    colours = [SURE_COLOUR if confirmed else ESTIMATE_COLOUR for confirmed in sure.values()]
    below = alt.Legend(orient="bottom", columns=1, labelLimit=300)
    scale = alt.Scale(domain=list(sure), range=colours)
    return alt.Color("basis:N", title=None, scale=scale, legend=below)


def height_with_names_px(jobs: Iterable[str], plot_px: int) -> int:
    """Return the height of a chart with a plot of `plot_px`, its axis and names of `jobs`."""
    return plot_px + _AXIS_PX + _NAME_PX * len(set(jobs))


def axis(field: str, title: str, most: float, ticks: int = 7) -> alt.X:
    scale = alt.Scale(domain=[0, most], nice=False)
    return alt.X(field, title=title, scale=scale, axis=alt.Axis(tickCount=ticks))


def chart(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]  # altair's own


def hints(*fields: str) -> list[alt.Tooltip]:
    """Return the tooltip of a mark.

    All charts build channels by their classes: for a bare word altair searches all its classes,
    which takes longer than drawing the chart.
    """
    return [alt.Tooltip(f"{field}:N") for field in fields]


def rows_of(names: Sequence[str], field: str, shown: str = "datum.label") -> alt.Y:
    """Return an axis of rows with `names`; the expression `shown` shortens their labels."""
    words = alt.Axis(labelLimit=260, ticks=False, domain=False, labelPadding=8, labelExpr=shown)
    return alt.Y(f"{field}:N", sort=list(names), title=None, axis=words)


def described(drawn: Layered, title: str, parts: Iterable[str]) -> Layered:
    """Add a description of the `parts` of a chart for people who cannot see it."""
    described: Layered = drawn.properties(description=f"{title}: {'; '.join(parts)}.")
    return described


_CURVE_PX, _CURVE_LABELS_PX = 150, 30


def memory_chart(drawn: Drawing, until_gib: float | None = None) -> Layered:
    """Draw each job's part of the GPU's memory; the thin line is the interval of its end.

    Args:
        drawn: The plan.
        until_gib: End of the axis; None: the end of the plan's memory.
    """
    title = f"GiB of the GPU's {drawn.memory_gib:.0f}"
    rows = rows_of(drawn.rows, "row")
    return _panel(drawn.memory, rows, title, until_gib or drawn.used_gib)


def sm_chart(drawn: Drawing) -> Layered:
    """Draw the SMs that each job may use, in the rows of `memory_chart` by job number."""
    title = f"SMs that it may use, of {drawn.sm_count}"
    rows = rows_of(drawn.rows, "row", "split(datum.label, ' ')[0]")
    return _panel(drawn.sms, rows, title, drawn.sm_count)


def trials_chart(trials: Trials) -> Layered:
    """Draw trials trained in an hour by their number at once; the ring marks the advice."""
    rows = [
        {"copies": row.copies, "low": rate.p05, "middle": rate.p50, "high": rate.p95,
         "sharing": str(row.prediction.sharing), "basis": short_basis(row.prediction),
         "advised": row.copies == trials.at_once}
        for row in trials.copies.rows
        for rate in [trials.trained_per_hour(row)]
    ]  # fmt: skip
    x = alt.X("copies:O", title="at once", axis=alt.Axis(labelAngle=0))
    title = "trials trained per hour"
    base = chart(rows).encode(
        x=x, tooltip=hints("sharing"), color=by_basis(row.prediction for row in trials.copies.rows)
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
    """Draw MIG instances on a GPU of so many memory slices; free slices are pale.

    An instance of one of `jobs` has its colour; one of several jobs is grey.
    """

    def fill(block: Block) -> str:
        if block.kind == "free":
            return FREE_COLOUR
        if len(block.jobs) != 1:
            return ESTIMATE_COLOUR
        return job_colours(jobs)[jobs[block.jobs[0] - 1]]

    title = f"memory slices of the GPU, {memory_slices} in all"
    rows = [
        asdict(each)
        | {"middle": (each.start + each.end) / 2, "fill": fill(each), "ink": ink_on(fill(each))}
        for each in cut
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


def lanes_chart(line: Timeline, jobs: Iterable[str]) -> Layered:
    """Draw when each job waits (pale), runs and ends; the thin line is the interval of its end.

    Args:
        line: The rows and spans.
        jobs: Names of all jobs of the request, in order, which fixes their colours.
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
    """Draw one of the curves of `line`, a step for each set of jobs that run."""
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
    parts = (
        f"{each.value:,.1f} from {each.start:.1f} to {each.end:.1f} {line.unit}"
        for each in curve.readings
    )
    return described(drawn, curve.name, parts)


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


_PLAN_PX = 22  # so that all plans are visible at once


def plans_chart(advised: Recommendation, shown: Plan) -> Layered:
    """Draw the gain of each plan over one after another, with its interval; `shown` has a ring.

    A click on a point selects: the selection ``chosen`` holds the plan's `number`, from 0.
    """
    rows: list[dict[str, Any]] = [
        {
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
        for number, plan in enumerate(advised.plans)
        for better in [gain(advised, plan)]
    ]
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
    """Draw the slowdown of each job of `mix`."""
    rows: list[dict[str, Any]] = []
    first, title = 1, "times as long as alone"
    slowdowns = ((each.job, Interval(*map(each.slowdown_at, LEVELS))) for each in mix.jobs)
    for (job, slow), equal in groupby(slowdowns):  # consecutive copies share a row
        copies = len(list(equal))
        rows.append({
            "row": row_name(first, job, copies), "job": job,
            "low": slow.p05, "middle": slow.p50, "high": slow.p95,
            "hint": f"{units.times(slow)} as long as alone",
        })  # fmt: skip
        first += copies
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


_JOB_PX, _APART_PX = 24, 12
_SHAPES = alt.Scale(domain=["shipped", "your own"], range=["circle", "diamond"])


def runs_of_jobs_chart(rows: Sequence[dict[str, Any]], jobs: Sequence[str]) -> Layered:
    """Draw predicted and measured steps by mode and job; the band is the noise of the mode.

    Args:
        rows: As `advisor.validate` makes them, at least one.
        jobs: All of the request, in order.
    """
    modes = sorted({row["mode"] for row in rows})
    named = [each for each in dict.fromkeys(jobs) if any(row["job"] == each for row in rows)]
    title = "predicted over measured step, less 1, %"
    y = rows_of(modes, "mode")
    noise = {row["mode"]: row["noise"] for row in rows if row["noise"] is not None}
    bands = [{"mode": mode, "from": -most, "to": most} for mode, most in noise.items()]
    base = chart(list(rows)).encode(
        y=y,
        yOffset=alt.YOffset("job:N", sort=named),
        color=by_job(jobs, named=True),
        tooltip=hints("job", "run", "hint", "whose"),
    )
    drawn = alt.layer(
        chart(bands)
        .mark_bar(color=FRAME_COLOUR, opacity=0.5)
        .encode(y=y, x=alt.X("from:Q", title=title), x2=alt.X2("to:Q")),
        base.mark_rule(opacity=0.4).encode(x=alt.X("low:Q", title=title), x2=alt.X2("high:Q")),
        base.mark_point(filled=True, size=50, opacity=0.8).encode(
            x=alt.X("error:Q", title=title),
            shape=alt.Shape("whose:N", scale=_SHAPES, legend=None),
        ),
    ).properties(height=height_with_names_px(jobs, len(modes) * (len(named) * _JOB_PX + _APART_PX)))
    errors: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        errors.setdefault((row["mode"], row["job"]), []).append(row["error"])
    parts = (
        f"{mode}, {job}, {counted(len(each), 'step')}, median {median(each):+.1f}"
        for (mode, job), each in errors.items()
    )
    return described(drawn, title, parts)


_PLOT_PX = 300
_APART = 0.7  # share of an instance's column over which the points of jobs are spread


def slice_speed_chart(speeds: Sequence[SliceSpeed]) -> Layered:
    """Draw a point for each job on each kind of instance, with its interval."""

    def place(speed: SliceSpeed) -> str:
        return "whole GPU" if speed.where == WHOLE else speed.where

    jobs = list(dict.fromkeys(each.job for each in speeds))
    rows = [
        {"job": each.job, "where": place(each), "low": each.speed.p05, "middle": each.speed.p50,
         "high": each.speed.p95, "text": units.times(each.speed)}
        for each in speeds
        if each.speed is not None  # it fits
    ]  # fmt: skip
    shares = {place(each): each.compute_share for each in speeds if each.job == jobs[0]}
    ticks = [{"where": where, "share": share} for where, share in shares.items()]
    title = "speed, whole GPU = 1"
    x = alt.X("where:N", sort=list(shares), title=None)
    base = chart(rows).encode(
        x=x,
        xOffset=alt.XOffset("job:N", sort=jobs, scale=alt.Scale(paddingOuter=_APART)),
        color=by_job(jobs, named=True),
        tooltip=[*hints("job", "where"), alt.Tooltip("middle:Q", title="speed", format=".2f")],
    )
    drawn = alt.layer(
        chart(ticks)
        .mark_tick(thickness=2, color=FRAME_COLOUR, width={"band": 0.9})
        .encode(x=x, y=alt.Y("share:Q", title=title)),
        base.mark_rule(size=2).encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q")),
        base.mark_point(filled=True, size=80, opacity=1).encode(y=alt.Y("middle:Q", title=title)),
    ).properties(height=height_with_names_px(jobs, _PLOT_PX))
    return described(
        drawn, title, (f"{row['job']} on {row['where']} {row['text']}" for row in rows)
    )


def slice_speed_text(speeds: Sequence[SliceSpeed], profiles: Sequence[Profile]) -> str:
    """Return the meaning and basis of the chart of `profiles`, and which jobs do not fit."""
    subject = "This is" if any(each.is_estimate for each in profiles) else "On instances this is"
    text = [
        "Speed alone on an instance of each size, over the median on the whole GPU; the grey ticks "
        "are the instance's share of the compute slices, and the thin lines 90 % intervals on the "
        f"host of the profile. {subject} {NOT_CONFIRMED}."
    ]
    lacks: dict[str, list[str]] = {}
    for each in speeds:
        if each.speed is None:
            lacks.setdefault(each.job, []).append(each.where)
    text += [f"{job} does not fit {', '.join(where)}." for job, where in lacks.items()]
    return " ".join(text)
