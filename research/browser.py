"""The page in a browser without a window: its server, and a chromium that opens it.

Needs the extra `browser` and a chromium. Tests, the benchmark and the pictures share it.
"""

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from time import sleep
from typing import TYPE_CHECKING, Literal
from urllib.request import urlopen

from advisor.errors import AdvisorError, require_extra

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "app.py"
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, Theme] = ("light", "dark")
WIDEST, WIDE, NARROW = (1440, 900), (1280, 800), (420, 900)
PATIENCE_MS = 300_000  # the first visit compiles the replay engine, on a busy machine for long
ANSWER = "h2"  # the first is the one line of the answer
LOOKED_AT = ".st-key-looked-at"  # the card of the plan that a visitor chose
_QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def served(script: Path, folder: Path) -> Iterator[str]:
    """Serve `script` by streamlit; its files lie in `folder` and its log in ``folder/log``.

    Yields:
        The address of the page.
    """
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    folders = {
        f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "DATA", "STATE")
    }
    environment = (
        os.environ
        | folders
        | {
            "HOME": str(folder),
            "ADVISOR_CHECK_HOST": "0",
            "PYTHONPATH": str(ROOT),
        }
    )
    command = [sys.executable, "-m", "streamlit", "run", str(script)]
    with (folder / "log").open("w") as log:
        server = Popen(
            [*command, f"--server.port={port}"], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    address = f"http://localhost:{port}"
    try:
        while not _answers(f"{address}/_stcore/health"):
            if server.poll() is not None:
                raise AdvisorError(f"The page did not start: {(folder / 'log').read_text()}")
            sleep(0.05)
        yield address
    finally:
        server.kill()
        server.wait()


def _answers(address: str) -> bool:
    with suppress(OSError), urlopen(address):
        return True
    return False


@contextmanager
def chromium() -> Iterator["Browser"]:
    """Start the chromium of this machine, without a window.

    Raises:
        AdvisorError: Playwright or chromium is missing.
    """
    require_extra("A browser", "browser", "playwright")
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        raise AdvisorError("chromium not found in PATH. Run: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_QUIET)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def window(
    browser: "Browser", size: tuple[int, int] = WIDE, theme: Theme = "light"
) -> Iterator["Page"]:
    """Open an empty window of `size` in pixels, with storage of its own."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    try:
        yield page
    finally:
        context.close()


def wait_for_answer(page: "Page") -> None:
    """Wait until the script of the `page` has run to its end, and its charts are drawn."""
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    page.wait_for_function("!document.querySelector('[data-testid=stSkeleton]')")
    for chart in page.locator('[data-testid="stVegaLiteChart"]:visible').all():
        chart.locator("canvas, svg").first.wait_for()


def answer_of(page: "Page") -> "Locator":
    """Return the one line of the answer."""
    return page.locator(ANSWER).first


def click_way(page: "Page", way: str) -> None:
    """Click the first row of the table whose way begins so."""
    page.get_by_role("button", name=re.compile(f"^{way}")).first.click()


def typed_into(page: "Page", row: int, column: int, text: str) -> "Locator":
    """Type into a cell of the table of jobs, and return its field: Enter there changes the table.

    The table is a drawing: a click on its first cell, then keys reach `row` and `column`, from 0.
    """
    page.get_by_test_id("stDataFrameResizable").first.click(position={"x": 100, "y": 52})
    for key in ["ArrowDown"] * row + ["ArrowRight"] * column:
        page.keyboard.press(key)
    page.keyboard.press(text[0])  # opens the field
    field = page.locator(".gdg-input")
    field.fill(text)
    return field
