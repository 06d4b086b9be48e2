"""A button that copies a link to the page as it is."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

_HERE = Path(__file__)
_mount = st.components.v2.component(
    "advisor_copy_link",
    html="<button type='button'>Copy link</button>",
    css=_HERE.with_suffix(".css").read_text("utf-8"),
    js=_HERE.with_suffix(".js").read_text("utf-8"),
)


def copy_link(fields: Mapping[str, str], done: str) -> None:
    """Show the button: the link has the address's parameters and `fields`.

    Once the link is copied, the button says that it is `done` for two seconds.
    """
    values = {key: st.query_params.get_all(key) for key in st.query_params}
    link = f"{st.context.url}?{urlencode({**values, **fields}, doseq=True)}"
    _mount(key="copy link", data={"link": link, "done": done}, width="content")
