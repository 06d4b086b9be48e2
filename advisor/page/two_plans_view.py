"""Two plans side by side on the page."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from advisor.page.plan_views import draw_gpu
from advisor.plan.comparison import compare
from advisor.plan.recommendation import Plan, Recommendation
from advisor.report.comparison_rows import Part, side_by_side
from advisor.report.gpu_drawing import drawing
from advisor.report.headline import plan_name


def two_plans(advised: Recommendation, plan: Plan) -> None:
    """What changes from `plan` to another one, which is chosen here."""
    named = {f"{each.rank}  {plan_name(advised, each)}": each for each in advised.plans}
    others = [name for name, each in named.items() if each is not plan]
    if not others:
        st.info("There is no other plan to compare it with.")
        return
    chosen = st.selectbox("Beside", others, key="second plan")
    pair = {name: each for name, each in named.items() if each is plan} | {chosen: named[chosen]}
    first, second = pair.values()
    found = compare(advised.jobs, advised.gpu, (first, second), advised.objective)
    whole, *jobs = side_by_side(found)
    _part(whole, list(pair))
    until_gib = max(drawing(each.prediction, advised.gpu).used_gib for each in (first, second))
    for name, each in pair.items():
        st.markdown(f"**{name}**")
        draw_gpu(each, advised.gpu, until_gib)
    for part in jobs:
        _part(part, list(pair))


def _part(part: Part, names: Sequence[str]) -> None:
    st.markdown(f"**{part.title}**: {part.said}")
    st.table(pd.DataFrame(part.rows, columns=["", *names, "change"]), hide_index=True)
