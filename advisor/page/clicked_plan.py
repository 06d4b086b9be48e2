"""The plan that is chosen on the page by a click on its point or its row."""

from collections.abc import Sequence
from typing import Any

import streamlit as st


def choose_clicked(names: Sequence[str]) -> None:
    """Choose the plan of `names` that was clicked; each click counts once."""
    found = {
        "chart": [each["number"] for each in _selected("chart").get("chosen", [])],
        "ranking": _selected("ranking").get("rows", []),
    }
    for where, numbers in found.items():
        known = st.session_state.get(f"clicked on {where}")
        st.session_state[f"clicked on {where}"] = list(numbers)
        if numbers and list(numbers) != known and numbers[0] < len(names):
            st.session_state["plan"] = names[numbers[0]]


def _selected(where: str) -> dict[str, Any]:
    """What is selected there; nothing where it is not in view."""
    found: dict[str, Any] = st.session_state.get(where, {}).get("selection", {})
    return found
