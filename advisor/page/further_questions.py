"""What else the page answers about the same jobs; only the question that is chosen is answered."""

from collections.abc import Callable, Sequence

import streamlit as st

from advisor.page.additions_view import additions_view
from advisor.page.address import linked
from advisor.page.answers import PageQuestion
from advisor.page.fleet_view import fleet_view
from advisor.page.live_view import live_view
from advisor.page.measured_view import measured_view
from advisor.page.slice_speed_view import slice_speed_view
from advisor.page.trials_view import trials_view
from advisor.plan.recommendation import Recommendation
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
        "How fast is each on a MIG slice?": lambda: slice_speed_view(asked, jobs),
        "How good were predictions?": lambda: measured_view(asked, jobs),
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
