"""A step of a program in which nobody finds steps, cut out of what its GPU does."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError
from advisor.measure.process.worker import TenantState
from advisor.measure.solo.chrome_trace import steps_of_trace
from advisor.measure.solo.recorded_window import cut, record, repeating
from advisor.measure.solo.traced_step import sm_limits
from tests.measure.solo.test_chrome_trace import Recording

H200 = sm_limits("9.0")
RECORDED = Path(__file__).parent / "recorded"


def rounds(count: int, busy_us: float, round_us: float = 1000.0) -> Recording:
    """A program that launches two kernels a round, and waits for them."""
    made = Recording()
    for number in range(count):
        at = 500.0 + number * round_us
        made.launch(at, "ampere_sgemm_128x64_nn", at=at + 10, dur=busy_us / 2)
        made.launch(at + 20, "ampere_sgemm_128x64_nn", at=at + 10 + busy_us / 2, dur=busy_us / 2)
        waits = {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize"}
        made.events.append({**waits, "ts": at + 30, "dur": round_us - 50, "args": {}})
    return made


def window(recording: Recording, step_s: float):
    return steps_of_trace(cut({"traceEvents": recording.events}, step_s), ("0",), H200)


@given(rounds_of_a_step=st.integers(1, 4), busy_us=st.floats(10, 900))
def test_a_step_of_whole_rounds_holds_their_kernels_whenever_it_begins(rounds_of_a_step, busy_us):
    steps = window(rounds(14, busy_us), rounds_of_a_step * 1e-3)
    step = repeating(steps)
    assert len(steps) == 3
    assert len(step.work) == 2 * rounds_of_a_step
    assert step.busy_s == pytest.approx(rounds_of_a_step * busy_us * 1e-6)


def test_a_wait_across_two_steps_is_counted_in_each_as_far_as_it_lies_there():
    steps = window(rounds(14, 500.0), 1.04e-3)  # a twenty-fifth more than a round
    hosts_us = [step.phases[0].host_us for step in steps]
    assert all(50 <= host_us <= 90 for host_us in hosts_us)
    assert all(step.phases[0].waits_us for step in steps)


def test_ten_rounds_of_a_real_search_are_a_step_that_repeats():
    document = json.loads(gzip.decompress((RECORDED / "evolution.json.gz").read_bytes()))
    steps = steps_of_trace(cut(document, 0.033), ("0",), H200)  # as it printed, on an H200
    step = repeating(steps)
    kinds = Counter(work.kind for work in step.work)
    assert kinds["gemm"] == 10
    assert "other" not in kinds
    assert step.busy_s == pytest.approx(0.0323, rel=0.01)
    assert all(each.phases[0].host_us < 3000 for each in steps), "the host waits for the rest"


def test_a_step_that_is_no_part_that_repeats_is_refused_with_what_to_do():
    with pytest.raises(AdvisorError, match=r"no part that repeats .* --batch"):
        repeating(window(rounds(14, 500.0), 0.1e-3))


def test_a_program_that_launches_nothing_is_said_to():
    with pytest.raises(AdvisorError, match="saw no launch"):
        cut({"traceEvents": []}, 1.0)


def test_a_process_that_has_not_touched_cuda_has_nothing_to_say():
    assert record(TenantState("cpu"), step_s=1.0, compute_capability="9.0") == {}
