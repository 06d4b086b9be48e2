"""Where exported scripts find stand-ins for MPS and Slurm, and jobs to start."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from advisor.measure.process import end_within
from tests.handed import JOBS
from tests.launch.script_node import JOB, SBATCH, put
from tests.measure.process import mps_stand_in


@pytest.fixture
def sockets():
    """Where daemons have their pipes: a short path, since they are sockets, with a space."""
    with TemporaryDirectory(dir="/tmp", prefix="mps ") as path:
        yield Path(path)
        end_within(Path(path))


@pytest.fixture
def node(tmp_path, sockets, monkeypatch):
    """A folder with a space in its name, where jobs and tools lie."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    mps_stand_in.install(folder)
    put(folder / "sbatch", SBATCH)
    put(folder / "mktemp", f'#!/bin/sh\nexec /usr/bin/mktemp -d "{sockets}/${{2##*/}}"\n')
    for job in JOBS:
        put(folder / f"{job.name}.sh", JOB)
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(sockets),
        "XDG_STATE_HOME": str(tmp_path / "state"), "ENDLESS": "",
        "FAILS": "", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "7",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    return folder
