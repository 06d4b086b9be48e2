"""The page: choose a GPU and jobs, see how they share it best.

Started by ``advisor app`` or ``streamlit run app.py``. It holds widgets only: what they show
comes from the library.
"""

import pandas as pd
import streamlit as st

from advisor.errors import AdvisorError
from advisor.gpu.catalogue import catalogue
from advisor.planning.advice import DEFAULT_GPU, example_jobs, recommend
from advisor.planning.plan import Objective, Plan, Recommendation
from advisor.prediction.power_cap import CAP_NOTE
from advisor.reporting.answer import answer, bounds_note, calibrated_note
from advisor.reporting.charts import memory_chart, plans_chart, sm_chart
from advisor.reporting.drawing import drawing
from advisor.reporting.page import caution, job_rows, plan_rows
from advisor.running.present import present_machine
from advisor.workload.job import MAX_JOBS, Job
from advisor.workload.store import load_profile, profile_paths, profiled_gpus

_OBJECTIVES: dict[Objective, str] = {
    "makespan": "all done soonest",
    "throughput": "most work per hour",
    "energy": "least energy",
    "energy-epoch": "least energy per epoch",
    "energy-example": "least energy per example",
    "fairness": "nobody left behind",
    "mean-completion": "each done soon",
    "deadlines": "deadlines kept",
}
_Chosen = tuple[tuple[str, int, float], ...]


def main() -> None:
    st.set_page_config(page_title="advisor", page_icon="🧩", layout="wide")
    st.title("How should these jobs share one GPU?")
    try:
        with st.sidebar:
            gpu, chosen, objective, cap_w = _question()
        if chosen:
            _show(_advice(gpu, chosen, objective, cap_w))
    except AdvisorError as error:
        st.error(str(error))


def _question() -> tuple[str, _Chosen, Objective, float | None]:
    """What the user asks: the GPU, each job's name, copies and epochs, objective, power cap."""
    measured = [key for key in profiled_gpus() if key in catalogue()]
    if not measured:
        st.info("Nothing is measured yet. On a machine with a GPU: `advisor profile WORKLOAD`.")
        return DEFAULT_GPU, (), "makespan", None
    first = measured.index(DEFAULT_GPU) if DEFAULT_GPU in measured else 0
    gpu = st.selectbox("GPU", measured, index=first, key="gpu")
    objective = st.radio(
        "Best means", list(_OBJECTIVES), format_func=_OBJECTIVES.__getitem__, key="objective"
    )
    cap_w = _power_cap_w()
    return gpu, _chosen_jobs(gpu), objective, cap_w


def _power_cap_w() -> float | None:
    """Watts as typed, which the library judges; None where nothing is."""
    return st.number_input(
        "Power cap, W",
        value=None,
        step=10.0,
        format="%g",
        placeholder="the GPU's own limit",
        help=f"What the GPU may draw at most. What a cap does was {CAP_NOTE}.",
        key="power cap",
    )


def _chosen_jobs(gpu: str) -> _Chosen:
    known = sorted(profile_paths(gpu))
    epochs = _example_epochs(gpu, known)
    names = st.multiselect("Jobs", known, default=list(epochs), key=f"jobs {gpu}")
    if not names:
        st.info("Choose at least one job.")
    return tuple(_copies_and_epochs(name, epochs.get(name, 1.0)) for name in names)


def _example_epochs(gpu: str, known: list[str]) -> dict[str, float]:
    """The bundled jobs that were measured on `gpu`, or the first profile."""
    try:
        return {job.name: job.epochs for job in example_jobs(gpu)}
    except AdvisorError:
        return dict.fromkeys(known[:1], 1.0)


def _copies_and_epochs(name: str, epochs: float) -> tuple[str, int, float]:
    st.caption(name)
    left, right = st.columns(2)
    copies = left.number_input(
        "copies", min_value=1, max_value=MAX_JOBS, value=1, key=f"copies {name}"
    )
    passes = right.number_input(
        "epochs", min_value=0.1, max_value=1e6, value=epochs, format="%g", key=f"epochs {name}"
    )
    return name, copies, passes


@st.cache_resource(ttl=60, max_entries=100, show_spinner="Predicting every way to share ...")
def _advice(gpu: str, chosen: _Chosen, objective: Objective, cap_w: float | None) -> Recommendation:
    jobs = [
        job
        for name, copies, epochs in chosen
        for job in [Job(load_profile(name, gpu), epochs)] * copies
    ]
    return recommend(jobs, gpu, objective, power_cap_w=cap_w, present=present_machine(gpu))


def _show(advised: Recommendation) -> None:
    st.success(answer(advised))
    for stale in advised.standing.stale:
        st.warning(str(stale))
    if note := calibrated_note(advised.standing):
        st.caption(note)
    names = {f"{plan.rank}  {plan.sharing}": plan for plan in advised.plans}
    st.subheader(f"The jobs on the {advised.gpu.key}, to scale")
    _plan(advised, names[st.selectbox("Plan", list(names), key="plan")])
    st.subheader("All ways, best first")
    _ranking(advised)
    st.caption(f"{bounds_note(advised)} {advised.considered} ways to share were considered.")
    if advised.left_out:
        with st.expander("Considered and left out"):
            for each in advised.left_out:
                st.markdown(f"`{each.sharing}`: {each.why}")


def _plan(advised: Recommendation, plan: Plan) -> None:
    if warning := caution(plan.prediction):
        st.warning(warning)
    drawn = drawing(plan.prediction, advised.gpu)
    left, right = st.columns([5, 2])
    left.altair_chart(memory_chart(drawn), width="stretch")
    right.altair_chart(sm_chart(drawn), width="stretch")
    st.caption(drawn.caption)
    st.dataframe(pd.DataFrame(job_rows(plan.prediction)), hide_index=True, width="stretch")
    with st.expander("Commands that apply it"):
        st.code("\n".join(plan.commands), language="bash")


def _ranking(advised: Recommendation) -> None:
    st.altair_chart(plans_chart(advised), width="stretch")
    rows = plan_rows(advised)
    st.table([{**row, "plan": row["plan"].replace(",", ", ")} for row in rows], hide_index=True)
    csv = pd.DataFrame(rows).to_csv(index=False)
    st.download_button("Download as CSV", csv, "plans.csv", "text/csv")


main()
