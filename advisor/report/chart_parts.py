"""What the page's charts are made of: colours, axes, and rows with their names."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import altair as alt

Layered = alt.LayerChart | alt.FacetChart
"""What layers of charts make."""

ROW_PX = 32
_AXIS_PX, _NAME_PX = 75, 30
FRAME_COLOUR = "#808080"
SURE_COLOUR, ESTIMATE_COLOUR, FREE_COLOUR = "#1f77b4", "#b0b0b0", "rgba(128,128,128,0.2)"

# Okabe and Ito's colours, which people with any colour vision tell apart, in an order in which the
# first differ most; without black and grey, which a dark page and frames have.
_JOB_COLOURS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")


def job_colours(jobs: Iterable[str]) -> dict[str, str]:
    """A colour for each of `jobs`, by name in their order; more than seven share colours."""
    return dict(zip(dict.fromkeys(jobs), cycle(_JOB_COLOURS), strict=False))


def by_job(jobs: Iterable[str], *, named: bool = False) -> alt.Color:
    """The colours of `jobs`, all that are asked about, in their order; `named`: with a legend."""
    colours = job_colours(jobs)
    below = alt.Legend(orient="bottom", columns=1, labelLimit=300, symbolOpacity=1)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color("job:N", title=None, scale=scale, legend=below if named else None)


def beside_names_px(jobs: Iterable[str], plot_px: int) -> int:
    """The height of a chart that has room for a plot of `plot_px`, its axis and names of `jobs`."""
    return plot_px + _AXIS_PX + _NAME_PX * len(set(jobs))


def axis(field: str, title: str, most: float, ticks: int = 7) -> alt.X:
    scale = alt.Scale(domain=[0, most], nice=False)
    return alt.X(field, title=title, scale=scale, axis=alt.Axis(tickCount=ticks))


def chart(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]  # altair's own


def rows_of(names: Sequence[str], field: str) -> alt.Y:
    shown = alt.Axis(labelLimit=260, ticks=False, domain=False, labelPadding=8)
    return alt.Y(f"{field}:N", sort=list(names), title=None, axis=shown)
