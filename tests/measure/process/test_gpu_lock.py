import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from advisor.errors import GpuUnavailable
from advisor.measure.process.run_locks import gpu_lock, sweep_locks

HOLD = """
import sys, time
from advisor.measure.process.run_locks import gpu_lock
with gpu_lock(sys.argv[1], "python -m holder"):
    print(flush=True)
    time.sleep(600)
"""


@pytest.fixture
def uuid():
    return f"GPU-{uuid4()}"


@pytest.fixture
def holder(uuid):
    process = subprocess.Popen([sys.executable, "-c", HOLD, uuid], stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    sweep_locks()


def test_two_runs_that_want_the_same_gpu_learn_of_each_other(uuid, holder):
    said = rf"process {holder.pid} since .*: python -m holder"
    with pytest.raises(GpuUnavailable, match=said), gpu_lock(uuid, "mine"):
        pass


def test_a_lock_is_gone_when_its_run_ends(uuid):
    with gpu_lock(uuid, "mine") as path:
        assert path.exists()
    assert not path.exists()
    with gpu_lock(uuid, "mine"):
        pass


def test_two_gpus_can_be_owned_at_once(uuid):
    with gpu_lock(uuid, "mine"), gpu_lock(uuid + "-b", "mine"):
        pass


def test_the_lock_of_a_killed_run_stops_nobody(uuid, holder):
    holder.kill()
    holder.wait()
    with gpu_lock(uuid, "mine"):
        pass


def test_the_lock_file_of_a_killed_run_is_swept_and_a_live_one_is_not(uuid, holder):
    with gpu_lock(uuid + "-mine", "mine") as mine:
        theirs = Path(str(mine).replace("-mine", ""))
        sweep_locks()
        assert theirs.exists()
        holder.kill()
        holder.wait()
        sweep_locks()
        assert mine.exists()
        assert not theirs.exists()


@pytest.mark.usefixtures("holder")
def test_a_lock_that_names_no_owner_is_still_a_lock(uuid):
    with gpu_lock(uuid + "-mine", "mine") as mine:
        theirs = Path(str(mine).replace("-mine", ""))
    os.truncate(theirs, 0)
    with pytest.raises(GpuUnavailable, match="has not said"), gpu_lock(uuid, "mine"):
        pass
