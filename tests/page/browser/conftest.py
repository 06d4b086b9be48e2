"""A real browser on a real server. Without chromium or playwright these tests skip."""

from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from advisor.errors import AdvisorError
from research.browser import (
    PAGE,
    PATIENCE_MS,
    WIDE,
    answer_of,
    chromium,
    served,
    typed_into,
    wait_for_answer,
    window,
)


class Visitor:
    """Somebody with a browser, and what their browser noted about the page."""

    def __init__(self, page, address):
        self.page, self.address = page, address
        self.errors, self.hosts = [], set()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def _note(self, message):
        # Streamlit looks for its server under the path of the second page first.
        if message.type == "error" and "/more/_stcore/" not in message.location["url"]:
            self.errors.append(message.text)

    def open(self, link="/"):
        self.page.goto(self.address + link)
        wait_for_answer(self.page)
        return self.page

    @property
    def answer(self):
        """The one line of the answer."""
        return answer_of(self.page)

    @property
    def problems(self):
        """The sentences about what is wrong."""
        return self.page.get_by_test_id("stAlert")

    def cell(self, text):
        """The cell of a table with this `text`, as screen readers see it: tables are drawings."""
        return self.page.locator("[role=gridcell]").get_by_text(text, exact=True)

    def type_in(self, row, column, text):
        editor = typed_into(self.page, row, column, text)
        editor.press("Enter")
        editor.wait_for(state="hidden")


@pytest.fixture(scope="package")
def browser():
    try:
        with chromium() as browser:
            from playwright.sync_api import expect

            expect.set_options(timeout=PATIENCE_MS)
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
    visitors = []
    with ExitStack() as windows:

        def visit(size=WIDE, theme="light"):
            page = windows.enter_context(window(browser, size, theme))
            visitors.append(Visitor(page, address))
            return visitors[-1]

        yield visit
        for visitor in visitors:
            assert visitor.errors == []
            assert visitor.hosts - {""} <= {urlsplit(address).netloc}


@pytest.fixture
def visitor(visit):
    return visit()
