"""The chart of predicted against measured steps."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import altair as alt

from advisor.english import counted
from advisor.report.chart_parts import (
    FRAME_COLOUR,
    Layered,
    beside_names_px,
    by_job,
    chart,
    described,
    hints,
    rows_of,
)

_JOB_PX, _APART_PX = 24, 12
_SHAPES = alt.Scale(domain=["shipped", "your own"], range=["circle", "diamond"])


def runs_of_jobs_chart(rows: Sequence[dict[str, Any]], jobs: Sequence[str]) -> Layered:
    """Predicted and measured steps by mode and job; the band is the noise of the mode.

    Args:
        rows: As `advisor.validate.runs_of_jobs_text` makes them, at least one.
        jobs: All that are asked about, in order.
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
    ).properties(height=beside_names_px(jobs, len(modes) * (len(named) * _JOB_PX + _APART_PX)))
    return described(drawn, title, _medians(rows))


def _medians(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    errors: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        errors.setdefault((row["mode"], row["job"]), []).append(row["error"])
    for (mode, job), each in errors.items():
        yield f"{mode}, {job}, {counted(len(each), 'step')}, median {median(each):+.1f}"
