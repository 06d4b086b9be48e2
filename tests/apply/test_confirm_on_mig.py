"""``advisor confirm --apply``: the studies' cases on instances that are made for each of them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.api import Advisor
from advisor.apply.confirm_on_mig import InstanceSession, measured_on_instances, run
from advisor.errors import GpuUnavailable, InvalidInput
from advisor.hardware import mig_switch
from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_instances import ComputeInstance, GpuInstance
from advisor.launch.journal import journal
from advisor.measure.campaign import confirm_command
from advisor.measure.campaign.confirm_cases import InstanceCase, instance_cases
from advisor.measure.process.claimed_device import Device
from advisor.measure.process.journal_files import journal_files
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.windows import Timing
from advisor.measure.shared.bench import Bench
from advisor.measure.shared.shared_run import SharedRunSettings
from advisor.prediction.fit.observation import shared_runs
from advisor.sharing import Naive, parse_sharing
from advisor.sharing.traversal import check_count
from advisor.validate.validate import compared
from advisor.workload.named_workloads import workload
from advisor.workload.store import NO_CALIBRATION
from tests import synthetic
from tests.hardware.conftest import install
from tests.hardware.mig_machine import MigMachine

__all__ = ["install"]

A100 = gpu("a100-40gb")
CPU = Device("cpu", None, "cpu", "a processor", None)
BEFORE = (GpuInstance(0, 4, 5, (ComputeInstance(0, 4, 3),)),)
SMALL = workload("mlp-toy-bs32")


@pytest.fixture(autouse=True)
def calm(monkeypatch, tmp_path):
    monkeypatch.setattr(mig_switch, "_PAUSE_S", 0)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def machine(install):
    made = install(MigMachine())
    made.put(*BEFORE)
    return made


@pytest.fixture
def bench(workers_folder):
    """Tenants on the CPU, which look at no GPU that their environment names."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    timing = Timing(settle_s=0.1, window_s=0.1, windows=2)
    session = MpsSession(CPU, Path(workers_folder))
    yield Bench(
        SharedRunSettings(session=session, timing=timing, command="pytest", cores=cores), cores
    )
    os.sched_setaffinity(0, cores)


def measured(case, bench):
    with journal("GPU-0", "advisor confirm") as log:
        return measured_on_instances(case, A100, bench, log)


def test_a_case_is_recorded_with_its_instances_and_these_are_gone_afterwards(machine, bench):
    case = InstanceCase("two", "mig=7g.40gb@0/ci=3c[1]+4c[2]", (SMALL, SMALL))
    found = measured(case, bench)
    assert (found.id, found.sharing, found.purpose) == ("two", case.sharing, "chosen")
    assert found.shows_pace
    assert len(found.tenants) == 2
    assert machine.layout() == BEFORE
    assert machine.misused == []
    assert journal_files() == []


def test_what_cannot_be_measured_leaves_the_instances_as_before(machine, bench):
    unknown = replace(workload("resnet26-cifar10-bs32"), model="no_such_model")
    broken = InstanceCase("none", "mig=1g.5gb", (unknown,))
    with pytest.raises(InvalidInput):
        measured(broken, bench)
    assert machine.layout() == BEFORE
    assert journal_files() == []


def test_each_tenant_sees_its_own_device_and_no_mps(tmp_path):
    session = InstanceSession(CPU, MpsSession(CPU, tmp_path), ["MIG-a", "MIG-b"])
    setups = session.setups(Naive(), [(0,), (1,)])
    assert [each.environment["CUDA_VISIBLE_DEVICES"] for each in setups] == ["MIG-a", "MIG-b"]
    assert [each.cores for each in setups] == [(0,), (1,)]
    assert all("no-mps" in each.environment["CUDA_MPS_PIPE_DIRECTORY"] for each in setups)


@pytest.mark.parametrize("key", ["a100-40gb", "a30-24gb", "h100-sxm-80gb"])
def test_cases_are_such_as_the_gpu_holds(key):
    cases = instance_cases(key)
    assert len({case.id for case in cases}) == len(cases) > 0
    for case in cases:
        check_count(parse_sharing(case.sharing), len(case.workloads))


def test_an_a100_gets_the_instances_of_the_study():
    sharings = {case.sharing for case in instance_cases("a100-40gb")}
    assert {"mig=7g.40gb", "mig=4g.20gb", "mig=3g.20gb,3g.20gb"} <= sharings
    assert "mig=" + ",".join(["1g.5gb"] * 7) in sharings
    assert instance_cases("l40s-48gb") == ()


def test_a_dry_run_says_how_long_and_changes_nothing(machine, tmp_path, capsys):
    assert run(["--apply", "--dry-run", "--out", str(tmp_path)]) == 0
    assert "46 cases on MIG instances to do: about" in capsys.readouterr().err
    assert machine.layout() == BEFORE
    assert not [each for each in machine.calls if "Create" in each]


def test_mig_mode_is_not_switched(install, tmp_path):
    off = install(MigMachine())
    off.gpus[0].mig = (0, 0)
    with pytest.raises(GpuUnavailable, match="-mig 1"):
        run(["--apply", "--out", str(tmp_path)])


def test_one_gpu_at_a_time(tmp_path):
    with pytest.raises(InvalidInput, match="one GPU at a time"):
        run(["--apply", "--devices", "0,1", "--out", str(tmp_path)])


def test_the_program_without_the_package_says_where_instances_are_made():
    with pytest.raises(InvalidInput, match="advisor confirm --apply"):
        confirm_command.run(["--apply", "--devices", "cpu"])


def test_a_file_with_runs_on_instances_is_taken_and_set_beside_predictions():
    profile = synthetic.profile()
    found = synthetic.run([profile] * 2, "mig=3g.71gb,4g.71gb", slowdown=2)
    h200 = gpu("h200-141gb")
    assert shared_runs({profile.name: profile}, [found], h200) == ()  # fit passes it over
    advisor = Advisor("h200-141gb", calibration=NO_CALIBRATION)
    (beside,) = compared([found], {profile.name: profile}, advisor.uncalibrated, h200)
    assert [job.measured_s for job in beside.jobs] == pytest.approx([profile.step_s * 2] * 2)
    assert all(job.predicted_s.p50 > 0 for job in beside.jobs)
