"""What the GPUs of this machine do now, as their driver says."""

from collections.abc import Sequence

import streamlit as st

from advisor.errors import AdvisorError
from advisor.hardware.gpu_state import LiveGpu
from advisor.hardware.live_gpu import live_gpus
from advisor.page.stacked_table import stacked_table
from advisor.report.listing_text import live_facts, live_lines, live_name, process_rows
from advisor.workload.job import Job

_EVERY_S = 3.0


def live_view(jobs: Sequence[Job]) -> None:
    """Watch them, and say which of `jobs` their processes may be; without a driver, a sentence."""
    try:
        live_gpus()
    except AdvisorError as error:
        st.caption(f"No GPU of this machine can be watched: {error}")
        return
    _watched(jobs)


@st.fragment(run_every=_EVERY_S)
def _watched(jobs: Sequence[Job]) -> None:
    """Renews itself, and not the page."""
    try:
        found = live_gpus()
    except AdvisorError as error:
        st.warning(str(error))
        return
    for gpu in found:
        if isinstance(gpu, LiveGpu):
            _gpu(gpu, jobs)
    if broken := [each for each in found if not isinstance(each, LiveGpu)]:
        st.warning("\n\n".join(live_lines(broken)))
    st.caption(f"Read from the driver every {_EVERY_S:g} s; nothing is changed there.")


def _gpu(gpu: LiveGpu, jobs: Sequence[Job]) -> None:
    st.markdown(f"**{live_name(gpu)}**")
    st.table([{"now": name, "": said} for name, said in live_facts(gpu)])
    if gpu.processes:
        stacked_table(process_rows(gpu, jobs), f"processes of {gpu.index}")
    else:
        st.caption("No process uses it.")
