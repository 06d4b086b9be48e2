"""The plan for many jobs or several GPUs: what to do, the jobs over time, and its commands."""

from dataclasses import replace

import streamlit as st

from advisor.documents import answer_document
from advisor.files.writing import json_text
from advisor.launch.launch_plan import launch_plans
from advisor.launch.shell import why_not_started
from advisor.page.plan import draw, show_table
from advisor.page.question import Question, advisor_of, plain
from advisor.plan.values import GpuPlan, Recommendation
from advisor.report import charts, fleet
from advisor.report.forecast import NOT_CONFIRMED
from advisor.report.plans import advice
from advisor.report.recommendation import outcome
from advisor.simulation.results import Simulation
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival


def show_headline(text: str, *, estimated: bool = False) -> None:
    st.markdown(f"## {plain(text)}")
    if estimated:
        st.caption(f"This is {NOT_CONFIRMED}.")


def show_fleet(question: Question, advised: Recommendation) -> None:
    """Show the best plan for many jobs or several GPUs of one kind."""
    plan = advised.best
    show_headline(f"{fleet.instruction(advised)}.", estimated=not plan.confirmed_on_hardware)
    st.markdown(plain(outcome(advised)))
    if plan.makespan_s is not None:
        one = Fleet(question.gpu, 1, "first-come")
        placed = [
            (number, replace(run, gpus=(on.number,)))
            for on in plan.gpus
            for number, run in zip(on.job_numbers, _simulated(question, on, one).jobs, strict=True)
        ]
        # By GPU, and on each as they start; copies next to each other.
        placed.sort(key=lambda pair: (pair[1].gpu, pair[1].start_s, pair[1].job.name, pair[0]))
        draw(charts.lanes_chart(placed, question.names))
        st.caption("The thin line is the 90 % interval of an end.")
        show_table(
            [
                {
                    "GPU": run.gpu,
                    "job": charts.row_name(number, run.job.name),
                    "starts, min": run.start_s / 60,
                    "ends, min": run.end_s.p50 / 60,
                    "from": run.end_s.p05 / 60,
                    "to": run.end_s.p95 / 60,
                    "late": run.job.deadline_s is not None and run.end_s.p50 > run.job.deadline_s,
                }
                for number, run in placed
            ]
        )
    st.caption(plain(" ".join(fleet.gpu_notes(advised))))
    document = json_text(answer_document(advice(advised)))
    with st.container(horizontal=True):
        if plan.commands:
            text = "\n".join(plan.commands)
            st.download_button("Download the commands", text, "fleet.sh", "text/plain")
        else:
            st.caption(plain(why_not_started(launch_plans(advised.hosts, plan)) or ""))
        st.download_button("Download as JSON", document, "fleet.json", "application/json")


def _simulated(question: Question, on: GpuPlan, one: Fleet) -> Simulation:
    """The jobs of one GPU, which all arrive at once."""
    advisor = advisor_of(question.gpu, on.prediction.power_cap_w)
    return advisor.simulate(tuple(map(Arrival, on.members)), on.sharing, one).simulation
