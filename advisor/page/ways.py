"""The table that is a chart: a row for each way to share, of which a click chooses the plan."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import streamlit as st

from advisor.report.ways import WaysTable

_HERE = Path(__file__)
_mount = st.components.v2.component(
    "advisor_ways",
    html="<table></table>",
    css=_HERE.with_suffix(".css").read_text("utf-8"),
    js=_HERE.with_suffix(".js").read_text("utf-8"),
)


def show_ways(table: WaysTable, looked: str, choose: Callable[[str], None]) -> None:
    """Show `table`, with a mark at the plan that is looked at; a click calls `choose`."""

    def chosen() -> None:
        choose(st.session_state["ways"].chosen)

    _mount(key="ways", data=asdict(table) | {"looked": looked}, on_chosen_change=chosen)
