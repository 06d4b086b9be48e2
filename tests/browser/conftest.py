from urllib.parse import urlsplit

import pytest

from tests.browser.seen import stands
from tests.browser.served import page_server, started_browser


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The only place where the page may write."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def address(folder):
    with page_server(folder) as found:
        yield found


@pytest.fixture(scope="session")
def browser():
    with started_browser() as started:
        yield started


@pytest.fixture
def opened(browser, address):
    """Opens the page; no test may end with an error in a console or a request to another host."""
    contexts, wrong = [], []

    def opened(link="", width=1280, theme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, accept_downloads=True
        )
        contexts.append(context)
        context.on("request", lambda asked: _elsewhere(asked.url, wrong))
        context.on("console", lambda said: said.type == "error" and wrong.append(said.text))
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        page = context.new_page()
        page.goto(link or address)
        stands(page)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def _elsewhere(url, wrong):
    asked = urlsplit(url)
    if asked.scheme not in {"data", "blob"} and asked.hostname != "127.0.0.1":
        wrong.append(f"a request to {url}")
