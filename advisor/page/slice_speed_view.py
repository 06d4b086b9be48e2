"""Speed of each job against the size of a MIG instance, on the page."""

from collections.abc import Sequence

import streamlit as st

from advisor.errors import AdvisorError
from advisor.page.answers import PageQuestion, advisor_of
from advisor.plan.slice_speeds import slice_speeds
from advisor.report.slice_speed_chart import slice_speed_chart
from advisor.report.slice_speed_text import slice_speed_text
from advisor.workload.job import Job


def slice_speed_view(asked: PageQuestion, jobs: Sequence[Job]) -> None:
    """How much slower each of `jobs` runs on smaller instances; why not, on a GPU without MIG."""
    advisor = advisor_of(asked.gpu, asked.cap_w)
    profiles = list({job.name: job.profile for job in jobs}.values())
    try:
        found = slice_speeds(profiles, advisor.card, advisor.predictor)
    except AdvisorError as error:
        st.info(str(error))
        return
    st.altair_chart(slice_speed_chart(found), width="stretch")
    st.caption(slice_speed_text(found, profiles))
