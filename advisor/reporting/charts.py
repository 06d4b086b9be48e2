"""Charts for the page, in altair; what they draw is decided elsewhere."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.planning.plan import Recommendation
from advisor.reporting.answer import gain, kind
from advisor.reporting.drawing import Bar, Drawing

if TYPE_CHECKING:
    import altair as alt

_ROW_PX = 32
_FRAME_COLOUR = "#808080"
_BASES = {True: "real runs of this kind", False: "estimated, not confirmed on hardware"}
_BASIS_COLOURS = ("#1f77b4", "#b0b0b0")


def memory_chart(drawn: Drawing) -> "alt.LayerChart | alt.FacetChart":
    """What each job takes of the GPU's memory; the thin line is where its end may lie."""
    title = f"memory of the GPU, {drawn.memory_gib:.0f} GiB in all"
    return _panel(drawn, drawn.memory, drawn.memory_gib, title, labelled=True)


def sm_chart(drawn: Drawing) -> "alt.LayerChart | alt.FacetChart":
    """Which SMs each job may use; its rows lie beside those of `memory_chart`."""
    title = f"SMs that it may use, of {drawn.sm_count}"
    return _panel(drawn, drawn.sms, drawn.sm_count, title, labelled=False)


def plans_chart(advised: Recommendation) -> "alt.LayerChart | alt.FacetChart":
    """How much better each plan is than one after another, with its interval."""
    import altair as alt

    rows = [_plan_row(advised, number) for number in range(len(advised.plans))]
    title, axis = f"gain over one after another, by {advised.ranked_by}", alt.Axis(tickCount=8)
    base = _chart(rows).encode(
        y=_rows([row["plan"] for row in rows], "plan", labelled=True),
        x=alt.X("low:Q", title=title, scale=alt.Scale(zero=False), axis=axis),
        color=alt.Color(
            "basis:N",
            title=None,
            scale=alt.Scale(domain=list(_BASES.values()), range=list(_BASIS_COLOURS)),
            legend=alt.Legend(orient="bottom", labelLimit=400),
        ),
        tooltip=["plan:N", "sharing:N", "why:N"],
    )
    spread = base.mark_bar(height=3).encode(x2="high:Q")
    middle = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=alt.X("middle:Q", title=title, axis=axis)
    )
    equal = _chart([{"one": 1}]).mark_rule(strokeDash=[4, 4], opacity=0.5)
    equal = equal.encode(x=alt.X("one:Q", title=title, axis=axis))
    return alt.layer(equal, spread, middle).properties(height=alt.Step(_ROW_PX))


def _plan_row(advised: Recommendation, number: int) -> dict[str, Any]:
    plan = advised.plans[number]
    better = gain(advised, plan)
    return {
        "plan": f"{plan.rank}  {kind(plan.sharing)}",
        "sharing": str(plan.sharing),
        "why": plan.why,
        "low": better.p05,
        "middle": better.p50,
        "high": better.p95,
        "basis": _BASES[plan.prediction.confirmed_on_hardware],
    }


def _panel(
    drawn: Drawing, bars: Sequence[Bar], most: float, title: str, *, labelled: bool
) -> "alt.LayerChart | alt.FacetChart":
    import altair as alt

    x = alt.X(
        "start:Q",
        title=title,
        scale=alt.Scale(domain=[0, most], nice=False),
        axis=alt.Axis(tickCount=7),
    )
    y = _rows(drawn.rows, "row", labelled=labelled)

    def chart(shown: Sequence[Bar]) -> alt.Chart:
        tooltip = ["row:N", "hint:N"]
        return _chart([asdict(each) for each in shown]).encode(
            y=y, x=x, x2="end:Q", tooltip=tooltip
        )

    jobs = [bar for bar in bars if bar.kind == "job"]
    names = list(dict.fromkeys(bar.job for bar in jobs))
    colour = alt.Color("job:N", sort=names, legend=None)
    layers = [
        chart([bar for bar in bars if bar.kind == "instance"]).mark_bar(
            filled=False, stroke=_FRAME_COLOUR, strokeWidth=1.5, height={"band": 0.95}
        ),
        chart(jobs).mark_bar(height={"band": 0.6}).encode(color=colour),
        chart([bar for bar in jobs if bar.end_low is not None])
        .mark_bar(height=2, color=_FRAME_COLOUR)
        .encode(x=alt.X("end_low:Q", title=title), x2="end_high:Q"),
    ]
    return alt.layer(*layers).properties(height=alt.Step(_ROW_PX))


def _chart(rows: list[dict[str, Any]]) -> "alt.Chart":
    import altair as alt

    return alt.Chart(alt.Data(values=rows))  # type: ignore[no-untyped-call]  # altair's own


def _rows(names: Sequence[str], field: str, *, labelled: bool) -> "alt.Y":
    import altair as alt

    axis = alt.Axis(labelLimit=260, ticks=False, domain=False, labelPadding=8)
    return alt.Y(f"{field}:N", sort=list(names), title=None, axis=axis if labelled else None)
