"""The answer on the page: what is best in a line and in figures, and beside all other plans."""

from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.page.cards import cards
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.reasons import verdict
from advisor.plan.recommendation import Plan, Recommendation
from advisor.report.answer_text import metric_cards, paragraphs
from advisor.report.page_words import on_the_page
from advisor.report.plan_charts import plans_chart

_BOXES = {"share": st.success, "fix-host-first": st.warning}
_ROUGH = "Few ways to share are looked at so far: the exact answer is being worked out."


@dataclass(frozen=True, slots=True)
class AnswerPlaces:
    """Where an answer stands, a rough one and then the exact one.

    Attributes:
        said: Of the large line, and what is said under it.
        figures: Of the cards.
        chart: Of all plans; while a rough answer stands, the last one's is left there.
    """

    said: DeltaGenerator
    figures: DeltaGenerator
    chart: DeltaGenerator


def answer_places(answered: DeltaGenerator) -> AnswerPlaces:
    """Places in `answered`, whose last answer goes: to be called when the next one is known."""
    said = answered.empty()
    left, right = answered.columns([1, 2], vertical_alignment="center")
    return AnswerPlaces(said, left.empty(), right)


def show_answer(advised: Recommendation, plan: Plan, at: AnswerPlaces) -> None:
    """What is best, in a line, in figures, and beside all others, of which `plan` is looked at."""
    found = verdict(advised)
    first, *others = map(on_the_page, paragraphs(advised))
    said = "\n\n".join([f"### {first}", *others])
    with at.said.container():
        _BOXES.get(found.answers[0], st.info)(said)
    _figures(advised, at)
    with at.chart:
        drawn = plans_chart(advised, plan)
        st.altair_chart(drawn, width="stretch", key="chart", on_select="rerun")
        st.caption("A click on a point chooses that plan: the one in the ring is shown below.")


def show_rough(rough: Recommendation, at: AnswerPlaces) -> None:
    """The best of the few plans of `rough`, marked; nothing of it can be chosen or taken away."""
    first, *_ = map(on_the_page, paragraphs(rough))
    with at.said.container(key="rough-answer"):
        st.info(f"### :orange-badge[rough] {first}\n\n{_ROUGH}")
    _figures(rough, at)


def hide_rough(at: AnswerPlaces) -> None:
    """Take away what stands there, since there is no exact answer."""
    at.said.empty()
    at.figures.empty()


def _figures(advised: Recommendation, at: AnswerPlaces) -> None:
    figures = metric_cards(advised)
    with at.figures.container():
        cards(figures)
        if explained := OBJECTIVES[advised.ranked_by].explained:
            st.caption(f"{figures[0][0]}: {explained}")
