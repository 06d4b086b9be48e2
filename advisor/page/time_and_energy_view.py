"""Time against energy of all plans on the page; a click on a point chooses the plan."""

import streamlit as st

from advisor.plan.recommendation import Plan, Recommendation
from advisor.plan.tradeoff import tradeoff
from advisor.report.plan_charts import tradeoff_chart
from advisor.report.tradeoff_text import front_text, missing_text


def time_and_energy(advised: Recommendation, plan: Plan) -> None:
    """Which plans are fast, which frugal, and which both; `plan` is marked."""
    points = tradeoff(advised.plans)
    if points:
        drawn = tradeoff_chart(advised, points, plan)
        st.altair_chart(drawn, width="stretch", key="time and energy", on_select="rerun")
        st.caption(front_text(advised, points, plan))
    if missing := missing_text(advised, points):
        st.info(missing)
