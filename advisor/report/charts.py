"""Charts in altair: the ways to share, time, trials, speeds and runs; for the page, or as files."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from io import BytesIO, StringIO
from itertools import cycle, groupby
from textwrap import wrap
from typing import Any

import altair as alt

from advisor.plan.forecast import OverTime
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.slices import WHOLE, SliceSpeed
from advisor.plan.trials import Trials
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.prediction import Interval, MixPrediction
from advisor.report import format as units
from advisor.report.forecast import (
    best_of_each_way,
    short_basis,
    shown_cost,
    slowdown,
    way_name,
)
from advisor.report.recommendation import instruction
from advisor.report.simulation import simulation_heading, spans_of_jobs
from advisor.simulation.results import SimulatedJob

Layered = alt.LayerChart | alt.FacetChart | alt.Chart
"""A chart of one or several layers."""

_ROW_PX = 32
FRAME = "#808080"
_INK = "currentColor"  # that of the text around the chart, in every theme
_WORDS = alt.AxisConfig(labelColor=_INK, titleColor=_INK)
_CONFIG = alt.Config(
    view=alt.ViewConfig(stroke=None),
    text=alt.MarkConfig(color=_INK),
    axis=_WORDS,
    legend=alt.LegendConfig(labelColor=_INK, titleColor=_INK),
)
_SURE, _OTHER, _ESTIMATE, FREE = "#1F7FC4", "#808080", "#949494", "rgba(128,128,128,0.2)"
# Style of a mark that crosses bars and the page: one of its colours is visible on each.
_OVER_BARS: dict[str, Any] = {"color": "#404040", "stroke": "white", "strokeWidth": 0.7}

# Okabe and Ito's colours, which people with any colour vision can distinguish; the first differ
# most. Some are darker than theirs, and violet and brown replace yellow and black: each has a
# contrast of at least 3:1 on both themes of the page.
_JOB_COLOURS = (
    "#C77700",
    "#0072B2",
    "#009E73",
    "#C4568F",
    "#2E93CC",
    "#D55E00",
    "#8F5BE8",
    "#9A6A3A",
)


def by_job(jobs: Iterable[str], *, named: bool = False) -> alt.Color:
    """The colours of all `jobs` of the request, in order; `named`: with a legend."""
    below = alt.Legend(orient="bottom", columns=1, labelLimit=300, symbolOpacity=1)
    colours = dict(zip(dict.fromkeys(jobs), cycle(_JOB_COLOURS), strict=False))
    return _coloured("job:N", colours, below if named else None)


def _coloured(field: str, colours: dict[str, str], legend: alt.Legend | None) -> alt.Color:
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(field, title=None, scale=scale, legend=legend)


def _axis(field: str, title: str, most: float) -> alt.X:
    scale = alt.Scale(domain=[0, most], nice=False)
    return alt.X(field, title=title, scale=scale, axis=alt.Axis(tickCount=7))


def _across(title: str) -> dict[str, Any]:
    """The channels of the line of an interval."""
    return {"x": alt.X("low:Q", title=title), "x2": alt.X2("high:Q")}


def chart_of(rows: Iterable[Any]) -> alt.Chart:
    """A chart of rows, which are records or have names for values."""
    values = [each if isinstance(each, dict) else asdict(each) for each in rows]
    return alt.Chart(alt.Data(values=values))  # type: ignore[no-untyped-call]  # altair's own


def hints(*fields: str) -> list[alt.Tooltip]:
    """The tooltip of a mark.

    All charts build channels by their classes: for a bare word altair searches all its classes,
    which takes longer than drawing the chart.
    """
    return [alt.Tooltip(f"{field}:N") for field in fields]


def _rows(names: Iterable[str], field: str = "row", shown: str = "datum.label") -> alt.Y:
    """An axis of rows with `names`; the expression `shown` shortens their labels."""
    words = alt.Axis(
        labelLimit=260,
        ticks=False,
        domain=False,
        labelPadding=8,
        labelExpr=shown,
        labelOverlap=True,  # of rows that are thin
    )
    scale = alt.Scale(domain=list(names))  # a sort would nest an expression for each name
    return alt.Y(f"{field}:N", scale=scale, title=None, axis=words)


def drawn_layers(
    layers: Sequence[alt.Chart], title: str, parts: Iterable[str], height: Any = None, **more: Any
) -> Layered:
    """Draw `layers`, and describe the `parts` for people who cannot see them."""
    words = f"{title}: {'; '.join(parts)}."
    size = {} if height is None else {"height": height}
    drawn = (layer for layer in layers if layer.data.values)  # an empty one has no name to read out
    return alt.layer(*drawn, description=words, config=_CONFIG, **size, **more)


def trials_chart(trials: Trials) -> Layered:
    """Draw trials trained in an hour by their number at once; the ring marks the advice."""
    rows = [
        {
            "copies": row.shared.copies,
            "low": row.trained_per_hour.p05,
            "middle": row.trained_per_hour.p50,
            "high": row.trained_per_hour.p95,
            "sharing": str(row.shared.prediction.sharing),
            "basis": short_basis(row.shared.prediction),
            "advised": row.shared.copies == trials.at_once,
        }
        for row in trials.rows
    ]
    x = alt.X("copies:O", title="at once", axis=alt.Axis(labelAngle=0))
    title = "trials trained per hour"
    mixes = [row.prediction for row in trials.copies.rows]
    sure = {short_basis(each): each.confirmed_on_hardware for each in mixes}
    colours = {basis: _SURE if confirmed else _ESTIMATE for basis, confirmed in sure.items()}
    below = alt.Legend(orient="bottom", columns=1, labelLimit=300)
    colour = _coloured("basis:N", colours, below)
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


def lanes_chart(runs: Iterable[tuple[int, SimulatedJob]], jobs: Iterable[str]) -> Layered:
    """Draw when each numbered job waits (pale), runs and ends; the thin line is the interval.

    Runs of one job on one GPU next to each other share a row, and so do copies next to each other
    with equal times. The names of all `jobs` of the request, in order, fix their colours.
    """
    rows: list[tuple[str, SimulatedJob]] = []

    def drawn_as_one(lane: tuple[int, Sequence[SimulatedJob]]) -> list[tuple[Any, ...]]:
        return [
            (run.job.name, run.gpus, run.arrival_s, run.start_s, units.seconds(run.end_s))
            for run in lane[1]
        ]

    by_gpu = groupby(runs, lambda numbered: (numbered[0], numbered[1].gpu))
    lanes = ((number, [run for _, run in some]) for (number, _), some in by_gpu)
    for _, copies in groupby(lanes, drawn_as_one):
        numbers, (own, *_) = zip(*copies, strict=True)
        name = f"GPU {own[0].gpu} · {row_name(numbers, own[0].job.name)}"
        rows += [(name, run) for run in own]
    if len({run.gpu for _, run in rows}) == 1:
        rows = [(name.partition(" · ")[2], run) for name, run in rows]
    unit, size_s = units.time_unit(max(run.end_s.p50 for _, run in rows))
    title, y = f"time, {unit}", _rows(dict.fromkeys(name for name, _ in rows))
    x = _axis("start:Q", title, max(run.end_s.p95 for _, run in rows) / size_s)

    def spans(some: Iterable[dict[str, Any]]) -> alt.Chart:
        return chart_of(some).encode(y=y, x=x, x2=alt.X2("end:Q"), tooltip=hints("row", "hint"))

    waits = spans(
        {
            "row": name,
            "start": run.arrival_s / size_s,
            "end": run.start_s / size_s,
            "hint": f"waits {units.duration(run.wait_s)}",
        }
        for name, run in rows
        if run.wait_s > 0
    )
    running = [
        {
            "row": name,
            "job": run.job.name,
            "start": run.start_s / size_s,
            "low": run.end_s.p05 / size_s,
            "end": run.end_s.p50 / size_s,
            "high": run.end_s.p95 / size_s,
            "hint": f"runs until {units.seconds(run.end_s)}",
        }
        for name, run in rows
    ]
    ends = spans(each for each in running if each["low"] != each["high"])
    layers = [
        waits.mark_bar(height={"band": 0.6}, color=FREE),
        spans(running).mark_bar(height={"band": 0.6}).encode(color=by_job(jobs)),
        ends.mark_bar(height=3, **_OVER_BARS).encode(**_across(title)),
    ]
    parts = (f"{name} runs until {units.seconds(run.end_s)}" for name, run in rows)
    return drawn_layers(layers, title, parts, alt.Step(_ROW_PX))


_WAY_PX, _WAY_FONT = 36, 14
_END = 1.3  # right end of a row over the largest upper end, which leaves room for words
_TIED = "rgba(0,158,115,0.18)"


def ways_chart(advised: Recommendation, chosen: Plan | None = None) -> Layered:
    """Draw a row for each way to share, at its best: a bar of its cost, and the cost in words.

    Bars of estimated plans are hollow; a band is behind those that tie with the best plan. The bar
    of the way of `chosen`, by default the best plan, is blue. A click selects: the selection
    ``chosen`` holds the `way`.
    """
    rows = list(_way_rows(advised, chosen or advised.best))
    measure = OBJECTIVES[advised.ranked_by].measure
    # Room at the right for the words.
    scale = alt.Scale(domain=[0, _END * max(row["high"] for row in rows)], nice=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, axis=None)

    y = alt.Y(
        "way:N",
        sort=[row["way"] for row in rows],
        title=None,
        axis=alt.Axis(
            labelLimit=200, ticks=False, domain=False, labelPadding=8, labelFontSize=_WAY_FONT
        ),
    )
    base = chart_of(rows).encode(y=y, tooltip=hints("way", "plan", "cost", "basis"))
    bands = base.mark_bar(height={"band": 1}).encode(
        x=x("zero"), x2=alt.X2("end:Q"), color=alt.Color("band:N", scale=None)
    )
    bars = base.mark_bar(height={"band": 0.5}, strokeWidth=2).encode(
        x=x("middle"),
        color=alt.Color("fill:N", scale=None),
        stroke=alt.Stroke("stroke:N", scale=None),
    )
    ends = base.mark_bar(height=3, **_OVER_BARS).encode(x=x("low"), x2=alt.X2("high:Q"))
    words = base.mark_text(align="right", fontSize=_WAY_FONT).encode(
        x=x("end"), text=alt.Text("text:N")
    )
    layers = [bands.add_params(alt.selection_point("chosen", fields=["way"])), bars, ends, words]
    parts = (f"{row['way']} {row['cost']}, {row['basis']}" for row in rows)
    return drawn_layers(layers, measure, parts, alt.Step(_WAY_PX))


def _way_rows(advised: Recommendation, chosen: Plan) -> Iterator[dict[str, Any]]:
    shown, best = shown_cost(advised.ranked_by), best_of_each_way(advised)
    best[way_name(advised, chosen)] = chosen
    costs = {way: known_cost(plan, advised.ranked_by) for way, plan in best.items()}
    end = _END * max(cost.p95 for cost in costs.values())
    for way, plan in best.items():
        cost, colour = costs[way], _SURE if plan is chosen else _OTHER
        sure = plan.confirmed_on_hardware
        yield {
            "way": way,
            "plan": plan.notation,
            "cost": shown(cost),
            "low": cost.p05,
            "middle": cost.p50,
            "high": cost.p95,
            "zero": 0,
            "end": end,
            "text": units.middle(cost, shown),
            "basis": short_basis(plan.prediction),
            "stroke": colour,
            "fill": colour if sure else "transparent",
            "band": _TIED if plan.ties_best else "transparent",
        }


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
    y, tooltip = _rows(row["row"] for row in rows), hints("row", "hint")
    base = chart_of(rows).encode(y=y, tooltip=tooltip)
    x = _axis("middle:Q", title, max(row["high"] for row in rows) * 1.02)
    colour = by_job([*jobs, *(each.job for each in mix.jobs)])
    layers = [
        base.mark_bar(height={"band": 0.6}).encode(x=x, color=colour),
        base.mark_bar(height=3, **_OVER_BARS).encode(**_across(title)),
    ]
    parts = (f"{row['row']} {row['hint']}" for row in rows)
    return drawn_layers(layers, title, parts, alt.Step(_ROW_PX))


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
    title = f"{instruction(advised.best, [job.name for job in advised.jobs])} ({advised.gpu.key})"
    hint = f"{measure}; line: 90 % interval; hollow: estimated; band: ties with the best"
    return _picture(ways_chart(advised), title, hint, file_end)


_MOST_LANES, _PLACES_PX = 40, 2000


def simulation_picture(over_time: OverTime, file_end: str) -> bytes:
    """Return the chart of the jobs on each GPU over time, with a title and how to read it.

    A job that is stopped has a bar for each time in which it runs. Many jobs have no rows of their
    own, but each place of a GPU has one.
    """
    simulated = over_time.simulation
    lanes: dict[tuple[int, int], list[SimulatedJob]] = {}
    spans = zip(simulated.jobs, spans_of_jobs(simulated), strict=True)
    for number, (run, of_job) in enumerate(spans, start=1):
        last_s = max(end_s for *_, end_s in of_job)
        for gpu, place, start_s, end_s in of_job:
            lanes.setdefault((gpu, number), []).append(
                replace(
                    run,
                    gpus=(gpu,),
                    place=place,
                    arrival_s=run.arrival_s if start_s == run.start_s else start_s,
                    start_s=start_s,
                    end_s=run.end_s if end_s == last_s else Interval(end_s, end_s, end_s),
                )
            )
    jobs = [run.job.name for run in simulated.jobs]
    if len(lanes) <= _MOST_LANES:
        # By GPU, and on each as they start; copies next to each other.
        ordered = sorted(
            lanes.items(),
            key=lambda lane: (lane[0][0], lane[1][0].start_s, lane[1][0].job.name, lane[0]),
        )
        chart = lanes_chart([(key[1], run) for key, own in ordered for run in own], jobs)
        hint = "pale: the job waits; line: 90 % interval of its end"
    else:
        chart = _places_chart([run for own in lanes.values() for run in own], jobs)
        hint = "a row for each place of a GPU, where one job runs after another"
    return _picture(chart, simulation_heading(over_time), hint, file_end)


def _places_chart(runs: Sequence[SimulatedJob], jobs: Sequence[str]) -> Layered:
    """Draw in which places of GPUs jobs run; of few kinds of `jobs` a legend has the colours."""
    unit, size_s = units.time_unit(max(run.end_s.p50 for run in runs))
    places = sorted({(run.gpu, run.place) for run in runs})
    names = {at: f"GPU {at[0]} · place {at[1] + 1}" for at in places}
    x = _axis("start:Q", f"time, {unit}", max(run.end_s.p50 for run in runs) / size_s)
    bars = chart_of(
        {
            "row": names[run.gpu, run.place],
            "job": run.job.name,
            "start": run.start_s / size_s,
            "end": run.end_s.p50 / size_s,
        }
        for run in runs
    ).mark_bar(height={"band": 0.8}, stroke="white", strokeWidth=0.3)
    colour = by_job(jobs, named=len(set(jobs)) <= len(_JOB_COLOURS))
    layers = [bars.encode(x=x, x2=alt.X2("end:Q"), y=_rows(names.values()), color=colour)]
    parts = [f"{len(jobs)} jobs in {len(places)} places"]
    row_px = min(_ROW_PX, max(1, _PLACES_PX / len(places)))
    return drawn_layers(layers, f"time, {unit}", parts, alt.Step(row_px))


def _picture(chart: Layered, title: str, hint: str, file_end: str) -> bytes:
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
