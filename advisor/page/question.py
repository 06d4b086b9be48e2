"""The question on the page: GPU, objective, jobs and conditions."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.api import Advisor
from advisor.errors import AdvisorError
from advisor.hardware.catalogue import known_gpus
from advisor.page.answers import PageQuestion, advisor_of
from advisor.page.gpu_choice import chosen_gpu
from advisor.page.handed_in import files_handed_in
from advisor.page.job_table import job_table
from advisor.page.refusal import refuse
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import Conditions
from advisor.prediction.estimated_profile import names_of_jobs
from advisor.prediction.mix_prediction import Level
from advisor.prediction.power_cap import CAP_NOTE
from advisor.report.page_jobs import WantedJob, asked_jobs
from advisor.report.page_link import LinkedQuestion, linked_question, parameters
from advisor.workload.job import Job
from advisor.workload.store import profiled_gpus


@dataclass(frozen=True, slots=True)
class Posed:
    """A question that can be answered.

    Attributes:
        asked: As typed.
        jobs: Those of `asked`.
        by_jobs: Where to say what is wrong with them together.
    """

    asked: PageQuestion
    jobs: tuple[Job, ...]
    by_jobs: DeltaGenerator


def posed() -> Posed | None:
    """What is asked; None where something is impossible or missing, which stands at its field."""
    known = known_gpus()
    if not any(key in known for key in profiled_gpus()):
        st.info("Nothing is measured yet. On a machine with a GPU: `advisor profile WORKLOAD`.")
        return None
    gpu, objective = chosen_gpu(_linked().gpu), _objective()
    files = files_handed_in(gpu)
    offered = tuple(dict.fromkeys([*files.jobs, *names_of_jobs(known[gpu])]))
    by_jobs = st.container()
    wanted: tuple[WantedJob, ...] = ()
    jobs: tuple[Job, ...] | None = None
    with by_jobs:
        try:
            wanted = job_table(offered, files.rows, lambda: _usual_jobs(gpu, offered))
            if wanted:
                jobs = asked_jobs(wanted, files.jobs, advisor_of(gpu, None).find_profile)
            else:
                st.info("Choose at least one job.")
        except AdvisorError as error:
            refuse(error)
    st.query_params.from_dict(parameters(LinkedQuestion(gpu, objective, wanted)))
    under = _conditions(gpu)
    if jobs is None or under is None:
        return None
    return Posed(PageQuestion(gpu, wanted, objective, *under, files.files), jobs, by_jobs)


def _objective() -> ObjectiveName:
    names, linked = list(OBJECTIVES), _linked().objective
    return st.selectbox(
        "Best means", names, index=names.index(linked) if linked in OBJECTIVES else 0,
        format_func=lambda name: OBJECTIVES[name].choice, key="objective",
    )  # fmt: skip


def _linked() -> LinkedQuestion:
    """What the link asked with which the page was opened."""
    if "linked" not in st.session_state:
        given = st.query_params
        found = {name: given.get_all(name) for name in given}
        st.session_state["linked"] = linked_question(found)
    linked: LinkedQuestion = st.session_state["linked"]
    return linked


def _usual_jobs(gpu: str, offered: Sequence[str]) -> Sequence[WantedJob]:
    """Those of the link, else the bundled ones, else the first of those `offered`."""
    if linked := [each for each in _linked().jobs if each.name in offered]:
        return linked
    try:
        return [WantedJob(job.name, epochs=job.epochs) for job in Advisor(gpu).chosen_jobs()]
    except AdvisorError:
        return [WantedJob(name) for name in offered[:1]]


def _conditions(gpu: str) -> tuple[float | None, Conditions, Level] | None:
    """Power cap, conditions and what counts of a range; None where one of them is impossible."""
    with st.expander("Conditions"):
        cap_w = st.number_input(
            "Power cap, W", value=None, step=10.0, format="%g", key="power cap",
            placeholder="the GPU's own limit",
            help=f"What the GPU may draw at most. What a cap does was {CAP_NOTE}.",
        )  # fmt: skip
        try:
            if cap_w is not None:
                _ = advisor_of(gpu, cap_w).predictor
            capped = True
        except AdvisorError as error:
            refuse(error)
            capped = False
        caps = st.checkbox(
            "A plan may choose a power cap", key="power caps", disabled=cap_w is not None
        )
        free = st.number_input("Memory to keep free, %", value=0.0, format="%g", key="memory")
        by_memory = st.container()
        root = st.checkbox("MIG may be switched on, which takes root", value=True, key="root")
        upper = st.checkbox("Rank by the upper ends of the ranges", key="pessimistic")
    try:
        found = Conditions(root=root, memory_margin=free / 100, power_caps=caps and cap_w is None)
    except AdvisorError as error:
        refuse(error, by_memory)
        return None
    return (cap_w, found, "p95" if upper else "p50") if capped else None
