"""The machine that measures: its cores, locks, scratch folders, and what is recorded of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import GpuUnavailable, InvalidInput
from advisor.hardware.machine import allowed_cores, split_cores
from advisor.measure.device import Device, Origin, command_line, host_cpu
from advisor.measure.process import MARK, gpu_lock, scratch_folder, sweep
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3,,4", "99999", "9999", "3-1"])
def test_cores_that_are_none_or_not_ours_are_refused(text):
    with pytest.raises(InvalidInput, match="--cores"):
        allowed_cores(text)


@given(cores=st.integers(1, 64), parts=st.integers(1, 8))
def test_every_device_has_as_many_cores_and_no_core_is_in_two_shares(cores, parts):
    if cores < parts:
        with pytest.raises(InvalidInput, match="cores of their own"):
            split_cores(range(cores), parts, str)
        return
    shares = split_cores(range(cores), parts, str)
    assert {len(share) for share in shares} == {cores // parts}
    assert len({core for share in shares for core in share}) == parts * (cores // parts)


@pytest.mark.parametrize(
    ("visible", "device"), [("3", "3"), ("2,0", "2"), ("GPU-1f, GPU-2e", "GPU-1f"), ("", "0")]
)
def test_the_first_gpu_to_which_a_scheduler_confined_us_is_used(visible, device):
    printed = subprocess.run(
        [sys.executable, "-c", "from advisor.hardware import DEFAULT_DEVICE as d; print(d)"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": visible},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed == device + "\n"


def test_threads_of_one_physical_core_stay_together():
    # As on hosts that number the second threads after all the first ones.
    shares = split_cores(range(16), 4, lambda core: str(core % 8))
    assert shares == ((0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13), (6, 7, 14, 15))


HOLD = """
import sys, time
from advisor.measure.process import gpu_lock
from advisor.measure.process import scratch_folder
with gpu_lock(sys.argv[1], "python -m holder"), scratch_folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


class Holder:
    """A run of another process, which holds a GPU and a scratch folder until it is killed."""

    def __init__(self):
        self.uuid = f"GPU-{uuid4()}"
        words = [sys.executable, "-c", HOLD, self.uuid]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.folder = Path(self.process.stdout.readline().strip())

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def holder():
    made = Holder()
    yield made
    made.kill()
    made.process.stdout.close()
    sweep()


def test_a_gpu_that_another_run_holds_is_refused_with_its_process(holder):
    owner = rf"process {holder.process.pid} since .*: python -m holder"
    with pytest.raises(GpuUnavailable, match=owner), gpu_lock(holder.uuid, "mine"):
        pass
    holder.kill()
    with gpu_lock(holder.uuid, "mine"):
        pass


def test_what_a_killed_run_left_is_swept_and_what_a_live_one_has_is_not(holder):
    with gpu_lock(f"{holder.uuid}-mine", "mine") as mine, scratch_folder() as folder:
        theirs = Path(str(mine).replace("-mine", ""))
        sweep()
        assert theirs.exists()
        assert holder.folder.exists()
        holder.kill()
        sweep()
        assert (mine.exists(), folder.exists()) == (True, True)
        assert (theirs.exists(), holder.folder.exists()) == (False, False)
    assert (mine.exists(), folder.exists()) == (False, False)


def test_scripts_of_a_killed_run_are_ended(holder):
    marked = os.environ | {MARK: str(holder.folder / "s1")}
    script = subprocess.Popen(["sleep", "600"], env=marked, start_new_session=True)
    try:
        sweep()
        assert script.poll() is None
        holder.kill()
        sweep()
        assert script.wait(PATIENCE_S) == -signal.SIGTERM
    finally:
        script.kill()
        script.wait()


def test_a_command_is_recorded_without_paths_and_values_of_variables():
    words = (
        "/home/ann/secret/plans.json --out ../runs.jsonl --env TOKEN=hush --measure-env=KEY=hush"
    )
    assert command_line("profile", [*words.split(), "--", "python", "a.py", "x=3"]) == (
        "advisor profile plans.json --out runs.jsonl --env TOKEN=... "
        "--measure-env=KEY=... -- python a.py x=3"
    )


def test_what_was_not_measured_is_none():
    origin = Origin(Device("cpu", None, "cpu", host_cpu(), None), "python -m x", 2)
    provenance = origin.provenance({"torch": "2.13.0", "cuda": None, "timm": None}, (None, None))
    assert provenance.device == host_cpu()
    assert (provenance.driver, provenance.cuda, provenance.sm_clock_mhz) == (None, None, None)
    assert provenance.host_cores == 2
