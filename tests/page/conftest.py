import sys
from functools import cache
from pathlib import Path

import pytest
import streamlit as st
from streamlit import util
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from tests import shelf
from tests.hardware.conftest import install
from tests.waiting import PATIENCE_S

__all__ = ["install"]

PAGE = Path(__file__).parents[2] / "app.py"


@pytest.fixture(scope="session", autouse=True)
def components_looked_for_once():
    with pytest.MonkeyPatch.context() as patch:
        scan = cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", scan)
        yield


@pytest.fixture(autouse=True)
def main_module_kept(monkeypatch):
    """Streamlit puts the page in its place, and processes that are spawned later would run that."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    shelf.fill(folder)
    st.cache_resource.clear()  # of answers from another folder
    return folder


@pytest.fixture
def shelved(filled, monkeypatch, tmp_path):
    monkeypatch.setenv("ADVISOR_PROFILES", str(filled / "profiles"))
    monkeypatch.setenv("ADVISOR_MODELS", str(filled / "models"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def page(shelved):  # noqa: ARG001
    return AppTest.from_file(str(PAGE), default_timeout=PATIENCE_S)


@pytest.fixture
def more_page(page):
    """The second page, after the first was shown."""
    page_hash = getattr(util, "calc_hash", None) or util.calc_md5  # older streamlit
    page.run()._page_hash = page_hash("more")
    return page


@pytest.fixture
def unremembered():
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


@pytest.fixture
def elsewhere(page, unremembered, monkeypatch, tmp_path):  # noqa: ARG001
    """A folder whose profiles `page` reads instead."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.setenv("ADVISOR_PROFILES", str(folder))
    return folder
