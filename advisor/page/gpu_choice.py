"""The choice of a GPU on the page."""

import streamlit as st

from advisor.hardware import DEFAULT_GPU
from advisor.measure.process.provenance import gpu_at_hand
from advisor.report.gpu_choice import gpu_choices


def chosen_gpu(linked: str | None) -> str:
    """The key of one; at first the `linked` one, else that of this machine, else the usual one."""
    at_hand = gpu_at_hand()
    choices = gpu_choices(at_hand)
    keys = list(choices)
    likely = next(each for each in (linked, at_hand, DEFAULT_GPU, *keys) if each in choices)
    key = st.selectbox(
        "GPU", keys, index=keys.index(likely), key="gpu",
        format_func=lambda key: choices[key].label,
    )  # fmt: skip
    st.caption(choices[key].standing)
    return key
