"""A search on the page: its steps while it goes on, a button that stops it, and what follows."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from time import monotonic

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.plan import watched
from advisor.prediction.engine import is_compiled, load

_EVERY_S = 0.3


@contextmanager
def searching() -> Iterator[None]:
    """Show the steps of the searches in this block.

    When a visitor stops the search, leaves, changes the question, or ends the server, streamlit
    raises what ends the script in the next call that shows something. So it ends a search, too.
    After a stop, this ends the script; whatever the visitor does then begins the search again.
    """
    if st.session_state.pop("stopped", None):
        st.info("Search stopped.")
        st.button("Search again")
        st.stop()
    note = st.empty()  # of its own, so that the last answer stays until the next
    steps, shown_s = count(1), monotonic()
    text: DeltaGenerator | None = None

    def show(words: str) -> None:
        nonlocal text
        if text is None:
            with note.container(horizontal=True, vertical_alignment="center"):
                text = st.empty()
                st.button("Stop", on_click=st.session_state.update, kwargs={"stopped": True})
        text.info(words)

    def watch() -> None:
        nonlocal shown_s
        number = next(steps)
        if monotonic() - shown_s >= _EVERY_S:
            show(f"Searching for the best plan: {number:,} steps so far.")
            shown_s = monotonic()

    if not is_compiled():
        show("Compiling the engine, once on this machine: about 5 s.")
        load()
    with watched(watch):
        yield
    note.empty()
