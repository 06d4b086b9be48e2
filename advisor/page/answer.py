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
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.ranking import verdict
from advisor.plan.reasons import compare
from advisor.plan.rules import Conditions
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.prediction import Level
from advisor.report import charts
from advisor.report.comparison import ComparisonSection, side_by_side
from advisor.report.forecast import basis, caution, job_rows, plan_kind, plan_name
from advisor.report.format import NOT_MEASURED, explained, shortened
from advisor.report.recommendation import metric_cards, paragraphs
from advisor.report.simulation import curves, simulation_facts, timeline
from advisor.sharing import Sharing
from advisor.simulation.simulate import Fleet, Simulation
from advisor.workload.job import Arrival, Job


def cards(figures: Iterable[tuple[str, str, str]]) -> None:
    """Show figures as cards in a row: title, value, and a value to compare with."""
    with st.container(horizontal=True):
        for label, value, other in figures:
            st.metric(label, value, other, delta_color="off", delta_arrow="off", border=True)


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


def plans_by_name(advised: Recommendation) -> dict[str, Plan]:
    """Return the plans by their names in the lists to choose from: rank and `plan_name`."""
    return {f"{plan.rank}  {plan_name(advised, plan)}": plan for plan in advised.plans}


def choose_clicked(names: Sequence[str]) -> None:
    """Choose the plan of `names` that was clicked; each click counts once."""
    for key, field in (("chart", "chosen"), ("ranking", "rows")):
        selected = st.session_state.get(key, {}).get("selection", {}).get(field, [])
        numbers = [each["number"] if key == "chart" else each for each in selected]
        last = st.session_state.get(f"clicked on {key}")
        st.session_state[f"clicked on {key}"] = numbers
        if numbers and numbers != last and numbers[0] < len(names):
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
_ROUGH = "Based on few ways to share so far: the search for the exact answer goes on."
Places = tuple[DeltaGenerator, DeltaGenerator, DeltaGenerator]
"""Places of the sentences of an answer, of its cards, and of the chart of all plans."""


def advice(
    question: PageQuestion, jobs: Sequence[Job], at: DeltaGenerator
) -> tuple[Recommendation, Places]:
    """Return the plans for the `jobs` of `question`, and their places in `at`.

    If the search takes long, these show the best of few plans until it ends.

    Raises:
        AdvisorError: As `Advisor.recommend`.
    """
    until = monotonic() + _UNNOTICED_S
    rough, whole = _search(question, jobs)
    wait([whole], max(0.0, until - monotonic()))
    places = None
    if not whole.done():
        places = text, _, _ = answer_places(at)
        first, *_ = map(on_the_page, paragraphs(rough))
        with text.container(key="rough-answer"):
            st.info(f"### :orange-badge[rough] {first}\n\n{_ROUGH}")
        _figures(rough, places)
    if whole.exception() is not None:
        _search.clear(question, jobs)  # so that the next call tries again
        for place in (places or ())[:2]:
            place.empty()
    return whole.result(), places or answer_places(at)


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


def on_one_gpu(advisor: Advisor, jobs: Sequence[Job], sharing: Sharing) -> Simulation:
    """Simulate `jobs` that all arrive at once on one GPU."""
    fleet = Fleet(advisor.card.key, 1, "first-come")
    return advisor.simulate(tuple(map(Arrival, jobs)), sharing, fleet).simulation


_BOXES = {"share": st.success, "fix-host-first": st.warning}


def answer_places(at: DeltaGenerator) -> Places:
    """Return places in `at`, which removes its last answer."""
    text = at.empty()
    left, right = at.columns([1, 2], vertical_alignment="center")
    return text, left.empty(), right


def show_answer(advised: Recommendation, plan: Plan, at: Places) -> None:
    """Show the best plan in sentences, in figures, and in a chart of all; `plan` has a ring."""
    text, _, chart = at
    first, *others = map(on_the_page, paragraphs(advised))
    with text.container():
        _BOXES.get(verdict(advised).answers[0], st.info)("\n\n".join([f"### {first}", *others]))
    _figures(advised, at)
    with chart:
        drawn = charts.plans_chart(advised, plan)
        st.altair_chart(drawn, width="stretch", key="chart", on_select="rerun")
        st.caption("Click a point to choose its plan. The plan in the ring is shown below.")


def _figures(advised: Recommendation, at: Places) -> None:
    figures = metric_cards(advised)
    with at[1].container():
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
    if cut := charts.blocks(plan.sharing, gpu):
        jobs = [job.job for job in plan.prediction.jobs]
        st.altair_chart(charts.slices_chart(cut, gpu.memory_slices, jobs), width="stretch")
    drawn = charts.drawing(plan.prediction, gpu)
    left, right = st.columns([3, 2])
    left.altair_chart(charts.memory_chart(drawn, until_gib), width="stretch")
    right.altair_chart(charts.sm_chart(drawn), width="stretch")
    st.caption(drawn.caption)


def _over_time(advised: Recommendation, plan: Plan) -> None:
    advisor = advisor_of(advised.gpu.key, plan.prediction.power_cap_w)
    simulation = on_one_gpu(advisor, advised.jobs, plan.sharing)
    line = timeline(simulation)
    st.altair_chart(charts.lanes_chart(line, [job.name for job in advised.jobs]), width="stretch")
    st.caption("The thin line is the 90 % interval of an end; the curves are medians.")
    for column, curve in zip(st.columns(2) * 2, curves(simulation, advised.gpu), strict=True):
        if curve.readings:
            column.altair_chart(charts.curve_chart(line, curve), width="stretch")
        else:
            column.caption(f"{curve.name}: {NOT_MEASURED}")
    st.table([{"over time": name, "": value} for name, value in simulation_facts(simulation)])


def _slowdowns(_advised: Recommendation, plan: Plan) -> None:
    st.altair_chart(charts.slowdown_chart(plan.prediction), width="stretch")


def _export(advised: Recommendation, plan: Plan) -> None:
    form = st.selectbox("As", list(EXPORTS), at_first(list(EXPORTS), linked().form), key="format")
    text, notes = exported(advised.jobs, advised.gpu, plan.prediction, form)
    for note in notes:
        st.warning(note)
    language = "bash" if SUFFIXES[form].endswith("sh") else None
    st.code(text, language=language, wrap_lines=True)
    st.download_button("Download", text, f"plan.{SUFFIXES[form]}", "text/plain")


def _two_plans(advised: Recommendation, plan: Plan) -> None:
    others = {name: each for name, each in plans_by_name(advised).items() if each is not plan}
    if not others:
        st.info("There is no other plan to compare it with.")
        return
    index = at_first([plan_name(advised, each) for each in others.values()], linked().beside)
    chosen = st.selectbox(
        "Compare with", list(others), index, key="second plan", format_func=shortened
    )
    pair = plan, others[chosen]
    names = [f"{each.rank}  {plan_kind(advised, each)}" for each in pair]
    comparison = compare(advised.jobs, advised.gpu, pair, advised.objective, advised.serial)
    whole, *jobs = side_by_side(comparison)
    _section(whole, names)
    until_gib = max(charts.drawing(each.prediction, advised.gpu).used_gib for each in pair)
    for name, each in zip(names, pair, strict=True):
        st.markdown(f"**{name}**")
        _draw_gpu(each, advised.gpu, until_gib)
    for section in jobs:
        _section(section, names)


def _section(section: ComparisonSection, names: Sequence[str]) -> None:
    title, text, rows = section
    st.markdown(f"**{title}**: {shortened(text)}")
    st.table(pd.DataFrame(rows, columns=["", *names, "change"]), hide_index=True)


_VIEWS: dict[str, Callable[[Recommendation, Plan], None]] = {
    "On the GPU": _on_the_gpu,
    "Over time": _over_time,
    "Slowdown of each job": _slowdowns,
    "Compare with another plan": _two_plans,
    "Apply it": _export,
}
