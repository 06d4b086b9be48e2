"""The waits of a visitor of the page, in a browser, and those of a blank page of streamlit.

    python -m benchmarks.page [REPEATS]

Opens the page, types other epochs and more copies, and clicks another way to share. Each visit
asks questions that no visit before it asked. It also opens a blank page and changes its only
number. Each visit has a new window, in a shuffled order. Prints the median seconds until the answer
stands, and their ratio to those of the blank page. Needs the extra `browser` and a chromium.
"""

import random
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from playwright.sync_api import Browser, Page

from research.browser import (
    ANSWER,
    LOOKED_AT,
    PAGE,
    answer_of,
    chromium,
    click_way,
    served,
    typed_into,
    wait_for_answer,
    window,
)

BLANK = """
import streamlit as st
st.title("blank")
st.header(str(st.number_input("number", 0)))
"""
JOBS = 3
COPIES, EPOCHS = 1, 2  # columns of the table of jobs
THERE = "selector => document.querySelector(selector)"
CHANGED = """([selector, before]) => {
  const line = document.querySelector(selector);
  return line && line.innerText !== before;
}"""

Waits = dict[str, float]
"""Seconds of each wait of a visit."""


def until_changed_s(page: Page, line: str, act: Callable[[], None]) -> float:
    """Act, and return the seconds until the text of the first element `line` changes."""
    before = page.locator(line).first.inner_text()
    began_s = perf_counter()
    act()
    page.wait_for_function(CHANGED, arg=[line, before])
    return perf_counter() - began_s


def until_chosen_s(page: Page) -> float:
    """Click another way to share, and return the seconds until the page shows it."""
    began_s = perf_counter()
    click_way(page, "MIG")
    page.wait_for_function(THERE, arg=LOOKED_AT)  # a locator looks twice a second only
    return perf_counter() - began_s


def visit_blank(page: Page, address: str, number: int) -> Waits:
    """Open the blank page, and change its number."""
    began_s = perf_counter()
    page.goto(address)
    page.wait_for_function(THERE, arg="h2")
    waits = {"blank page": perf_counter() - began_s}
    wait_for_answer(page)
    field = page.get_by_label("number")
    field.fill(str(number))
    waits["blank page: a number"] = until_changed_s(page, "h2", partial(field.press, "Enter"))
    return waits


def visit(page: Page, address: str, number: int) -> Waits:
    """Open the page, change the jobs twice, and click another way to share."""
    began_s = perf_counter()
    page.goto(address)
    page.wait_for_function(THERE, arg=ANSWER)
    waits = {"page": perf_counter() - began_s}
    wait_for_answer(page)
    waits["page, all charts"] = perf_counter() - began_s
    for wait, column, text in (
        ("page: other epochs", EPOCHS, str(10 + number)),
        ("page: more copies", COPIES, str(2 + number // JOBS)),
    ):
        field = typed_into(page, number % JOBS, column, text)
        waits[wait] = until_changed_s(page, ANSWER, partial(field.press, "Enter"))
        wait_for_answer(page)
    waits["page: another way"] = until_chosen_s(page)
    wait_for_answer(page)  # else its end counts for the next visit
    return waits


def all_waits(browser: Browser, blank: str, page: str, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each wait in `repeats` visits to each address."""
    visits = [
        each
        for number in range(1, repeats + 1)
        for each in ((visit_blank, blank, number), (visit, page, number))
    ]
    random.Random(0).shuffle(visits)
    waits: dict[str, list[float]] = {}
    for kind, address, number in visits:
        with window(browser) as opened:
            for wait, wait_s in kind(opened, address, number).items():
                waits.setdefault(wait, []).append(wait_s)
    return waits


def main(repeats: int) -> None:
    """Measure the very first visit, and then `repeats` visits to each page."""
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(TemporaryDirectory())) for _ in range(2)]
        script = folders[0] / "blank.py"
        script.write_text(BLANK)
        blank = stack.enter_context(served(script, folders[0]))
        page = stack.enter_context(served(PAGE, folders[1]))
        browser = stack.enter_context(chromium())
        with window(browser) as first:  # compiles the replay engine, and reads files
            began_s = perf_counter()
            first.goto(page)
            answer_of(first).wait_for()
            print(f"{perf_counter() - began_s:6.2f} s: the very first visit on this machine")
        waits = all_waits(browser, blank, page, repeats)
    opened_s, changed_s = (median(waits[key]) for key in ("blank page", "blank page: a number"))
    for wait, all_s in sorted(waits.items()):
        blank_s = changed_s if ":" in wait else opened_s
        print(f"{median(all_s):6.2f} s, {median(all_s) / blank_s:5.2f} of blank: {wait}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
