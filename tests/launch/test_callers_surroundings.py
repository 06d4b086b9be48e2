"""Exported scripts where their caller has MPS of its own, or a GPU in MIG mode."""

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.handed import BERT, JOBS, RESNET, handed
from tests.launch.script_node import ended, pipe_folders, seen_by, tools_without_mps
from tests.waiting import until


@pytest.fixture
def callers_mps(sockets):
    """The caller's own MPS, to which its environment leads, with settings for all its clients."""
    (folder := sockets / "own").mkdir()
    settings = {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder),
        "CUDA_MPS_LOG_DIRECTORY": str(folder),
        "CUDA_MPS_CLIENT_PRIORITY": "1",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10",
    }
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | settings, check=True)
    asked = "echo get_server_list | nvidia-cuda-mps-control"
    answers = partial(subprocess.run, ["bash", "-c", asked], env=os.environ | settings)
    until(lambda: answers(check=False, capture_output=True).returncode == 0)
    return settings


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("form", "sharing", "device"),
    [
        ("commands", "naive[2,1];mps[3]", 0),
        ("commands", "mps[3,1];serial[2]", 0),
        ("slurm", "naive", 2),
        ("slurm", "serial", 2),
    ],
)
def test_jobs_without_mps_are_no_clients_of_the_callers_own(form, sharing, device, callers_mps):
    plan = handed(sharing, JOBS)
    done = ended(form, plan, FAILS=f"{RESNET.name}.sh" if form == "slurm" else "", **callers_mps)
    assert (done.returncode, done.stderr) == (0, "")
    for part in plan.partitions:
        on = "on" if part.under_mps else "off"
        for start in part.starts:
            assert seen_by(start.job) == f"{on} device={device} limit="
            names = Path(f"{start.job.name}.sh.named").read_text()
            assert names == "CUDA_MPS_PIPE_DIRECTORY\n"
    if form == "slurm":  # the job of Slurm that has the failed one fails
        assert "3" in Path("submitted").read_text().split()
    assert not pipe_folders()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(("form", "sharing"), [("commands", "mps"), ("mps", "mps")])
def test_on_a_gpu_in_mig_mode_nothing_planned_for_all_of_it_starts(form, sharing):
    done = ended(form, handed(sharing), "start", GPU="3", MODE_OF_3="Enabled")
    assert done.returncode == 1
    assert "GPU 3 is in MIG mode" in done.stderr
    assert "sudo nvidia-smi -i 3 -mig 0" in done.stderr
    assert not seen_by(RESNET)


def test_jobs_start_where_the_driver_has_no_tool(node, monkeypatch):
    (node / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", f"{node}:{tools_without_mps(node.parent / 'tools')}")
    done = ended("commands", handed("mps=43,57.5"), GPU="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "limit=57.5" in seen_by(BERT)
