"""The views of one plan, of which only the one that is open is worked out."""

from collections.abc import Callable

import streamlit as st

from advisor.errors import AdvisorError
from advisor.page.address import at_first, linked
from advisor.page.plan_views import apply_it, how_each_fares, on_the_gpu, over_time
from advisor.page.two_plans_view import two_plans
from advisor.plan.recommendation import Plan, Recommendation
from advisor.report.headline import basis, caution
from advisor.report.sharing_words import explained

_VIEWS: dict[str, Callable[[Recommendation, Plan], None]] = {
    "On the GPU": on_the_gpu,
    "Over time": over_time,
    "How each fares": how_each_fares,
    "Beside another plan": two_plans,
    "Apply it": apply_it,
}


def open_view(advised: Recommendation, plan: Plan) -> None:
    """What is to be known of `plan`, and the view of it that is chosen."""
    names = [job.name for job in advised.jobs]
    st.caption(f"This plan: {explained(plan.sharing, names)}.")
    st.markdown(f"**Why:** {plan.why}.")
    if warning := caution(plan.prediction):
        st.warning(warning)
    else:
        st.caption(f"All times are {basis(plan.prediction)}.")
    views = list(_VIEWS)
    chosen = st.pills(
        "View", views, default=views[at_first(views, linked().view)], required=True, key="view",
        label_visibility="collapsed",
    )  # fmt: skip
    try:
        _VIEWS[chosen or views[0]](advised, plan)
    except AdvisorError as error:
        st.info(str(error))
