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
from research.browser import LOOKED_AT, PAGE, ROOT, answer_of, typed_into, window
from tests.launch.smi_stand_in import SmiMachine

PATIENCE_MS = 20_000
COPIES = 1  # column of the table of jobs
JOB = {"Name": "mine", "Step, ms": "120", "Memory, GiB": "5", "GPU utilization, %": "83"}
JOB |= {"Batch, examples": "64"}
STAND_IN = "#!/bin/bash\necho ${0##*/} >> ran\n"


class Visit:
    """A visitor with an open page, who counts clicks."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self.browser, self.page, self.clicks = browser, page, 0
        self.answer, self.looked_at = answer_of(page), page.locator(LOOKED_AT)

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


def has_row(page: Page, job: str) -> None:
    """Check that the job is in the table, which is a drawing with cells for screen readers."""
    expect(page.locator("[role=gridcell]").get_by_text(job, exact=True)).to_be_attached()


def own_job(visit: Visit) -> None:
    visit.click(visit.page.get_by_role("button", name="Add your own job"))
    for label, text in JOB.items():
        visit.clicks += 1
        visit.page.get_by_label(label).fill(text)
    visit.changes(lambda: visit.click(visit.page.get_by_role("button", name="Add this job")))
    has_row(visit.page, JOB["Name"])


def profile(visit: Visit) -> None:
    visit.clicks += 2  # the button, and the file in the dialog of the system
    file = ROOT / "profiles" / "h200-141gb" / "resnet152-imagenet-bs32.json"
    files = visit.page.get_by_test_id("stFileUploader").locator("input")
    visit.changes(lambda: files.set_input_files(file))
    has_row(visit.page, f"{file.stem}-yours")  # a bundled one has its name


def copies(visit: Visit) -> None:
    visit.clicks += 3  # the cell, the number, Enter
    visit.changes(lambda: typed_into(visit.page, 0, COPIES, "3").press("Enter"))
    expect(visit.page).to_have_url(re.compile("%3A3"))


def other_gpu(visit: Visit) -> None:
    visit.changes(lambda: visit.choose("GPU", "a100-80gb"))


def mig_layout(visit: Visit) -> None:
    visit.way("MIG")
    drawing = visit.looked_at.locator("[role=graphics-document]")
    expect(drawing).to_have_attribute("aria-label", re.compile("3g.71gb"))


def memory(visit: Visit) -> None:
    expect(visit.page.get_by_test_id("stMain")).to_contain_text(
        re.compile(r"Fits: [\d.]+ of \d+ GiB")
    )


def two_ways(visit: Visit) -> None:
    expect(visit.answer).to_contain_text("MPS")
    visit.way("time-slicing")
    expect(visit.looked_at).to_contain_text(re.compile("time-slicing, [0-9.]+ % slower"))


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
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.click(visit.page.get_by_role("button", name="Copy link"))
    expect(visit.page.get_by_test_id("stToast")).to_contain_text("Copied")
    with window(visit.browser) as fresh:
        fresh.goto(visit.page.evaluate("navigator.clipboard.readText()"))
        expect(answer_of(fresh)).to_have_text(visit.answer.inner_text())


def back(visit: Visit) -> None:
    visit.way("MIG")
    expect(visit.looked_at).to_contain_text("MIG")
    visit.clicks += 1
    visit.page.go_back()
    expect(visit.looked_at).to_have_count(0)


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
