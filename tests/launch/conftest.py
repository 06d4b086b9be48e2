"""Where exported scripts find stand-ins for MPS and Slurm, and jobs to start."""

from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from advisor.measure.process import end_within
from tests.handed import JOBS
from tests.launch.script_node import JOB, QUICK_SLEEP, SBATCH, SMI, pipe_folders, put
from tests.launch.scripts_on_machine import DEVICE_JOB
from tests.launch.smi_stand_in import SmiMachine
from tests.measure.process import mps_stand_in


@pytest.fixture
def sockets():
    """A folder for the pipes of the caller's own daemon: a short path, since they are sockets."""
    with TemporaryDirectory(dir="/tmp", prefix="mps ") as path:
        yield Path(path)
        end_within(Path(path))


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A folder with a space in its name, where jobs and tools lie."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    mps_stand_in.install(folder)
    put(folder / "sbatch", SBATCH)
    put(folder / "nvidia-smi", SMI)
    put(folder / "sleep", QUICK_SLEEP)
    for job in JOBS:
        put(folder / f"{job.name}.sh", JOB)
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "ENDLESS": "",
        "FAILS": "",
        "MACHINE": uuid4().hex,
        "MODE_OF_3": "Disabled",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "7",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    yield folder
    for pipes in pipe_folders():
        end_within(pipes)
        rmtree(pipes)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = SmiMachine()
    texts = {
        "sudo": '#!/bin/bash\nexec "$@"\n',
        "sleep": '#!/bin/bash\n[ "$1" != 600 ] || exec /usr/bin/sleep 600\n',
        **{f"{job.name}.sh": DEVICE_JOB for job in JOBS},
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    server = machine.install(tmp_path)
    yield machine
    server.shutdown()
    server.server_close()
