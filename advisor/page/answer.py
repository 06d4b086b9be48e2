"""Answers of the library to the page, remembered, and the views of plans that show them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.api import Advisor
from advisor.errors import AdvisorError
from advisor.hardware.gpus import Gpu
from advisor.launch.exports import EXPORTS, SUFFIXES, exported
from advisor.measure.device import present_machine
from advisor.page.link import WantedJob, at_first, linked, on_the_page
from advisor.plan import ObjectiveName
from advisor.plan.admission import Additions, AdmissionLimits, Running
from advisor.plan.fleet import FleetPlan
from advisor.plan.forecast import OverTime
from advisor.plan.objectives import OBJECTIVES, FleetTerms
from advisor.plan.ranking import verdict
from advisor.plan.reasons import compare
from advisor.plan.rules import Conditions
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.prediction import Level
from advisor.report import charts
from advisor.report.drawings import blocks, drawing, timeline
from advisor.report.forecast import basis, caution, job_rows, plan_kind, plan_name
from advisor.report.format import NOT_MEASURED, explained, shortened
from advisor.report.plan_tables import ComparisonSection, side_by_side
from advisor.report.recommendation import metric_cards, paragraphs
from advisor.report.simulation import simulation_facts
from advisor.simulation.simulate import Fleet, Simulation
from advisor.validate import MeasuredRuns, runs_of_jobs
from advisor.workload.job import Arrival, Job


def cards(figures: Iterable[tuple[str, str, str]]) -> None:
    """Show figures as cards in a row: title, value, and a value to compare with."""
    with st.container(horizontal=True):
        for label, value, other in figures:
            st.metric(
                label, value, other, delta_color="off", delta_arrow="off", border=True,
            )  # fmt: skip


def stacked_table(rows: Sequence[Mapping[str, str]], name: str) -> None:
    """Show a column for each key of `rows`; on a narrow screen each row is a block.

    Args:
        rows: With equal keys from our code: they become part of a style sheet.
        name: Unique name of the table, in a word or two.
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

    def selected(key: str) -> dict[str, Any]:
        selection: dict[str, Any] = st.session_state.get(key, {}).get("selection", {})
        return selection

    clicked = {
        "chart": [each["number"] for each in selected("chart").get("chosen", [])],
        "ranking": selected("ranking").get("rows", []),
    }
    for key, numbers in clicked.items():
        last = st.session_state.get(f"clicked on {key}")
        st.session_state[f"clicked on {key}"] = list(numbers)
        if numbers and list(numbers) != last and numbers[0] < len(names):
            st.session_state["plan"] = names[numbers[0]]


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """The question on the page.

    Attributes:
        files: Names and contents of uploaded files.
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
    """Return the advisor of a GPU; those under all caps share remembered predictions."""
    if cap_w is not None:
        return advisor_of(gpu, None).under(cap_w)
    return Advisor(gpu, present=present_machine(gpu))


_UNNOTICED_S = 0.15  # with what server and browser need, an answer stands within half a second


def rough_advice(question: PageQuestion, jobs: Sequence[Job]) -> Recommendation | None:
    """Return rough plans for the `jobs` of `question`; None if the exact ones are ready.

    Raises the errors of `Advisor.recommend`.
    """
    until = monotonic() + _UNNOTICED_S
    rough, whole = _search(question, jobs)
    wait([whole], max(0.0, until - monotonic()))
    return None if whole.done() else rough


def advice(question: PageQuestion, jobs: Sequence[Job]) -> Recommendation:
    """Return the plans for the `jobs` of `question`; raises the errors of `Advisor.recommend`."""
    _, whole = _search(question, jobs)
    if whole.exception() is not None:
        _search.clear(question, jobs)  # so that the next call tries again
    return whole.result()


@st.cache_resource(ttl=60, max_entries=100, show_spinner="Predicting ways to share ...")
def _search(
    question: PageQuestion, _jobs: Sequence[Job]
) -> tuple[Recommendation, Future[Recommendation]]:
    """The rough plans for `_jobs`, and those of the search that goes on."""
    advisor, objective = advisor_of(question.gpu, question.cap_w), question.objective
    terms: dict[str, Any] = {"conditions": question.conditions, "level": question.level}
    rough = advisor.recommend_roughly(_jobs, objective, **terms)
    return rough, _searchers().submit(advisor.recommend, _jobs, objective, **terms)


@st.cache_resource(show_spinner=False)
def _searchers() -> ThreadPoolExecutor:
    """Threads that search while the page shows rough plans."""
    return ThreadPoolExecutor(4, thread_name_prefix="advice")


@st.cache_resource(
    ttl=60, max_entries=100, show_spinner="Predicting what may be added ...",
    # `taken` identifies its jobs.
    hash_funcs={Running: lambda running: (str(running.sharing), running.free_mib)},
)  # fmt: skip
def may_be_added(
    question: PageQuestion,
    taken: tuple[int, ...],
    slowing: float,
    running: Running,
    _jobs: Sequence[Job],
) -> Additions:
    """Return which `_jobs` of `question` may be added to `running`, the jobs at places `taken`.

    Raises the errors of `Advisor.admit`.
    """
    offered = [job for at, job in enumerate(_jobs) if at not in taken]
    limits = AdmissionLimits(most_hurt=slowing, conditions=question.conditions)
    return advisor_of(question.gpu, question.cap_w).admit(running, offered, limits)


@st.cache_resource(ttl=300, max_entries=20, show_spinner="Searching a plan for several GPUs ...")
def fleet_plan(
    question: PageQuestion, gpus: int, _jobs: Sequence[Job]
) -> tuple[FleetPlan, tuple[Simulation, ...]]:
    """Return the plan for the `_jobs` of `question`, and a simulation of each of its GPUs.

    Without simulations if lengths are unknown; raises the errors of `Advisor.recommend_fleet`.
    """
    terms = FleetTerms(
        objective=question.objective,
        gpus=gpus,
        conditions=question.conditions,
        level=question.level,
    )
    plan = advisor_of(question.gpu, question.cap_w).recommend_fleet(_jobs, terms)
    if plan.makespan_s is None:
        return plan, ()
    return plan, tuple(
        advisor_of(question.gpu, on.candidate.power_cap_w or question.cap_w)
        .simulate(
            tuple(map(Arrival, on.candidate.chosen(_jobs))),
            on.candidate.sharing,
            Fleet(question.gpu, 1, "first-come"),
        )
        .simulation
        for on in plan.on
    )


@st.cache_resource(ttl=300, max_entries=20, show_spinner="Simulating the queue ...")
def queued(
    question: PageQuestion, fleet: Fleet, sharing: str, at_once: int | None, _jobs: Sequence[Job]
) -> OverTime:
    """Simulate the `_jobs` of `question` in a queue; raises the errors of `Advisor.simulate`."""
    arrivals = tuple(map(Arrival, _jobs))
    advisor = advisor_of(question.gpu, question.cap_w)
    return advisor.simulate(arrivals, sharing, fleet, at_once=at_once)


@st.cache_resource(ttl=300, max_entries=20, show_spinner="Reading runs ...")
def measured(question: PageQuestion, _jobs: Sequence[Job]) -> MeasuredRuns:
    """Return real runs of the `_jobs` of `question`; raises the errors of `runs_of_jobs`."""
    predictor = advisor_of(question.gpu, None).uncalibrated.on_known_cores()
    return runs_of_jobs([job.profile for job in _jobs], predictor)


_BOXES = {"share": st.success, "fix-host-first": st.warning}
_ROUGH = "Based on few ways to share so far: the search for the exact answer goes on."


@dataclass(frozen=True, slots=True)
class AnswerPlaces:
    """Places of an answer, first rough and then exact.

    Attributes:
        text: Place of the headline and the sentences below it.
        figures: Place of the cards.
        chart: Place of the chart of all plans; a rough answer leaves the last one there.
    """

    text: DeltaGenerator
    figures: DeltaGenerator
    chart: DeltaGenerator


def answer_places(answered: DeltaGenerator) -> AnswerPlaces:
    """Return places in `answered`, which removes its last answer."""
    text = answered.empty()
    left, right = answered.columns([1, 2], vertical_alignment="center")
    return AnswerPlaces(text, left.empty(), right)


def show_answer(advised: Recommendation, plan: Plan, at: AnswerPlaces) -> None:
    """Show the best plan in sentences, in figures, and in a chart of all; `plan` has a ring."""
    first, *others = map(on_the_page, paragraphs(advised))
    with at.text.container():
        _BOXES.get(verdict(advised).answers[0], st.info)("\n\n".join([f"### {first}", *others]))
    _figures(advised, at)
    with at.chart:
        drawn = charts.plans_chart(advised, plan)
        st.altair_chart(drawn, width="stretch", key="chart", on_select="rerun")
        st.caption("Click a point to choose its plan. The plan in the ring is shown below.")


def show_rough(rough: Recommendation, at: AnswerPlaces) -> None:
    """Show the best of the few plans of `rough`, marked as such."""
    first, *_ = map(on_the_page, paragraphs(rough))
    with at.text.container(key="rough-answer"):
        st.info(f"### :orange-badge[rough] {first}\n\n{_ROUGH}")
    _figures(rough, at)


def hide_rough(at: AnswerPlaces) -> None:
    """Remove a rough answer."""
    at.text.empty()
    at.figures.empty()


def _figures(advised: Recommendation, at: AnswerPlaces) -> None:
    figures = metric_cards(advised)
    with at.figures.container():
        cards(figures)
        if explained := OBJECTIVES[advised.ranked_by].explained:
            st.caption(f"{figures[0][0]}: {explained}")


def open_view(advised: Recommendation, plan: Plan) -> None:
    """Show the meaning and basis of `plan`, and the chosen view of it."""
    names = [job.name for job in advised.jobs]
    st.caption(f"This plan: {explained(plan.sharing, names)}.")
    st.markdown(f"**Why:** {plan.why}.")
    if warning := caution(plan.prediction):
        st.warning(warning)
    else:
        st.caption(f"All times are {basis(plan.prediction)}.")
    views = list(_VIEWS)
    chosen = st.pills(
        "View", views, default=views[at_first(views, linked().view)], required=True, key="view",
        label_visibility="collapsed",
    )  # fmt: skip
    try:
        _VIEWS[chosen or views[0]](advised, plan)
    except AdvisorError as error:
        st.info(str(error))


def _on_the_gpu(advised: Recommendation, plan: Plan) -> None:
    _draw_gpu(plan, advised.gpu)
    stacked_table(job_rows(advised.jobs, plan.prediction), "jobs of the plan")


def _draw_gpu(plan: Plan, gpu: Gpu, until_gib: float | None = None) -> None:
    """Draw the jobs of `plan` in `gpu`; the axis of memory ends with them, or at `until_gib`."""
    if cut := blocks(plan.sharing, gpu):
        jobs = [job.job for job in plan.prediction.jobs]
        st.altair_chart(charts.slices_chart(cut, gpu.memory_slices, jobs), width="stretch")
    drawn = drawing(plan.prediction, gpu)
    left, right = st.columns([3, 2])
    left.altair_chart(charts.memory_chart(drawn, until_gib), width="stretch")
    right.altair_chart(charts.sm_chart(drawn), width="stretch")
    st.caption(drawn.caption)


def _over_time(advised: Recommendation, plan: Plan) -> None:
    gpu = advised.gpu.key
    advisor = advisor_of(gpu, plan.prediction.power_cap_w)
    arrivals = tuple(map(Arrival, advised.jobs))
    simulation = advisor.simulate(arrivals, plan.sharing, Fleet(gpu, 1, "first-come")).simulation
    line = timeline(simulation, advised.gpu)
    st.altair_chart(charts.lanes_chart(line, [job.name for job in advised.jobs]), width="stretch")
    st.caption("The thin line is the 90 % interval of an end; the curves are medians.")
    for column, curve in zip(st.columns(2) * 2, line.curves, strict=True):
        if curve.measured:
            column.altair_chart(charts.curve_chart(line, curve), width="stretch")
        else:
            column.caption(f"{curve.name}: {NOT_MEASURED}")
    st.table([{"over time": name, "": value} for name, value in simulation_facts(simulation)])


def _slowdowns(_advised: Recommendation, plan: Plan) -> None:
    st.altair_chart(charts.slowdown_chart(plan.prediction), width="stretch")


def _export(advised: Recommendation, plan: Plan) -> None:
    form = st.selectbox("As", list(EXPORTS), at_first(list(EXPORTS), linked().form), key="format")
    file = exported(advised.jobs, advised.gpu, plan.prediction, form)
    for note in file.notes:
        st.warning(note)
    language = "bash" if SUFFIXES[form].endswith("sh") else None
    st.code(file.text, language=language, wrap_lines=True)
    st.download_button("Download", file.text, f"plan.{SUFFIXES[form]}", "text/plain")


def _two_plans(advised: Recommendation, plan: Plan) -> None:
    others = {f"{each.rank}  {plan_name(advised, each)}": each for each in advised.plans
              if each is not plan}  # fmt: skip
    if not others:
        st.info("There is no other plan to compare it with.")
        return
    index = at_first([plan_name(advised, each) for each in others.values()], linked().other)
    chosen = st.selectbox(
        "Compare with", list(others), index, key="second plan", format_func=shortened
    )
    pair = plan, others[chosen]
    names = [f"{each.rank}  {plan_kind(advised, each)}" for each in pair]
    comparison = compare(advised.jobs, advised.gpu, pair, advised.objective, advised.serial)
    whole, *jobs = side_by_side(comparison)
    _section(whole, names)
    until_gib = max(drawing(each.prediction, advised.gpu).used_gib for each in pair)
    for name, each in zip(names, pair, strict=True):
        st.markdown(f"**{name}**")
        _draw_gpu(each, advised.gpu, until_gib)
    for section in jobs:
        _section(section, names)


def _section(section: ComparisonSection, names: Sequence[str]) -> None:
    st.markdown(f"**{section.title}**: {shortened(section.text)}")
    st.table(pd.DataFrame(section.rows, columns=["", *names, "change"]), hide_index=True)


_VIEWS: dict[str, Callable[[Recommendation, Plan], None]] = {
    "On the GPU": _on_the_gpu,
    "Over time": _over_time,
    "Slowdown of each job": _slowdowns,
    "Compare with another plan": _two_plans,
    "Apply it": _export,
}
