"""A button that copies a link to the page as it is."""

from collections.abc import Mapping
from urllib.parse import urlencode

import streamlit as st

_mount = st.components.v2.component(
    "advisor_copy_link",
    html="<button type='button'>Copy link</button>",
    css="""button {
  font: inherit; font-size: 0.875rem; color: inherit; background: none;
  cursor: pointer; padding: 0.45rem 0.75rem;
  border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius)}
button:hover {color: var(--st-primary-color); border-color: var(--st-primary-color)}""",
    js="""export default ({data, parentElement}) => {
  const button = parentElement.querySelector("button")
  button.onclick = async () => {
    // Browsers let pages of other machines write to the clipboard under https only.
    if (!navigator.clipboard) { prompt("Copy this link:", data.link); return }
    await navigator.clipboard.writeText(data.link)
    button.textContent = data.done
    setTimeout(() => { button.textContent = "Copy link" }, 2000)
  }
}""",
)


def copy_link(fields: Mapping[str, str], done: str) -> None:
    """Show the button: the link has the address's parameters and `fields`.

    Once the link is copied, the button says that it is `done` for two seconds.
    """
    values = {key: st.query_params.get_all(key) for key in st.query_params}
    link = f"{st.context.url}?{urlencode({**values, **fields}, doseq=True)}"
    _mount(key="copy link", data={"link": link, "done": done}, width="content")
