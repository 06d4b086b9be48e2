"""Common parts of the charts: colours, axes, and drawings of marks at pixels."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import cycle
from typing import Any

import altair as alt

ROW_PX = 32
FRAME = "#808080"
_INK = "currentColor"  # that of the text around the chart, in every theme
_WORDS = alt.AxisConfig(labelColor=_INK, titleColor=_INK)
_CONFIG = alt.Config(
    view=alt.ViewConfig(stroke=None),
    text=alt.MarkConfig(color=_INK),
    axis=_WORDS,
    legend=alt.LegendConfig(labelColor=_INK, titleColor=_INK),
)
FREE = "rgba(128,128,128,0.2)"
# Style of a mark that crosses bars and the page: one of its colours is visible on each.
OVER_BARS: dict[str, Any] = {"color": "#404040", "stroke": "white", "strokeWidth": 0.7}

# Okabe and Ito's colours, which people with any colour vision can distinguish; the first differ
# most. Some are darker than theirs, and violet and brown replace yellow and black: each has a
# contrast of at least 3:1 on both themes of the page.
JOB_COLOURS = (
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
    colours = dict(zip(dict.fromkeys(jobs), cycle(JOB_COLOURS), strict=False))
    return coloured("job:N", colours, below if named else None)


def coloured(field: str, colours: dict[str, str], legend: alt.Legend | None) -> alt.Color:
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(field, title=None, scale=scale, legend=legend)


def quantity_axis(field: str, title: str, most: float) -> alt.X:
    scale = alt.Scale(domain=[0, most], nice=False)
    return alt.X(field, title=title, scale=scale, axis=alt.Axis(tickCount=7))


def across(title: str) -> dict[str, Any]:
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


def named_rows(names: Iterable[str], field: str = "row", shown: str = "datum.label") -> alt.Y:
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
) -> alt.LayerChart | alt.FacetChart:
    """Draw `layers`, and describe the `parts` for people who cannot see them."""
    words = f"{title}: {'; '.join(parts)}."
    size = {} if height is None else {"height": height}
    drawn = (layer for layer in layers if layer.data.values)  # an empty one has no name to read out
    return alt.layer(*drawn, description=words, config=_CONFIG, **size, **more)


Mark = dict[str, Any]
"""A mark at pixels: its kind, its ends on the x axis, and its edges in pixels from the top.

Its kind is "job", "free", "frame", "over" (it crosses bars), "instant", "limit", or of words.
"""

FIT_WIDTH = alt.AutoSizeParams(type="fit-x", contains="padding")  # of the page, at any height
LINE_PX, FONT_PX = 16, 12
LETTER_PX = 6.0  # a letter is so wide at most, in the mean over a few words
TEXT: dict[str, Any] = {"align": "left", "baseline": "middle", "fontSize": FONT_PX}
_WIDTH = "(scale('x', datum.end) - scale('x', datum.start))"
_APART = alt.ExprRef(f"-min(1.5, {_WIDTH} / 4)")  # between boxes, in pixels
_STYLES: dict[str, dict[str, Any]] = {
    "free": {"color": FREE, "x2Offset": _APART},
    "job": {"x2Offset": _APART},
    "frame": {"filled": False, "stroke": FRAME, "strokeWidth": 1.5},
    "over": OVER_BARS,
    "instant": {**OVER_BARS, "xOffset": -1.5, "x2Offset": 1.5},
}


def mark_at(kind: str, start: float, end: float, top: float, height: float, **more: Any) -> Mark:
    """Return a mark; `more` are its ``job``, its ``hint``, or the ``text`` of words."""
    ends = {"start": start, "end": end, "top": top, "bottom": top + height}
    return {"kind": kind, **ends, "hint": "", **more}


def pixel_axis(labels: dict[float, str], height_px: float, **style: Any) -> alt.Y:
    """Return an axis in pixels from the top, with `labels` at some of them."""
    words = {f"{at:g}": label for at, label in labels.items()}
    axis = alt.Axis(
        values=[float(at) for at in words],
        labelExpr=f"({json.dumps(words)})[datum.value]",
        labelFontSize=FONT_PX,
        labelPadding=8,
        grid=False,
        ticks=False,
        domain=False,
        **{"labelOverlap": False} | style,
    )
    scale = alt.Scale(domain=[height_px, 0], nice=False)
    return alt.Y("top:Q", title=None, scale=scale, axis=axis)


def mark_layers(
    marks: Sequence[Mark], x: alt.X, y: alt.Y, colour: alt.Color
) -> Iterator[alt.Chart]:
    """Yield a layer for each kind of `marks`, all on the same axes."""

    def of_kind(kind: str) -> alt.Chart:
        return chart_of(mark for mark in marks if mark["kind"] == kind)

    for kind, style in _STYLES.items():
        base = of_kind(kind).mark_rect(**style)
        ends = base.encode(x=x, x2=alt.X2("end:Q"), y=y, y2=alt.Y2("bottom:Q"))
        hinted = ends.encode(tooltip=hints("hint")) if kind != "frame" else ends
        yield hinted.encode(color=colour) if kind == "job" else hinted
    lines = of_kind("limit").mark_rule(color=_INK, strokeDash=[4, 3])
    yield lines.encode(x=x, x2=alt.X2("end:Q"), y=y)
    fits = f"{LETTER_PX} * length(datum.text) < {_WIDTH}"
    words: dict[str, Any] = {
        **TEXT,
        "text": alt.ExprRef(f"{fits} ? datum.text : datum.short"),
        "align": alt.ExprRef("datum.align"),
    }
    texts = chart_of(mark for mark in marks if "text" in mark)
    yield texts.mark_text(**words).encode(x=x, y=y)


def words_at(
    text: str, at: float, top: float, *, room: float = 1.0, short: str = "", align: str = "left"
) -> Mark:
    """Return words from a place of the x axis on; the `short` ones without `room` for all."""
    shown = {"text": text, "short": short or text, "align": align}
    return mark_at("words", at, at + room, top + LINE_PX / 2, 0.0, **shown)
