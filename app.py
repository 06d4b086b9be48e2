"""The page: choose a GPU and jobs, see how they share it best.

Started by ``advisor app`` or ``streamlit run app.py``. It holds widgets only: what they show
comes from the library.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from advisor.api import Advisor
from advisor.errors import AdvisorError
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.catalogue import known_gpus
from advisor.launch.exports import EXPORTS, SUFFIXES, exported
from advisor.measure.process.provenance import gpu_at_hand, present_machine
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.reasons import verdict
from advisor.plan.recommendation import Plan, Recommendation
from advisor.plan.rules import Conditions
from advisor.prediction.estimated_profile import names_of_jobs
from advisor.prediction.mix_prediction import Level
from advisor.prediction.power_cap import CAP_NOTE
from advisor.report import charts
from advisor.report.documents import job_rows, plan_rows, recommendation_document
from advisor.report.gpu_drawing import drawing
from advisor.report.headline import (
    ORIGINS,
    answer,
    basis,
    bounds_note,
    caution,
    headline,
    host_note,
    plan_name,
)
from advisor.report.mig_text import blocks
from advisor.report.simulation_drawing import timeline
from advisor.report.simulation_text import simulation_facts
from advisor.report.units import NOT_MEASURED
from advisor.timeline.simulate import Fleet
from advisor.workload.job import MAX_JOBS, Arrival, Job
from advisor.workload.store import profiled_gpus

_BOXES = {"share": st.success, "fix-host-first": st.warning}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A job as it is typed."""

    name: str
    copies: int
    epochs: float
    deadline_min: float | None


@dataclass(frozen=True, slots=True)
class _Question:
    """All that the sidebar says."""

    gpu: str
    jobs: tuple[_Wanted, ...]
    objective: ObjectiveName
    cap_w: float | None
    conditions: Conditions
    level: Level


def main() -> None:
    st.set_page_config(page_title="advisor", page_icon="🧩", layout="wide")
    st.title("How should these jobs share one GPU?")
    try:
        with st.sidebar:
            asked = _question()
        if asked.jobs:
            _show(_advice(asked))
    except AdvisorError as error:
        st.error(str(error))


def _question() -> _Question:
    known = known_gpus()
    if not any(key in known for key in profiled_gpus()):
        st.info("Nothing is measured yet. On a machine with a GPU: `advisor profile WORKLOAD`.")
        return _Question(DEFAULT_GPU, (), "makespan", None, Conditions(), "p50")
    keys = _measured_first(known)
    likely = (each for each in (gpu_at_hand(), DEFAULT_GPU) if each in keys)
    first = keys.index(next(likely, keys[0]))
    gpu = st.selectbox("GPU", keys, index=first, key="gpu")
    objective = st.radio(
        "Best means",
        list(OBJECTIVES),
        format_func=lambda name: OBJECTIVES[name].choice,
        key="objective",
    )
    jobs = _wanted(gpu, with_deadlines=OBJECTIVES[objective].uses_deadlines)
    return _Question(gpu, jobs, objective, *_conditions())


def _measured_first(known: Iterable[str]) -> list[str]:
    """GPUs of which there are profiles, then those for which they are estimated."""
    measured = set(profiled_gpus())
    return sorted(known, key=lambda key: key not in measured)


def _conditions() -> tuple[float | None, Conditions, Level]:
    """Power cap, conditions and what counts of a range, as typed; the library judges them."""
    with st.expander("Conditions"):
        cap_w = st.number_input(
            "Power cap, W", value=None, step=10.0, format="%g", key="power cap",
            placeholder="the GPU's own limit",
            help=f"What the GPU may draw at most. What a cap does was {CAP_NOTE}.",
        )  # fmt: skip
        caps = st.checkbox("A plan may choose a power cap", key="power caps")
        free = st.number_input("Memory to keep free, %", value=0.0, format="%g", key="memory")
        root = st.checkbox("MIG may be switched on, which takes root", value=True, key="root")
        upper = st.checkbox("Rank by the upper ends of the ranges", key="pessimistic")
    conditions = Conditions(root=root, memory_margin=free / 100, power_caps=caps)
    return cap_w, conditions, "p95" if upper else "p50"


def _wanted(gpu: str, *, with_deadlines: bool) -> tuple[_Wanted, ...]:
    known = names_of_jobs(known_gpus()[gpu])
    epochs = _example_epochs(gpu, known)
    names = st.multiselect("Jobs", known, default=list(epochs), key=f"jobs {gpu}")
    if not names:
        st.info("Choose at least one job.")
    return tuple(_job(name, epochs.get(name, 1.0), with_deadlines) for name in names)


def _example_epochs(gpu: str, known: Sequence[str]) -> dict[str, float]:
    """The bundled jobs, or the first of those `known` for `gpu`."""
    try:
        return {job.name: job.epochs for job in Advisor(gpu).chosen_jobs()}
    except AdvisorError:
        return dict.fromkeys(known[:1], 1.0)


def _job(name: str, epochs: float, with_deadline: bool) -> _Wanted:
    st.caption(name)
    left, right = st.columns(2)
    copies = left.number_input(
        "copies", min_value=1, max_value=MAX_JOBS, value=1, key=f"copies {name}"
    )
    passes = right.number_input(
        "epochs", min_value=0.1, max_value=1e6, value=epochs, format="%g", key=f"epochs {name}"
    )
    deadline_min = None
    if with_deadline:
        deadline_min = st.number_input(
            "done within, min", value=None, format="%g", placeholder="no deadline",
            key=f"deadline {name}",
        )  # fmt: skip
    return _Wanted(name, copies, passes, deadline_min)


@st.cache_resource(ttl=60, max_entries=100, show_spinner="Predicting every way to share ...")
def _advice(asked: _Question) -> Recommendation:
    advisor = Advisor(asked.gpu, power_cap_w=asked.cap_w, present=present_machine(asked.gpu))
    jobs: list[Job] = []
    for each in asked.jobs:
        deadline_s = None if each.deadline_min is None else 60 * each.deadline_min
        profile = advisor.find_profile(each.name)
        jobs += [Job(profile, each.epochs, deadline_s=deadline_s)] * each.copies
    return advisor.recommend(jobs, asked.objective, conditions=asked.conditions, level=asked.level)


def _show(advised: Recommendation) -> None:
    found = verdict(advised)
    _BOXES.get(found.answers[0], st.info)(f"**{headline(found)}** {answer(advised)}")
    for stale in advised.standing.stale:
        st.warning(str(stale))
    for why in advised.refused_variants:
        st.warning(f"left out: {why}")
    st.caption(host_note(advised.standing))
    names = {f"{plan.rank}  {plan_name(advised, plan)}": plan for plan in advised.plans}
    _plan(advised, names[st.selectbox("Plan", list(names), key="plan")])
    st.subheader("All ways, best first")
    _ranking(advised)
    with st.expander("What is measured, what is predicted, what is estimated"):
        st.markdown(ORIGINS)
    if advised.left_out:
        with st.expander("Considered and left out"):
            for each in advised.left_out:
                st.markdown(f"`{each.sharing}`: {each.why}")


def _plan(advised: Recommendation, plan: Plan) -> None:
    st.markdown(f"**Why:** {plan.why}.")
    if warning := caution(plan.prediction):
        st.warning(warning)
    else:
        st.caption(f"All times are {basis(plan.prediction)}.")
    parts = {
        f"On the {advised.gpu.key}, to scale": _on_the_gpu,
        "Over time": _over_time,
        "Apply it": _apply,
    }
    for tab, part in zip(st.tabs(list(parts)), parts.values(), strict=True):
        with tab:
            try:
                part(advised, plan)
            except AdvisorError as error:
                st.info(str(error))


def _on_the_gpu(advised: Recommendation, plan: Plan) -> None:
    if cut := blocks(plan.sharing, advised.gpu):
        st.altair_chart(charts.slices_chart(cut, advised.gpu.memory_slices), width="stretch")
    drawn = drawing(plan.prediction, advised.gpu)
    left, right = st.columns([5, 2])
    left.altair_chart(charts.memory_chart(drawn), width="stretch")
    right.altair_chart(charts.sm_chart(drawn), width="stretch")
    st.caption(drawn.caption)
    rows = job_rows(advised.jobs, plan.prediction)
    st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch")


def _over_time(advised: Recommendation, plan: Plan) -> None:
    gpu = advised.gpu.key
    advisor = Advisor(gpu, power_cap_w=plan.prediction.power_cap_w, present=present_machine(gpu))
    arrivals = tuple(map(Arrival, advised.jobs))
    found = advisor.simulate(arrivals, plan.sharing, Fleet(gpu, 1, "first-come")).simulation
    line = timeline(found, advised.gpu)
    st.altair_chart(charts.lanes_chart(line), width="stretch")
    st.caption("The thin line is where nine of ten ends should fall; below are medians.")
    for column, curve in zip(st.columns(2) * 2, line.curves, strict=True):
        if curve.measured:
            column.altair_chart(charts.curve_chart(line, curve), width="stretch")
        else:
            column.caption(f"{curve.name}: {NOT_MEASURED}")
    st.table([{"over time": name, "": said} for name, said in simulation_facts(found)])


def _apply(advised: Recommendation, plan: Plan) -> None:
    form = st.selectbox("As", list(EXPORTS), key="format")
    file = exported(advised.jobs, advised.gpu, plan.prediction, form)
    if file.note:
        st.warning(file.note)
    st.code(file.text, language="bash" if SUFFIXES[form].endswith("sh") else None)
    st.download_button("Download", file.text, f"plan.{SUFFIXES[form]}", "text/plain")


def _ranking(advised: Recommendation) -> None:
    st.altair_chart(charts.plans_chart(advised), width="stretch")
    rows = plan_rows(advised)
    st.table([{**row, "plan": row["plan"].replace(",", ", ")} for row in rows], hide_index=True)
    st.caption(f"{bounds_note(advised)} Ways to share considered: {advised.considered}.")
    csv = pd.DataFrame(rows).to_csv(index=False)
    st.download_button("Download as CSV", csv, "plans.csv", "text/csv")
    document = json.dumps(recommendation_document(advised), indent=1, allow_nan=False)
    st.download_button("Download as JSON", document, "plans.json", "application/json")


main()
