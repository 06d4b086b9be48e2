"""The page: choose a GPU and jobs, see how they share it best.

Started by ``advisor app`` or ``streamlit run app.py``. It holds widgets only, as `advisor.page`
does: what they show comes from the library.
"""

import json
from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.errors import AdvisorError
from advisor.page.answer import (
    AnswerPlaces,
    advice,
    answer_places,
    choose_clicked,
    hide_rough,
    rough_advice,
    show_answer,
    show_rough,
)
from advisor.page.more import answer_stands, asking, further_questions
from advisor.page.question import STYLE, Posed, keep_address, linked, posed, refuse
from advisor.page.views import open_view
from advisor.plan.values import Plan, Recommendation
from advisor.report.forecast import ORIGINS, bounds_note, plan_name, plan_rows
from advisor.report.format import NOT_MEASURED, shortened, words_of
from advisor.report.recommendation import recommendation_document

_WIDTHS = {"rank": st.column_config.Column(width=50), "plan": st.column_config.Column(width=250)}
_LONGEST = 36  # letters that fit into the column of plans
_WRAPPED_PX = 65  # rows that are higher than 4 rem are those in which Streamlit wraps words


def main() -> None:
    st.set_page_config("advisor", "🧩", "wide", initial_sidebar_state=300)
    st.html(STYLE)
    st.header("How should these jobs share one GPU?")
    answered, by_jobs = st.container(), st.container()
    question = found = None
    try:
        with st.sidebar:
            question = posed(by_jobs)
    except AdvisorError as error:
        refuse(error)
    if question is not None:
        try:
            found = _advised(question, answered)
        except AdvisorError as error:
            refuse(error, question.by_jobs)
    if question is not None and found is not None:
        _show_all(question, *found)
    elif "last answer" in st.session_state:
        _show_outdated(st.session_state["last answer"], answered)


def _advised(question: Posed, answered: DeltaGenerator) -> tuple[Recommendation, AnswerPlaces]:
    """The plans, and where to show them; where they take long, rough ones stand there meanwhile."""
    asked, jobs = question.asked, question.jobs
    if (rough := rough_advice(asked, jobs)) is None:
        return advice(asked, jobs), answer_places(answered)
    places = answer_places(answered)
    show_rough(rough, places)
    try:
        return advice(asked, jobs), places
    except AdvisorError:
        hide_rough(places)
        raise


def _show_all(question: Posed, advised: Recommendation, answered: AnswerPlaces) -> None:
    """The answer where it was `answered`, the plans, what else is asked; the address asks it."""
    st.session_state["last answer"] = advised
    plan = _plan_in_view(advised)
    show_answer(advised, plan, answered)
    _show(advised, plan)
    further = further_questions(advised, question.asked, question.jobs)
    keep_address(question.asked, advised, plan, further)
    answer_stands(question.asked, question.jobs)


def _show_outdated(last: Recommendation, answered: DeltaGenerator) -> None:
    plan = _plan_in_view(last)
    with answered:
        st.warning(
            "What is asked now has no answer; this is the last one, to what was asked before."
        )
        show_answer(last, plan, answer_places(st.container(key="outdated-answer")))
    with st.container(key="outdated-plans"):
        _show(last, plan)


def _show(advised: Recommendation, plan: Plan) -> None:
    """All plans, and all that is to be known of `plan`."""
    for stale in advised.standing.stale:
        st.warning(str(stale))
    for why in advised.refused_variants:
        st.warning(f"left out: {why}")
    st.selectbox("Plan", list(_names(advised)), key="plan", format_func=shortened)
    open_view(advised, plan)
    st.subheader("All ways, best first")
    _ranking(advised)
    with st.expander("What is measured, what is predicted, what is estimated"):
        st.markdown(ORIGINS)
    if advised.left_out:
        with st.expander("Considered and left out"):
            for each in advised.left_out:
                st.markdown(f"`{shortened(str(each.sharing))}`: {each.why}")


def _plan_in_view(advised: Recommendation) -> Plan:
    """The plan that is chosen: by a click, at first by the link, in the list, else the best."""
    names = _names(advised)
    choose_clicked(list(names))
    _choose_linked(advised, list(names))
    return names.get(st.session_state.get("plan", ""), advised.best)


def _names(advised: Recommendation) -> dict[str, Plan]:
    """The plans by what they are called in the list to choose from."""
    return {f"{plan.rank}  {plan_name(advised, plan)}": plan for plan in advised.plans}


def _choose_linked(advised: Recommendation, names: Sequence[str]) -> None:
    """Choose the plan that the link was made with, once, if it is among those advised."""
    if "plan" in st.session_state:
        return
    found = [plan_name(advised, plan) for plan in advised.plans]
    if (asked := linked().plan) in found:
        st.session_state["plan"] = names[found.index(asked)]


def _ranking(advised: Recommendation) -> None:
    rows = pd.DataFrame(plan_rows(advised))
    short = _at_a_glance(rows)
    with st.container(key="wide"):
        st.dataframe(
            short, hide_index=True, key="ranking", on_select="rerun", selection_mode="single-row",
            height="content", column_config=_WIDTHS, row_height=_row_px(short["plan"]),
        )  # fmt: skip
        st.caption("A click on the box of a row chooses that plan.")
    with st.container(key="narrow"):
        st.table(short.iloc[:, :4], hide_index=True)
    st.caption(f"{bounds_note(advised)} Ways to share considered: {advised.considered}.")
    notations = dict.fromkeys(words_of(plan.sharing).notation for plan in advised.plans)
    st.caption("  \n".join(filter(None, notations)))
    document = json.dumps(recommendation_document(advised), indent=1, allow_nan=False)
    with st.container(horizontal=True):
        csv = rows.to_csv(index=False)
        st.download_button("Download as CSV", csv, "plans.csv", "text/csv")
        st.download_button("Download as JSON", document, "plans.json", "application/json")


def _row_px(plans: Sequence[str]) -> int | None:
    """Of a row in which words wrap where one of `plans` is too long; None: of the usual rows."""
    return _WRAPPED_PX if max(map(len, plans)) > _LONGEST else None


def _at_a_glance(rows: pd.DataFrame) -> pd.DataFrame:
    """Of `rows` what is read beside each other; no column of which nothing was measured."""
    short = rows.drop(columns="why")
    short["plan"] = short["plan"].map(shortened)
    short["based on"] = short["based on"].str.partition(" ")[0].str.rstrip(",")
    return short.loc[:, short.ne(NOT_MEASURED).any()]


asking()
main()
