"""The process that keeps a job: what becomes of its log."""

import json
import subprocess
import sys

import pytest

from advisor.measure.process import job_keeper
from advisor.measure.process.progress_file import blank, record_in

LOUD = """
import sys
for n in range(5000): print("step", n)
sys.stdout.flush()
sys.exit("ValueError: no such column")
"""


def kept(folder, log_bytes):
    """The log of a loud job that fails, and the record of its end."""
    spec = {
        "end": str(blank(folder / "end")), "log": str(folder / "log"), "folder": str(folder),
        "cores": [], "mps": False, "grace_s": 1.0, "log_bytes": log_bytes, "paced": None,
    }  # fmt: skip
    words = [sys.executable, "-I", "-S", job_keeper.__file__, json.dumps(spec)]
    subprocess.run([*words, sys.executable, "-c", LOUD], check=True)
    return (folder / "log").read_text(), record_in(folder / "end")


def test_a_log_with_room_has_all_that_a_job_printed(tmp_path):
    log, end = kept(tmp_path, 10**6)
    assert log.splitlines() == [f"step {n}" for n in range(5000)] + ["ValueError: no such column"]
    assert (end["status"], end["lost_bytes"]) == (1, 0)


@pytest.mark.parametrize("room", [0, 100])
def test_a_log_without_room_says_what_is_lost_and_ends_as_the_job_did(tmp_path, room):
    log, end = kept(tmp_path, room)
    first, said, last = log.partition(f"\n[{end['lost_bytes']} bytes have no room here]\n")
    assert said
    assert len(first) == room
    assert last.endswith("\nstep 4999\nValueError: no such column\n")
    assert len(last) <= 2048
