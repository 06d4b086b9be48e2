"""A search that a visitor stops, and the first one on a machine."""

import pytest
import streamlit as st

from tests.page.seen import line, words


@pytest.mark.parametrize("which", ["page", "more_page"])
def test_a_stopped_search_begins_again_when_i_ask(request, which):
    page = request.getfixturevalue(which)
    page.session_state["stopped"] = True
    page.run()
    assert words(page.info) == ["Search stopped."]
    assert not [text for text in words(page.markdown) if text.startswith("## ")]
    next(each for each in page.button if each.label == "Search again").click().run()
    assert line(page)


def test_only_a_search_that_compiles_the_engine_says_so(page, monkeypatch):
    page.run()
    assert "Compiling" not in " ".join(words(page.info))
    monkeypatch.setattr("advisor.page.searching.is_compiled", lambda: False)
    monkeypatch.setattr("advisor.page.searching.load", st.stop)
    page.run()
    assert "Compiling" in words(page.info)[0]
