"""``advisor doctor`` names what killed runs of this user left, by real processes."""

import fcntl
import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from advisor.measure import process as scratch_folders
from advisor.measure.process import FOLDER_PREFIX
from advisor.measure.process import MARK as SCRIPT_MARK
from advisor.run.doctor import leftover_findings
from advisor.run.start import boot_id, lock_file, state_file, undo_left
from tests.waiting import PATIENCE_S

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
HOLDS = """
import sys, time
from pathlib import Path
from advisor.measure import process
process.temporary_base = lambda: Path(sys.argv[1])
with process.gpu_lock(sys.argv[2], "python -m holder"), process.scratch_folder() as at:
    print(at, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Folders of this test alone."""
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(scratch_folders, "temporary_base", lambda: tmp_path)


@pytest.fixture
def started():
    """Starts processes that are gone after the test."""
    found = []

    def start(words, **settings):
        found.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **settings))
        return found[-1]

    yield start
    for each in found:
        each.kill()
        each.wait()
        each.stdout.close()


def said():
    return [(each.severity, each.what, each.remedy) for each in leftover_findings()]


def test_the_lock_and_the_folder_of_a_killed_measurement_are_named_and_those_of_a_live_one_not(
    started, tmp_path
):
    owner = started([sys.executable, "-c", HOLDS, str(tmp_path), f"GPU-{uuid4()}"])
    folder = owner.stdout.readline().strip()
    script = started(SLEEP, env=os.environ | {SCRIPT_MARK: f"{folder}/s1"})
    assert script.stdout.readline() == "up\n"  # before, the kernel may not yet tell its environment
    assert said() == []
    owner.kill()
    owner.wait()
    by_folder, by_lock = said()
    assert by_folder[0] == "spoils"
    assert folder in by_folder[1]
    assert f"of it live: {script.pid}" in by_folder[1]
    assert by_lock[0] == "note"
    assert ".lock" in by_lock[1]
    assert {by_folder[2], by_lock[2]} == {"advisor doctor --undo"}
    assert len(list(tmp_path.glob(FOLDER_PREFIX + "*"))) == 1, "looking changes nothing"
    assert script.poll() is None
    list(undo_left())
    assert script.wait(PATIENCE_S) == -signal.SIGTERM
    assert said() == []


def test_what_a_killed_script_changed_is_named_and_not_that_of_a_live_one():
    state = state_file("GPU-0")
    state.parent.mkdir(parents=True)
    lock_file(state).touch()
    lines = [f"# boot {boot_id()}", 'declare -- mark="no-such-mark"', "undos[0]=cap\\ 500.00"]
    state.write_text("\n".join([*lines, "undos[1]=remove\\ 5:0", "undos[1]=:", ""]))
    ((severity, what, remedy),) = said()
    assert (severity, str(state) in what) == ("spoils", True)
    assert "advisor doctor --undo" in remedy
    (finding,) = leftover_findings()
    assert ("cap 500.00" in finding.why, "remove" in finding.why) == (True, False)
    with lock_file(state).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert said() == []
    state.write_text("# boot another\nundos[0]=cap\\ 500.00\n")
    assert said() == []
