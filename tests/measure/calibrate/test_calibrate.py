"""Calibrations: what is made of the times of tenants, and the command on a CPU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import errors
from advisor.measure import calibrate
from advisor.measure.calibrate import (
    load_kernel,
    switching_of,
)
from advisor.measure.device import Device
from advisor.measure.inside.program import Served
from advisor.measure.pace import Schedule
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


@pytest.mark.parametrize("words", [(), ("--gpu", "h200-141gb")])
def test_a_cpu_cannot_be_calibrated(words, capsys):
    code, said = refused("calibrate", ["--device", "cpu", *words], capsys)
    assert (code, "cpu" in said) == (2, True)


def test_a_calibration_names_its_extra_before_it_takes_the_gpu(monkeypatch, capsys):
    h200 = Device("cuda", "GPU-0", "h200-141gb", "NVIDIA H200", "580")
    monkeypatch.setattr(calibrate, "find_device", lambda _: h200)
    monkeypatch.setattr(errors, "find_spec", lambda _: None)
    code, printed = refused("calibrate", [], capsys)
    assert (code, "the extra 'profile'" in printed) == (1, True)


def test_a_kernel_is_a_product_of_the_side_that_takes_as_long(monkeypatch):
    def timed_s(call, count, _device):
        return count * 1e-3 * (call().shape[-1] / 1024) ** 3

    monkeypatch.setattr(calibrate, "_timed_s", timed_s)
    served = Served("")
    load_kernel(served, "cpu", 0.125e-3)
    assert served.step().shape[-1] == 512
