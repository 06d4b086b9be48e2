"""What the page asks the library, remembered so that a question that changes another is quick."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.api import Advisor
from advisor.measure.device import present_machine
from advisor.page.link import WantedJob, on_the_page
from advisor.plan import ObjectiveName
from advisor.plan.admission import Additions, AdmissionLimits, Running
from advisor.plan.fleet import FleetPlan
from advisor.plan.forecast import OverTime
from advisor.plan.objectives import OBJECTIVES, FleetTerms
from advisor.plan.ranking import verdict
from advisor.plan.rules import Conditions
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.prediction import Level
from advisor.report.charts import plans_chart
from advisor.report.recommendation import metric_cards, paragraphs
from advisor.simulation.simulate import Fleet, Simulation
from advisor.validate import MeasuredRuns, runs_of_jobs
from advisor.workload.job import Arrival, Job


def cards(figures: Iterable[tuple[str, str, str]]) -> None:
    """Side by side where they fit; of each what it is of, the figure, and what it compares with."""
    with st.container(horizontal=True):
        for label, value, beside in figures:
            st.metric(
                label, value, beside, delta_color="off", delta_arrow="off", border=True,
            )  # fmt: skip


def stacked_table(rows: Sequence[Mapping[str, str]], name: str) -> None:
    """A column for each key of `rows`; where a row is a block, its first line is the heading.

    Args:
        rows: With equal keys, which are ours: they become part of a style sheet.
        name: Of this table alone, in a word or two.
    """
    key = f"rows-{name.replace(' ', '-')}"
    heads = "".join(
        f'.st-key-{key} td:nth-child({number})::before {{content: "{head}"}}'
        for number, head in enumerate(rows[0], start=1)
    )
    with st.container(key=key):
        st.html(f"<style>@media (max-width: 640px) {{{heads}}}</style>")
        st.table(pd.DataFrame(rows), hide_index=True)


def choose_clicked(names: Sequence[str]) -> None:
    """Choose the plan of `names` that was clicked; each click counts once."""
    found = {
        "chart": [each["number"] for each in _selected("chart").get("chosen", [])],
        "ranking": _selected("ranking").get("rows", []),
    }
    for where, numbers in found.items():
        known = st.session_state.get(f"clicked on {where}")
        st.session_state[f"clicked on {where}"] = list(numbers)
        if numbers and list(numbers) != known and numbers[0] < len(names):
            st.session_state["plan"] = names[numbers[0]]


def _selected(where: str) -> dict[str, Any]:
    """What is selected there; nothing where it is not in view."""
    found: dict[str, Any] = st.session_state.get(where, {}).get("selection", {})
    return found


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


_BOXES = {"share": st.success, "fix-host-first": st.warning}
_ROUGH = "Few ways to share are looked at so far: the exact answer is being worked out."


@dataclass(frozen=True, slots=True)
class AnswerPlaces:
    """Where an answer stands, a rough one and then the exact one.

    Attributes:
        said: Of the large line, and what is said under it.
        figures: Of the cards.
        chart: Of all plans; while a rough answer stands, the last one's is left there.
    """

    said: DeltaGenerator
    figures: DeltaGenerator
    chart: DeltaGenerator


def answer_places(answered: DeltaGenerator) -> AnswerPlaces:
    """Places in `answered`, whose last answer goes: to be called when the next one is known."""
    said = answered.empty()
    left, right = answered.columns([1, 2], vertical_alignment="center")
    return AnswerPlaces(said, left.empty(), right)


def show_answer(advised: Recommendation, plan: Plan, at: AnswerPlaces) -> None:
    """What is best, in a line, in figures, and beside all others, of which `plan` is looked at."""
    found = verdict(advised)
    first, *others = map(on_the_page, paragraphs(advised))
    said = "\n\n".join([f"### {first}", *others])
    with at.said.container():
        _BOXES.get(found.answers[0], st.info)(said)
    _figures(advised, at)
    with at.chart:
        drawn = plans_chart(advised, plan)
        st.altair_chart(drawn, width="stretch", key="chart", on_select="rerun")
        st.caption("A click on a point chooses that plan: the one in the ring is shown below.")


def show_rough(rough: Recommendation, at: AnswerPlaces) -> None:
    """The best of the few plans of `rough`, marked; nothing of it can be chosen or taken away."""
    first, *_ = map(on_the_page, paragraphs(rough))
    with at.said.container(key="rough-answer"):
        st.info(f"### :orange-badge[rough] {first}\n\n{_ROUGH}")
    _figures(rough, at)


def hide_rough(at: AnswerPlaces) -> None:
    """Take away what stands there, since there is no exact answer."""
    at.said.empty()
    at.figures.empty()


def _figures(advised: Recommendation, at: AnswerPlaces) -> None:
    figures = metric_cards(advised)
    with at.figures.container():
        cards(figures)
        if explained := OBJECTIVES[advised.ranked_by].explained:
            st.caption(f"{figures[0][0]}: {explained}")
