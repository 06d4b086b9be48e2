"""What the page asks the library, remembered so that a question that changes another is quick."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic
from typing import Any

import streamlit as st

from advisor.api import Advisor
from advisor.measure.process.this_machine import present_machine
from advisor.plan import ObjectiveName
from advisor.plan.admission import Additions, AdmissionLimits
from advisor.plan.fleet_plan import FleetPlan
from advisor.plan.fleet_terms import FleetTerms
from advisor.plan.over_time import OverTime
from advisor.plan.recommendation import Recommendation
from advisor.plan.rules import Conditions
from advisor.plan.running_jobs import Running
from advisor.prediction.interval import Level
from advisor.report.page_jobs import WantedJob
from advisor.timeline.outcome import Simulation
from advisor.timeline.simulate import Fleet
from advisor.validate.runs_of_jobs import MeasuredRuns, runs_of_jobs
from advisor.workload.job import Arrival, Job


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """All that is asked on the page.

    Attributes:
        files: Names and contents of what was handed in.
    """

    gpu: str
    jobs: tuple[WantedJob, ...]
    objective: ObjectiveName
    cap_w: float | None
    conditions: Conditions
    level: Level
    files: tuple[tuple[str, bytes], ...] = ()


@st.cache_resource(ttl=300, max_entries=8, show_spinner=False)
def advisor_of(gpu: str, cap_w: float | None) -> Advisor:
    """Remembers its predictions, those under different caps as one."""
    if cap_w is not None:
        return advisor_of(gpu, None).under(cap_w)
    return Advisor(gpu, present=present_machine(gpu))


_UNNOTICED_S = 0.15  # with what server and browser need, an answer stands within half a second


@dataclass(frozen=True, slots=True)
class _Search:
    """A search for plans, and what it finds at once.

    Attributes:
        rough: From a search that stopped early; see `Advisor.recommend_roughly`.
        whole: From the search that goes on, or has ended.
    """

    rough: Recommendation
    whole: Future[Recommendation]


def rough_advice(asked: PageQuestion, jobs: Sequence[Job]) -> Recommendation | None:
    """Rough plans for `jobs`, which are those of `asked`; None where nobody has to wait for more.

    Errors are those of `Advisor.recommend`.
    """
    until = monotonic() + _UNNOTICED_S
    found = _search(asked, jobs)
    wait([found.whole], max(0.0, until - monotonic()))
    return None if found.whole.done() else found.rough


def advice(asked: PageQuestion, jobs: Sequence[Job]) -> Recommendation:
    """The plans for `jobs`, which are those of `asked`; errors as of `Advisor.recommend`."""
    found = _search(asked, jobs).whole
    if found.exception() is not None:
        _search.clear(asked, jobs)  # asked again, it is tried again
    return found.result()


@st.cache_resource(ttl=60, max_entries=100, show_spinner="Predicting ways to share ...")
def _search(asked: PageQuestion, _jobs: Sequence[Job]) -> _Search:
    """The search for plans for `_jobs`: first the rough ones, which it needs too."""
    advisor, objective = advisor_of(asked.gpu, asked.cap_w), asked.objective
    terms: dict[str, Any] = {"conditions": asked.conditions, "level": asked.level}
    rough = advisor.recommend_roughly(_jobs, objective, **terms)
    return _Search(rough, _searchers().submit(advisor.recommend, _jobs, objective, **terms))


@st.cache_resource(show_spinner=False)
def _searchers() -> ThreadPoolExecutor:
    """Search while the page shows what is known; also what nobody waits for any more."""
    return ThreadPoolExecutor(4, thread_name_prefix="advice")


@st.cache_resource(
    ttl=60, max_entries=100, show_spinner="Predicting what may be added ...",
    # Its jobs are told by their places.
    hash_funcs={Running: lambda running: (str(running.sharing), running.free_mib)},
)  # fmt: skip
def may_be_added(
    asked: PageQuestion, taken: tuple[int, ...], hurt: float, running: Running, _jobs: Sequence[Job]
) -> Additions:
    """Which of `_jobs`, which are those of `asked`, may be added to those at the places `taken`.

    These are `running`; errors as of `Advisor.admit`.
    """
    offered = [job for at, job in enumerate(_jobs) if at not in taken]
    limits = AdmissionLimits(most_hurt=hurt, conditions=asked.conditions)
    return advisor_of(asked.gpu, asked.cap_w).admit(running, offered, limits)


@st.cache_resource(ttl=300, max_entries=20, show_spinner="Searching a plan for several GPUs ...")
def fleet_plan(
    asked: PageQuestion, gpus: int, _jobs: Sequence[Job]
) -> tuple[FleetPlan, tuple[Simulation, ...]]:
    """The plan for `_jobs`, which are those of `asked`, and what each GPU of it does over time.

    Nothing where lengths are not known; errors as of `Advisor.recommend_fleet`.
    """
    terms = FleetTerms(
        objective=asked.objective, gpus=gpus, conditions=asked.conditions, level=asked.level
    )
    found = advisor_of(asked.gpu, asked.cap_w).recommend_fleet(_jobs, terms)
    if found.makespan_s is None:
        return found, ()
    return found, tuple(
        advisor_of(asked.gpu, each.candidate.power_cap_w or asked.cap_w)
        .simulate(
            tuple(map(Arrival, each.candidate.chosen(_jobs))),
            each.candidate.sharing,
            Fleet(asked.gpu, 1, "first-come"),
        )
        .simulation
        for each in found.on
    )


@st.cache_resource(ttl=300, max_entries=20, show_spinner="Simulating the queue ...")
def queued(
    asked: PageQuestion, fleet: Fleet, sharing: str, at_once: int | None, _jobs: Sequence[Job]
) -> OverTime:
    """What comes of `_jobs`, which are those of `asked`; errors as of `Advisor.simulate`."""
    arrivals = tuple(map(Arrival, _jobs))
    advisor = advisor_of(asked.gpu, asked.cap_w)
    return advisor.simulate(arrivals, sharing, fleet, at_once=at_once)


@st.cache_resource(ttl=300, max_entries=20, show_spinner="Reading runs ...")
def measured(asked: PageQuestion, _jobs: Sequence[Job]) -> MeasuredRuns:
    """Real runs of `_jobs`, which are those of `asked`; errors as of `runs_of_jobs`."""
    predictor = advisor_of(asked.gpu, None).uncalibrated.on_known_cores()
    return runs_of_jobs([job.profile for job in _jobs], predictor)
