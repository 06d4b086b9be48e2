"""``advisor doctor`` names what killed runs of this user left, by real processes."""

import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from advisor.apply.restore import restore
from advisor.launch.journal import journal, journal_file
from advisor.launch.machine_changes import ChangedMig
from advisor.measure.doctor.leftovers import leftover_findings
from advisor.measure.execution.run_folder import RunFolder, new_id, runs_folder
from advisor.measure.execution.run_processes import MARK as RUN_MARK
from advisor.measure.execution.run_state import JobState, RunState
from advisor.measure.process import scratch_folders
from advisor.measure.process.scratch_folders import FOLDER_PREFIX
from advisor.measure.process.script_processes import MARK as SCRIPT_MARK
from tests.waiting import PATIENCE_S

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
HOLDS = """
import sys, time
from pathlib import Path
from advisor.measure.process import run_locks, scratch_folders
scratch_folders.temporary_base = lambda: Path(sys.argv[1])
with run_locks.gpu_lock(sys.argv[2], "python -m holder"), scratch_folders.scratch_folder() as at:
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


def test_on_a_machine_where_nothing_was_left_nothing_is_said():
    assert said() == []


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
    assert f"1 process of it lives: {script.pid}" in by_folder[1]
    assert by_lock[0] == "note"
    assert ".lock" in by_lock[1]
    assert {by_folder[2], by_lock[2]} == {"advisor restore"}
    assert len(list(tmp_path.glob(FOLDER_PREFIX + "*"))) == 1, "looking changes nothing"
    assert script.poll() is None
    list(restore())
    assert script.wait(PATIENCE_S) == -signal.SIGTERM
    assert said() == []


def test_a_run_that_nobody_watches_is_named_with_its_processes(started, tmp_path):
    folder = RunFolder(runs_folder() / new_id())
    job = started(SLEEP, env=os.environ | {RUN_MARK: folder.path.name})
    assert job.stdout.readline() == "up\n"
    state = RunState(
        id=folder.path.name, gpu="cpu", device="cpu", boot="", date="2026-01-01",
        command="advisor run", pipes=str(tmp_path / "pipes"), jobs=(JobState(number=1),),
    )  # fmt: skip
    folder.create("{}", state)
    with folder.watched():
        assert said() == []
    ((severity, what, remedy),) = said()
    assert severity == "spoils"
    assert f"run {folder.path.name}" in what
    assert str(job.pid) in what
    assert remedy.startswith("advisor restore")
    assert f"advisor run --resume {folder.path.name}" in remedy
    list(restore())
    assert job.wait(PATIENCE_S) in (-signal.SIGTERM, -signal.SIGKILL)
    assert said() == []


def test_mig_instances_that_a_killed_run_changed_are_named():
    gpu = f"GPU-{uuid4()}"
    with journal(gpu, "advisor run") as log:
        log.intend(ChangedMig(before=(), ours=()))
        assert said() == []
    ((severity, what, remedy),) = said()
    assert (severity, remedy) == ("spoils", "advisor restore")
    assert gpu in what
    assert str(journal_file(gpu)) in what
