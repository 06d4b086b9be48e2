"""Ten tasks of a visitor of the page, done in a browser by clicking.

    python -m benchmarks.page_tasks [FOLDER]

Prints a line a task: clicks and filled fields, seconds from the open page to the last check, and
whether it succeeded. With FOLDER it saves a picture of the end of each task. Needs the extra
`browser` and a chromium.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from playwright.sync_api import Browser, Error, Locator, Page, expect

from research import browser as in_browser
from research.browser import PAGE, ROOT, answer_of, typed_into, window
from tests.launch.smi_stand_in import SmiMachine
from tests.page.test_page import MINE

PATIENCE_MS = 20_000
COPIES = 1  # column of the table of jobs
STAND_IN = "#!/bin/bash\necho ${0##*/} >> ran\n"


class Visit:
    """A visitor with an open page, who counts clicks."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self.browser, self.page, self.answer, self.clicks = browser, page, answer_of(page), 0

    def click(self, at: Locator) -> None:
        self.clicks += 1
        at.click()

    def way(self, name: str) -> None:
        self.clicks += 1
        in_browser.click_way(self.page, name)

    def choose(self, label: str, option: str) -> None:
        """Choose an option of a long list by its name."""
        self.click(self.page.get_by_role("combobox", name=label))
        self.clicks += 1
        self.page.keyboard.type(option)
        self.click(self.page.get_by_role("option", name=option, exact=True))

    def changes(self, act: Callable[[], None]) -> None:
        """Act, and wait until the answer changes."""
        before = self.answer.inner_text()
        act()
        expect(self.answer).not_to_have_text(before)


def has_row(visit: Visit, file: str, content: bytes, job: str) -> None:
    """The uploaded job is in the table and changes the answer."""
    visit.clicks += 2  # the button, and the file in the dialog of the system
    dropped = {"name": file, "mimeType": "application/json", "buffer": content}
    uploader = visit.page.get_by_test_id("stFileUploader").locator("input")
    visit.changes(lambda: uploader.set_input_files(dropped))
    expect(visit.page.locator("[role=gridcell]").get_by_text(job, exact=True)).to_be_attached()


def own_job(visit: Visit) -> None:
    has_row(visit, "mine.json", MINE, "my-job")


def profile(visit: Visit) -> None:
    file = ROOT / "profiles" / "h200-141gb" / "resnet152-imagenet-bs32.json"
    has_row(visit, file.name, file.read_bytes(), file.stem)


def copies(visit: Visit) -> None:
    visit.clicks += 3  # the cell, the number, Enter
    visit.changes(lambda: typed_into(visit.page, 0, COPIES, "3").press("Enter"))
    expect(visit.page).to_have_url(re.compile("%3A3"))


def other_gpu(visit: Visit) -> None:
    visit.changes(lambda: visit.choose("GPU", "a100-80gb"))


def mig_layout(visit: Visit) -> None:
    visit.changes(lambda: visit.way("MIG"))
    expect(visit.answer).to_contain_text("MIG")
    expect(visit.page.get_by_role("img", name="GPU")).to_be_visible()


def memory(visit: Visit) -> None:
    expect(visit.page.get_by_test_id("stMain")).to_contain_text("GiB")


def two_ways(visit: Visit) -> None:
    visit.changes(lambda: visit.way("MPS"))
    visit.click(visit.page.get_by_role("tab", name="Compare"))
    visit.choose("Compare with", "naive")
    expect(visit.page.get_by_role("tabpanel").last).to_contain_text(re.compile("naive.*mps"))


def why_it_fails(script: str) -> str | None:
    """Run `script` with stand-ins for its jobs and for NVIDIA's tools; None if it succeeds."""
    with TemporaryDirectory() as folder:
        machine, place = SmiMachine(), Path(folder)
        machine.mode = ["Disabled"] * 2
        (place / "plan.sh").write_text(script)
        jobs = {*re.findall(r"^[^#\n]*\./(\S+\.sh)", script, re.MULTILINE)}
        for job in jobs:
            (place / job).write_text(STAND_IN)
            (place / job).chmod(0o755)
        server = machine.install(place)
        variables = environ | {"PATH": f"{place}:{environ['PATH']}", "XDG_STATE_HOME": folder}
        run = partial(subprocess.run, cwd=place, env=variables, capture_output=True, text=True)
        try:
            for words in (["bash", "-n", "plan.sh"], ["bash", "plan.sh"]):
                done = run(words, timeout=60, check=False)
                if done.returncode:
                    return f"{' '.join(words)}: {done.returncode}, {done.stderr.strip()}"
            ran = (place / "ran").read_text().split()
            return None if {*ran} == jobs else f"these jobs ran: {ran}"
        finally:
            server.shutdown()
            server.server_close()


def export(visit: Visit) -> None:
    visit.click(visit.page.get_by_role("button", name="Get the commands"))
    dialog = visit.page.get_by_role("dialog")
    with visit.page.expect_download() as downloaded:
        visit.click(dialog.get_by_role("button", name="Download"))
    visit.clicks += 1  # the button that copies
    for kind, text in (
        ("downloaded", Path(downloaded.value.path()).read_text()),
        ("copied", dialog.get_by_test_id("stCode").inner_text()),
    ):
        why = why_it_fails(text)
        assert why is None, f"{kind}: {why}"


def link(visit: Visit) -> None:
    copies(visit)
    visit.click(visit.page.get_by_role("button", name="Copy link"))
    visit.clicks += 1  # the button that copies
    copied = visit.page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").inner_text()
    with window(visit.browser) as fresh:
        fresh.goto(copied)
        expect(answer_of(fresh)).to_have_text(visit.answer.inner_text())


def back(visit: Visit) -> None:
    best = visit.answer.inner_text()
    visit.changes(lambda: visit.way("MIG"))
    visit.clicks += 1
    visit.page.go_back()
    expect(visit.answer).to_have_text(best)


TASKS: Mapping[str, Callable[[Visit], None]] = {
    "own job": own_job,
    "copies of a job": copies,
    "A100 instead of H200": other_gpu,
    "which MIG layout": mig_layout,
    "does it fit in memory": memory,
    "MPS against time-slicing": two_ways,
    "export": export,
    "the link in a fresh browser": link,
    "Back": back,
    "upload of a profile": profile,
}


def main(folder: Path | None) -> None:
    """Do every task in a window of its own."""
    expect.set_options(timeout=PATIENCE_MS)
    with ExitStack() as stack, TemporaryDirectory() as home:
        address = stack.enter_context(in_browser.served(PAGE, Path(home)))
        browser = stack.enter_context(in_browser.chromium())
        for number, (name, task) in enumerate(TASKS.items(), start=1):
            with window(browser) as page:
                page.goto(address)
                in_browser.wait_for_answer(page)
                page.set_default_timeout(PATIENCE_MS)
                visit, began_s, end = Visit(browser, page), perf_counter(), "done"
                try:
                    task(visit)
                except (AssertionError, Error) as error:
                    end = f"failed: {str(error).splitlines()[0]}"
                took_s = perf_counter() - began_s
                print(f"{name:28} {visit.clicks:2} clicks {took_s:5.1f} s  {end}", flush=True)
                if folder is not None:
                    page.screenshot(path=folder / f"{number:02}.png", full_page=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
