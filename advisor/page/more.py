"""Several equal GPUs on the page: which job runs where and when, and what that gains."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Queue
from threading import Event
from typing import Any, get_args

import streamlit as st

from advisor.errors import AdvisorError
from advisor.hardware.gpu_state import LiveGpu
from advisor.hardware.live_gpu import live_gpus
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
from advisor.page.link import WantedJob, on_the_page
from advisor.page.question import at_first, linked, refuse
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


_EVERY_S = 3.0


def live_view(jobs: Sequence[Job]) -> None:
    """Watch them, and say which of `jobs` their processes may be; without a driver, a sentence."""
    try:
        live_gpus()
    except AdvisorError as error:
        st.caption(f"No GPU of this machine can be watched: {error}")
        return
    _watched(jobs)


@st.fragment(run_every=_EVERY_S)
def _watched(jobs: Sequence[Job]) -> None:
    """Renews itself, and not the page."""
    try:
        found = live_gpus()
    except AdvisorError as error:
        st.warning(str(error))
        return
    for gpu in found:
        if isinstance(gpu, LiveGpu):
            _gpu(gpu, jobs)
    if broken := [each for each in found if not isinstance(each, LiveGpu)]:
        st.warning("\n\n".join(live_lines(broken)))
    st.caption(f"Read from the driver every {_EVERY_S:g} s; nothing is changed there.")


def _gpu(gpu: LiveGpu, jobs: Sequence[Job]) -> None:
    st.markdown(f"**{live_name(gpu)}**")
    st.table([{"now": name, "": said} for name, said in live_facts(gpu)])
    if gpu.processes:
        stacked_table(process_rows(gpu, jobs), f"processes of {gpu.index}")
    else:
        st.caption("No process uses it.")


_MOST_JOBS = 6  # of more, predicting takes longer than people read

_last: Queue[tuple[PageQuestion, tuple[Job, ...]] | None] = Queue()
_foreseeing = Event()


def asking() -> None:
    """Somebody waits for an answer: predict nothing else."""
    if _foreseeing.is_set():
        _last.put(None)


def answer_stands(asked: PageQuestion, jobs: tuple[Job, ...]) -> None:
    """The answer for `jobs`, which are those of `asked`, can be read."""
    if _foreseeing.is_set():
        _last.put((asked, jobs))


def foresee() -> None:
    """Predict what may follow each question that was answered, for as long as the server runs."""
    _foreseeing.set()
    before: tuple[WantedJob, ...] = ()
    while True:
        if question := _last.get():
            asked, jobs = question
            follow(asked, jobs, before)
            before = asked.jobs


def follow(asked: PageQuestion, jobs: tuple[Job, ...], before: tuple[WantedJob, ...]) -> None:
    """Predict what may follow `asked` until somebody asks; `before`: the rows asked before it."""
    for each in one_more(asked.jobs, jobs, before):
        if not _last.empty():
            return
        # The page says what is wrong, if it is asked; and a server that ends takes no more work.
        with suppress(AdvisorError, RuntimeError):
            advisor_of(asked.gpu, asked.cap_w).recommend(
                each, asked.objective, conditions=asked.conditions, level=asked.level
            )


def one_more(
    rows: tuple[WantedJob, ...], jobs: tuple[Job, ...], before: tuple[WantedJob, ...] = ()
) -> Iterator[tuple[Job, ...]]:
    """`jobs` with one more of a row's, row by row; first of those that were not asked `before`."""
    ends, end = [], 0
    for row in rows:
        end += row.copies
        ends.append((row in before, end))
    if len(jobs) < _MOST_JOBS:
        for _, end in sorted(ends):
            yield (*jobs[:end], *jobs[end - 1 :])


def trials_view(advised: Recommendation, asked: PageQuestion) -> None:
    """What comes of 1, 2, ... copies of one of the jobs, once it is chosen."""
    jobs = {job.name: job for job in advised.jobs}
    asked_of = linked().trials
    name = st.selectbox(
        "Trials of a search, all of the job", list(jobs), key="trials",
        index=list(jobs).index(asked_of) if asked_of in jobs else None,
        placeholder="Choose a job",
    )  # fmt: skip
    if name is None:
        return
    try:
        found = advisor_of(asked.gpu, asked.cap_w).trials(
            jobs[name], start_s=START_S, conditions=asked.conditions, level=asked.level
        )
    except AdvisorError as error:
        refuse(error)
        return
    st.markdown(trials_advice(found))
    copies = found.copies
    st.caption(
        f"Copies that pay: {copies.pay}. Copies that fit: {copies.fit}; one more "
        f"{copies.limited_by}. Clients that MPS serves: {copies.mps_clients}."
    )
    st.altair_chart(trials_chart(found), width="stretch")
    st.caption(
        "The thin line is where nine of ten measurements should fall; the ring, what is advised."
    )


def further_questions(
    advised: Recommendation, asked: PageQuestion, jobs: Sequence[Job]
) -> str | None:
    """One question of several, and its answer; `jobs` are those of `asked`.

    Returns:
        The question, in the words of the page; None: it is the first.
    """
    views: dict[str, Callable[[], None]] = {
        "How many at once?": lambda: trials_view(advised, asked),
        "What may be added?": lambda: additions_view(asked, jobs),
        "Several GPUs?": lambda: fleet_view(advised, asked, jobs),
        "How fast is each on a MIG slice?": lambda: _slice_speed_view(asked, jobs),
        "How good were predictions?": lambda: _measured_view(asked, jobs),
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


def _slice_speed_view(asked: PageQuestion, jobs: Sequence[Job]) -> None:
    """How much slower each of `jobs` runs on smaller instances; why not, on a GPU without MIG."""
    advisor = advisor_of(asked.gpu, asked.cap_w)
    profiles = list({job.name: job.profile for job in jobs}.values())
    # What an unknown host may do to a job it does on an instance and on the whole GPU alike.
    predictor = advisor.uncalibrated.on_known_cores()
    try:
        found = slice_speeds(profiles, advisor.card, predictor)
    except AdvisorError as error:
        st.info(str(error))
        return
    st.altair_chart(slice_speed_chart(found), width="stretch")
    st.caption(slice_speed_text(found, profiles))


def _measured_view(asked: PageQuestion, jobs: Sequence[Job]) -> None:
    """How close predictions for runs of `jobs` came; or that there are none."""
    try:
        found = measured(asked, jobs)
    except AdvisorError as error:
        st.error(str(error))
        return
    if not found.runs:
        st.info(runs_of_jobs_text(found, asked.gpu))
        return
    drawn = runs_of_jobs_chart(runs_of_jobs_rows(found), [job.name for job in jobs])
    st.altair_chart(drawn, width="stretch")
    st.caption(runs_of_jobs_text(found, asked.gpu))
