"""What else the page answers about the same jobs; only the question that is chosen is answered."""

from collections.abc import Callable, Sequence

import streamlit as st

from advisor.errors import AdvisorError
from advisor.page.additions_view import additions_view
from advisor.page.address import linked
from advisor.page.answers import PageQuestion, advisor_of, measured
from advisor.page.fleet_view import fleet_view
from advisor.page.live_view import live_view
from advisor.page.trials_view import trials_view
from advisor.plan.recommendation import Recommendation
from advisor.plan.slice_speeds import slice_speeds
from advisor.report.runs_of_jobs_chart import runs_of_jobs_chart
from advisor.report.slice_speed_chart import slice_speed_chart, slice_speed_text
from advisor.validate.runs_of_jobs_text import runs_of_jobs_rows, runs_of_jobs_text
from advisor.workload.job import Job


def further_questions(
    advised: Recommendation, asked: PageQuestion, jobs: Sequence[Job]
) -> str | None:
    """One question of several, and its answer; `jobs` are those of `asked`.

    Returns:
        The question, in the words of the page; None: it is the first.
    """
    views: dict[str, Callable[[], None]] = {
        "How many at once?": lambda: trials_view(advised, asked),
        "What may be added?": lambda: additions_view(asked, jobs),
        "Several GPUs?": lambda: fleet_view(advised, asked, jobs),
        "How fast is each on a MIG slice?": lambda: _slice_speed_view(asked, jobs),
        "How good were predictions?": lambda: _measured_view(asked, jobs),
        "What runs here now?": lambda: live_view(jobs),
    }
    first, *others = views
    likely = linked().question
    st.subheader("Further questions")
    chosen = st.pills(
        "Question", list(views), default=likely if likely in others else first, required=True,
        key="question", label_visibility="collapsed",
    )  # fmt: skip
    views[chosen or first]()
    return chosen if chosen in others else None


def _slice_speed_view(asked: PageQuestion, jobs: Sequence[Job]) -> None:
    """How much slower each of `jobs` runs on smaller instances; why not, on a GPU without MIG."""
    advisor = advisor_of(asked.gpu, asked.cap_w)
    profiles = list({job.name: job.profile for job in jobs}.values())
    # What an unknown host may do to a job it does on an instance and on the whole GPU alike.
    predictor = advisor.uncalibrated.on_known_cores()
    try:
        found = slice_speeds(profiles, advisor.card, predictor)
    except AdvisorError as error:
        st.info(str(error))
        return
    st.altair_chart(slice_speed_chart(found), width="stretch")
    st.caption(slice_speed_text(found, profiles))


def _measured_view(asked: PageQuestion, jobs: Sequence[Job]) -> None:
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
