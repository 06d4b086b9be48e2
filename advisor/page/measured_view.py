"""Predicted beside measured steps on the page, where real runs of the jobs are known."""

from collections.abc import Sequence

import streamlit as st

from advisor.errors import AdvisorError
from advisor.page.answers import PageQuestion, measured
from advisor.report.runs_of_jobs_chart import runs_of_jobs_chart
from advisor.validate.runs_of_jobs_text import runs_of_jobs_rows, runs_of_jobs_text
from advisor.workload.job import Job


def measured_view(asked: PageQuestion, jobs: Sequence[Job]) -> None:
    """How close predictions for runs of `jobs` came; or that there are none."""
    try:
        found = measured(asked, jobs)
    except AdvisorError as error:
        st.error(str(error))
        return
    if not found.runs:
        st.info(runs_of_jobs_text(found, asked.gpu))
        return
    drawn = runs_of_jobs_chart(runs_of_jobs_rows(found), [job.name for job in jobs])
    st.altair_chart(drawn, width="stretch")
    st.caption(runs_of_jobs_text(found, asked.gpu))
