"""Small charts as SVG text, the same bytes for the same numbers; no drawing library."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import log10
from typing import Literal

_SIDE, _LEFT, _TOP, _BOTTOM, _GAP = 250, 62, 58, 58, 26
_FONT = 'font-family="sans-serif" font-size="11" fill="#222222"'

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One side of a chart.

    Attributes:
        low: Value at its beginning; what lies below is drawn there.
        high: Value at its end.
        ticks: Values with a line and a word each.
        log: Whether equal factors take equal room; then `low` is above 0.
    """

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Where `value` lies, 0 at the beginning and 1 at the end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = log10(low), log10(high), log10(at)
        return (at - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together; lines join them in their order."""

    points: Sequence[Point]
    kind: Literal["dots", "line", "dashed"]
    colour: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A square with axes and what is drawn in it."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = field(default=())


def picture(title: str, charts: Sequence[Chart]) -> str:
    """`charts` side by side as one SVG document called `title`."""
    step = _LEFT + _SIDE + _GAP
    width, height = step * len(charts), _TOP + _SIDE + _BOTTOM
    inside = "\n".join(
        f'<g transform="translate({step * place + _LEFT} {_TOP})">\n{_chart(chart)}\n</g>'
        for place, chart in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{inside}\n</svg>\n'
    )


def _chart(chart: Chart) -> str:
    parts = [
        _text(_SIDE / 2, -40, chart.title, 'text-anchor="middle" font-weight="bold"'),
        *_legend(chart.series),
        *_grid(chart),
        *(_drawn(each, chart) for each in chart.series),
    ]
    return "\n".join(parts)


def _legend(series: Sequence[Series]) -> Iterable[str]:
    named = [each for each in series if each.name]
    for place, each in enumerate(named):
        x = place * _SIDE / len(named)
        dash = ' stroke-dasharray="4 3"' if each.kind == "dashed" else ""
        yield (
            f'<path d="M{x:.1f} -18h14" stroke="{each.colour}" stroke-width="3" fill="none"{dash}/>'
        )
        yield _text(x + 18, -14, each.name or "")


def _grid(chart: Chart) -> Iterable[str]:
    yield f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#888888"/>'
    for value, word in chart.x.ticks:
        x = _SIDE * chart.x.place(value)
        yield f'<path d="M{x:.1f} 0v{_SIDE}" stroke="#dddddd"/>'
        yield _text(x, _SIDE + 16, word, 'text-anchor="middle"')
    for value, word in chart.y.ticks:
        y = _SIDE * (1 - chart.y.place(value))
        yield f'<path d="M0 {y:.1f}h{_SIDE}" stroke="#dddddd"/>'
        yield _text(-6, y + 4, word, 'text-anchor="end"')
    yield _text(_SIDE / 2, _SIDE + 38, chart.x.label, 'text-anchor="middle"')
    turned = f'text-anchor="middle" transform="translate(-46 {_SIDE / 2}) rotate(-90)"'
    yield _text(0, 0, chart.y.label, turned)


def _drawn(series: Series, chart: Chart) -> str:
    at = [(_SIDE * chart.x.place(x), _SIDE * (1 - chart.y.place(y))) for x, y in series.points]
    if series.kind == "dots":
        # A stroke of no length with round ends is a dot: a tenth of the text of a circle.
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in at)
        style = 'stroke-width="4" stroke-linecap="round" stroke-opacity="0.45"'
    else:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at) if at else "M0 0"
        style = 'stroke-width="2"' + (' stroke-dasharray="4 3"' if series.kind == "dashed" else "")
    return f'<path d="{path or "M0 0"}" fill="none" stroke="{series.colour}" {style}/>'


def _text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {_FONT} {style}>{escape(words)}</text>'
