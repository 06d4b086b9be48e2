"""Tables that are read and not typed into; on a narrow screen each row is a block of lines."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st


def stacked_table(rows: Sequence[Mapping[str, str]], name: str) -> None:
    """A column for each key of `rows`; where a row is a block, its first line is the heading.

    Args:
        rows: With equal keys, which are ours: they become part of a style sheet.
        name: Of this table alone, in a word or two.
    """
    key = f"rows-{name.replace(' ', '-')}"
    heads = "".join(
        f'.st-key-{key} td:nth-child({number})::before {{content: "{head}"}}'
        for number, head in enumerate(rows[0], start=1)
    )
    with st.container(key=key):
        st.html(f"<style>@media (max-width: 640px) {{{heads}}}</style>")
        st.table(pd.DataFrame(rows), hide_index=True)
