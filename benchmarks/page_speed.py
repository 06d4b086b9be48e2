"""How long the page takes in a real browser, from the first paint to the answer to a change.

    python -m benchmarks.page_speed benchmarks/page-speed.json LABEL

Starts `advisor app` some times, opens the page in the chromium or Chrome on PATH, and puts under
LABEL into the file: the medians in seconds, every time, what the machine is, and how busy it was
meanwhile. Something is painted when the browser says so (its first contentful paint, here the
page's frame); an answer stands when its words are the new ones; the page when all of it is
drawn. A rough answer is one that says so and is replaced; where none comes, the answer's own time
stands for it. The first visit is one as soon as the server answers, and one some seconds later.
Each change is one that was not asked before, two seconds after the last answer, as somebody who
reads it would make. What numba compiles is compiled before the first
time that counts. Nothing here is a test.
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any

from tests.browser.seen import fill_cell, stands
from tests.browser.served import page_server, started_browser

_REPEATS = 3
_LATER_S = 5.0
_READ_S = 2.0
_PAINTED_MS = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
# What a cap leaves as it was has the same large line, and a sentence on the cap under it.
_SAID = "document.querySelector('[data-testid=stMain] [data-testid=stAlert]:has(h3)')"
_CHANGED = f"""([before, rough]) => {{
    const said = {_SAID};
    return said && said.innerText !== before && (rough || !said.closest('.st-key-rough-answer'));
}}"""
# Of the memory, in per cent: twice too much for all jobs at once, and less between.
_KEPT_FREE = ("93", "50", "95")
_OBJECTIVES = ("most work per hour", "nobody left behind", "least energy")

Times = dict[str, list[float]]


def _said(page: Any) -> str:
    """All that the answer says."""
    found: str = page.evaluate(f"{_SAID}.innerText")
    return found


def _timed(page: Any, before: str, act: Callable[[], object]) -> Times:
    """Seconds until any answer, the exact one and the page stand, from the start of `act`."""
    began = perf_counter()
    act()
    page.wait_for_function(_CHANGED, arg=[before, True], timeout=120_000)
    rough_s = perf_counter() - began
    page.wait_for_function(_CHANGED, arg=[before, False], timeout=120_000)
    answered_s = perf_counter() - began
    stands(page)
    page_s = perf_counter() - began
    return {"rough_s": [rough_s], "answer_s": [answered_s], "page_s": [page_s]}


def _opened(page: Any, act: Callable[[], object]) -> Times:
    """As `_timed`, of a whole page; and seconds until something of it is painted."""
    times = _timed(page, "", act)
    return {"painted_s": [page.evaluate(_PAINTED_MS) / 1e3], **times}


def _counted(page: Any, row: int, copies: str) -> Times:
    """As `_timed`, of so many copies of the job in a row of the table."""
    sleep(_READ_S)
    before = _said(page)
    fill_cell(page, row, 1, copies)
    return _timed(page, before, lambda: page.keyboard.press("Enter"))


def _conditioned(page: Any, name: str, value: str) -> Times:
    """As `_timed`, of a number that is typed into one of the conditions."""
    sleep(_READ_S)
    before = _said(page)
    page.get_by_role("spinbutton", name=name).fill(value)
    return _timed(page, before, lambda: page.keyboard.press("Enter"))


@contextmanager
def _new_page(browser: Any) -> Iterator[tuple[Any, str]]:
    """A page that shows nothing yet, and the address of a server that has just started."""
    with TemporaryDirectory() as folder, page_server(Path(folder)) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        yield page, address
        page.close()


def _one_server(browser: Any) -> Iterator[tuple[str, Times]]:
    """What is timed, and the times, of servers that answer for the first time."""
    with _new_page(browser) as (page, address):
        sleep(_LATER_S)
        yield "first visit, later", _opened(page, lambda: page.goto(address))
    with _new_page(browser) as (page, address):
        yield "first visit, at once", _opened(page, lambda: page.goto(address))
        yield "warm reload", _opened(page, page.reload)
        for copies in "234":
            yield "a count", _counted(page, 1, copies)
        for objective in _OBJECTIVES:
            sleep(_READ_S)
            before = _said(page)
            page.get_by_role("combobox", name="Best means").click()
            choice = page.get_by_role("option", name=objective, exact=True)
            yield "an objective", _timed(page, before, choice.click)
        page.get_by_text("Conditions", exact=True).click()
        for watts in ("650", "600", "550"):
            yield "a power cap", _conditioned(page, "Power cap, W", watts)
        page.goto(address)
        stands(page)
        for row, copies in ((1, "4"), (0, "4"), (1, "1")):
            yield "a count, by three", _counted(page, row, copies)
        page.get_by_text("Conditions", exact=True).click()
        for percent in _KEPT_FREE:
            yield "memory to keep free", _conditioned(page, "Memory to keep free, %", percent)


def _machine() -> dict[str, object]:
    words = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in words if line.startswith("model name")), None)
    return {"processor": model, "cores": os.cpu_count()}


def measured() -> dict[str, object]:
    """Medians and all times, the machine, and its load in the minute before and after."""
    before, times = os.getloadavg()[0], defaultdict(lambda: defaultdict(list))
    with started_browser() as browser:
        for repeat in range(_REPEATS + 1):
            for what, took in _one_server(browser):
                for name, seconds in took.items():
                    times[what][name] += seconds * (repeat > 0)
        version = browser.version
    return {
        **_machine(), "browser": f"Chromium {version}",
        "load_1min": [before, os.getloadavg()[0]],
        "median": {
            what: {name: round(median(each), 2) for name, each in took.items()}
            for what, took in times.items()
        },
        "all": {
            what: {name: [round(one, 3) for one in each] for name, each in took.items()}
            for what, took in times.items()
        },
    }  # fmt: skip


def main() -> None:
    file, label = Path(sys.argv[1]), sys.argv[2]
    known = json.loads(file.read_text()) if file.exists() else {}
    known[label] = measured()
    file.write_text(json.dumps(known, indent=1) + "\n")
    print(json.dumps(known[label]["median"], indent=1))


if __name__ == "__main__":
    main()
