"""Jobs whose hosts wait for the GPU."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.prediction.replay import Effort, TimeSlicing, replay_mps, replay_naive
from advisor.prediction.stretched_profile import at_pace
from advisor.prediction.trace import QUEUED_GAP_S, replay_trace, waiting_step
from advisor.prediction.waiting_step import WaitingStep, waits_for
from tests import synthetic

LONG = Effort(steps=200, events=2_000_000)


@st.composite
def waiting(draw):
    """A step of a few kernels, with a wait or more."""
    kernels = draw(st.integers(1, 6))
    duration = draw(st.lists(st.floats(5, 300), min_size=kernels, max_size=kernels))
    host = draw(st.floats(1, 900))
    launch = sorted(draw(st.lists(st.floats(0, host), min_size=kernels, max_size=kernels)))
    waits = sorted(draw(st.lists(st.floats(0, host), min_size=1, max_size=4)))
    micro = 1e-6 * np.array(launch), 1e-6 * np.array(waits), 1e-6 * host
    return WaitingStep(
        micro[0], 1e-6 * np.array(duration), waits_for(*micro), micro[2], draw(st.floats(0, 2e-6))
    )


def played(step):
    """The step for replay: of a job that fills the GPU while it runs."""
    made = replay_trace(synthetic.profile(kernels=len(step.launch_s)), 132, 0.0)
    return replace(
        made, launch_s=step.launch_s, duration_s=step.duration_s, waits_s=step.waits_s,
        host_s=step.host_s, gap_s=step.gap_s, lead_s=1e3,
    )  # fmt: skip


def replayed_alone(step):
    """Kernel by kernel, for many steps: the slow twin of `WaitingStep.seconds`."""
    (seconds,) = replay_mps([played(step)], [1.0], [1.0], 0.0, LONG)
    return seconds


@given(waiting())
def test_alone_a_step_takes_what_its_replay_takes(step):
    assert replayed_alone(step) == pytest.approx(step.seconds(), rel=0.02)


@given(waiting())
def test_it_takes_as_long_as_its_host_and_as_its_kernels_at_least_and_as_both_at_most(step):
    kernels_s = step.duration_s.sum() + step.gap_s * len(step.duration_s)
    least_s = max(step.host_s, step.duration_s.sum())
    assert least_s * (1 - 1e-9) <= step.seconds() <= (step.host_s + kernels_s) * (1 + 1e-9)


@given(waiting(), st.floats(1, 4), st.floats(1, 4))
def test_a_slower_host_and_slower_kernels_never_make_it_shorter(step, host, gpu):
    assert step.changed(host=host, gpu=gpu).seconds() >= step.seconds() * (1 - 1e-9)


@given(waiting(), st.floats(0.2, 5))
def test_it_can_be_made_to_take_what_was_measured(step, times):
    wanted_s = times * step.seconds()
    there = step.taking(wanted_s)
    assert there.seconds() == pytest.approx(wanted_s)
    assert (there.duration_s <= step.duration_s * (1 + 1e-9)).all()


def test_a_host_that_waits_at_the_end_of_each_step_launches_the_next_one_into_an_empty_queue():
    launch_s, duration_s = np.array([0.001, 0.002]), np.array([0.004, 0.005])
    step = WaitingStep(
        launch_s, duration_s, waits_for(launch_s, np.array([0.003]), 0.003), 0.003, 0
    )
    assert step.seconds() == pytest.approx(0.010), "a millisecond until the first kernel starts"


def test_a_wait_before_the_first_launch_is_for_the_step_before():
    waits_s = waits_for(np.array([0.2, 0.4]), np.array([0.1, 0.3, 0.5, 0.6]), 1.0)
    assert list(waits_s) == [0.3, 0.5]
    assert list(waits_for(np.array([0.2, 0.4]), np.array([0.1]), 1.0)) == [np.inf, 1.1]


def waits(job, *at):
    """The job with waits at these shares of its host path."""
    waits_us = tuple(1e6 * job.host_s * share for share in at)
    return replace(job, trace=replace(job.trace, waits_us=waits_us))


# A quarter of its step is neither its kernels' nor, if it ran ahead, its host's.
IDLE = at_pace(synthetic.profile(host_s=0.005, gpu_s=0.015), 4 / 3)
FULL = synthetic.profile(host_s=0.005, gpu_s=0.020)


def test_mates_run_while_a_job_waits_for_its_host_and_not_in_gaps_between_kernels():
    slicing = TimeSlicing(slice_s=2e-3, patience_s=1e-4, switch_s=1e-4)
    mate = replay_trace(FULL, 132, 0.0)
    steps = {
        name: replay_naive([replay_trace(job, 132, 0.0), mate], slicing, Effort(steps=40))
        for name, job in (("gaps", IDLE), ("waits", waits(IDLE, 1.0)))
    }
    assert steps["waits"].sum() < 0.95 * steps["gaps"].sum()


def test_a_trace_with_waits_takes_alone_what_was_measured():
    for job in (waits(IDLE, 1.0), waits(FULL, 0.0, 0.5), waits(IDLE, 0.3, 0.6, 1.0)):
        script = replay_trace(job, 132, 0.0)
        (alone_s,) = replay_mps([script], [1.0], [1.0], 0.0, LONG)
        assert alone_s == pytest.approx(job.step_s, rel=0.01)
        assert 0 <= script.gap_s <= QUEUED_GAP_S


def test_a_job_that_never_waits_has_no_waiting_step():
    assert waiting_step(IDLE) is None
    assert waiting_step(waits(IDLE)) is None
    assert waiting_step(waits(IDLE, 0.5)) is not None
