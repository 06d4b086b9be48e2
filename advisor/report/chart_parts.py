"""What the page's charts are made of: colours, axes, and rows with their names."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import altair as alt

from advisor.prediction.mix_prediction import MixPrediction
from advisor.report.headline import short_basis

Layered = alt.LayerChart | alt.FacetChart | alt.Chart
"""What layers of charts make."""

ROW_PX = 32
_AXIS_PX, _NAME_PX = 75, 30
FRAME_COLOUR = "#808080"
SURE_COLOUR, ESTIMATE_COLOUR, FREE_COLOUR = "#0072B2", "#949494", "rgba(128,128,128,0.2)"
OVER_BARS: dict[str, Any] = {"color": "#404040", "stroke": "white", "strokeWidth": 0.7}
"""Of a mark that crosses bars and the page: one of its two colours is seen on any ground."""

# Okabe and Ito's colours, which people with any colour vision tell apart, in an order in which the
# first differ most. Their yellow is not seen on white nor their black on a dark page: violet and
# brown stand in.
JOB_COLOURS = (
    "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#9966FF", "#785028",
)  # fmt: skip
_DARK = ("#0072B2", "#785028")


def job_colours(jobs: Iterable[str]) -> dict[str, str]:
    """A colour for each of `jobs`, by name in their order; more than eight share colours."""
    return dict(zip(dict.fromkeys(jobs), cycle(JOB_COLOURS), strict=False))


def ink_on(fill: str) -> str:
    """The colour of words on a box of the colour `fill`, which are to be read on any ground."""
    if fill == FREE_COLOUR:
        return FRAME_COLOUR
    return "white" if fill in _DARK else "black"


def by_job(jobs: Iterable[str], *, named: bool = False) -> alt.Color:
    """The colours of `jobs`, all that are asked about, in their order; `named`: with a legend."""
    colours = job_colours(jobs)
    below = alt.Legend(orient="bottom", columns=1, labelLimit=300, symbolOpacity=1)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color("job:N", title=None, scale=scale, legend=below if named else None)


def by_basis(mixes: Iterable[MixPrediction]) -> alt.Color:
    """Of rows with a `short_basis`: what real runs stand behind has a colour; others are grey."""
    sure = {short_basis(each): each.confirmed_on_hardware for each in mixes}
    colours = [SURE_COLOUR if confirmed else ESTIMATE_COLOUR for confirmed in sure.values()]
    below = alt.Legend(orient="bottom", columns=1, labelLimit=300)
    scale = alt.Scale(domain=list(sure), range=colours)
    return alt.Color("basis:N", title=None, scale=scale, legend=below)


def beside_names_px(jobs: Iterable[str], plot_px: int) -> int:
    """The height of a chart that has room for a plot of `plot_px`, its axis and names of `jobs`."""
    return plot_px + _AXIS_PX + _NAME_PX * len(set(jobs))


def axis(field: str, title: str, most: float, ticks: int = 7) -> alt.X:
    scale = alt.Scale(domain=[0, most], nice=False)
    return alt.X(field, title=title, scale=scale, axis=alt.Axis(tickCount=ticks))


def chart(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]  # altair's own


def hints(*fields: str) -> list[alt.Tooltip]:
    """Tooltip of a mark.

    Channels are made by their classes in all charts: where altair has to find the class for a bare
    word, it goes through all that it has, which takes longer than drawing the chart.
    """
    return [alt.Tooltip(f"{field}:N") for field in fields]


def rows_of(names: Sequence[str], field: str, shown: str = "datum.label") -> alt.Y:
    """An axis of rows called `names`; the expression `shown` shortens their labels."""
    words = alt.Axis(labelLimit=260, ticks=False, domain=False, labelPadding=8, labelExpr=shown)
    return alt.Y(f"{field}:N", sort=list(names), title=None, axis=words)


def described(drawn: Layered, what: str, parts: Iterable[str]) -> Layered:
    """`drawn` with a title and a description of its `parts` for people who cannot see it."""
    described: Layered = drawn.properties(description=f"{what}: {'; '.join(parts)}.")
    return described
