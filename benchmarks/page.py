"""Seconds that a user of the page waits in a browser, and the part of streamlit itself.

    python benchmarks/page.py [REPEATS]

Opens the page, and changes epochs and copies to values that no visit had before. Also opens a blank
page of streamlit and changes its only number. Each visit has a new window; the order is shuffled.
Prints the median seconds until the answer is there, and their ratio to those of the blank page.
Needs the extra `browser` and a chromium. Nothing here is a test.
"""

import random
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from playwright.sync_api import Browser, Locator, Page

from research.browser import PAGE, answer_of, chromium, served, typed_into, wait_for_answer, window

_BLANK = """
import streamlit as st
st.title("blank")
st.subheader(str(st.number_input("number", 0)))
"""
_COPIES, _EPOCHS = 1, 2  # columns of the table of jobs
_JOBS = 3


_LINES = "[...document.querySelectorAll('h1, h2, h3')].map(line => line.innerText).join()"


def until_changed_s(page: Page, field: Locator) -> float:
    """Press Enter in `field`; the seconds until the line of the answer changes."""
    before = page.evaluate(_LINES)
    began = perf_counter()
    field.press("Enter")
    page.wait_for_function(f"before => {_LINES} !== before", arg=before)
    return perf_counter() - began


def visit_blank(page: Page, address: str, number: int) -> dict[str, float]:
    began = perf_counter()
    page.goto(address)
    page.get_by_role("heading").last.wait_for()
    costs = {"blank page": perf_counter() - began}
    wait_for_answer(page)
    field = page.get_by_label("number")
    field.fill(str(number))
    return costs | {"blank page, a number": until_changed_s(page, field)}


def visit(page: Page, address: str, number: int) -> dict[str, float]:
    began = perf_counter()
    page.goto(address)
    answer_of(page).wait_for()
    costs = {"page": perf_counter() - began}
    wait_for_answer(page)
    costs["page, all charts"] = perf_counter() - began
    for what, column, text in (
        ("page, other epochs", _EPOCHS, str(10 + number)),
        ("page, more copies", _COPIES, str(2 + number // _JOBS)),
    ):
        field = typed_into(page, number % _JOBS, column, text)
        costs[what] = until_changed_s(page, field)
        wait_for_answer(page)
    return costs


def visits(browser: Browser, blank: str, page: str, repeats: int) -> dict[str, list[float]]:
    """Seconds of each wait, of so many visits to each address."""
    todo: list[tuple[Callable[[Page, str, int], dict[str, float]], str, int]] = [
        each
        for number in range(1, repeats + 1)
        for each in ((visit_blank, blank, number), (visit, page, number))
    ]
    random.Random(0).shuffle(todo)
    costs: dict[str, list[float]] = {}
    for visited, address, number in todo:
        with window(browser) as opened:
            for what, cost_s in visited(opened, address, number).items():
                costs.setdefault(what, []).append(cost_s)
    return costs


def main(repeats: int) -> None:
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(TemporaryDirectory())) for _ in range(2)]
        script = folders[0] / "blank.py"
        script.write_text(_BLANK)
        blank = stack.enter_context(served(script, folders[0]))
        page = stack.enter_context(served(PAGE, folders[1]))
        browser = stack.enter_context(chromium())
        with window(browser) as first:  # compiles the replay engine, and reads files
            began = perf_counter()
            first.goto(page)
            answer_of(first).wait_for()
            print(f"{perf_counter() - began:6.2f} s: the very first visit on this machine")
        costs = visits(browser, blank, page, repeats)
    opened_s, changed_s = (median(costs[f"blank page{what}"]) for what in ("", ", a number"))
    for what, all_s in costs.items():
        blank_s = changed_s if "," in what and "charts" not in what else opened_s
        print(f"{median(all_s):6.2f} s, {median(all_s) / blank_s:5.2f} of blank: {what}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
