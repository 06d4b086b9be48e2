"""Speed of jobs by size of a MIG instance: the chart and the words under it."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from advisor.plan.slice_batches import WHOLE
from advisor.plan.slice_speeds import SliceSpeed
from advisor.report import units
from advisor.report.chart_parts import (
    FRAME_COLOUR,
    Layered,
    beside_names_px,
    by_job,
    chart,
    described,
    hints,
)
from advisor.report.headline import NOT_CONFIRMED
from advisor.workload.profile import Profile

_PLOT_PX = 300
_APART = 0.7
"""Of the room of an instance, what its jobs' points are spread over."""


def slice_speed_chart(found: Sequence[SliceSpeed]) -> Layered:
    """A point for each job on each kind of instance, with its interval."""
    jobs = list(dict.fromkeys(each.job for each in found))
    rows = _rows(found)
    shares = {_shown(each.where): each.compute_share for each in found if each.job == jobs[0]}
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
    ).properties(height=beside_names_px(jobs, _PLOT_PX))
    return described(
        drawn, title, (f"{row['job']} on {row['where']} {row['said']}" for row in rows)
    )


def _rows(found: Sequence[SliceSpeed]) -> list[dict[str, Any]]:
    """What is drawn of each job on each kind of instance on which it fits."""
    return [
        {"job": each.job, "where": _shown(each.where), "low": each.speed.p05,
         "middle": each.speed.p50, "high": each.speed.p95, "said": units.times(each.speed)}
        for each in found
        if each.speed is not None
    ]  # fmt: skip


def _shown(where: str) -> str:
    return "whole GPU" if where == WHOLE else where


def slice_speed_text(found: Sequence[SliceSpeed], profiles: Sequence[Profile]) -> str:
    """What the chart of `profiles` shows, what it stands on, and which jobs fit where not."""
    what = "This is" if any(each.is_estimate for each in profiles) else "On instances this is"
    said = [
        "Speed alone on an instance of each size, over the median on the whole GPU; the grey ticks "
        "are what the instance has of the compute slices, and the thin lines where nine of ten "
        f"measurements on the host of the profile should fall. {what} {NOT_CONFIRMED}."
    ]
    lacks: dict[str, list[str]] = {}
    for each in found:
        if each.speed is None:
            lacks.setdefault(each.job, []).append(each.where)
    said += [f"{job} does not fit {', '.join(where)}." for job, where in lacks.items()]
    return " ".join(said)
