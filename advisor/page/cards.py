"""Figures that are read at a glance."""

from collections.abc import Iterable

import streamlit as st


def cards(figures: Iterable[tuple[str, str, str]]) -> None:
    """Side by side where they fit; of each what it is of, the figure, and what it compares with."""
    with st.container(horizontal=True):
        for label, value, beside in figures:
            st.metric(
                label, value, beside, delta_color="off", delta_arrow="off", border=True,
            )  # fmt: skip
