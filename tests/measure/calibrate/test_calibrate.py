"""Calibrations: what is made of the times of tenants, and the command on a CPU."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import errors
from advisor.measure import calibrate
from advisor.measure.calibrate import (
    OPERATORS,
    VERBS_FROM,
    load_kernel,
    operator_call,
    run_calibrate,
    sweep,
    switching_of,
)
from advisor.measure.device import Device, Meter
from advisor.measure.inside.program import Served
from advisor.measure.pace import Schedule
from advisor.measure.tenant import server_of
from advisor.measure.tenants import tenants_on
from advisor.workload.calibration import Operator
from tests.refusals import refused

PLAN = Schedule(start_at=1_000.0, bounds_s=(0.2, 0.6, 1.0))


def alone(kernel_s):
    ends = 1_000.0 + kernel_s * np.arange(1, 1.1 / kernel_s)
    return PLAN, (tuple(ends.tolist()),)


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
    return PLAN, tuple(map(tuple, ends))


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
    half = alone(1e-4)[1][0][1::2]
    found = switching_of([alone(1e-4)] * 2, (PLAN, (half, half)))
    assert found.overhead == pytest.approx(0.0, abs=1e-3)
    assert found.slice_s is None


@pytest.mark.parametrize("words", [(), ("--gpu", "h200-141gb"), ("--gpu-side",)])
def test_a_cpu_cannot_be_calibrated(words, capsys):
    code, said = refused(run_calibrate, ["--device", "cpu", *words], capsys)
    assert (code, "cpu" in said) == (2, True)


def test_a_calibration_names_its_extra_before_it_takes_the_gpu(monkeypatch, capsys):
    h200 = Device("cuda", "GPU-0", "h200-141gb", "NVIDIA H200", "580")
    monkeypatch.setattr(calibrate, "find_device", lambda _: h200)
    monkeypatch.setattr(errors, "find_spec", lambda _: None)
    code, printed = refused(calibrate.run_calibrate, [], capsys)
    assert (code, "the extra 'profile'" in printed) == (1, True)


SMALL = (
    Operator("linear", "2x3x5x7", "fp32"),
    Operator("linear", "2x3x5x7", "fp16"),
    Operator("add", "4x16", "fp32"),
    Operator("copy", "4x16", "fp32"),
)
# More than an address space.
IMPOSSIBLE = Operator("add", "1000000000x1000000", "fp32")


@pytest.mark.parametrize("operator", SMALL, ids=str)
def test_an_operators_work_is_that_of_the_tensors_it_gives(operator):
    given = operator_call(operator, "cpu")()
    inner = operator.dimensions[2] if operator.op == "linear" else 0
    assert operator.flops == 2 * given.numel() * inner
    assert operator.traffic_mib * 2**20 > given.nbytes


def test_a_kernel_is_a_product_of_the_side_that_takes_as_long(monkeypatch):
    def timed_s(call, count, _device):
        return count * 1e-3 * (call().shape[-1] / 1024) ** 3, 0.0

    monkeypatch.setattr(calibrate, "_timed_s", timed_s)
    served = Served("")
    load_kernel(served, "cpu", 0.125e-3)
    assert served.step().shape[-1] == 512


def test_a_sweep_keeps_what_could_be_timed(workers_folder):
    device = Device("cpu", None, "cpu", "a CPU", None)
    setups = [server_of(VERBS_FROM, "cpu", {})]
    with tenants_on(setups, Path(workers_folder)) as (tenant,):
        side = sweep(tenant, Meter(device), (*SMALL, IMPOSSIBLE, OPERATORS[-1]), rounds=1)
    assert [each.operator for each in side.times][: len(SMALL)] == list(SMALL)
    assert IMPOSSIBLE not in [each.operator for each in side.times]
    assert side.tflops("fp32") > 0
    assert (side.l2_mib, side.sm_clock_mhz) == (None, None)
