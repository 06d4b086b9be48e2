"""The plan in view: over time, each job, compared, its commands, and all plans."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.documents import answer_document
from advisor.errors import AdvisorError
from advisor.files.writing import json_text
from advisor.launch.exports import FORMATS, exported
from advisor.launch.launch_plan import check_memory, launch_plan
from advisor.launch.shell import plan_lines
from advisor.page.question import advisor_of, plain
from advisor.plan.reasons import compare
from advisor.plan.values import Plan, Recommendation
from advisor.report import charts
from advisor.report.comparison import comparison_text, limits_in_words, rows_of_jobs, rows_of_plans
from advisor.report.forecast import job_rows, plan_rows
from advisor.report.format import notation_of, shortened
from advisor.report.plans import advice, plans_csv
from advisor.report.recommendation import caveats, hints
from advisor.simulation.results import Simulation
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival

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


def draw(chart: charts.Layered, at: DeltaGenerator | None = None, **options: Any) -> None:
    """Show `chart`, unchecked: altair takes longer to check than to draw it."""
    (at or st).vega_lite_chart(chart.to_dict(validate=False), **options)


def simulate_on_one(advised: Recommendation, plan: Plan) -> Simulation:
    """Simulate the jobs of `plan`, which all arrive at once."""
    advisor = advisor_of(advised.gpu.key, plan.prediction.power_cap_w)
    fleet = Fleet(advised.gpu.key, 1, "first-come")
    return advisor.simulate(tuple(map(Arrival, advised.jobs)), plan.sharing, fleet).simulation


def _timeline(advised: Recommendation, plan: Plan, _plans: Plans) -> None:
    simulation = simulate_on_one(advised, plan)
    runs = enumerate(simulation.jobs, start=1)
    draw(charts.lanes_chart(runs, [job.name for job in advised.jobs]))
    st.caption("The thin line is the 90 % interval of an end.")


def _each_job(advised: Recommendation, plan: Plan, _plans: Plans) -> None:
    draw(charts.slowdown_chart(plan.prediction))
    show_table(job_rows(advised, plan))


def show_table(rows: list[dict[str, Any]], **options: Any) -> None:
    """Show `rows` as a table that sorts by number, each with two decimals."""
    table = pd.DataFrame(rows)
    number = st.column_config.NumberColumn(format="%.2f")
    numbers = dict.fromkeys(table.select_dtypes("float").columns, number)
    st.dataframe(table, hide_index=True, column_config=numbers, height="content", **options)


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
