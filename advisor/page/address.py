"""The page's address, by which a link asks again what was asked: read at first, then kept."""

from typing import get_args

import streamlit as st

from advisor.page.answers import PageQuestion
from advisor.plan.recommendation import Plan, Recommendation
from advisor.report.headline import plan_name
from advisor.report.page_link import LinkedQuestion, linked_question, parameters
from advisor.timeline import Policy


def linked() -> LinkedQuestion:
    """What the link asked with which the page was opened."""
    if "linked" not in st.session_state:
        given = {name: st.query_params.get_all(name) for name in st.query_params}
        st.session_state["linked"] = linked_question(given)
    found: LinkedQuestion = st.session_state["linked"]
    return found


def keep_address(
    asked: PageQuestion, advised: Recommendation, plan: Plan, question: str | None
) -> None:
    """Make the address ask for `asked`, and for the `plan` and further `question` looked at."""
    policy, policies = st.session_state.get("policy"), get_args(Policy)
    now = LinkedQuestion(
        gpu=asked.gpu, objective=asked.objective, jobs=asked.jobs, cap_w=asked.cap_w,
        conditions=asked.conditions, level=asked.level,
        plan=None if plan is advised.best else plan_name(advised, plan),
        trials=st.session_state.get("trials"), files=tuple(name for name, _ in asked.files),
        question=question, gpus=st.session_state.get("gpus"),
        policy=policy if policy in policies else None,
    )  # fmt: skip
    st.query_params.from_dict(parameters(now))
