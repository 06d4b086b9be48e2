"""Charts in altair: the ways to share, time, trials, speeds and runs; for the page, or as files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO, StringIO
from itertools import groupby
from textwrap import wrap
from typing import Any

import altair as alt

from advisor.plan.objectives import OBJECTIVES
from advisor.plan.slices import WHOLE, SliceSpeed
from advisor.plan.trials import Trials
from advisor.plan.values import Recommendation
from advisor.prediction.prediction import LEVELS, MixPrediction
from advisor.report import format as units
from advisor.report.drawing import (
    FIT_WIDTH,
    FRAME,
    LINE_PX,
    OVER_BARS,
    ROW_PX,
    Mark,
    across,
    by_job,
    chart_of,
    coloured,
    drawn_layers,
    hints,
    mark_at,
    mark_layers,
    named_rows,
    pixel_axis,
    quantity_axis,
    words_at,
)
from advisor.report.forecast import (
    short_basis,
    slowdown,
)
from advisor.report.headline import headline
from advisor.report.ways import ways_table
from advisor.simulation.results import SimulatedJob
from advisor.workload.job import Job

Layered = alt.LayerChart | alt.FacetChart | alt.Chart
"""A chart of one or several layers."""

_SURE, _OTHER, _ESTIMATE = "#1F7FC4", "#808080", "#949494"


def trials_chart(trials: Trials) -> Layered:
    """Draw trials an hour by their number at once; the ring marks the advice."""
    rows = [
        {
            "copies": row.shared.copies,
            "low": row.trials_per_hour.p05,
            "middle": row.trials_per_hour.p50,
            "high": row.trials_per_hour.p95,
            "sharing": str(row.shared.prediction.sharing),
            "basis": short_basis(row.shared.prediction),
            "advised": row.shared.copies == trials.at_once,
        }
        for row in trials.rows
    ]
    x = alt.X("copies:O", title="at once", axis=alt.Axis(labelAngle=0))
    title = "trials an hour"
    mixes = [row.prediction for row in trials.copies.rows]
    sure = {short_basis(each): each.confirmed_on_hardware for each in mixes}
    colours = {basis: _SURE if confirmed else _ESTIMATE for basis, confirmed in sure.items()}
    below = alt.Legend(orient="bottom", columns=1, labelLimit=300)
    colour = coloured("basis:N", colours, below)
    base = chart_of(rows).encode(x=x, tooltip=hints("sharing"), color=colour)
    middle = alt.Y("middle:Q", title=title)
    ring = chart_of(row for row in rows if row["advised"]).mark_point(size=300, color=FRAME)
    layers = [
        base.mark_bar(width=3).encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q")),
        ring.encode(x=x, y=middle),
        base.mark_point(filled=True, size=90, opacity=1).encode(y=middle),
    ]
    return drawn_layers(
        layers, title, (f"{row['copies']} at once {row['middle']:.3g}" for row in rows)
    )


def row_name(numbers: Sequence[int], job: str) -> str:
    """Return the name of the row of copies of `job`, which have these increasing `numbers`.

    For example ``"2 · resnet26-cifar10-bs128"`` or ``"2-41 · resnet26-cifar10-bs128 x40"``.
    """
    return f"{units.numbers(numbers)} · {units.collapsed([job] * len(numbers))}"


def row_names(jobs: Iterable[Job]) -> list[str]:
    """Return a name for each of `jobs`, different for copies."""
    return [row_name([number], job.name) for number, job in enumerate(jobs, start=1)]


Runs = Sequence[tuple[int, SimulatedJob]]
"""Runs of jobs, each with the number of its job from 1."""

_LANE_PX, _LANE_BAR_PX = 30, 18
_AWAY, _FURTHEST = 0.012, 1.3  # of the time axis: words from a deadline; a deadline from the ends


def lanes_chart(runs: Iterable[tuple[int, SimulatedJob]], jobs: Iterable[str]) -> Layered:
    """Draw when each numbered job waits (pale), runs and ends; the thin line is the interval.

    Runs of one job on one GPU next to each other share a row, and so do copies next to each other
    with equal times. The names of all `jobs` of the request, in order, fix their colours.
    """
    title, size_s, most = time_axis(every := list(runs))
    marks, labels, height_px = lane_marks(every, size_s, most)
    x = quantity_axis("start:Q", title, most)
    y = pixel_axis(labels, height_px, labelLimit=260)
    layers = [*mark_layers(marks, x, y, by_job(jobs))]
    parts = (mark["hint"] for mark in marks if mark["kind"] == "job")
    return drawn_layers(layers, title, parts, height_px, autosize=FIT_WIDTH)


def time_axis(runs: Runs) -> tuple[str, float, float]:
    """Return the title of the time axis, the seconds of its unit, and its length in that unit.

    It ends with the last job or deadline; it leaves out deadlines that are far behind all jobs.
    """
    last_s = max(run.end_s.p95 for _, run in runs)
    due_s = (run.job.deadline_s or 0.0 for _, run in runs)
    most_s = max([last_s, *(each for each in due_s if each <= _FURTHEST * last_s)])
    unit, size_s = units.time_unit(max(run.end_s.p50 for _, run in runs))
    return f"time, {unit}", size_s, most_s / size_s


def lane_marks(
    runs: Runs, size_s: float, most: float, shown: Callable[[str], str] = str
) -> tuple[list[Mark], dict[float, str], float]:
    """Return marks of `lanes_chart`, the names of its rows by their pixels, and its height.

    Args:
        runs: The runs, in the order of the rows.
        size_s: Seconds of the unit of time.
        most: End of the time axis, in that unit.
        shown: Returns the name to show of a job.
    """
    marks, labels, top = list[Mark](), dict[float, str](), 0.0
    several = len({run.gpu for _, run in runs}) > 1
    for numbers, own in _lanes(runs):
        name = row_name(numbers, shown(own[0].job.name))
        name = f"GPU {own[0].gpu} · {name}" if several else name
        due_s = own[0].job.deadline_s
        if due_s is not None and due_s / size_s <= most:
            marks += _deadline(due_s, own[-1], top, size_s, most)
            top += LINE_PX
        for run in own:
            marks += _run_marks(name, run, top, size_s)
        labels[top + _LANE_PX / 2] = name
        top += _LANE_PX
    return marks, labels, top


def _lanes(runs: Runs) -> Iterator[tuple[Sequence[int], Sequence[SimulatedJob]]]:
    """Numbers of jobs that share a row, and the runs of one of them."""

    def drawn_as_one(lane: tuple[int, Sequence[SimulatedJob]]) -> list[tuple[Any, ...]]:
        return [
            (
                run.job.name,
                run.job.deadline_s,
                run.gpus,
                run.arrival_s,
                run.start_s,
                units.seconds(run.end_s),
            )
            for run in lane[1]
        ]

    by_gpu = groupby(runs, lambda numbered: (numbered[0], numbered[1].gpu))
    lanes = ((number, [run for _, run in some]) for (number, _), some in by_gpu)
    for _, copies in groupby(lanes, drawn_as_one):
        numbers, (own, *_) = zip(*copies, strict=True)
        yield numbers, own


def _run_marks(name: str, run: SimulatedJob, top: float, size_s: float) -> Iterator[Mark]:
    """The wait of a run, the run, and the interval of its end."""
    low, end, high = (run.end_s.at(level) / size_s for level in LEVELS)
    start, bar = run.start_s / size_s, (top + (_LANE_PX - _LANE_BAR_PX) / 2, _LANE_BAR_PX)
    if run.wait_s > 0:
        waits = f"{name} waits {units.duration(run.wait_s)}"
        yield mark_at("free", run.arrival_s / size_s, start, *bar, hint=waits)
    until = f"{name} runs until {units.seconds(run.end_s)}"
    yield mark_at("job", start, end, *bar, job=run.job.name, hint=until)
    if low != high:
        yield mark_at("over", low, high, top + _LANE_PX / 2 - 1.5, 3, hint=until)


def _deadline(
    due_s: float, run: SimulatedJob, top: float, size_s: float, most: float
) -> Iterator[Mark]:
    """A deadline, from a line of words down to the end of the bar below."""
    late = ", late" if run.end_s.p50 > due_s else ""
    at, words = due_s / size_s, f"due {units.duration(due_s)}{late}"
    yield mark_at("instant", at, at, top + 2, LINE_PX + _LANE_PX - 6, hint=words)
    right = at > most / 2
    away, align = (-_AWAY, "right") if right else (_AWAY, "left")
    yield words_at(words, at + away * most, top + 2, room=most, align=align)


_WAY_PX, _WAY_FONT = 36, 14
_END = 1.3  # right end of a row over the largest upper end, which leaves room for numbers


def ways_chart(advised: Recommendation) -> Layered:
    """Draw a row for each way to share, at its best: a bar, its 90 % interval, and the number.

    Bars of estimated plans are hollow, that of the best plan is blue.
    """
    table = ways_table(advised)
    rows = [
        {
            "way": row.words,
            "low": row.low,
            "middle": row.middle,
            "high": row.high,
            "end": _END,
            "text": row.text.partition(" (")[0] + (" tie" if row.tie else ""),
            "stroke": colour,
            "fill": "transparent" if row.estimated else colour,
        }
        for row in table.rows
        for colour in [_SURE if row.best else _OTHER]
    ]
    # Room at the right for the words.
    scale = alt.Scale(domain=[0, _END], nice=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, axis=None)

    words = alt.Axis(
        labelLimit=260, ticks=False, domain=False, labelPadding=8, labelFontSize=_WAY_FONT
    )
    y = alt.Y("way:N", sort=[row.words for row in table.rows], title=None, axis=words)
    base = chart_of(rows).encode(y=y)
    bars = base.mark_bar(height={"band": 0.5}, strokeWidth=2).encode(
        x=x("middle"),
        color=alt.Color("fill:N", scale=None),
        stroke=alt.Stroke("stroke:N", scale=None),
    )
    ends = base.mark_bar(height=3, **OVER_BARS).encode(x=x("low"), x2=alt.X2("high:Q"))
    numbers = base.mark_text(align="right", fontSize=_WAY_FONT).encode(
        x=x("end"), text=alt.Text("text:N")
    )
    parts = (f"{row.words} {row.text}" for row in table.rows)
    return drawn_layers([bars, ends, numbers], table.measure, parts, alt.Step(_WAY_PX))


def slowdown_chart(mix: MixPrediction, jobs: Iterable[str] = ()) -> Layered:
    """Draw the slowdown of each job of `mix`; copies next to each other share a row.

    The names of all `jobs` of the request, in order, fix the colours; by default those of `mix`.
    """
    rows: list[dict[str, Any]] = []
    first, title = 1, "times as long as alone"
    for (job, slow), equal in groupby((each.job, slowdown(each)) for each in mix.jobs):
        copies = len(list(equal))
        rows.append(
            {
                "row": row_name(range(first, first + copies), job),
                "job": job,
                "low": slow.p05,
                "middle": slow.p50,
                "high": slow.p95,
                "hint": f"{units.times(slow)} as long as alone",
            }
        )
        first += copies
    y, tooltip = named_rows(row["row"] for row in rows), hints("row", "hint")
    base = chart_of(rows).encode(y=y, tooltip=tooltip)
    x = quantity_axis("middle:Q", title, max(row["high"] for row in rows) * 1.02)
    colour = by_job([*jobs, *(each.job for each in mix.jobs)])
    layers = [
        base.mark_bar(height={"band": 0.6}).encode(x=x, color=colour),
        base.mark_bar(height=3, **OVER_BARS).encode(**across(title)),
    ]
    parts = (f"{row['row']} {row['hint']}" for row in rows)
    return drawn_layers(layers, title, parts, alt.Step(ROW_PX))


_PLOT_PX, _AXIS_PX, _NAME_PX = 300, 75, 30  # a line below names each job
_APART = 0.7  # share of an instance's column over which the points of jobs are spread


def slice_speed_chart(speeds: Sequence[SliceSpeed]) -> Layered:
    """Draw a point for each job on each kind of instance, with its interval."""
    places = ["whole GPU" if each.where == WHOLE else each.where for each in speeds]
    jobs = list(dict.fromkeys(each.job for each in speeds))
    rows = [
        {
            "job": each.job,
            "where": where,
            "low": each.speed.p05,
            "middle": each.speed.p50,
            "high": each.speed.p95,
            "text": units.times(each.speed),
        }
        for where, each in zip(places, speeds, strict=True)
        if each.speed is not None  # it fits
    ]
    shares = {where: each.compute_share for where, each in zip(places, speeds, strict=True)}
    ticks = chart_of({"where": where, "share": share} for where, share in shares.items())
    title = "speed, whole GPU = 1"
    x = alt.X("where:N", sort=list(shares), title=None)
    base = chart_of(rows).encode(
        x=x,
        xOffset=alt.XOffset("job:N", sort=jobs, scale=alt.Scale(paddingOuter=_APART)),
        color=by_job(jobs, named=True),
        tooltip=[*hints("job", "where"), alt.Tooltip("middle:Q", title="speed", format=".2f")],
    )
    layers = [
        ticks.mark_tick(thickness=2, color=FRAME, width={"band": 0.9}).encode(
            x=x, y=alt.Y("share:Q", title=title)
        ),
        base.mark_rule(size=2).encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q")),
        base.mark_point(filled=True, size=80, opacity=1).encode(y=alt.Y("middle:Q", title=title)),
    ]
    parts = (f"{row['job']} on {row['where']} {row['text']}" for row in rows)
    return drawn_layers(layers, title, parts, _PLOT_PX + _AXIS_PX + _NAME_PX * len(jobs))


_PICTURE_PX, _TITLE_WIDTH = 640, 88


def ways_picture(advised: Recommendation, file_end: str) -> bytes:
    """Return the chart of each way to share at its best, with a title and how to read it."""
    measure = OBJECTIVES[advised.ranked_by].measure
    title = f"{headline(advised, advised.best)} ({advised.gpu.key})"
    hint = f"{measure}; line: 90 % interval; hollow: estimated; tie: within the error"
    return picture(ways_chart(advised), title, hint, file_end)


def picture(chart: Layered, title: str, hint: str, file_end: str) -> bytes:
    """Return `chart` as a file that ends in `file_end`, .svg or .png."""
    titled = alt.TitleParams(
        wrap(title, _TITLE_WIDTH),
        subtitle=hint,
        anchor="start",
        frame="group",
        offset=12,
        limit=_PICTURE_PX,
    )
    chart = chart.properties(width=_PICTURE_PX, title=titled).configure(background="white")
    if file_end == ".svg":
        chart.save(text := StringIO(), format="svg")
        return text.getvalue().encode()
    chart.save(image := BytesIO(), format="png", scale_factor=2)
    return image.getvalue()
