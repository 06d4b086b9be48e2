"""Further questions of the page: trials, additions, several GPUs, slices, runs, this machine."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.errors import AdvisorError
from advisor.hardware.live_gpu import live_gpus
from advisor.hardware.machine import LiveGpu
from advisor.launch.commands import why_not_started
from advisor.page.question import Question, advisor_of, plain
from advisor.plan import MOST_GPUS, START_S, admission
from advisor.plan.admission import Additions, Running
from advisor.plan.cluster import FleetTerms
from advisor.plan.fleet import FleetPlan
from advisor.plan.forecast import OverTime
from advisor.plan.rules import MOST_SLOWING
from advisor.plan.slices import slice_speeds
from advisor.plan.values import Recommendation
from advisor.report import charts, copies, fleet
from advisor.report.forecast import with_estimates_named
from advisor.report.lists import live_facts, live_lines, live_name, process_rows
from advisor.report.simulation import (
    row_name,
    simulation_document,
    simulation_facts,
    simulation_heading,
    trace_text,
)
from advisor.sharing import parse_sharing
from advisor.simulation import Policy
from advisor.simulation.simulate import Fleet, Simulation
from advisor.validate import MeasuredRuns, runs_of_jobs, runs_of_jobs_rows, runs_of_jobs_text
from advisor.workload.job import Arrival, Job

_PLAN = "the best plan found"


def _cards(figures: Iterable[tuple[str, str, str]]) -> None:
    with st.container(horizontal=True):
        for label, value, other in figures:
            st.metric(label, value, other, delta_color="off", delta_arrow="off", border=True)


def _fleet_plan(
    question: Question, gpus: int, _jobs: Sequence[Job]
) -> tuple[FleetPlan, tuple[Simulation, ...]]:
    """The plan for the `_jobs`, and a simulation of each of its GPUs, if lengths are known."""
    terms = FleetTerms(
        objective=question.objective, gpus=gpus, conditions=question.conditions,
        level=question.level,
    )  # fmt: skip
    plan = advisor_of(question.gpu, question.cap_w).recommend_fleet(_jobs, terms)
    simulations = []
    for on in plan.on if plan.makespan_s is not None else ():
        advisor = advisor_of(question.gpu, on.power_cap_w or question.cap_w)
        jobs = on.members
        one = Fleet(question.gpu, 1, "first-come")
        queued = advisor.simulate(tuple(map(Arrival, jobs)), on.sharing, one)
        simulations.append(queued.simulation)
    return plan, tuple(simulations)


def _queued(
    question: Question, many: Fleet, sharing: str, at_once: int | None, _jobs: Sequence[Job]
) -> OverTime:
    advisor = advisor_of(question.gpu, question.cap_w)
    return advisor.simulate(tuple(map(Arrival, _jobs)), sharing, many, at_once=at_once)


def _fleet_view(advised: Recommendation, question: Question, jobs: Sequence[Job]) -> None:
    """Show a plan or a queue for the `jobs`, if the number of GPUs is typed."""
    left, right = st.columns(2)
    ways = (_PLAN, *get_args(Policy))
    gpus = left.number_input(
        f"How many {question.gpu} are there?", 1, MOST_GPUS, None, 1, key="gpus",
        placeholder="All are equal",
    )  # fmt: skip
    who = right.selectbox(
        "Policy", ways, 0, key="policy",
        help="Or a queue that starts the first job, the shortest, or the one that adds most work.",
    )  # fmt: skip
    if who != _PLAN:
        _queue(question, jobs, gpus, who)
        return
    if gpus is None:
        return
    plan, simulated = _fleet_plan(question, gpus, jobs)
    st.markdown(f"**{fleet.fleet_answer(plan)}**")
    serial_s = plan.serial.makespan_s
    if plan.makespan_s is not None and serial_s is not None:
        one_gpu_s = advised.best.makespan_s if gpus > 1 else None
        _cards(fleet.gains_of(plan.makespan_s, one_gpu_s, serial_s.p50))
        _jobs_on_gpus(fleet.jobs_of_plan(plan, simulated))
    st.table(fleet.plan_rows(plan), hide_index=True)
    st.table(fleet.fleet_gpu_rows(plan), hide_index=True)
    for note in fleet.fleet_notes(plan):
        st.caption(note)
    with st.expander("Apply it"):
        if why := why_not_started(plan):
            st.info(why)
        else:
            text = fleet.fleet_commands(plan, 1)
            st.code(text, language="bash", wrap_lines=True)
            st.download_button("Download", text, "fleet.sh", "text/plain", key="fleet commands")
    _document(fleet.fleet_document(plan))


def _queue(question: Question, jobs: Sequence[Job], gpus: int | None, policy: Policy) -> None:
    left, middle, right = st.columns(3)
    ways = list(
        dict.fromkeys(
            [
                "mps",
                "naive",
            ]
        )
    )
    sharing = left.selectbox(
        "Jobs on one GPU share it by", ways, 0, key="fleet sharing",
        accept_new_options=True,
        help="Or in the notation of `advisor simulate`: `mps=50,50`, `mig=3g.71gb,4g.71gb`.",
    )  # fmt: skip
    at_once = middle.number_input(
        "Jobs on a GPU at once, at most", 1, None, None, 1, key="at once",
        placeholder="all that fit",
    )  # fmt: skip
    price = right.number_input(
        "EUR for a GPU's hour", 0.0, None, None, key="price", placeholder="without costs"
    )
    if gpus is None:
        return
    many = Fleet(question.gpu, gpus, policy, price)
    over_time = _queued(question, many, sharing, at_once, jobs)
    simulation = over_time.simulation
    st.markdown(f"**{simulation_heading(over_time)}**")
    one_gpu_s = None
    if gpus > 1:
        on_one = _queued(question, replace(many, gpus=1), sharing, at_once, jobs)
        one_gpu_s = on_one.simulation.makespan_s.p50
    one_job_each = _queued(question, many, "serial", None, jobs).simulation
    _cards(fleet.gains_of(simulation.makespan_s, one_gpu_s, one_job_each.makespan_s.p50))
    _jobs_on_gpus(fleet.jobs_of_queue(simulation))
    st.table([{"over time": name, "": value} for name, value in simulation_facts(simulation)])
    st.download_button(
        "Download the trace, for ui.perfetto.dev", trace_text(simulation), "fleet-trace.json",
        "application/json",
    )  # fmt: skip
    _document(simulation_document(over_time))


def _jobs_on_gpus(placed: Sequence[fleet.JobOnGpu]) -> None:
    names = {number: run.job.name for number, run in placed}  # in the order of the request
    drawn = charts.lanes_chart(fleet.lanes_of(placed), [names[number] for number in sorted(names)])
    st.altair_chart(drawn, width="stretch")
    st.caption("The thin line is the 90 % interval of an end.")
    st.table(fleet.job_rows_of(placed), hide_index=True)


def _document(document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, allow_nan=False)
    st.download_button("Download as JSON", text, "fleet.json", "application/json", key="fleet json")


def _may_be_added(
    question: Question, taken: tuple[int, ...], hurt: float, running: Running,
    _jobs: Sequence[Job],
) -> Additions:  # fmt: skip
    """Which `_jobs` may be added to `running`, the jobs at places `taken`."""
    offered = [job for at, job in enumerate(_jobs) if at not in taken]
    advisor = advisor_of(question.gpu, question.cap_w)
    return advisor.admit(running, offered, hurt, question.conditions)


def _additions_view(question: Question, jobs: Sequence[Job]) -> None:
    """Show which `jobs` may join those of them that run already."""
    live: dict[str, LiveGpu] = {}
    with suppress(AdvisorError):
        for gpu in live_gpus():
            if isinstance(gpu, LiveGpu) and gpu.catalogue_key == question.gpu:
                live[f"now, on GPU {gpu.index}"] = gpu
    how, taken = _running_jobs(live, jobs)
    hurt_percent = st.number_input(
        "May get slower by, %", format="%g", key="hurt",
        value=100 * MOST_SLOWING,
        help="The most by which a step of a running job may take longer.",
    )  # fmt: skip
    if not taken and how not in live:
        return
    try:
        named = [jobs[at] for at in taken]
        running: Running | None
        if how in live:
            held_mib = admission.held_alone_mib(job.profile for job in jobs)
            running = admission.running_now(live[how], named, held_mib)
        else:
            running = Running(jobs=tuple(named), sharing=parse_sharing(how))
        if running is None:
            st.caption("Nothing runs on it now: the whole GPU is free.")
        elif len(taken) == len(jobs):
            st.info("All of the jobs run already: choose fewer, or add a job to the table.")
        else:
            _show_additions(_may_be_added(question, taken, hurt_percent / 100, running, jobs))
    except AdvisorError as error:
        if taken:
            raise
        st.info(str(error))


def _running_jobs(live: Mapping[str, LiveGpu], jobs: Sequence[Job]) -> tuple[str, tuple[int, ...]]:
    """The sharing of running jobs, and which of `jobs` run, by their places from 0."""
    rows = [row_name(number, job.name) for number, job in enumerate(jobs, start=1)]
    ways = list(
        dict.fromkeys(
            [
                *live,
                "naive",
                "mps",
            ]
        )
    )
    how = st.selectbox(
        "Running jobs share the GPU by", ways, 0,
        key="running sharing", accept_new_options=True,
        help="Or in the notation of `advisor predict`: `mps=50,50`, `mig=3g.71gb@0`.",
    )  # fmt: skip
    seen = admission.recognised(live[how], jobs) if how in live else ()
    at_start = seen
    names = st.multiselect(
        "Jobs that run already", rows, [rows[at] for at in at_start], key=f"running {seen}",
        placeholder="Choose among the jobs",
    )  # fmt: skip
    taken = tuple(rows.index(name) for name in names)
    st.session_state["running jobs"] = tuple(at + 1 for at in taken)
    return how, taken


def _show_additions(additions: Additions) -> None:
    advice = with_estimates_named(additions.standing, copies.additions_advice(additions))
    st.markdown(f"**{advice}**")
    rows = copies.addition_rows(additions)
    st.table(rows, hide_index=True)
    names = [row["add"] for row in rows]
    index = 0
    chosen = names.index(st.selectbox("Slowdowns with", names, index, key="added"))
    st.table(copies.joined_rows(additions, additions.sets[chosen]), hide_index=True)
    for note in copies.notes_on_additions(additions):
        st.caption(note)


_EVERY_S = 3.0


@st.fragment(run_every=_EVERY_S)
def _live_view(jobs: Sequence[Job]) -> None:
    """Show the GPUs of this machine, with the `jobs` that their processes may be."""
    try:
        gpus = live_gpus()
    except AdvisorError as error:
        st.caption(f"This machine has no GPU to watch: {error}")
        return
    for gpu in gpus:
        if not isinstance(gpu, LiveGpu):
            st.warning("\n\n".join(live_lines([gpu])))
            continue
        st.markdown(f"**{live_name(gpu)}**")
        st.table([{"now": name, "": value} for name, value in live_facts(gpu)])
        if gpu.processes:
            st.table(process_rows(gpu, jobs), hide_index=True)
        else:
            st.caption("No process uses this GPU.")
    st.caption(f"Read from the driver every {_EVERY_S:g} s, without changing anything.")


def _trials_view(advised: Recommendation, question: Question) -> None:
    """Show the rates of 1, 2, ... trials at once of the chosen job."""
    jobs = {job.name: job for job in advised.jobs}
    name = st.selectbox(
        "Trials of a search, all of the job", list(jobs), key="trials",
        index=None, placeholder="Choose a job",
    )  # fmt: skip
    if name is None:
        return
    trials = advisor_of(question.gpu, question.cap_w).trials(
        jobs[name], start_s=START_S, conditions=question.conditions, level=question.level
    )
    st.markdown(copies.trials_advice(trials))
    counts = trials.copies
    st.caption(
        f"Worthwhile copies: {counts.pay}. Copies that fit: {counts.fit}; one more "
        f"{counts.limited_by}. MPS serves up to {counts.mps_clients} clients."
    )
    st.altair_chart(charts.trials_chart(trials), width="stretch")
    st.caption("The thin line is the 90 % interval; the ring is the advice.")


def show_more_questions(question: Question | None, right: DeltaGenerator) -> None:
    """Show one further question about the jobs of `question`, and its answer, on the `right`."""
    if question is None:
        right.info("The answer appears here when GPU, goal and jobs are chosen.")
        return
    jobs = question.jobs
    views: dict[str, Callable[[], None]] = {
        "How many at once?": lambda: _trials_view(question.answer(), question),
        "What may be added?": lambda: _additions_view(question, jobs),
        "Several GPUs?": lambda: _fleet_view(question.answer(), question, jobs),
        "How fast is each on a MIG slice?": lambda: _slice_speed_view(question, jobs),
        "How good were predictions?": lambda: _measured_view(question, jobs),
        "What runs here now?": lambda: _live_view(jobs),
    }
    with right:
        chosen = st.pills(
            "Question", list(views), default=next(iter(views)), required=True, key="question",
            label_visibility="collapsed",
        )  # fmt: skip
        try:
            views[chosen]()
        except AdvisorError as error:
            st.error(plain(str(error)))


def _slice_speed_view(question: Question, jobs: Sequence[Job]) -> None:
    """Show the speed of each of `jobs` on smaller instances, or why that is impossible."""
    advisor = advisor_of(question.gpu, question.cap_w)
    profiles = list({job.name: job.profile for job in jobs}.values())
    try:
        # An unknown host has the same effect on an instance and on the whole GPU.
        speeds = slice_speeds(profiles, advisor.card, advisor.uncalibrated.on_known_host())
    except AdvisorError as error:
        st.info(str(error))
        return
    st.altair_chart(charts.slice_speed_chart(speeds), width="stretch")
    st.caption(copies.slice_speed_text(speeds, profiles))


def _measured(question: Question, _jobs: Sequence[Job]) -> MeasuredRuns:
    predictor = advisor_of(question.gpu, None).uncalibrated.on_known_host()
    return runs_of_jobs([job.profile for job in _jobs], predictor)


def _measured_view(question: Question, jobs: Sequence[Job]) -> None:
    """Show the errors of predictions for runs of `jobs`, or that there are none."""
    runs = _measured(question, jobs)
    text = runs_of_jobs_text(runs, question.gpu)
    if not runs.runs:
        st.info(text)
        return
    drawn = charts.runs_of_jobs_chart(runs_of_jobs_rows(runs), [job.name for job in jobs])
    st.altair_chart(drawn, width="stretch")
    st.caption(text)
