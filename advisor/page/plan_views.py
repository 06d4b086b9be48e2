"""One plan on the page: on the GPU, over time, job by job, and as commands."""

import streamlit as st

from advisor.hardware.catalogue import Gpu
from advisor.launch.exports import EXPORTS, SUFFIXES, exported
from advisor.page.address import at_first, linked
from advisor.page.answers import advisor_of
from advisor.page.stacked_table import stacked_table
from advisor.plan.recommendation import Plan, Recommendation
from advisor.report import charts
from advisor.report.documents import job_rows
from advisor.report.gpu_drawing import drawing
from advisor.report.mig_blocks import blocks
from advisor.report.plan_charts import slowdown_chart
from advisor.report.simulation_drawing import timeline
from advisor.report.simulation_text import simulation_facts
from advisor.report.units import NOT_MEASURED
from advisor.timeline.simulate import Fleet
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
