"""The page's address, by which a link asks again what was asked: read at first, then kept."""

from collections.abc import Sequence
from typing import get_args

import streamlit as st

from advisor.page.answers import PageQuestion
from advisor.plan.recommendation import Plan, Recommendation
from advisor.plan.rules import MOST_HURT
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


def named(choice: str | None) -> str | None:
    """The name of a plan that is chosen from a list where its rank is before it."""
    return None if choice is None else choice.partition("  ")[2]


def at_first(choices: Sequence[str], asked: str | None) -> int:
    """The place of what the link `asked` for among `choices`; of the first where it is none."""
    return choices.index(asked) if asked in choices else 0


def keep_address(
    asked: PageQuestion, advised: Recommendation, plan: Plan, question: str | None
) -> None:
    """Make the address ask for `asked`, and for the `plan` and further `question` looked at."""
    shown = st.session_state.get
    policy, hurt = shown("policy"), shown("hurt")
    now = LinkedQuestion(
        gpu=asked.gpu, objective=asked.objective, jobs=asked.jobs, cap_w=asked.cap_w,
        conditions=asked.conditions, level=asked.level,
        plan=None if plan is advised.best else plan_name(advised, plan),
        trials=shown("trials"), files=tuple(name for name, _ in asked.files),
        question=question, gpus=shown("gpus"),
        policy=policy if policy in get_args(Policy) else None,
        view=shown("view"), beside=named(shown("second plan")), form=shown("format"),
        running=shown("running jobs", ()), running_sharing=shown("running sharing"),
        hurt=None if hurt in (None, 100 * MOST_HURT) else hurt / 100, added=shown("added"),
        sharing=shown("fleet sharing"), at_once=shown("at once"), price=shown("price"),
    )  # fmt: skip
    st.query_params.from_dict(parameters(now))
