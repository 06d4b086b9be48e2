"""The answer for one GPU: a badge, one line, how sure it is, and a row for each way to share."""

from collections.abc import Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.errors import AdvisorError, NothingFits
from advisor.page.fleet import show_fleet
from advisor.page.plan import draw, show_commands, show_plan
from advisor.page.progress import searching
from advisor.page.question import Question, plain
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.values import Plan, Recommendation
from advisor.report.charts import ways_chart
from advisor.report.forecast import best_of_each_way, plan_name
from advisor.report.format import shortened
from advisor.report.recommendation import badge_of, certainty, headline

_LEGEND = "Hollow: estimated. Green: ties with the best. Thin line: 90 % interval."


def show_answer(question: Question | None, right: DeltaGenerator) -> None:
    """Show the answer to `question` on the `right`, and the plan in view below."""
    if question is None:
        right.info("The answer appears here when GPU, goal and jobs are chosen.")
        return
    with right:
        with searching() as place:
            try:
                advised = question.answer()
            except AdvisorError as error:
                remedy = " Remove a job, or choose a larger GPU."
                note = f"{error}{remedy if isinstance(error, NothingFits) else ''}"
                place().error(plain(note))
                return
            at = place()
        if advised.best.way:
            with at:
                show_fleet(question, advised)
            return
    plans = {_name(advised, plan): plan for plan in advised.plans}
    details = st.container()
    with details:
        plan = _plan_in_view(plans)
    with at.container():
        _show_summary(advised, plan)
    with details:
        show_plan(advised, plan, plans)


def _name(advised: Recommendation, plan: Plan) -> str:
    return shortened(plan_name(advised, plan))


def _plan_in_view(plans: Mapping[str, Plan]) -> Plan:
    """The plan chosen in the list, by a click, or by the link; else the best of this question."""
    state, names = st.session_state, list(plans)
    linked, before = st.query_params.get("plan"), state.get("plan")
    if before is None and linked not in (None, *names):
        st.error(f"plan: {plain(repr(linked))} is not a plan for these jobs. This is the best.")
    elif before == state.get("best plan") != names[0] or before not in (None, *names):
        state["plan"] = names[0]
    state["best plan"] = names[0]
    return plans[st.selectbox("Plan in view", names, key="plan", bind="query-params", width=420)]


def _show_summary(advised: Recommendation, plan: Plan) -> None:
    badge, colour = badge_of(advised, plan)
    best = _name(advised, advised.best)
    with st.container(gap=None):
        st.badge(badge, color=colour)
        st.markdown(f"## {plain(headline(advised, plan))}")
        st.markdown(plain(certainty(advised, plan)))
    with st.container(horizontal=True):
        if st.button("Get the commands", key="commands"):
            show_commands(advised, plan)
        if plan is not advised.best:
            st.button("Back to best", on_click=_choose, args=(best,))
    ranked_by = OBJECTIVES[advised.ranked_by]
    if advised.note and not OBJECTIVES[advised.objective].uses_deadlines:
        st.info(plain(f"Ranked by “{ranked_by.choice}”: {advised.note}."))
    st.header("Which partitioning?")
    key = f"ways {plan.sharing}"
    ways = {way: _name(advised, own) for way, own in best_of_each_way(advised).items()}
    with st.container(gap=None):
        draw(
            ways_chart(advised, plan),
            key=key,
            on_select=lambda: _choose_clicked(key, ways),
            selection_mode="chosen",
        )
        st.caption(f"{_LEGEND} {ranked_by.explained}")


def _choose(name: str) -> None:
    st.session_state["plan"] = name


def _choose_clicked(key: str, ways: Mapping[str, str]) -> None:
    """Choose the best plan of the way whose row was clicked."""
    for row in st.session_state[key]["selection"]["chosen"]:
        _choose(ways[row["way"]])
