"""A real browser on a real server. Without chromium or playwright these tests skip."""

from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from advisor.errors import AdvisorError
from research.browser import PAGE, WIDE, chromium, served, wait_for_answer, window


class Visitor:
    """Somebody with a browser, and what their browser noted about the page."""

    def __init__(self, page, address):
        self.page, self.address = page, address
        self.errors, self.hosts = [], set()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def _note(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def open(self, link="/"):
        self.page.goto(self.address + link)
        wait_for_answer(self.page)
        return self.page

    def text(self):
        return self.page.locator("section.stMain").inner_text()

    def overflow_px(self):
        """How far the page reaches beyond its window."""
        return self.page.evaluate(
            "() => { const main = document.querySelector('section.stMain');"
            "return Math.max(main.scrollWidth - main.clientWidth,"
            " document.documentElement.scrollWidth - window.innerWidth); }"
        )


@pytest.fixture(scope="package")
def browser():
    try:
        with chromium() as browser:
            yield browser
    except AdvisorError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="package")
def address(browser, tmp_path_factory):  # noqa: ARG001 - without a browser no server starts
    with served(PAGE, tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    """Make a visitor, with a window and a theme."""
    with ExitStack() as windows:

        def visit(size=WIDE, theme="light"):
            return Visitor(windows.enter_context(window(browser, size, theme)), address)

        yield visit


@pytest.fixture
def visitor(visit):
    return visit()
