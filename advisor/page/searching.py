"""A search on the page: its steps while it goes on, and the place for its answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from time import monotonic

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.plan import watched

_EVERY_S = 0.3


@contextmanager
def searching() -> Iterator[Callable[[], DeltaGenerator]]:
    """Show the steps of the searches in this block; yield a function to the place for the answer.

    When a visitor leaves, changes the question, or ends the server, streamlit raises what ends the
    script in the next call that shows something. So it ends a search, too.
    """
    steps, shown_s, note = count(1), monotonic(), None

    def watch() -> None:
        nonlocal shown_s, note
        number = next(steps)
        if monotonic() - shown_s >= _EVERY_S:
            note = note or st.empty()  # until then, the last answer stays
            note.info(f"Searching for the best plan: {number:,} steps so far.")
            shown_s = monotonic()

    def place() -> DeltaGenerator:
        nonlocal note
        at, note = note or st, None
        return at.container()

    with watched(watch):
        yield place
    if note is not None:
        note.empty()
