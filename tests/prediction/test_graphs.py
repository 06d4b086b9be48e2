"""Jobs captured in CUDA graphs: one launch a step starts all of their kernels."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.prediction.replay import Effort, TimeSlicing, replay_mps, replay_naive
from advisor.prediction.trace import replay_trace
from tests import synthetic

SLICING = TimeSlicing(slice_s=2e-3, patience_s=1e-5, switch_s=1e-4)
STEP_S, KERNELS_S = 0.010, 0.009


def job(execution):
    """A job whose kernels leave a tenth of its step, and whose host is fast."""
    made = synthetic.profile(host_s=0.001, gpu_s=KERNELS_S)
    windows = tuple(replace(each, seconds=100 * STEP_S) for each in made.windows)
    return replace(made, windows=windows, workload=replace(made.workload, execution=execution))


def script(execution):
    return replay_trace(job(execution), 132, 0.0)


@pytest.mark.parametrize("execution", ["eager", "graph"])
def test_alone_a_step_takes_what_was_measured(execution):
    long = Effort(steps=100, events=500_000)
    (alone_s,) = replay_mps([script(execution)], [1.0], [1.0], 0.0, long)
    assert alone_s == pytest.approx(STEP_S, rel=0.01)


def test_graphs_that_queue_up_in_turns_follow_each_other_without_a_gap():
    mate = script("eager")
    steps = {
        execution: replay_naive([script(execution), mate], SLICING, Effort(steps=40))[0]
        for execution in ("eager", "graph")
    }
    assert steps["graph"] / steps["eager"] == pytest.approx(KERNELS_S / STEP_S, rel=0.02)


def test_a_graph_whose_kernels_leave_nothing_is_replayed_as_they_are():
    full = replace(job("graph"), gpu_s=STEP_S, trace=synthetic.trace(100, STEP_S, 0.001, 1000))
    played = replay_trace(full, 132, 0.0)
    assert played.duration_s.sum() == pytest.approx(STEP_S)
    assert np.all(played.launch_s == 0)
    assert played.gap_s == 0
