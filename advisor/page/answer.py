"""The answer: for one GPU a badge, a row for each way to share, and the plan in view.

For many jobs or several GPUs: what to do, the jobs over time, and the commands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.documents import answer_document
from advisor.errors import AdvisorError, NothingFits
from advisor.files.writing import json_text
from advisor.launch.exports import FORMATS, exported
from advisor.launch.launch_plan import check_memory, launch_plan, launch_plans
from advisor.launch.shell import plan_lines, why_not_started
from advisor.page.question import Question, advisor_of, plain
from advisor.page.searching import searching
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.reasons import compare
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.prediction import MixPrediction
from advisor.report import charts
from advisor.report.comparison import comparison_text, limits_in_words, rows_of_jobs, rows_of_plans
from advisor.report.forecast import NOT_CONFIRMED, best_of_each_way, job_rows, plan_name, plan_rows
from advisor.report.format import notation_of, shortened
from advisor.report.plans import advice, plans_csv
from advisor.report.recommendation import (
    badge_of,
    caveats,
    certainty,
    fleet_instruction,
    gpu_notes,
    headline,
    hints,
    outcome,
)
from advisor.simulation.results import SimulatedJob
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival, Job

_LEGEND = "Hollow: estimated. Green: ties with the best. Thin line: 90 % interval."


def show_answer(question: Question | None, right: DeltaGenerator) -> None:
    """Show the answer to `question` on the `right`, and the plan in view below."""
    if question is None:
        right.info("The answer appears here when GPU, goal and jobs are chosen.")
        return
    with right:
        with searching() as place:
            try:
                advised = question.answer()
            except AdvisorError as error:
                remedy = " Remove a job, or choose a larger GPU."
                note = f"{error}{remedy if isinstance(error, NothingFits) else ''}"
                place().error(plain(note))
                return
            at = place()
        if advised.best.way:
            with at:
                show_fleet(question, advised)
            return
    plans = {_name(advised, plan): plan for plan in advised.plans}
    details = st.container()
    with details:
        plan = _plan_in_view(plans)
    with at.container():
        _show_summary(advised, plan)
    with details:
        show_plan(advised, plan, plans)


def _name(advised: Recommendation, plan: Plan) -> str:
    return shortened(plan_name(advised, plan))


def _plan_in_view(plans: Mapping[str, Plan]) -> Plan:
    """The plan chosen in the list, by a click, or by the link; else the best of this question."""
    state, names = st.session_state, list(plans)
    linked, before = st.query_params.get("plan"), state.get("plan")
    if before is None and linked not in (None, *names):
        st.error(f"plan: {plain(repr(linked))} is not a plan for these jobs. This is the best.")
    elif before == state.get("best plan") != names[0] or before not in (None, *names):
        state["plan"] = names[0]
    state["best plan"] = names[0]
    return plans[st.selectbox("Plan in view", names, key="plan", bind="query-params", width=420)]


def _show_summary(advised: Recommendation, plan: Plan) -> None:
    badge, colour = badge_of(advised, plan)
    with st.container(gap=None):
        st.badge(badge, color=colour)
        st.markdown(f"## {plain(headline(advised, plan))}")
        st.markdown(plain(certainty(advised, plan)))
    with st.container(horizontal=True):
        if st.button("Get the commands", key="commands"):
            show_commands(advised, plan)
        if plan is not advised.best:
            best = {"plan": _name(advised, advised.best)}
            st.button("Back to best", on_click=st.session_state.update, args=(best,))
    ranked_by = OBJECTIVES[advised.ranked_by]
    if advised.note and not OBJECTIVES[advised.objective].uses_deadlines:
        st.info(plain(f"Ranked by “{ranked_by.choice}”: {advised.note}."))
    st.header("Which partitioning?")
    key = f"ways {plan.sharing}"
    ways = {way: _name(advised, own) for way, own in best_of_each_way(advised).items()}

    def choose_clicked() -> None:
        for row in st.session_state[key]["selection"]["chosen"]:
            st.session_state["plan"] = ways[row["way"]]

    with st.container(gap=None):
        chart = charts.ways_chart(advised, plan)
        draw(chart, key=key, on_select=choose_clicked, selection_mode="chosen")
        st.caption(f"{_LEGEND} {ranked_by.explained}")


Plans = Mapping[str, Plan]
_HOW_TO_RUN = (
    "These lines of the script matter. Put your own command in place of each ./NAME.sh. Then run "
    "`bash plan.commands.sh`."
)


def show_plan(advised: Recommendation, plan: Plan, plans: Plans) -> None:
    """Show the views of `plan`, of which the open one is computed, and what the answer rests on."""
    tabs = st.tabs(list(_VIEWS), key="view", on_change="rerun")
    for tab, view in zip(tabs, _VIEWS.values(), strict=True):
        if tab.open:
            with tab:
                try:
                    view(advised, plan, plans)
                except AdvisorError as error:
                    st.info(plain(str(error)))
    for doubt in (*advised.standing.stale, *advised.refused_variants):
        st.warning(plain(str(doubt)))
    for hint in hints(advised):
        st.info(plain(hint))
    with st.expander("What the answer rests on"):
        notes = [f"Left out: {shortened(each.sharing)}: {each.why}." for each in advised.left_out]
        for note in (*caveats(advised), *notes):
            st.markdown(plain(note))


def draw(chart: charts.Layered, **options: Any) -> None:
    """Show `chart`, unchecked: altair takes longer to check than to draw it."""
    st.vega_lite_chart(chart.to_dict(validate=False), **options)


def _simulated(gpu: str, jobs: Sequence[Job], mix: MixPrediction) -> tuple[SimulatedJob, ...]:
    """Simulate `jobs` on one GPU, where all arrive at once, under the sharing and cap of `mix`."""
    arrivals, one = tuple(map(Arrival, jobs)), Fleet(gpu, 1, "first-come")
    return advisor_of(gpu, mix.power_cap_w).simulate(arrivals, mix.sharing, one).simulation.jobs


def _timeline(advised: Recommendation, plan: Plan, _plans: Plans) -> None:
    runs = enumerate(_simulated(advised.gpu.key, advised.jobs, plan.prediction), start=1)
    draw(charts.lanes_chart(runs, [job.name for job in advised.jobs]))
    st.caption("The thin line is the 90 % interval of an end.")


def _each_job(advised: Recommendation, plan: Plan, _plans: Plans) -> None:
    draw(charts.slowdown_chart(plan.prediction))
    show_table(job_rows(advised, plan))


def show_table(rows: list[dict[str, Any]]) -> None:
    """Show `rows` as a table that sorts by number, each with two decimals."""
    table = pd.DataFrame(rows)
    number = st.column_config.NumberColumn(format="%.2f")
    numbers = dict.fromkeys(table.select_dtypes("float").columns, number)
    st.dataframe(table, hide_index=True, column_config=numbers, height="content")


def _two_plans(advised: Recommendation, plan: Plan, plans: Plans) -> None:
    others = {name: each for name, each in plans.items() if each is not plan}
    if not others:
        st.info("There is no other plan to compare it with.")
        return
    other = others[st.selectbox("Compare with", list(others), key="other plan", width=420)]
    comparison = compare(
        advised.jobs,
        advised.gpu,
        (plan.forecast, other.forecast),
        advised.objective,
        advised.serial.forecast,
    )
    st.markdown(plain(shortened(comparison_text(comparison))))
    show_table(rows_of_plans(comparison))
    for jobs, rows in rows_of_jobs(comparison):
        st.markdown(f"**{plain(jobs)}**")
        show_table(rows)
    st.caption("  \n".join(plain(shortened(each)) for each in limits_in_words(comparison)))


def _commands(advised: Recommendation, plan: Plan, _plans: Plans) -> None:
    launched = launch_plan(advised.jobs, advised.gpu, plan.prediction)
    st.code("\n".join(plan_lines(launched)), language="bash", wrap_lines=True)
    st.caption(_HOW_TO_RUN)
    form = st.selectbox("Format", list(FORMATS), key="format", width=220)
    check_memory(launched, plan.prediction)
    text, notes = exported([launched], form)
    for note in notes:
        st.warning(plain(note))
    st.download_button("Download", text, f"plan.{FORMATS[form].file_end}", "text/plain")


@st.dialog("The commands", width="medium")
def show_commands(advised: Recommendation, plan: Plan) -> None:
    """Show the commands of `plan` over the page."""
    try:
        _commands(advised, plan, {})
    except AdvisorError as error:
        st.info(plain(str(error)))


def _all_plans(advised: Recommendation, _plan: Plan, plans: Plans) -> None:
    show_table(plan_rows(advised))
    notations = dict.fromkeys(notation_of(each.sharing) for each in plans.values())
    ways = f"Ways to share considered: {advised.considered}."
    st.caption("  \n".join(plain(note) for note in (ways, *notations) if note))
    document = json_text(answer_document(advice(advised)))
    with st.container(horizontal=True):
        st.download_button("Download as CSV", plans_csv(advised), "plans.csv", "text/csv")
        st.download_button("Download as JSON", document, "plans.json", "application/json")


_VIEWS: Mapping[str, Callable[[Recommendation, Plan, Plans], None]] = {
    "Timeline": _timeline,
    "Each job": _each_job,
    "Compare": _two_plans,
    "Commands": _commands,
    "All plans": _all_plans,
}


def show_headline(text: str, *, estimated: bool = False) -> None:
    st.markdown(f"## {plain(text)}")
    if estimated:
        st.caption(f"This is {NOT_CONFIRMED}.")


def show_fleet(question: Question, advised: Recommendation) -> None:
    """Show the best plan for many jobs or several GPUs of one kind."""
    plan = advised.best
    show_headline(f"{fleet_instruction(advised)}.", estimated=not plan.confirmed_on_hardware)
    st.markdown(plain(outcome(advised)))
    if plan.makespan_s is not None:
        placed = [
            (number, replace(run, gpus=(on.number,)))
            for on in plan.gpus
            for runs in [_simulated(question.gpu, on.members, on.prediction)]
            for number, run in zip(on.job_numbers, runs, strict=True)
        ]
        # By GPU, and on each as they start; copies next to each other.
        placed.sort(key=lambda pair: (pair[1].gpu, pair[1].start_s, pair[1].job.name, pair[0]))
        draw(charts.lanes_chart(placed, question.names))
        st.caption("The thin line is the 90 % interval of an end.")
        show_table(
            [
                {
                    "GPU": run.gpu,
                    "job": charts.row_name([number], run.job.name),
                    "starts, min": run.start_s / 60,
                    "ends, min": run.end_s.p50 / 60,
                    "from": run.end_s.p05 / 60,
                    "to": run.end_s.p95 / 60,
                    "late": run.job.deadline_s is not None and run.end_s.p50 > run.job.deadline_s,
                }
                for number, run in placed
            ]
        )
    st.caption(plain(" ".join(gpu_notes(advised))))
    document = json_text(answer_document(advice(advised)))
    with st.container(horizontal=True):
        if plan.commands:
            text = "\n".join(plan.commands)
            st.download_button("Download the commands", text, "fleet.sh", "text/plain")
        else:
            st.caption(plain(why_not_started(launch_plans(advised.hosts, plan)) or ""))
        st.download_button("Download as JSON", document, "fleet.json", "application/json")
