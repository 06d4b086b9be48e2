"""What a calibration makes of what its tenants tell."""

import math
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.calibrate_command import host_checks
from advisor.measure.process.claimed_device import Device, refuse_other
from advisor.measure.process.tenant_handle import Ended
from advisor.measure.process.tenants import tenants_on
from advisor.measure.process.windows import Schedule
from advisor.measure.process.worker import TenantSetup, TenantState
from advisor.measure.switching import TimedKernels, calibration_verbs, living, switching_of
from advisor.workload.store import read_calibration
from tests.measure.shared.test_run_list import HIDE
from tests.waiting import PATIENCE_S

PLAN = Schedule(start_at=1_000.0, bounds_s=(0.2, 0.6, 1.0))


def alone(kernel_s):
    ends = 1_000.0 + kernel_s * np.arange(1, 1.1 / kernel_s)
    return TimedKernels(PLAN, (tuple(ends.tolist()),))


def in_turns(kernel_s, slice_s, switch_s):
    """Two tenants that take turns as a driver with such slices would have them."""
    ends = ([], [])
    now, owner, part = 1_000.0, 0, [0.0, 0.0]
    while now < 1_001.1:
        worked = part[owner] + slice_s
        whole = int(worked / kernel_s + 1e-9)
        ends[owner].extend(now + kernel_s * (number + 1) - part[owner] for number in range(whole))
        part[owner] = max(0.0, worked - whole * kernel_s)
        now += slice_s + switch_s
        owner = 1 - owner
    return TimedKernels(PLAN, tuple(map(tuple, ends)))


@given(st.floats(1e-3, 4e-3), st.floats(0.0, 0.4e-3))
def test_slices_and_what_a_change_costs_are_read_off_the_ends_of_kernels(slice_s, switch_s):
    found = switching_of([alone(1e-4)] * 2, in_turns(1e-4, slice_s, switch_s))
    assert found.kernel_s == pytest.approx(1e-4, rel=1e-3)
    assert found.overhead == pytest.approx(switch_s / (slice_s + switch_s), abs=0.02)
    assert found.slice_s == pytest.approx(slice_s, abs=1e-4)
    assert found.switch_s == pytest.approx(switch_s, abs=0.04e-3)


def test_kernels_as_long_as_a_slice_tell_the_overhead_only():
    found = switching_of([alone(2e-3)] * 2, in_turns(2e-3, 1e-3, 0.1e-3))
    assert found.overhead == pytest.approx(0.09, abs=0.02)
    assert (found.slice_s, found.switch_s) == (None, None)


def test_processes_that_do_not_disturb_each_other_lose_nothing_and_show_no_slices():
    half = alone(1e-4).completed_at[0][1::2]
    found = switching_of([alone(1e-4)] * 2, TimedKernels(PLAN, (half, half)))
    assert found.overhead == pytest.approx(0.0, abs=1e-3)
    assert found.slice_s is None


def test_a_tenant_repeats_a_kernel_of_about_the_length_asked_for():
    state = TenantState("cpu")
    found = calibration_verbs()["load_kernel"](state, kernel_s=1e-3)
    assert found["kernel_s"] > 0
    state.trainable()


def test_a_tenant_that_ends_spoils_a_calibration():
    with pytest.raises(AdvisorError, match="died: killed by SIGKILL"):
        living(Ended("died", "killed by SIGKILL"))


def test_another_gpu_than_the_one_asked_for_is_refused():
    cpu = Device("cpu", None, "cpu", "a CPU", None)
    refuse_other(cpu, None)
    with pytest.raises(InvalidInput, match="this device is cpu"):
        refuse_other(cpu, "h200-141gb")
    with pytest.raises(InvalidInput, match="h999"):
        refuse_other(cpu, "h999")


def test_the_host_check_is_made_on_one_core_and_on_as_many_as_there_are_tenants(workers_folder):
    core = min(os.sched_getaffinity(0))
    with tenants_on([TenantSetup("cpu", (core,), {})] * 2, Path(workers_folder)) as tenants:
        checks = host_checks(tenants)
    assert [each.cores for each in checks] == [1, 2]
    assert all(each.check_s > 0 for each in checks)


class Quick:
    """A tenant for whose every check half a second passes on `clock`."""

    def __init__(self, clock):
        self.clock = clock

    def send(self, _verb):
        pass

    def receive(self, _timeout_s):
        self.clock[0] += 0.5
        return {"check_s": 1e-3}


@pytest.mark.parametrize(("longest_s", "rounds"), [(0.1, 1), (5.0, 2), (math.inf, 12)])
def test_no_round_of_checks_begins_that_would_end_too_late(longest_s, rounds):
    now = [0.0]
    checks = host_checks([Quick(now), Quick(now)], longest_s, lambda: now[0])
    assert [each.cores for each in checks] == [1, 2]
    assert now[0] == 1.0 + 1.5 * rounds


def calibrate(temporary, *words, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "advisor.calibration", *words],
        env=os.environ | {"TMPDIR": temporary} | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_host_is_calibrated_where_only_torch_and_timm_are_installed(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    with TemporaryDirectory(dir="/tmp") as temporary:
        path = {"PYTHONPATH": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
        code, said = calibrate(temporary, "--device", "cpu", **path)
        assert os.listdir(temporary) == []  # noqa: PTH208
    assert code == 0, said
    found = read_calibration(tmp_path / "data" / "advisor" / "calibrations" / "cpu.json")
    assert (found.gpu, found.contexts, found.switching) == ("cpu", None, ())
    assert found.provenance.command == "python -m advisor.calibration --device cpu"


def test_a_calibration_of_another_gpu_model_than_asked_for_is_refused():
    with TemporaryDirectory(dir="/tmp") as temporary:
        code, said = calibrate(temporary, "--device", "cpu", "--gpu", "h200-141gb")
    assert code == 2
    assert "Leave --gpu out" in said
