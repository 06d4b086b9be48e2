"""The page: choose a GPU and jobs, see how they share it best.

``advisor app`` or ``streamlit run app.py`` starts it. Like `advisor.page` it only contains widgets:
the library computes what they show.
"""

import json

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.errors import AdvisorError
from advisor.page.answer import (
    advice,
    answer_places,
    choose_clicked,
    open_view,
    plans_by_name,
    show_answer,
)
from advisor.page.link import linked
from advisor.page.more import foresee, further_questions
from advisor.page.question import STYLE, keep_address, read_question, refuse
from advisor.plan.values import Plan, Recommendation
from advisor.report.forecast import bounds_note, plan_name, plan_rows
from advisor.report.format import NOT_MEASURED, shortened, words_of
from advisor.report.recommendation import recommendation_document

_WIDTHS = {"rank": st.column_config.Column(width=50), "plan": st.column_config.Column(width=250)}
_LONGEST = 36  # letters that fit into the column of plans
_WRAPPED_PX = 65  # Streamlit wraps words in rows that are higher than 4 rem
_ORIGINS = """\
**Measured** is each job alone: its step, kernels, memory and power. **Predicted** is the pace of
jobs that share, by a model fitted to real runs of that kind of sharing. **Estimated** is all that
no run confirms here: MIG, power caps, and results transferred from another GPU. Times until jobs
end follow from these by simulation."""


def main() -> None:
    st.set_page_config("advisor", "🧩", "wide", initial_sidebar_state=300)
    st.html(STYLE)
    st.header("How should these jobs share one GPU?")
    answered, by_jobs = st.container(), st.container()
    typed = answer = None
    try:
        with st.sidebar:
            typed = read_question(by_jobs)
        if typed is not None:
            answer = advice(*typed, answered)
    except AdvisorError as error:
        refuse(error, by_jobs if typed else None)
    if typed is None or answer is None:
        _show_outdated(answered)
        return
    advised, places = answer
    question, jobs = typed
    st.session_state["last answer"] = advised
    plan = _plan_in_view(advised)
    show_answer(advised, plan, places)
    _show(advised, plan)
    keep_address(question, advised, plan, further_questions(advised, question, jobs))
    foresee(typed)


def _show_outdated(answered: DeltaGenerator) -> None:
    """Show the last answer, if there is one, marked as outdated."""
    last = st.session_state.get("last answer")
    if last is None:
        return
    plan = _plan_in_view(last)
    with answered:
        st.warning("There is no answer to this question; this is the last one.")
        show_answer(last, plan, answer_places(st.container(key="outdated-answer")))
    with st.container(key="outdated-plans"):
        _show(last, plan)


def _show(advised: Recommendation, plan: Plan) -> None:
    """Show `plan` in full, and all plans."""
    for stale in advised.standing.stale:
        st.warning(str(stale))
    for why in advised.refused_variants:
        st.warning(f"left out: {why}")
    st.selectbox("Plan", list(plans_by_name(advised)), key="plan", format_func=shortened)
    open_view(advised, plan)
    st.subheader("All ways, best first")
    _ranking(advised)
    with st.expander("Measured, predicted, estimated: the origin of the figures"):
        st.markdown(_ORIGINS)
    if advised.left_out:
        with st.expander("Considered and left out"):
            for other in advised.left_out:
                st.markdown(f"`{shortened(str(other.sharing))}`: {other.why}")


def _plan_in_view(advised: Recommendation) -> Plan:
    """The chosen plan: by a click, else by the link at first, else in the list, else the best."""
    names = plans_by_name(advised)
    choose_clicked(list(names))
    if "plan" not in st.session_state:
        linked_names = [name for name, plan in names.items()
                        if plan_name(advised, plan) == linked().plan]  # fmt: skip
        if linked_names:
            st.session_state["plan"] = linked_names[0]
    return names.get(st.session_state.get("plan", ""), advised.best)


def _ranking(advised: Recommendation) -> None:
    rows = pd.DataFrame(plan_rows(advised))
    short = rows.drop(columns="why")
    short["plan"] = short["plan"].map(shortened)
    short["based on"] = short["based on"].str.partition(" ")[0].str.rstrip(",")
    short = short.loc[:, short.ne(NOT_MEASURED).any()]
    wrapped = max(map(len, short["plan"])) > _LONGEST
    with st.container(key="wide"):
        st.dataframe(
            short, hide_index=True, key="ranking", on_select="rerun", selection_mode="single-row",
            height="content", column_config=_WIDTHS, row_height=_WRAPPED_PX if wrapped else None,
        )  # fmt: skip
        st.caption("Click the box of a row to choose its plan.")
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


foresee(None)
main()
