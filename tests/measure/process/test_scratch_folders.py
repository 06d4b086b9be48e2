import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.errors import AdvisorError
from advisor.measure.process import scratch_folders
from advisor.measure.process.scratch_folders import scratch_folder, sweep_folders, temporary_base
from advisor.measure.process.script_processes import MARK
from tests.waiting import PATIENCE_S

HOLD = """
import time
from advisor.measure.process.scratch_folders import scratch_folder
with scratch_folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder():
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    sweep_folders()


def test_a_scratch_folder_is_gone_with_all_in_it_when_its_block_ends():
    with scratch_folder() as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").touch()
    assert not folder.exists()


def test_a_scratch_folder_that_cannot_be_made_is_said_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch_folders, "temporary_base", lambda: tmp_path / "gone")
    with pytest.raises(AdvisorError, match=r"gone: No such file .*set TMPDIR"), scratch_folder():
        pass


def test_the_folder_of_a_killed_run_is_swept_and_a_live_one_is_not(holder):
    theirs = Path(holder.stdout.readline().strip())
    with scratch_folder() as mine:
        sweep_folders()
        assert theirs.exists()
        holder.kill()
        holder.wait()
        sweep_folders()
        assert mine.exists()
        assert not theirs.exists()


def test_scripts_of_a_killed_run_are_ended(holder):
    theirs = Path(holder.stdout.readline().strip())
    marked = os.environ | {MARK: str(theirs / "s1")}
    script = subprocess.Popen(["sleep", "600"], env=marked, start_new_session=True)
    try:
        sweep_folders()
        assert script.poll() is None
        holder.kill()
        holder.wait()
        sweep_folders()
        assert script.wait(PATIENCE_S) == -signal.SIGTERM
    finally:
        script.kill()
        script.wait()


def test_a_folder_that_is_just_being_made_is_left_alone():
    newborn = temporary_base() / "advisor-run-newborn"
    newborn.mkdir()
    try:
        sweep_folders()
        assert newborn.exists()
        os.utime(newborn, (0, 0))
        sweep_folders()
        assert not newborn.exists()
    finally:
        newborn.rmdir() if newborn.exists() else None


def test_where_the_temporary_folder_has_a_long_path_sockets_go_elsewhere(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 60)
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert temporary_base() == Path("/tmp")
