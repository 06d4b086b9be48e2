"""What may be added on the page to jobs that run already."""

from collections.abc import Mapping, Sequence

import streamlit as st

from advisor.errors import AdvisorError
from advisor.hardware.gpu_state import LiveGpu
from advisor.hardware.live_gpu import live_gpus
from advisor.page.address import at_first, linked
from advisor.page.answers import PageQuestion, may_be_added
from advisor.page.refusal import refuse
from advisor.page.stacked_table import stacked_table
from advisor.plan.admission import Additions
from advisor.plan.rules import MOST_HURT
from advisor.plan.running_jobs import Running, held_alone_mib, recognised, running_now
from advisor.report.additions_text import (
    addition_rows,
    additions_advice,
    joined_rows,
    notes_on_additions,
)
from advisor.report.gpu_drawing import row_name
from advisor.report.headline import with_estimates_named
from advisor.sharing import parse_sharing
from advisor.workload.job import Job


def additions_view(asked: PageQuestion, jobs: Sequence[Job]) -> None:
    """Which of `jobs` may join those of them that run already, once it is said which these are."""
    live = _live_gpus(asked.gpu)
    how, taken = _what_runs(live, jobs)
    known = linked()
    hurt = st.number_input(
        "May get slower by, %", format="%g", key="hurt",
        value=100 * (MOST_HURT if known.hurt is None else known.hurt),
        help="By how much a step of a job that runs already may take longer.",
    )  # fmt: skip
    if not taken and how not in live:
        return
    try:
        running = _running(how, live, [jobs[at] for at in taken], jobs)
        if running is None:
            st.caption("Nothing runs there now: all of it is free.")
        elif len(taken) == len(jobs):
            st.info("All of the jobs run already: choose fewer, or add a job to the table.")
        else:
            _show(may_be_added(asked, taken, hurt / 100, running, jobs))
    except AdvisorError as error:
        if taken:
            refuse(error)
        else:
            st.info(str(error))


def _what_runs(live: Mapping[str, LiveGpu], jobs: Sequence[Job]) -> tuple[str, tuple[int, ...]]:
    """How what runs shares the GPU, and which of `jobs` run, by their places from 0."""
    known = linked()
    rows = [row_name(number, job.name) for number, job in enumerate(jobs, start=1)]
    ways = list(dict.fromkeys([*live, "naive", "mps", *filter(None, [known.running_sharing])]))
    how = st.selectbox(
        "What runs shares the GPU", ways, at_first(ways, known.running_sharing),
        key="running sharing", accept_new_options=True,
        help="Or as `advisor predict` takes it: `mps=50,50`, `mig=3g.71gb@0`.",
    )  # fmt: skip
    seen = recognised(live[how], jobs) if how in live else ()
    at_start = seen or [place - 1 for place in known.running if place <= len(rows)]
    names = st.multiselect(
        "Jobs that run already", rows, [rows[at] for at in at_start], key=f"running {seen}",
        placeholder="Choose among the jobs",
    )  # fmt: skip
    taken = tuple(rows.index(name) for name in names)
    st.session_state["running jobs"] = tuple(at + 1 for at in taken)
    return how, taken


def _live_gpus(gpu: str) -> dict[str, LiveGpu]:
    """Those of this machine that are of the model `gpu`, by what the choice of one is called."""
    try:
        found = [each for each in live_gpus() if isinstance(each, LiveGpu)]
    except AdvisorError:
        return {}
    return {
        f"as the driver says of GPU {each.index}": each
        for each in found if each.catalogue_key == gpu
    }  # fmt: skip


def _running(
    how: str, live: Mapping[str, LiveGpu], named: Sequence[Job], jobs: Sequence[Job]
) -> Running | None:
    if how in live:
        return running_now(live[how], named, held_alone_mib(job.profile for job in jobs))
    return Running(jobs=tuple(named), sharing=parse_sharing(how))


def _show(found: Additions) -> None:
    st.markdown(f"**{with_estimates_named(found.standing, additions_advice(found))}**")
    rows = addition_rows(found)
    stacked_table(rows, "additions")
    names = [row["add"] for row in rows]
    index = at_first(names, linked().added)
    chosen = names.index(st.selectbox("How each fares with", names, index, key="added"))
    stacked_table(joined_rows(found, found.found[chosen]), "jobs with those added")
    for said in notes_on_additions(found):
        st.caption(said)
