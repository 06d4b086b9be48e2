"""The question on the page: GPU, objective, jobs and conditions."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.api import Advisor
from advisor.errors import AdvisorError
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.catalogue import known_gpus
from advisor.measure.process.this_machine import gpu_at_hand
from advisor.page.address import linked
from advisor.page.answers import PageQuestion, advisor_of
from advisor.page.conditions import conditions_asked
from advisor.page.handed_in import HandedIn, files_handed_in
from advisor.page.job_table import job_table
from advisor.page.refusal import refuse
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES
from advisor.prediction.estimated_profile import names_of_jobs
from advisor.report.gpu_choice import gpu_choices
from advisor.report.page_jobs import WantedJob, asked_jobs
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


def posed(by_jobs: DeltaGenerator) -> Posed | None:
    """What is asked; None where something is impossible or missing, which stands at its field.

    Args:
        by_jobs: Where the table of jobs is.
    """
    known = known_gpus()
    if not any(key in known for key in profiled_gpus()):
        st.info("Nothing is measured yet. On a machine with a GPU: `advisor profile WORKLOAD`.")
        return None
    gpu, objective = _chosen_gpu(linked().gpu), _objective()
    by_objective = st.container()
    files = files_handed_in(gpu)
    offered = tuple(dict.fromkeys([*files.jobs, *names_of_jobs(known[gpu])]))
    with by_jobs:
        wanted, jobs = _jobs(gpu, offered, files)
    if OBJECTIVES[objective].uses_deadlines and not any(each.deadline_min for each in wanted):
        by_objective.info("No job has a deadline: type one, in minutes, into “due, min”.")
    under = conditions_asked(known[gpu], objective)
    if jobs is None or under is None:
        return None
    if not (known[gpu].mig and under[1].root) and any(each.isolated for each in wanted):
        by_jobs.caption("Without MIG a job that is to be alone runs while no other does.")
    return Posed(PageQuestion(gpu, wanted, objective, *under, files.files), jobs, by_jobs)


def _jobs(
    gpu: str, offered: tuple[str, ...], files: HandedIn
) -> tuple[tuple[WantedJob, ...], tuple[Job, ...] | None]:
    """The jobs as typed, and as they are; None where these are impossible or missing."""
    wanted: tuple[WantedJob, ...] = ()
    try:
        wanted = job_table(offered, files.rows, linked().jobs, lambda: _usual_jobs(gpu, offered))
        if wanted:
            return wanted, asked_jobs(wanted, files.jobs, advisor_of(gpu, None).find_profile)
        st.info("Choose at least one job.")
    except AdvisorError as error:
        refuse(error)
    return wanted, None


def _chosen_gpu(linked: str | None) -> str:
    """The key of one; at first the `linked` one, else that of this machine, else the usual one."""
    at_hand = gpu_at_hand()
    choices = gpu_choices(at_hand)
    keys = list(choices)
    likely = next(each for each in (linked, at_hand, DEFAULT_GPU, *keys) if each in choices)
    key = st.selectbox(
        "GPU", keys, index=keys.index(likely), key="gpu",
        format_func=lambda key: choices[key].label,
    )  # fmt: skip
    st.caption(choices[key].standing)
    return key


def _objective() -> ObjectiveName:
    names, asked = list(OBJECTIVES), linked().objective
    return st.selectbox(
        "Best means", names, index=names.index(asked) if asked in OBJECTIVES else 0,
        format_func=lambda name: OBJECTIVES[name].choice, key="objective",
    )  # fmt: skip


def _usual_jobs(gpu: str, offered: Sequence[str]) -> Sequence[WantedJob]:
    """The bundled ones, else the first of those `offered`."""
    try:
        return [WantedJob(job.name, epochs=job.epochs) for job in Advisor(gpu).chosen_jobs()]
    except AdvisorError:
        return [WantedJob(name) for name in offered[:1]]
