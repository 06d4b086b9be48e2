"""Further questions of the page: trials, additions, several GPUs, slices, runs, this machine."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Queue
from threading import Event
from typing import Any, get_args

import streamlit as st

from advisor.errors import AdvisorError
from advisor.hardware.live_gpu import live_gpus
from advisor.hardware.machine import LiveGpu
from advisor.page.answer import (
    PageQuestion,
    advisor_of,
    cards,
    fleet_plan,
    may_be_added,
    measured,
    queued,
    stacked_table,
)
from advisor.page.link import WantedJob, at_first, linked, on_the_page
from advisor.page.question import refuse
from advisor.plan import MOST_GPUS, START_S
from advisor.plan.admission import Additions, Running, held_alone_mib, recognised, running_now
from advisor.plan.copies import slice_speeds
from advisor.plan.forecast import OverTime
from advisor.plan.rules import MOST_HURT
from advisor.plan.values import Recommendation
from advisor.report.charts import (
    lanes_chart,
    runs_of_jobs_chart,
    slice_speed_chart,
    slice_speed_text,
    trials_chart,
)
from advisor.report.copies import (
    addition_rows,
    additions_advice,
    joined_rows,
    notes_on_additions,
    trials_advice,
)
from advisor.report.drawings import row_name
from advisor.report.fleet import (
    JobOnGpu,
    fleet_answer,
    fleet_commands,
    fleet_document,
    fleet_gpu_rows,
    fleet_notes,
    gains_of,
    job_rows_of,
    jobs_of_plan,
    jobs_of_queue,
    lanes_of,
    names_of,
)
from advisor.report.forecast import with_estimates_named
from advisor.report.lists import live_facts, live_lines, live_name, process_rows
from advisor.report.simulation import (
    simulation_document,
    simulation_facts,
    simulation_heading,
    trace_text,
)
from advisor.sharing import parse_sharing
from advisor.simulation import Policy
from advisor.simulation.simulate import Fleet
from advisor.validate import runs_of_jobs_rows, runs_of_jobs_text
from advisor.workload.job import Job

_PLAN = "the best plan found"
_ALONE = "serial"


def fleet_view(advised: Recommendation, question: PageQuestion, jobs: Sequence[Job]) -> None:
    """Show a plan or a queue for the `jobs` of `question`, if the number of GPUs is typed."""
    left, right = st.columns(2)
    ways = (_PLAN, *get_args(Policy))
    gpus = left.number_input(
        f"How many {question.gpu} are there?", 1, MOST_GPUS, linked().gpus, 1, key="gpus",
        placeholder="All are equal",
    )  # fmt: skip
    who = right.selectbox(
        "Policy", ways, ways.index(linked().policy or _PLAN),
        key="policy",
        help="Or a queue that starts the first job, the shortest, or the one that adds most work.",
    )  # fmt: skip
    try:
        if who != _PLAN:
            _queue(question, jobs, gpus, who)
        elif gpus is not None:
            _plan(advised, question, jobs, gpus)
    except AdvisorError as error:
        refuse(error)


def _plan(advised: Recommendation, question: PageQuestion, jobs: Sequence[Job], gpus: int) -> None:
    plan, simulated = fleet_plan(question, gpus, jobs)
    st.markdown(f"**{fleet_answer(plan)}**")
    if plan.makespan_s is not None:
        one_gpu_s = advised.best.makespan_s if gpus > 1 else None
        cards(gains_of(plan.makespan_s, one_gpu_s, plan.serial_s))
        _jobs_on_gpus(jobs_of_plan(plan, simulated))
    stacked_table(fleet_gpu_rows(plan), "GPUs")
    for note in fleet_notes(plan):
        st.caption(on_the_page(note))
    with st.expander("Apply it"):
        text = fleet_commands(plan, 1)
        st.code(text, language="bash", wrap_lines=True)
        st.download_button("Download", text, "fleet.sh", "text/plain", key="fleet commands")
    _document(fleet_document(plan))


def _queue(question: PageQuestion, jobs: Sequence[Job], gpus: int | None, policy: Policy) -> None:
    left, middle, right = st.columns(3)
    link = linked()
    ways = list(dict.fromkeys(["mps", "naive", *filter(None, [link.sharing])]))
    sharing = left.selectbox(
        "Jobs on one GPU share it by", ways, at_first(ways, link.sharing), key="fleet sharing",
        accept_new_options=True,
        help="Or in the notation of `advisor simulate`: `mps=50,50`, `mig=3g.71gb,4g.71gb`.",
    )  # fmt: skip
    at_once = middle.number_input(
        "Jobs on a GPU at once, at most", 1, None, link.at_once, 1, key="at once",
        placeholder="all that fit",
    )  # fmt: skip
    price = right.number_input(
        "EUR for a GPU's hour", 0.0, None, link.price, key="price",
        placeholder="without costs",
    )  # fmt: skip
    if gpus is None:
        return
    fleet = Fleet(question.gpu, gpus, policy, price)
    over_time = queued(question, fleet, sharing, at_once, jobs)
    simulation = over_time.simulation
    st.markdown(f"**{simulation_heading(over_time)}**")
    one_gpu_s = None
    if gpus > 1:
        one_gpu_s = _makespan_s(queued(question, replace(fleet, gpus=1), sharing, at_once, jobs))
    one_job_each_s = _makespan_s(queued(question, fleet, _ALONE, None, jobs))
    cards(gains_of(simulation.makespan_s, one_gpu_s, one_job_each_s))
    _jobs_on_gpus(jobs_of_queue(simulation))
    st.table([{"over time": name, "": value} for name, value in simulation_facts(simulation)])
    st.download_button(
        "Download the trace, for ui.perfetto.dev", trace_text(simulation), "fleet-trace.json",
        "application/json",
    )  # fmt: skip
    _document(simulation_document(over_time))


def _makespan_s(over_time: OverTime) -> float:
    return over_time.simulation.makespan_s.p50


def _jobs_on_gpus(placed: Sequence[JobOnGpu]) -> None:
    st.altair_chart(lanes_chart(lanes_of(placed), names_of(placed)), width="stretch")
    st.caption("The thin line is the 90 % interval of an end.")
    stacked_table(job_rows_of(placed), "jobs on GPUs")


def _document(document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, allow_nan=False)
    st.download_button("Download as JSON", text, "fleet.json", "application/json", key="fleet json")


def additions_view(question: PageQuestion, jobs: Sequence[Job]) -> None:
    """Show which `jobs` of `question` may join those of them that run already."""
    live = _live_gpus(question.gpu)
    how, taken = _running_jobs(live, jobs)
    link = linked()
    slowing_percent = st.number_input(
        "May get slower by, %", format="%g", key="hurt",
        value=100 * (MOST_HURT if link.slowing is None else link.slowing),
        help="The most by which a step of a running job may take longer.",
    )  # fmt: skip
    if not taken and how not in live:
        return
    try:
        named = [jobs[at] for at in taken]
        running: Running | None
        if how in live:
            held_mib = held_alone_mib(job.profile for job in jobs)
            running = running_now(live[how], named, held_mib)
        else:
            running = Running(jobs=tuple(named), sharing=parse_sharing(how))
        if running is None:
            st.caption("Nothing runs on it now: the whole GPU is free.")
        elif len(taken) == len(jobs):
            st.info("All of the jobs run already: choose fewer, or add a job to the table.")
        else:
            _show_additions(may_be_added(question, taken, slowing_percent / 100, running, jobs))
    except AdvisorError as error:
        if taken:
            refuse(error)
        else:
            st.info(str(error))


def _running_jobs(live: Mapping[str, LiveGpu], jobs: Sequence[Job]) -> tuple[str, tuple[int, ...]]:
    """The sharing of running jobs, and which of `jobs` run, by their places from 0."""
    link = linked()
    rows = [row_name(number, job.name) for number, job in enumerate(jobs, start=1)]
    ways = list(dict.fromkeys([*live, "naive", "mps", *filter(None, [link.running_sharing])]))
    how = st.selectbox(
        "Running jobs share the GPU by", ways, at_first(ways, link.running_sharing),
        key="running sharing", accept_new_options=True,
        help="Or in the notation of `advisor predict`: `mps=50,50`, `mig=3g.71gb@0`.",
    )  # fmt: skip
    seen = recognised(live[how], jobs) if how in live else ()
    at_start = seen or [place - 1 for place in link.running if place <= len(rows)]
    names = st.multiselect(
        "Jobs that run already", rows, [rows[at] for at in at_start], key=f"running {seen}",
        placeholder="Choose among the jobs",
    )  # fmt: skip
    taken = tuple(rows.index(name) for name in names)
    st.session_state["running jobs"] = tuple(at + 1 for at in taken)
    return how, taken


def _live_gpus(gpu: str) -> dict[str, LiveGpu]:
    """GPUs of this machine of the model `gpu`, by their names in the list to choose from."""
    try:
        gpus = [each for each in live_gpus() if isinstance(each, LiveGpu)]
    except AdvisorError:
        return {}
    return {
        f"now, on GPU {each.index}": each
        for each in gpus if each.catalogue_key == gpu
    }  # fmt: skip


def _show_additions(additions: Additions) -> None:
    advice = with_estimates_named(additions.standing, additions_advice(additions))
    st.markdown(f"**{advice}**")
    rows = addition_rows(additions)
    stacked_table(rows, "additions")
    names = [row["add"] for row in rows]
    index = at_first(names, linked().added)
    chosen = names.index(st.selectbox("Slowdowns with", names, index, key="added"))
    stacked_table(joined_rows(additions, additions.found[chosen]), "jobs with those added")
    for note in notes_on_additions(additions):
        st.caption(note)


_EVERY_S = 3.0


def live_view(jobs: Sequence[Job]) -> None:
    """Show the GPUs of this machine, with the `jobs` that their processes may be."""
    try:
        live_gpus()
    except AdvisorError as error:
        st.caption(f"This machine has no GPU to watch: {error}")
        return
    _watched(jobs)


@st.fragment(run_every=_EVERY_S)
def _watched(jobs: Sequence[Job]) -> None:
    """Refreshes without the rest of the page."""
    try:
        gpus = live_gpus()
    except AdvisorError as error:
        st.warning(str(error))
        return
    for gpu in gpus:
        if not isinstance(gpu, LiveGpu):
            continue
        st.markdown(f"**{live_name(gpu)}**")
        st.table([{"now": name, "": value} for name, value in live_facts(gpu)])
        if gpu.processes:
            stacked_table(process_rows(gpu, jobs), f"processes of {gpu.index}")
        else:
            st.caption("No process uses this GPU.")
    if broken := [each for each in gpus if not isinstance(each, LiveGpu)]:
        st.warning("\n\n".join(live_lines(broken)))
    st.caption(f"Read from the driver every {_EVERY_S:g} s, without changing anything.")


_MOST_JOBS = 6  # predictions of more take longer than people read

_last: Queue[tuple[PageQuestion, tuple[Job, ...]] | None] = Queue()
_foreseeing = Event()


def pause_predictions() -> None:
    """Stop predicting likely questions while a user waits for an answer."""
    if _foreseeing.is_set():
        _last.put(None)


def predict_after(question: PageQuestion, jobs: tuple[Job, ...]) -> None:
    """Predict likely questions after `question`, whose answer is shown."""
    if _foreseeing.is_set():
        _last.put((question, jobs))


def predict_likely_questions() -> None:
    """Predict questions that may follow each answered one, as long as the server runs.

    `advisor.page.serve` starts this in a thread. Without it, as under ``streamlit run``, nothing is
    predicted before a user asks.
    """
    _foreseeing.set()
    before: tuple[WantedJob, ...] = ()
    while True:
        if latest := _last.get():
            question, jobs = latest
            _predict_after(question, jobs, before)
            before = question.jobs


def _predict_after(
    question: PageQuestion, jobs: tuple[Job, ...], before: tuple[WantedJob, ...]
) -> None:
    """Predict what may follow `question` until the next one; `before`: the rows before it."""
    for more in _one_more(question.jobs, jobs, before):
        if not _last.empty():
            return
        # The page shows the error if the question is asked; a server that ends accepts no work.
        with suppress(AdvisorError, RuntimeError):
            advisor_of(question.gpu, question.cap_w).recommend(
                more, question.objective, conditions=question.conditions, level=question.level
            )


def _one_more(
    rows: tuple[WantedJob, ...], jobs: tuple[Job, ...], before: tuple[WantedJob, ...]
) -> Iterator[tuple[Job, ...]]:
    """`jobs` with one more copy, row by row; first of rows that are not in `before`."""
    ends, end = [], 0
    for row in rows:
        end += row.copies
        ends.append((row in before, end))
    if len(jobs) < _MOST_JOBS:
        for _, end in sorted(ends):
            yield (*jobs[:end], *jobs[end - 1 :])


def trials_view(advised: Recommendation, question: PageQuestion) -> None:
    """Show the rates of 1, 2, ... trials at once of the chosen job."""
    jobs = {job.name: job for job in advised.jobs}
    link = linked().trials
    name = st.selectbox(
        "Trials of a search, all of the job", list(jobs), key="trials",
        index=list(jobs).index(link) if link in jobs else None,
        placeholder="Choose a job",
    )  # fmt: skip
    if name is None:
        return
    try:
        trials = advisor_of(question.gpu, question.cap_w).trials(
            jobs[name], start_s=START_S, conditions=question.conditions, level=question.level
        )
    except AdvisorError as error:
        refuse(error)
        return
    st.markdown(trials_advice(trials))
    copies = trials.copies
    st.caption(
        f"Worthwhile copies: {copies.pay}. Copies that fit: {copies.fit}; one more "
        f"{copies.limited_by}. MPS serves up to {copies.mps_clients} clients."
    )
    st.altair_chart(trials_chart(trials), width="stretch")
    st.caption("The thin line is the 90 % interval; the ring is the advice.")


def further_questions(
    advised: Recommendation, question: PageQuestion, jobs: Sequence[Job]
) -> str | None:
    """Show one further question of several, and its answer for the `jobs` of `question`.

    Returns:
        The further question, as titled on the page; None: it is the first.
    """
    views: dict[str, Callable[[], None]] = {
        "How many at once?": lambda: trials_view(advised, question),
        "What may be added?": lambda: additions_view(question, jobs),
        "Several GPUs?": lambda: fleet_view(advised, question, jobs),
        "How fast is each on a MIG slice?": lambda: _slice_speed_view(question, jobs),
        "How good were predictions?": lambda: _measured_view(question, jobs),
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


def _slice_speed_view(question: PageQuestion, jobs: Sequence[Job]) -> None:
    """Show the speed of each of `jobs` on smaller instances, or why that is impossible."""
    advisor = advisor_of(question.gpu, question.cap_w)
    profiles = list({job.name: job.profile for job in jobs}.values())
    # An unknown host has the same effect on an instance and on the whole GPU.
    predictor = advisor.uncalibrated.on_known_cores()
    try:
        speeds = slice_speeds(profiles, advisor.card, predictor)
    except AdvisorError as error:
        st.info(str(error))
        return
    st.altair_chart(slice_speed_chart(speeds), width="stretch")
    st.caption(slice_speed_text(speeds, profiles))


def _measured_view(question: PageQuestion, jobs: Sequence[Job]) -> None:
    """Show the errors of predictions for runs of `jobs`, or that there are none."""
    try:
        runs = measured(question, jobs)
    except AdvisorError as error:
        st.error(str(error))
        return
    if not runs.runs:
        st.info(runs_of_jobs_text(runs, question.gpu))
        return
    drawn = runs_of_jobs_chart(runs_of_jobs_rows(runs), [job.name for job in jobs])
    st.altair_chart(drawn, width="stretch")
    st.caption(runs_of_jobs_text(runs, question.gpu))
