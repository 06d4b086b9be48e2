"""A real step of mlp-toy-bs128, as torch's profiler recorded it on an H200."""

import gzip
import json
from pathlib import Path

import pytest

from advisor.measure.solo.chrome_trace import steps_of_trace
from advisor.measure.solo.traced_step import kernel_trace, median_step, sm_limits
from advisor.workload.store import load_profile

PHASES = ("fetch", "forward", "backward", "update")
RECORDED = Path(__file__).parent / "recorded" / "mlp-toy-bs128.json.gz"


@pytest.fixture(scope="module")
def steps():
    document = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return steps_of_trace(document, PHASES, sm_limits("9.0"))


@pytest.fixture(scope="module")
def shipped():
    return load_profile("mlp-toy-bs128", "h200-141gb")


def test_every_step_of_a_real_recording_runs_the_same_kernels(steps):
    kinds = [[work.kind for work in step.work] for step in steps]
    assert len(kinds) == 3
    assert kinds[0] == kinds[1] == kinds[2]
    assert "other" not in kinds[0]


def test_two_recordings_of_one_workload_agree(steps, shipped):
    step = median_step(steps)
    trace = kernel_trace(step, tuple(phase.host_us * 1e-6 for phase in step.phases))
    assert trace.blocks == shipped.trace.blocks
    assert trace.resident_blocks == shipped.trace.resident_blocks
    assert step.busy_s == pytest.approx(shipped.gpu_s, rel=0.1)
