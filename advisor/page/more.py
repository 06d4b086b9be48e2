"""The second page: further questions about the same jobs, each with an answer at once."""

from contextlib import suppress

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.errors import AdvisorError, NothingFits
from advisor.hardware.live_gpu import live_gpus
from advisor.hardware.machine import LiveGpu
from advisor.page.answer import draw, show_fleet_card, show_fleet_jobs, show_table
from advisor.page.question import QUESTIONS, Question, bound, plain
from advisor.page.searching import searching
from advisor.plan import MOST_GPUS, START_S
from advisor.plan.admission import recognised, tenants
from advisor.plan.rules import MAX_SLOWDOWN
from advisor.plan.slices import slice_speeds
from advisor.plan.trials import TrialTerms
from advisor.report import charts, copies
from advisor.report.forecast import NOT_CONFIRMED
from advisor.report.link import AS_NOW
from advisor.report.lists import live_facts, live_lines, live_name, process_rows
from advisor.report.ways import named_plan
from advisor.workload.job import Job

_EVERY_S = 3.0


def show_more_questions(question: Question | None, right: DeltaGenerator) -> None:
    """Show one further question about the jobs of `question`, and its answer, on the `right`."""
    if question is None:
        right.info("The answer appears here when GPU, goal and jobs are chosen.")
        return
    with right:
        chosen = st.pills(
            "Question", QUESTIONS, default=QUESTIONS[0], required=True, wrap=True, **bound("ask")
        )
        try:
            with searching():
                _ = question.advisor.predictor  # refuses a power cap that the GPU does not have
                name = st.query_params.get("plan")
                if name is not None and named_plan(question.answer(), name) is None:
                    st.error(f"plan: {plain(repr(name))} is not a plan for these jobs.")
                dict(zip(QUESTIONS, _VIEWS, strict=True))[chosen](question)
        except AdvisorError as error:
            st.error(plain(str(error)))


def _show_headline(text: str) -> None:
    st.markdown(f"## {plain(text)}")


def _job(question: Question) -> Job:
    """The job that a user chooses for a question about one job."""
    jobs = {job.name: job for job in question.jobs}
    return jobs[st.selectbox("Job", list(jobs), width=420, **bound("job"))]


def _trials(question: Question) -> None:
    """Show how many trials of a search to run at once."""
    job = _job(question)
    terms = TrialTerms(start_s=START_S, conditions=question.conditions, level=question.level)
    search = question.advisor.trials(job, terms)
    trials = search.hosts[0].trials
    headline, *rest = copies.trials_advice(search).split("\n")
    if not trials.row.shared.prediction.confirmed_on_hardware:
        rest.append(f"This is {NOT_CONFIRMED}.")
    _show_headline(headline)
    st.markdown(plain(" ".join(rest)))
    draw(charts.trials_chart(trials))
    shown = "The thin line is the 90 % interval, the ring is the advice."
    st.caption(plain(" ".join((shown, *copies.notes_on_trials(search)))))
    show_table(copies.rows_of_trials(trials))


def _additions(question: Question) -> None:
    """Show which of the other jobs, or which further copies, may join those that run."""
    live: dict[str, LiveGpu] = {}
    with suppress(AdvisorError):
        live = {
            f"{AS_NOW}{gpu.index}": gpu
            for gpu in live_gpus()
            if isinstance(gpu, LiveGpu) and gpu.catalogue_key == question.gpu and tenants(gpu)
        }
    rows = charts.row_names(question.jobs)
    left, right = st.columns(2)
    how = left.selectbox(
        "They share the GPU by",
        [*live, "mps", "naive"],
        accept_new_options=True,
        help="Or, for example, mps=50,50 or mig=3g.71gb@0.",
        **bound("by"),
    )
    most = 100 * MAX_SLOWDOWN
    max_slowdown = right.number_input(
        "Max slowdown, %", 0.0, None, most, format="%g", **bound("max_slowdown")
    )
    seen = recognised(live[how], question.jobs) if how in live else (0,)
    names = st.pills(
        "Jobs that run already",
        rows,
        selection_mode="multi",
        default=[rows[at] for at in seen],
        **bound("running"),
    )
    taken = [rows.index(name) for name in names]
    named = [question.jobs[at] for at in taken]
    others = [job for at, job in enumerate(question.jobs) if at not in taken]
    running = None
    if how in live:
        running, _ = question.advisor.running_now(named, live[how])
    elif named:
        running = question.advisor.running(named, how)
    if running is None:
        st.info("The whole GPU is free. Choose a job that runs already.")
        return
    try:
        additions = question.advisor.admit(
            running, others or question.jobs, max_slowdown / 100, question.conditions
        )
    except NothingFits as error:
        why, _, _ = str(error).partition(". ")  # what follows are options of the command
        _show_headline("No other job may join.")
        st.markdown(plain(f"{why.capitalize()}. Allow more, or let them share in another way."))
        return
    best = additions.plans[0]
    _show_headline(copies.additions_advice(additions))
    draw(charts.slowdown_chart(best.prediction, question.names))
    show_table(copies.rows_of_additions(additions, question.names))
    st.caption(plain(" ".join(copies.notes_on_additions(additions))))


def _several_gpus(question: Question) -> None:
    """Show the best plan for several GPUs of one kind."""
    gpus = st.number_input(f"Number of {question.gpu}", 2, MOST_GPUS, 2, width=220, **bound("gpus"))
    advised = question.answer(gpus)
    show_fleet_card(advised)
    show_fleet_jobs(question, advised)


def _slices(question: Question) -> None:
    """Show the largest batch of a job on each MIG slice, and the speed of all jobs there."""
    advisor = question.advisor
    batches = advisor.batches([_job(question).profile])
    _show_headline(copies.batches_answer(batches))
    st.caption(plain(" ".join(copies.notes_on_batches(batches)).replace("; * ", "; ")))
    show_table(copies.rows_of_batches(batches))
    st.subheader("How fast is each job on a slice?")
    whole = list({each.name: each.profile for each in question.jobs}.values())
    try:
        # An unknown host has the same effect on an instance and on the whole GPU.
        speeds = slice_speeds(whole, advisor.card, advisor.uncalibrated.on_known_host())
    except NothingFits as error:
        st.info(plain(str(error)))
        return
    draw(charts.slice_speed_chart(speeds))
    st.caption(plain(copies.slice_speed_text(speeds, whole)))


@st.fragment(run_every=_EVERY_S)
def _this_machine(question: Question) -> None:
    """Show the GPUs of this machine, with the jobs that their processes may be."""
    try:
        gpus = live_gpus()
    except AdvisorError as error:
        _show_headline("This machine has no GPU to watch.")
        st.caption(plain(str(error)))
        return
    for gpu in gpus:
        if not isinstance(gpu, LiveGpu):
            st.warning(plain(" ".join(live_lines([gpu]))))
            continue
        _show_headline(live_name(gpu))
        st.markdown(plain("; ".join(f"{name}: {value}" for name, value in live_facts(gpu))))
        if gpu.processes:
            show_table(process_rows(gpu, question.jobs))
        else:
            st.caption("No process uses this GPU.")
    st.caption(f"Read from the driver every {_EVERY_S:g} s, without changing anything.")


_VIEWS = (_trials, _additions, _several_gpus, _slices, _this_machine)  # as in `QUESTIONS`
