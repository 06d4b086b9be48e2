"""The answer: the best plan in a card, a table of each way to share, and views of a plan.

For many jobs or several GPUs: what to do, the jobs over time, and the commands.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
from altair.utils import schemapi
from streamlit.delta_generator import DeltaGenerator

from advisor.documents import answer_document
from advisor.errors import AdvisorError, NothingFits
from advisor.files.writing import json_text
from advisor.launch.exports import FORMATS, exported
from advisor.launch.launch_plan import check_memory, launch_plan, launch_plans
from advisor.launch.shell import why_not_started
from advisor.measure.device import check_host
from advisor.page.question import Question, advisor_of
from advisor.page.searching import searching
from advisor.page.ways import show_ways
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.reasons import compare
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.prediction import MixPrediction
from advisor.report import charts, headline
from advisor.report.basis import basis_sentences
from advisor.report.comparison import comparison_text, limits_in_words, rows_of_jobs, rows_of_plans
from advisor.report.forecast import job_rows, placed_rows, plan_name, plan_rows
from advisor.report.format import notation_of, shortened
from advisor.report.gpu_charts import gpu_chart
from advisor.report.page_words import plain
from advisor.report.plans import advice, plans_csv
from advisor.report.recommendation import gpu_notes, hints
from advisor.report.time_charts import timeline_chart
from advisor.report.ways import named_plan, ways_table
from advisor.simulation.results import Simulation
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival, Job

schemapi.disable_debug_mode()  # altair takes longer to check a chart than to draw it


def show_answer(question: Question | None, card: DeltaGenerator, right: DeltaGenerator) -> None:
    """Show the best plan in `card`, all ways on the `right`, and the plan in view below."""
    if question is None:
        card.info("The answer appears here when GPU, goal and jobs are chosen.")
        return
    with card:
        try:
            with searching():
                advised = question.answer()
        except AdvisorError as error:
            remedy = " Remove a job, or choose a larger GPU."
            st.error(plain(f"{error}{remedy if isinstance(error, NothingFits) else ''}"))
            return
        if advised.best.way:
            show_fleet_card(advised)
            with right:
                show_fleet_jobs(question, advised)
            return
        plan = _plan_in_view(advised)
        drawings = _show_cards(advised, plan)
    with right:
        st.subheader("Which partitioning?")
        show_ways(ways_table(advised, (plan,)), _name(advised, plan), partial(_look_at, advised))
        explained = OBJECTIVES[advised.ranked_by].explained
        st.caption(f"Bars: medians; thin lines: 90 % intervals. {explained}")
    for place, shown in zip(drawings, (advised.best, plan), strict=False):
        with place:
            draw(gpu_chart(shown.prediction, advised.gpu, question.names))
    show_plan(question, advised, plan)


def _name(advised: Recommendation, plan: Plan) -> str:
    return shortened(plan_name(advised, plan))


def _look_at(advised: Recommendation, name: str) -> None:
    """Put the plan of this name in the address, unless it is the best."""
    if name == _name(advised, advised.best):
        st.query_params.pop("plan", None)
    else:
        st.query_params["plan"] = name


def _plan_in_view(advised: Recommendation) -> Plan:
    """The plan that the address names; else the best of this question."""
    name, state = st.query_params.get("plan"), st.session_state
    plan = advised.best if name is None else named_plan(advised, name)
    if plan is None and name == state.get("looked at"):  # before the question changed
        del st.query_params["plan"]
    elif plan is None:
        st.error(f"plan: {plain(repr(name))} is not a plan for these jobs. This is the best.")
    else:
        state["looked at"] = name
    return plan or advised.best


def _show_cards(advised: Recommendation, plan: Plan) -> list[DeltaGenerator]:
    """Show the best plan, and next to it the plan that a visitor looks at; places for drawings."""
    if plan is advised.best:
        text, drawing = st.container(border=True).columns([3, 2], gap="large")
        with text:
            _show_best(advised)
        return [drawing]
    first, second = st.columns(2)
    with first.container(border=True, height="stretch"):
        _show_best(advised)
        drawings = [st.container()]
    with second.container(border=True, height="stretch", key="looked-at"):
        return [*drawings, _show_looked_at(advised, plan)]


def _show_best(advised: Recommendation) -> None:
    best = advised.best
    badge, colour = headline.badge_of(advised, best)
    st.markdown(f"## {plain(headline.headline(advised, best))}")
    sure = headline.lateness(advised, best) or headline.certainty(advised, best)
    st.markdown(f":{colour}-badge[{badge}] {plain(sure)}  \n{plain(headline.why_first(advised))}")
    if advised.note and not OBJECTIVES[advised.objective].uses_deadlines:
        st.info(plain(f"Ranked by “{OBJECTIVES[advised.ranked_by].choice}”: {advised.note}."))
    if not best.way and st.button("Get the commands", key="commands", icon=":material/terminal:"):
        show_commands(advised, best)


def _show_looked_at(advised: Recommendation, plan: Plan) -> DeltaGenerator:
    """Show the plan that a visitor looks at; the place of its drawing."""
    name = headline.plan_words(advised, plan)
    gap = headline.difference(advised, plan, advised.best)
    words = f"{name}, {f'{gap} than' if gap else 'equal to'} the best."
    st.markdown(f"**You look at:** {plain(words)}")
    st.caption(plain(_name(advised, plan)))
    st.markdown(plain(headline.lateness(advised, plan) or headline.certainty(advised, plan)))
    drawing = st.container()
    with st.container(horizontal=True):
        if st.button("Get its commands"):
            show_commands(advised, plan)
        back = advised, _name(advised, advised.best)
        st.button("Back to the best", on_click=_look_at, args=back)
    return drawing


def show_plan(question: Question, advised: Recommendation, plan: Plan) -> None:
    """Show the views of `plan`, of which the open one is computed, and what the answer rests on."""
    views = (_timeline, _each_job, _two_plans, _all_plans)
    tabs = st.tabs(("Timeline", "Each job", "Compare", "All plans"), key="view", on_change="rerun")
    for tab, view in zip(tabs, views, strict=True):
        if tab.open:
            with tab:
                try:
                    view(advised, plan)
                except AdvisorError as error:
                    st.info(plain(str(error)))
    for doubt in (*advised.standing.stale, *advised.refused_variants):
        st.warning(plain(str(doubt)))
    for hint in hints(advised):
        st.info(plain(hint))
    show_basis(question, advised)


def show_basis(question: Question, advised: Recommendation) -> None:
    """Show what the intervals rest on; with such a GPU in this machine, offer to check its host."""
    with st.expander("What the answer rests on"):
        for sentence in basis_sentences(advised):
            st.markdown(plain(sentence))
        if question.advisor.present is not None and st.button("Check this host"):
            scripts = [job.profile.workload.script for job in question.jobs]
            problems: list[str] = []
            with st.spinner("Checking how fast this host is: about 10 s"):
                check_host(len(scripts), next(filter(None, scripts), None), problems.append)
            for problem in problems:
                st.error(plain(problem))
            if not problems:
                advisor_of.clear()
                st.rerun()


def draw(chart: charts.Layered, **options: Any) -> None:
    st.vega_lite_chart(chart.to_dict(validate=False), **options)


def _simulated(gpu: str, jobs: Sequence[Job], mix: MixPrediction) -> Simulation:
    """Simulate `jobs` on one GPU, where all arrive at once, under the sharing and cap of `mix`."""
    arrivals, one = tuple(map(Arrival, jobs)), Fleet(gpu, 1, "first-come")
    return advisor_of(gpu, mix.power_cap_w).simulate(arrivals, mix.sharing, one).simulation


def _timeline(advised: Recommendation, plan: Plan) -> None:
    mix, names = plan.prediction, [job.name for job in advised.jobs]
    simulation = _simulated(advised.gpu.key, advised.jobs, mix)
    draw(timeline_chart(simulation, advised.gpu, names, mix.power_cap_w))
    st.caption("The thin line is the 90 % interval of an end.")


def _each_job(advised: Recommendation, plan: Plan) -> None:
    draw(charts.slowdown_chart(plan.prediction))
    show_table(job_rows(advised, plan))


def show_table(rows: list[dict[str, Any]]) -> None:
    """Show `rows` as a table that sorts by number, each with two decimals."""
    table = pd.DataFrame(rows)
    number = st.column_config.NumberColumn(format="%.2f")
    numbers = dict.fromkeys(table.select_dtypes("float").columns, number)
    st.dataframe(table, hide_index=True, column_config=numbers, height="content")


def _two_plans(advised: Recommendation, plan: Plan) -> None:
    others = {
        headline.plan_words(advised, each): each for each in advised.plans if each is not plan
    }
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


@st.dialog("The commands", width="large")
def show_commands(advised: Recommendation, plan: Plan) -> None:
    """Show the script of `plan`, or its file in another format, over the page."""
    form = st.selectbox("Format", list(FORMATS), key="format", width=220)
    try:
        launched = launch_plan(advised.jobs, advised.gpu, plan.prediction)
        check_memory(launched, plan.prediction)
        text, notes = exported([launched], form)
    except AdvisorError as error:
        st.info(plain(str(error)))
        return
    file = f"plan.{FORMATS[form].file_end}"
    if form == "commands":
        st.markdown(
            f"Save it as {plain(file)}, put your own command in place of each ./NAME.sh, and run "
            f"`bash {file}`."
        )
    for note in notes:
        st.warning(plain(note))
    st.download_button("Download", text, file, "text/plain")
    st.code(text, language="bash", height=420)


def _all_plans(advised: Recommendation, _plan: Plan) -> None:
    show_table(plan_rows(advised))
    notations = dict.fromkeys(notation_of(each.sharing) for each in advised.plans)
    notes = filter(None, (f"Ways to share considered: {advised.considered}.", *notations))
    st.caption("  \n".join(map(plain, notes)))
    document = json_text(answer_document(advice(advised)))
    with st.container(horizontal=True):
        st.download_button("Download as CSV", plans_csv(advised), "plans.csv", "text/csv")
        st.download_button("Download as JSON", document, "plans.json", "application/json")


def show_fleet_card(advised: Recommendation) -> None:
    """Show what to do with many jobs or several GPUs, and the commands."""
    plan = advised.best
    with st.container(border=True):
        _show_best(advised)
        st.caption(plain(" ".join(gpu_notes(advised))))
        document = json_text(answer_document(advice(advised)))
        with st.container(horizontal=True):
            if plan.commands:
                text = "\n".join(plan.commands)
                st.download_button("Download the commands", text, "fleet.sh", "text/plain")
            else:
                st.caption(plain(why_not_started(launch_plans(advised.hosts, plan)) or ""))
            st.download_button("Download as JSON", document, "fleet.json", "application/json")


def show_fleet_jobs(question: Question, advised: Recommendation) -> None:
    """Show the jobs of each GPU over time."""
    plan = advised.best
    if plan.makespan_s is None:
        return
    placed = [
        (number, replace(run, gpus=(on.number,)))
        for on in plan.gpus
        for number, run in zip(
            on.job_numbers, _simulated(question.gpu, on.members, on.prediction).jobs, strict=True
        )
    ]
    # By GPU, and on each as they start; copies next to each other.
    placed.sort(key=lambda pair: (pair[1].gpu, pair[1].start_s, pair[1].job.name, pair[0]))
    draw(charts.lanes_chart(placed, question.names))
    st.caption("The thin line is the 90 % interval of an end.")
    show_table(placed_rows(placed))
