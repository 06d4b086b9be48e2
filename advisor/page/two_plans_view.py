"""Two plans side by side on the page."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from advisor.page.address import at_first, linked
from advisor.page.plan_views import draw_gpu
from advisor.plan.comparison import compare
from advisor.plan.recommendation import Plan, Recommendation
from advisor.report.comparison_rows import ComparisonSection, side_by_side
from advisor.report.gpu_drawing import drawing
from advisor.report.headline import plan_kind, plan_name
from advisor.report.sharing_words import shortened


def two_plans(advised: Recommendation, plan: Plan) -> None:
    """What changes from `plan` to another one, which is chosen here."""
    others = {f"{each.rank}  {plan_name(advised, each)}": each for each in advised.plans
              if each is not plan}  # fmt: skip
    if not others:
        st.info("There is no other plan to compare it with.")
        return
    index = at_first([plan_name(advised, each) for each in others.values()], linked().beside)
    chosen = st.selectbox("Beside", list(others), index, key="second plan", format_func=shortened)
    pair = plan, others[chosen]
    names = [f"{each.rank}  {plan_kind(advised, each)}" for each in pair]
    whole, *jobs = side_by_side(
        compare(advised.jobs, advised.gpu, pair, advised.objective, advised.serial)
    )
    _part(whole, names)
    until_gib = max(drawing(each.prediction, advised.gpu).used_gib for each in pair)
    for name, each in zip(names, pair, strict=True):
        st.markdown(f"**{name}**")
        draw_gpu(each, advised.gpu, until_gib)
    for part in jobs:
        _part(part, names)


def _part(part: ComparisonSection, names: Sequence[str]) -> None:
    st.markdown(f"**{part.title}**: {shortened(part.said)}")
    st.table(pd.DataFrame(part.rows, columns=["", *names, "change"]), hide_index=True)
