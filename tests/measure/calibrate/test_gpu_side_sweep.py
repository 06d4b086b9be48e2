"""Operators are timed as they are asked for; here on a CPU, where times say nothing."""

import os
from pathlib import Path

import pytest
import torch

from advisor.hardware.catalogue import gpu
from advisor.measure.gpu_side_sweep import lines_of, operators, sweep, sweep_verbs
from advisor.measure.operator_calls import operator_call, timed
from advisor.measure.process.claimed_device import Device, Meter
from advisor.measure.process.tenants import tenants_on
from advisor.measure.process.worker import TenantSetup
from advisor.workload.gpu_side import Operator
from tests.measure.calibrate.test_calibrate_command import calibrate

SMALL = (
    Operator("linear", "2x3x5x7", "fp32"),
    Operator("bmm", "2x3x5x7", "tf32"),
    Operator("conv", "2x3x4x3x9x2x1", "fp32"),
    Operator("ln", "4x16", "bf16"),
    Operator("softmax", "4x16", "fp32"),
    Operator("gelu", "4x16", "fp32"),
    Operator("add", "4x16", "fp32"),
    Operator("copy", "4x16", "fp32"),
)
# A kernel that is larger than its image.
IMPOSSIBLE = Operator("conv", "1x1x1x5x3x1x0", "fp32")


@pytest.mark.parametrize("operator", SMALL, ids=lambda each: each.op)
def test_an_operators_work_is_that_of_the_tensors_it_gives(operator):
    given = operator_call(operator, "cpu")()
    numbers = operator.dimensions
    inner = {"linear": numbers[2:3], "bmm": numbers[2:3], "conv": numbers[1:2] + 2 * numbers[3:4]}
    flops = 2 * given.numel() * torch.tensor(inner[operator.op]).prod() if operator.flops else 0
    assert operator.flops == flops
    assert operator.traffic_mib * 2**20 > given.nbytes


def test_the_sweep_has_every_kind_of_operator_and_none_twice():
    wanted = operators()
    assert len(set(wanted)) == len(wanted)
    assert {each.op for each in wanted} == {each.op for each in SMALL}


def test_an_operator_that_fails_has_no_time():
    assert timed(IMPOSSIBLE, "cpu") is None


def test_a_sweep_keeps_what_could_be_timed(workers_folder):
    device = Device("cpu", None, "cpu", "a CPU", None)
    core = min(os.sched_getaffinity(0))
    setups = [TenantSetup("cpu", (core,), {})]
    with tenants_on(setups, Path(workers_folder), sweep_verbs) as (tenant,):
        side = sweep(tenant, Meter(device), (*SMALL, IMPOSSIBLE), rounds=1)
    assert [each.operator for each in side.times][: len(SMALL)] == list(SMALL)
    assert IMPOSSIBLE not in [each.operator for each in side.times]
    assert side.tflops("fp32") > 0
    assert (side.l2_mib, side.sm_clock_mhz) == (None, None)
    said = lines_of(side, gpu("h200-141gb").rates)
    assert any("memory unknown (4800.0)" in line for line in said)
    assert len(lines_of(side, None)) == len(said)


def test_the_gpu_side_of_a_cpu_is_refused(tmp_path):
    code, said = calibrate(str(tmp_path), "--device", "cpu", "--gpu-side")
    assert code == 2
    assert "--gpu-side" in said
