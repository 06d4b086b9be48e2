"""Measurements that are killed at any moment leave nothing that runs."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import pytest

from tests.measure.process import scripts
from tests.measure.shared.real_command import Started
from tests.waiting import PATIENCE_S, until

MOMENTS_S = (0.2, 0.5, 1.0, 1.5, 2.5, 3.5, 5.0, 7.0, 9.0, 12.0)
# Beside the training, a process that never hears of its end.
BOTH = "python -c 'import time; time.sleep(3600)' & python folds.py"


@pytest.fixture
def command():
    """``advisor profile``; a short path, since sockets go there."""
    with TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        started = Started(folder, "-m", "advisor", "profile", "--device", "cpu", "--out", folder)
        yield started
        started.clear()


def kill(command, *words):
    """Kill those processes of `command` that have one of `words` in their own."""
    for pid in command.processes():
        with suppress(OSError):  # it has just ended
            own = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.encode() in own for word in words):
                os.kill(pid, signal.SIGKILL)


def left(command):
    return [path.name for path in command.temporary.glob("advisor-*")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("killed", [("profile",), ("profile", "inner"), ("inner",)])
@pytest.mark.parametrize("moment_s", MOMENTS_S)
def test_a_measurement_of_two_processes_may_be_killed_at_any_moment(
    killed, moment_s, command, tmp_path
):
    folder = str(scripts.write(tmp_path / "scripts"))
    process = command.start("--folder", folder, "--name", "it", "--", "bash", "-c", BOTH)
    sleep(moment_s)
    kill(command, *killed)
    process.communicate(timeout=PATIENCE_S)
    until(lambda: not command.processes())
    assert left(command) == []


@pytest.mark.exhaustive
def test_what_is_left_if_all_that_clean_up_are_killed_the_next_command_ends(command, tmp_path):
    folder = str(scripts.write(tmp_path / "scripts"))
    process = command.start("--folder", folder, "--name", "it", "--", "bash", "-c", BOTH)
    until(lambda: any(command.temporary.glob("advisor-*/*/hook/attached")))
    kill(command, "profile", "inner", "sweep")
    process.communicate(timeout=PATIENCE_S)
    assert command.processes()
    assert len(left(command)) == 1
    assert command.finish("--folder", folder, "--", "python", "nowhere.py")[0] == 2
    until(lambda: not command.processes())
    assert left(command) == []
