"""Jobs on GPUs over time, drawn: rows of jobs, and below them the use of the GPU."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import altair as alt

from advisor.errors import counted
from advisor.hardware.gpus import Gpu
from advisor.plan.forecast import OverTime
from advisor.prediction.prediction import Interval, all_known
from advisor.report import format as units
from advisor.report.charts import Layered, Runs, lane_marks, lanes_chart, picture, time_axis
from advisor.report.drawing import (
    FIT_WIDTH,
    FRAME,
    FREE,
    JOB_COLOURS,
    LINE_PX,
    ROW_PX,
    by_job,
    chart_of,
    drawn_layers,
    mark_at,
    mark_layers,
    pixel_axis,
    quantity_axis,
    words_at,
)
from advisor.report.simulation import simulation_heading, spans_of_jobs
from advisor.simulation.results import SimulatedJob, Simulation, Usage

_CURVE_PX, _GAP_PX, _NAME_PX = 36, 8, 180
_FAR_BELOW = 0.15  # of its capacity: a curve of memory is drawn without it
_DUST = 1e-9  # gaps below this share of the time are rounding
_FULL = 0.9  # of the height of a curve, if it has no limit


class _Curve(NamedTuple):
    """A quantity of a GPU over time.

    Attributes:
        values: From each of the times on, shape (times,).
        words: Its highest or its mean value.
        most: Its limit, drawn as a line; None: it has none, or one that is far above.
        limit: The words of the limit.
    """

    name: str
    values: Sequence[float]
    words: str
    most: float | None
    limit: str = ""


def timeline_chart(
    simulation: Simulation, gpu: Gpu, jobs: Iterable[str] = (), power_cap_w: float | None = None
) -> Layered:
    """Draw jobs over time on one GPU, and on the same axis its activity, memory and power.

    Quantities that were not measured are left out.

    Args:
        simulation: Of jobs on one GPU.
        gpu: The model of this GPU.
        jobs: The names of all jobs of the request, in order, which fix the colours.
        power_cap_w: The power cap of the GPU in watts; None: its own limit.
    """
    names = [*dict.fromkeys([*jobs, *(run.job.name for run in simulation.jobs)])]
    short, runs = units.short_names(names), _runs(simulation)
    title, size_s, most = time_axis(runs)
    marks, labels, top = lane_marks(runs, size_s, most, short.__getitem__)
    parts = [mark["hint"] for mark in marks if mark["kind"] == "job"]
    uses, end_s = _uses(simulation)
    starts, areas = [start_s / size_s for start_s, _ in uses], list[alt.Chart]()
    line = alt.MarkConfig(color=FRAME, strokeWidth=1.5)
    for curve in _curves(simulation, [use for _, use in uses], gpu, power_cap_w):
        top += _GAP_PX
        parts.append(" ".join(filter(None, (curve.name, curve.words, curve.limit))))
        labels[top + LINE_PX + _CURVE_PX / 2] = curve.name
        marks.append(words_at(curve.words, 0.0, top, room=most))
        if curve.most is not None:
            marks.append(words_at(curve.limit, most, top, room=most, align="right"))
            marks.append(mark_at("limit", 0.0, most, top + LINE_PX, 0.0))
        top += LINE_PX + _CURVE_PX
        points = chart_of(_points(starts, end_s / size_s, curve, top))
        areas.append(points.mark_area(interpolate="step-after", color=FREE, line=line))
    x = quantity_axis("start:Q", title, most)
    y = pixel_axis(labels, top, labelLimit=_NAME_PX)
    layers = [
        *(each.encode(x=x, y=y, y2=alt.Y2("bottom:Q")) for each in areas),
        *mark_layers(marks, x, y, by_job(names)),
    ]
    return drawn_layers(layers, title, parts, top, autosize=FIT_WIDTH)


def _uses(simulation: Simulation) -> tuple[list[tuple[float, Usage | None]], float]:
    """Use of the only GPU, None without a job, by the second of its start; and the last second."""
    uses, end_s = list[tuple[float, Usage | None]](), 0.0
    for use in sorted(simulation.usage, key=lambda each: each.start_s):
        if use.start_s - end_s > _DUST * use.start_s:
            uses.append((end_s, None))
        uses.append((use.start_s, use))
        end_s = use.end_s
    return uses, end_s


def _curves(
    simulation: Simulation, uses: Sequence[Usage | None], gpu: Gpu, power_cap_w: float | None
) -> Iterator[_Curve]:
    """The known quantities of the only GPU."""
    busy = all_known(0.0 if use is None else use.gract for use in uses)
    if busy is not None:
        mean = units.share(simulation.mean_gract)
        yield _Curve("GPU busy", busy, f"{mean} of the time", 1.0, units.share(1.0))
    peak_mib, whole_mib = simulation.peak_memory_mib, gpu.usable_mib
    if peak_mib > 0:
        held_mib = [0.0 if use is None else use.memory_mib for use in uses]
        most = f"at most {units.number(peak_mib / units.MIB_PER_GIB)}"
        if peak_mib < _FAR_BELOW * whole_mib:
            yield _Curve("memory", held_mib, f"{most} of {units.gib_of(whole_mib)}", None)
        else:
            limit = f"capacity {units.gib_of(whole_mib)}"
            yield _Curve("memory", held_mib, f"{most} GiB", whole_mib, limit)
    (idle_w,) = simulation.idle_powers_w
    power_w = all_known(idle_w if use is None else use.power_w for use in uses)
    if power_w is not None:
        limit_w = power_cap_w or gpu.power_limit_w
        limit = "" if limit_w is None else f"{limit_w:.0f} W"
        kind = "limit" if power_cap_w is None else "cap"
        words = f"at most {max(power_w):.0f} W"
        yield _Curve("power", power_w, words, limit_w, f"{kind} {limit}" if limit else "")


def _points(
    starts: Sequence[float], end: float, curve: _Curve, bottom: float
) -> Iterator[dict[str, float]]:
    """The corners of a curve whose lowest place is at a pixel from the top; its end is the last."""
    highest = max(curve.values)
    scale = _CURVE_PX / (max(highest, curve.most) if curve.most else max(highest, 1e-9) / _FULL)
    changes = groupby(zip(starts, curve.values, strict=True), lambda corner: corner[1])
    corners = [next(same) for _, same in changes]
    for start, value in [*corners, (end, corners[-1][1])]:
        yield {"start": start, "value": value, "top": bottom - scale * value, "bottom": bottom}


def _runs(simulation: Simulation) -> Runs:
    """The runs of all jobs by GPU, as they start; a job that is stopped has several.

    Copies are next to each other.
    """
    spans = zip(simulation.jobs, spans_of_jobs(simulation), strict=True)
    runs = list[tuple[int, SimulatedJob]]()
    for number, (run, of_job) in enumerate(spans, start=1):
        last_s = max(end_s for *_, end_s in of_job)
        runs += (
            (
                number,
                replace(
                    run,
                    gpus=(gpu,),
                    place=place,
                    arrival_s=run.arrival_s if start_s == run.start_s else start_s,
                    start_s=start_s,
                    end_s=run.end_s if end_s == last_s else Interval(end_s, end_s, end_s),
                ),
            )
            for gpu, place, start_s, end_s in of_job
        )
    first_s: dict[tuple[int, int], float] = {}
    for number, run in runs:
        first_s.setdefault((run.gpu, number), run.start_s)
    kinds = [run.job.name for run in simulation.jobs]

    def order(numbered: tuple[int, SimulatedJob]) -> tuple[float, ...]:
        number, run = numbered
        return run.gpu, first_s[run.gpu, number], kinds.index(run.job.name), number

    return sorted(runs, key=order)


_MOST_LANES, _PLACES_PX = 40, 2000


def simulation_picture(over_time: OverTime, file_end: str) -> bytes:
    """Return the chart of the jobs on each GPU over time, with a title and how to read it.

    A job that is stopped has a bar for each time in which it runs. Many jobs have no rows of their
    own, but each place of a GPU has one.
    """
    runs = _runs(over_time.simulation)
    jobs = [run.job.name for run in over_time.simulation.jobs]
    if len({(run.gpu, number) for number, run in runs}) <= _MOST_LANES:
        chart = lanes_chart(runs, jobs)
        hint = "pale: the job waits; line: 90 % interval of its end"
    else:
        chart = _places_chart([run for _, run in runs], jobs)
        hint = "a row for each place of a GPU, where one job runs after another"
    return picture(chart, simulation_heading(over_time), hint, file_end)


def _places_chart(runs: Sequence[SimulatedJob], jobs: Sequence[str]) -> Layered:
    """Draw in which places of GPUs jobs run; of few kinds of `jobs` a legend has the colours."""
    unit, size_s = units.time_unit(max(run.end_s.p50 for run in runs))
    places = sorted({(run.gpu, run.place) for run in runs})
    row_px = min(ROW_PX, max(1, _PLACES_PX / len(places)))
    tops = {at: row_px * number for number, at in enumerate(places)}
    bars = (
        mark_at(
            "job",
            run.start_s / size_s,
            run.end_s.p50 / size_s,
            tops[run.gpu, run.place],
            0.8 * row_px,
            job=run.job.name,
        )
        for run in runs
    )
    labels = {top + 0.4 * row_px: f"GPU {gpu} · place {at + 1}" for (gpu, at), top in tops.items()}
    title, height_px = f"time, {unit}", row_px * len(places)
    x = quantity_axis("start:Q", title, max(run.end_s.p50 for run in runs) / size_s)
    y = pixel_axis(labels, height_px, labelOverlap=True)
    colour = by_job(jobs, named=len(set(jobs)) <= len(JOB_COLOURS))
    layers = list(mark_layers([*bars], x, y, colour))
    parts = [f"{counted(len(jobs), 'job')} in {counted(len(places), 'place')}"]
    return drawn_layers(layers, title, parts, height_px, autosize=FIT_WIDTH)
