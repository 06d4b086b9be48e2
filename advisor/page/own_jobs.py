"""The form for a job of the visitor's own: numbers that its log and ``nvidia-smi`` show."""

from collections.abc import Iterable

import streamlit as st

from advisor.errors import InvalidInput
from advisor.report.page_words import plain
from advisor.workload.minimal_profile import minimal_text
from advisor.workload.nvidia_smi import read_nvidia_smi
from advisor.workload.typed_job import MORE_QUANTITIES, QUANTITIES, Quantity, numbers_of, typed_job


def typed_files() -> tuple[tuple[str, bytes], ...]:
    """Return the profiles typed in this session: names of files, and contents."""
    return tuple(st.session_state.get("typed", {}).items())


def show_form(gpu: str) -> None:
    """Show a button that opens the form for a job alone on `gpu`, and the typed profiles."""
    with st.popover("Add your own job"):
        if problem := st.session_state.get("own problem"):
            st.error(plain(problem))
        st.text_area(
            "Paste what nvidia-smi prints while the job trains alone, or type its numbers below",
            key="own nvidia-smi",
            height=100,
            on_change=_fill,
        )
        with st.form("own job", border=False):
            st.text_input("Name", key="own name")
            _fields(QUANTITIES)
            with st.expander("More numbers"):
                _fields(MORE_QUANTITIES)
            st.caption(f"Alone on a whole {st.session_state.get('own gpu') or gpu}.")
            st.form_submit_button("Add this job", on_click=_add, args=(gpu,))
        for file, content in typed_files():
            st.download_button(f"Download {file}", content, file, "application/json")


def _fields(quantities: Iterable[Quantity]) -> None:
    with st.container(horizontal=True):
        for each in quantities:
            key = f"own {each.name}"
            st.number_input(each.label, 0.0, each.most, None, format="%g", key=key, width=150)


def _fill() -> None:
    """Fill the form with what was pasted."""
    state = st.session_state
    try:
        seen = read_nvidia_smi(state["own nvidia-smi"])
    except InvalidInput as error:
        state["own problem"] = str(error)
        return
    state.update({f"own {name}": number for name, number in numbers_of(seen).items()})
    state["own problem"], state["own gpu"] = None, seen.gpu
    if seen.product is not None and seen.gpu is None:
        state["own problem"] = f"{seen.product} is not in the list of GPUs. Choose one as fast."


def _add(gpu: str) -> None:
    """Keep the typed job as a file, and empty the form."""
    state, keys = st.session_state, [each.name for each in (*QUANTITIES, *MORE_QUANTITIES)]
    numbers = {key: state[f"own {key}"] for key in keys}
    try:
        job = typed_job(state["own name"].strip(), state.get("own gpu") or gpu, numbers)
    except InvalidInput as error:
        state["own problem"] = str(error)
        return
    state["typed"] = state.get("typed", {}) | {f"{job.workload}.json": minimal_text(job).encode()}
    state.update(dict.fromkeys((f"own {key}" for key in (*keys, "gpu", "problem")), None))
    state.update({"own name": "", "own nvidia-smi": ""})
