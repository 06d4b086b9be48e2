"""Copies of one job on the page: how many fit, how many pay, and trials an hour."""

import streamlit as st

from advisor.errors import AdvisorError
from advisor.page.address import linked
from advisor.page.answers import PageQuestion, advisor_of
from advisor.page.refusal import refuse
from advisor.plan import START_S
from advisor.plan.recommendation import Recommendation
from advisor.report.charts import trials_chart
from advisor.report.trials_text import trials_advice


def trials_view(advised: Recommendation, asked: PageQuestion) -> None:
    """What comes of 1, 2, ... copies of one of the jobs, once it is chosen."""
    jobs = {job.name: job for job in advised.jobs}
    asked_of = linked().trials
    name = st.selectbox(
        "Trials of a search, all of the job", list(jobs), key="trials",
        index=list(jobs).index(asked_of) if asked_of in jobs else None,
        placeholder="Choose a job",
    )  # fmt: skip
    if name is None:
        return
    try:
        found = advisor_of(asked.gpu, asked.cap_w).trials(
            jobs[name], start_s=START_S, conditions=asked.conditions, level=asked.level
        )
    except AdvisorError as error:
        refuse(error)
        return
    st.markdown(trials_advice(found))
    copies = found.copies
    st.caption(
        f"Copies that pay: {copies.pay}. Copies that fit: {copies.fit}; one more "
        f"{copies.limited_by}. Clients that MPS serves: {copies.mps_clients}."
    )
    st.altair_chart(trials_chart(found), width="stretch")
    st.caption(
        "The thin line is where nine of ten measurements should fall; the ring, what is advised."
    )
