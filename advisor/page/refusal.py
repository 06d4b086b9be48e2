"""What is wrong, in a sentence on the page."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.errors import AdvisorError
from advisor.report.page_words import on_the_page


def refuse(error: AdvisorError, at: DeltaGenerator | None = None) -> None:
    """Say `error` where the page is being written, or `at` another place.

    Its words may be those of a file or of a link. What Markdown takes for a picture in them would
    be fetched from whatever host they name.
    """
    said = on_the_page(str(error)).replace("![", "!\\[").replace("](", "]\\(")
    (at or st).error(said)
