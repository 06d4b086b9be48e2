"""The MPS daemon of a measurement, spoken to through a stand-in for NVIDIA's program."""

import os
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.machine import mps_processes
from advisor.measure.bench import MpsSession, tenant_environments
from advisor.measure.device import Device, refuse_busy
from advisor.measure.process import end_within, mps_within
from advisor.sharing import Mps, Naive
from tests.measure.process import mps_stand_in
from tests.measure.process.disguise import stranger

# Nobody else's, whatever runs on this machine at the same time.
UUID = f"GPU-{uuid4()}"
GPU = Device("cuda", UUID, "h200-141gb", "NVIDIA H200", "580.0")


@pytest.fixture
def folder():
    with TemporaryDirectory(dir="/tmp") as path:  # sockets need a short path
        yield Path(path)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def session(folder, programs):
    mps_stand_in.install(programs)
    with closing(MpsSession(GPU, folder)) as session:
        yield session
    assert not mps_within(folder)


def test_a_daemon_that_was_stopped_leaves_no_process(session, folder):
    session.switch_to(Mps())
    mps_stand_in.become_clients(folder / "mps", [101])
    session.proved_clients(Mps(), [101])
    assert {each.role for each in mps_processes() if each.pid in mps_within(folder)} == {
        "control",
        "server",
    }
    session.close()
    assert not mps_within(folder)


def test_a_machine_without_mps_says_what_to_install(monkeypatch, folder):
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(GpuUnavailable, match="not installed"):
        MpsSession(GPU, folder).switch_to(Mps())


def test_a_daemon_that_does_not_start_is_refused_with_its_last_words(programs, folder):
    program = programs / "nvidia-cuda-mps-control"
    program.write_text("#!/bin/sh\necho 'cannot lock the pipes'\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(GpuUnavailable, match="cannot lock the pipes"):
        MpsSession(GPU, folder).switch_to(Mps())


@pytest.mark.parametrize("name", ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"])
def test_somebody_elses_mps_is_refused_by_pid_owner_and_pipes(name):
    environment = {"CUDA_MPS_PIPE_DIRECTORY": "/somewhere/pipes", "CUDA_VISIBLE_DEVICES": UUID}
    with (
        stranger(name, environment) as pid,
        pytest.raises(GpuUnavailable, match=rf"process {pid}, pipes in /somewhere/pipes"),
    ):
        refuse_busy(UUID)


def test_a_program_that_only_names_mps_is_none_of_it():
    with stranger("grep", {"CUDA_MPS_PIPE_DIRECTORY": "nvidia-cuda-mps-control"}) as pid:
        assert pid not in [each.pid for each in mps_processes()]


def test_a_daemon_that_its_owner_left_behind_is_ended(folder):
    with stranger("nvidia-cuda-mps-server", {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps")}):
        assert mps_within(folder)
        end_within(folder)
        assert not mps_within(folder)


def test_mps_is_proved_on_for_every_tenant_and_off_for_naive_sharing(session, folder):
    session.switch_to(Mps())
    (environment,) = tenant_environments(Mps(), 1, folder, UUID)
    mps_stand_in.become_clients(Path(environment["CUDA_MPS_PIPE_DIRECTORY"]), [101, 102])
    assert session.proved_clients(Mps(), [101, 102]) == 2
    with pytest.raises(AdvisorError, match="103"):
        session.proved_clients(Mps(), [101, 103])
    session.switch_to(Naive())
    assert not any(each.serves(UUID) for each in mps_processes())
    assert session.proved_clients(Naive(), [101, 102]) == 0


def test_each_tenant_has_its_own_limit_and_all_the_same_gpu(folder):
    first, second = tenant_environments(Mps((43, 57.5)), 2, folder, UUID)
    assert first["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "43"
    assert second["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "57.5"
    assert first["CUDA_VISIBLE_DEVICES"] == second["CUDA_VISIBLE_DEVICES"] == "0"
    (on_mig,) = tenant_environments(Mps(), 1, folder, "MIG-a")
    assert on_mig["CUDA_VISIBLE_DEVICES"] == "MIG-a"


def test_a_naive_tenant_is_pointed_away_from_every_daemon(folder):
    (environment,) = tenant_environments(Naive(), 1, folder, UUID)
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] != str(folder / "mps")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in environment
