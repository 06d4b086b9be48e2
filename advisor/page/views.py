"""One plan on the page: on the GPU, over time, job by job, and as commands."""

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from advisor.errors import AdvisorError
from advisor.hardware.gpus import Gpu
from advisor.launch.exports import EXPORTS, SUFFIXES, exported
from advisor.page.answer import advisor_of, stacked_table
from advisor.page.question import at_first, linked
from advisor.plan.reasons import compare
from advisor.plan.values import Plan, Recommendation
from advisor.report import charts
from advisor.report.charts import slowdown_chart
from advisor.report.drawings import drawing, timeline
from advisor.report.forecast import basis, caution, job_rows, plan_kind, plan_name
from advisor.report.format import NOT_MEASURED, explained, shortened
from advisor.report.lists import blocks
from advisor.report.plan_tables import ComparisonSection, side_by_side
from advisor.report.simulation import simulation_facts
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival


def on_the_gpu(advised: Recommendation, plan: Plan) -> None:
    """What each job of `plan` holds of the GPU, and what becomes of it."""
    draw_gpu(plan, advised.gpu)
    stacked_table(job_rows(advised.jobs, plan.prediction), "jobs of the plan")


def draw_gpu(plan: Plan, gpu: Gpu, until_gib: float | None = None) -> None:
    """The jobs of `plan` in `gpu`; the axis of memory ends where they do, or at `until_gib`."""
    if cut := blocks(plan.sharing, gpu):
        jobs = [job.job for job in plan.prediction.jobs]
        st.altair_chart(charts.slices_chart(cut, gpu.memory_slices, jobs), width="stretch")
    drawn = drawing(plan.prediction, gpu)
    left, right = st.columns([3, 2])
    left.altair_chart(charts.memory_chart(drawn, until_gib), width="stretch")
    right.altair_chart(charts.sm_chart(drawn), width="stretch")
    st.caption(drawn.caption)


def over_time(advised: Recommendation, plan: Plan) -> None:
    """What runs when; errors as of `Advisor.simulate`."""
    gpu = advised.gpu.key
    advisor = advisor_of(gpu, plan.prediction.power_cap_w)
    arrivals = tuple(map(Arrival, advised.jobs))
    found = advisor.simulate(arrivals, plan.sharing, Fleet(gpu, 1, "first-come")).simulation
    line = timeline(found, advised.gpu)
    st.altair_chart(charts.lanes_chart(line, [job.name for job in advised.jobs]), width="stretch")
    st.caption("The thin line is where nine of ten ends should fall; below are medians.")
    for column, curve in zip(st.columns(2) * 2, line.curves, strict=True):
        if curve.measured:
            column.altair_chart(charts.curve_chart(line, curve), width="stretch")
        else:
            column.caption(f"{curve.name}: {NOT_MEASURED}")
    st.table([{"over time": name, "": said} for name, said in simulation_facts(found)])


def how_each_fares(_advised: Recommendation, plan: Plan) -> None:
    """How much slower each job of `plan` runs than alone."""
    st.altair_chart(slowdown_chart(plan.prediction), width="stretch")


def apply_it(advised: Recommendation, plan: Plan) -> None:
    """The plan as a file, in one of the forms that others read; errors as of `exported`."""
    form = st.selectbox("As", list(EXPORTS), at_first(list(EXPORTS), linked().form), key="format")
    file = exported(advised.jobs, advised.gpu, plan.prediction, form)
    for note in file.notes:
        st.warning(note)
    language = "bash" if SUFFIXES[form].endswith("sh") else None
    st.code(file.text, language=language, wrap_lines=True)
    st.download_button("Download", file.text, f"plan.{SUFFIXES[form]}", "text/plain")


def two_plans(advised: Recommendation, plan: Plan) -> None:
    """What changes from `plan` to another one, which is chosen here."""
    others = {f"{each.rank}  {plan_name(advised, each)}": each for each in advised.plans
              if each is not plan}  # fmt: skip
    if not others:
        st.info("There is no other plan to compare it with.")
        return
    index = at_first([plan_name(advised, each) for each in others.values()], linked().beside)
    chosen = st.selectbox("Beside", list(others), index, key="second plan", format_func=shortened)
    pair = plan, others[chosen]
    names = [f"{each.rank}  {plan_kind(advised, each)}" for each in pair]
    whole, *jobs = side_by_side(
        compare(advised.jobs, advised.gpu, pair, advised.objective, advised.serial)
    )
    _part(whole, names)
    until_gib = max(drawing(each.prediction, advised.gpu).used_gib for each in pair)
    for name, each in zip(names, pair, strict=True):
        st.markdown(f"**{name}**")
        draw_gpu(each, advised.gpu, until_gib)
    for part in jobs:
        _part(part, names)


def _part(part: ComparisonSection, names: Sequence[str]) -> None:
    st.markdown(f"**{part.title}**: {shortened(part.text)}")
    st.table(pd.DataFrame(part.rows, columns=["", *names, "change"]), hide_index=True)


_VIEWS: dict[str, Callable[[Recommendation, Plan], None]] = {
    "On the GPU": on_the_gpu,
    "Over time": over_time,
    "How each fares": how_each_fares,
    "Beside another plan": two_plans,
    "Apply it": apply_it,
}


def open_view(advised: Recommendation, plan: Plan) -> None:
    """What is to be known of `plan`, and the view of it that is chosen."""
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
