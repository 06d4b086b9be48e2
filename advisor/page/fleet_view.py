"""Several equal GPUs on the page: which job runs where and when, and what that gains."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import streamlit as st

from advisor.errors import AdvisorError
from advisor.page.address import at_first, linked
from advisor.page.answers import PageQuestion, fleet_plan, queued
from advisor.page.cards import cards
from advisor.page.refusal import refuse
from advisor.page.stacked_table import stacked_table
from advisor.plan import MOST_GPUS
from advisor.plan.over_time import OverTime
from advisor.plan.recommendation import Recommendation
from advisor.report.charts import lanes_chart
from advisor.report.fleet_document import fleet_commands, fleet_document
from advisor.report.fleet_drawing import (
    JobOnGpu,
    gains_of,
    job_rows_of,
    jobs_of_plan,
    jobs_of_queue,
    lanes_of,
    names_of,
)
from advisor.report.fleet_text import fleet_answer, fleet_gpu_rows, fleet_notes
from advisor.report.page_words import on_the_page
from advisor.report.simulation_text import simulation_document, simulation_facts, simulation_heading
from advisor.report.simulation_trace import trace_text
from advisor.timeline import Policy
from advisor.timeline.simulate import Fleet
from advisor.workload.job import Job

_PLAN = "the best plan found"
_ALONE = "serial"


def fleet_view(advised: Recommendation, asked: PageQuestion, jobs: Sequence[Job]) -> None:
    """What comes of `jobs`, which are those of `asked`, once it is said how many GPUs there are."""
    left, right = st.columns(2)
    ways = (_PLAN, *get_args(Policy))
    gpus = left.number_input(
        f"How many {asked.gpu} are there?", 1, MOST_GPUS, linked().gpus, 1, key="gpus",
        placeholder="All are alike",
    )  # fmt: skip
    who = right.selectbox(
        "Who runs where, and when, is said by", ways, ways.index(linked().policy or _PLAN),
        key="policy",
        help="Or a queue: the first who came, the shortest, or who adds most by prediction.",
    )  # fmt: skip
    try:
        if who != _PLAN:
            _queue(asked, jobs, gpus, who)
        elif gpus is not None:
            _plan(advised, asked, jobs, gpus)
    except AdvisorError as error:
        refuse(error)


def _plan(advised: Recommendation, asked: PageQuestion, jobs: Sequence[Job], gpus: int) -> None:
    found, simulated = fleet_plan(asked, gpus, jobs)
    st.markdown(f"**{fleet_answer(found)}**")
    if found.makespan_s is not None:
        alone = advised.best.makespan_s if gpus > 1 else None
        cards(gains_of(found.makespan_s, alone, found.serial_s))
        _who_when(jobs_of_plan(found, simulated))
    stacked_table(fleet_gpu_rows(found), "GPUs")
    for said in fleet_notes(found):
        st.caption(on_the_page(said))
    with st.expander("Apply it"):
        text = fleet_commands(found, 1)
        st.code(text, language="bash", wrap_lines=True)
        st.download_button("Download", text, "fleet.sh", "text/plain", key="fleet commands")
    _document(fleet_document(found))


def _queue(asked: PageQuestion, jobs: Sequence[Job], gpus: int | None, policy: Policy) -> None:
    left, middle, right = st.columns(3)
    known = linked()
    ways = list(dict.fromkeys(["mps", "naive", *filter(None, [known.sharing])]))
    sharing = left.selectbox(
        "Jobs on one GPU share it by", ways, at_first(ways, known.sharing), key="fleet sharing",
        accept_new_options=True,
        help="Or as `advisor simulate` takes it: `mps=50,50`, `mig=3g.71gb,4g.71gb`.",
    )  # fmt: skip
    at_once = middle.number_input(
        "Jobs on a GPU at once, at most", 1, None, known.at_once, 1, key="at once",
        placeholder="what fits",
    )  # fmt: skip
    price = right.number_input(
        "EUR for a GPU's hour", 0.0, None, known.price, key="price",
        placeholder="costs are left out",
    )  # fmt: skip
    if gpus is not None:
        _queue_answer(asked, jobs, Fleet(asked.gpu, gpus, policy, price), (sharing, at_once))


def _queue_answer(
    asked: PageQuestion, jobs: Sequence[Job], fleet: Fleet, shared: tuple[str, int | None]
) -> None:
    """What comes of `jobs` where each GPU is `shared` like that, by so many at once at most."""
    sharing, at_once = shared
    found = queued(asked, fleet, sharing, at_once, jobs)
    simulation = found.simulation
    st.markdown(f"**{simulation_heading(found)}**")
    one_gpu_s = None
    if fleet.gpus > 1:
        one_gpu_s = _until_s(queued(asked, replace(fleet, gpus=1), sharing, at_once, jobs))
    one_job_each_s = _until_s(queued(asked, fleet, _ALONE, None, jobs))
    cards(gains_of(simulation.makespan_s, one_gpu_s, one_job_each_s))
    _who_when(jobs_of_queue(simulation))
    st.table([{"over time": name, "": said} for name, said in simulation_facts(simulation)])
    st.download_button(
        "Download the trace, for ui.perfetto.dev", trace_text(simulation), "fleet-trace.json",
        "application/json",
    )  # fmt: skip
    _document(simulation_document(found))


def _until_s(found: OverTime) -> float:
    return found.simulation.makespan_s.p50


def _who_when(placed: Sequence[JobOnGpu]) -> None:
    st.altair_chart(lanes_chart(lanes_of(placed), names_of(placed)), width="stretch")
    st.caption("The thin line is where nine of ten ends should fall.")
    stacked_table(job_rows_of(placed), "jobs on GPUs")


def _document(found: dict[str, Any]) -> None:
    text = json.dumps(found, indent=1, allow_nan=False)
    st.download_button("Download as JSON", text, "fleet.json", "application/json", key="fleet json")
