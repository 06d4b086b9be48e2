"""The views of one plan, of which only the one that is open is worked out."""

from collections.abc import Callable

import streamlit as st

from advisor.errors import AdvisorError
from advisor.page.plan_views import apply_it, how_each_fares, on_the_gpu, over_time
from advisor.page.time_and_energy_view import time_and_energy
from advisor.page.two_plans_view import two_plans
from advisor.plan.recommendation import Plan, Recommendation
from advisor.report.headline import basis, caution

_VIEWS: dict[str, Callable[[Recommendation, Plan], None]] = {
    "On the GPU": on_the_gpu,
    "Over time": over_time,
    "How each fares": how_each_fares,
    "Beside another plan": two_plans,
    "Time and energy": time_and_energy,
    "Apply it": apply_it,
}


def open_view(advised: Recommendation, plan: Plan) -> None:
    """What is to be known of `plan`, and the view of it that is chosen."""
    st.markdown(f"**Why:** {plan.why}.")
    if warning := caution(plan.prediction):
        st.warning(warning)
    else:
        st.caption(f"All times are {basis(plan.prediction)}.")
    first, *_ = _VIEWS
    chosen = st.pills(
        "View", list(_VIEWS), default=first, required=True, key="view", label_visibility="collapsed"
    )
    try:
        _VIEWS[chosen or first](advised, plan)
    except AdvisorError as error:
        st.info(str(error))
