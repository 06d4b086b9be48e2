"""Replay of rounds: a rollout and its updates, or several steps that differ, as one trace."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.hardware.gpus import gpu
from advisor.hardware.partition import partition_of
from advisor.prediction import trace as traces
from advisor.prediction.correction import features
from advisor.prediction.host import on_host
from advisor.prediction.mig_instances import step_on
from advisor.prediction.other_gpu import on_gpu
from advisor.prediction.replay import PHYSICS, Effort, replay_mix
from advisor.prediction.surrogate import summaries
from advisor.prediction.trace import ReplayTrace, WaitingStep, replay_trace, waits_for
from advisor.sharing import Mps, Naive
from advisor.workload.profile import KernelTrace, Window
from tests import synthetic

H200 = gpu("h200-141gb")


def repeated(trace, times, host_s):
    """`trace`, a step on a host that takes `host_s`, several times as one round."""
    starts_us = [1e6 * host_s * number for number in range(times)]

    def moved(column_us):
        return tuple(start + us for start in starts_us for us in column_us)

    return replace(
        trace,
        class_of=trace.class_of * times,
        launch_us=moved(trace.launch_us),
        duration_us=trace.duration_us * times,
        blocks=trace.blocks * times,
        threads=trace.threads * times,
        resident_blocks=trace.resident_blocks * times,
        waits_us=trace.waits_us and moved(trace.waits_us),
        steps=times,
    )


def as_round(job, times):
    return replace(job, trace=repeated(job.trace, times, job.host_s))


def waiting(job, *shares):
    """The job with waits at these shares of its host path."""
    waits_us = tuple(1e6 * job.host_s * share for share in shares)
    return replace(job, trace=replace(job.trace, waits_us=waits_us))


PLAIN = synthetic.profile(host_s=0.004, gpu_s=0.003, kernels=40, blocks=100)
FULL = synthetic.profile("convnext_tiny-cifar10-bs128", host_s=0.005, gpu_s=0.012, kernels=60)
WAITS = waiting(PLAIN, 0.5, 0.99)


@pytest.mark.parametrize("job", [PLAIN, FULL, WAITS], ids=["host", "gpu", "waits"])
@pytest.mark.parametrize("sharing", [Naive(), Mps(), Mps((40.0, 60.0))], ids=str)
def test_a_round_of_equal_steps_shares_like_one_of_them(job, sharing):
    other = synthetic.profile("cnn-cifar10-bs128", host_s=0.009, gpu_s=0.008, kernels=50)
    effort = Effort(steps=40, events=400_000)
    steps_s = replay_mix([job, other], sharing, H200, PHYSICS, effort)
    rounds_s = replay_mix([as_round(job, 6), other], sharing, H200, PHYSICS, effort)
    assert rounds_s == pytest.approx(steps_s, rel=0.02)


@pytest.mark.parametrize("job", [PLAIN, FULL, WAITS], ids=["host", "gpu", "waits"])
def test_a_round_of_equal_steps_is_estimated_elsewhere_like_one_of_them(job):
    many = as_round(job, 5)
    assert on_host(many, 1.5).step_s == pytest.approx(on_host(job, 1.5).step_s, rel=1e-3)
    a100 = gpu("a100-80gb")
    there, one_there = on_gpu(many, a100), on_gpu(job, a100)
    assert (there.step_s, there.gpu_s) == pytest.approx((one_there.step_s, one_there.gpu_s), 1e-3)
    half = partition_of(H200, "3g.71gb")
    steps_s = [step_on(each, half, PHYSICS).p50 for each in (many, job)]
    assert steps_s[0] == pytest.approx(steps_s[1], rel=1e-3)


def test_a_round_of_equal_steps_has_the_columns_of_one_of_them():
    for job in (PLAIN, WAITS):
        many = as_round(job, 5)
        alone, of_many = (summaries([each], H200, PHYSICS) for each in (job, many))
        for column, other in zip(alone, of_many, strict=True):
            assert other == pytest.approx(column, rel=1e-3, abs=1e-6)
        rows = [
            features([each, FULL], Mps(), H200, PHYSICS, np.array([0.006, 0.014]))
            for each in (job, many)
        ]
        assert rows[1] == pytest.approx(rows[0])


def rollouts(env_steps, updates, *, waits=1, kernels=120, noise=0.2):
    """A program that asks its network for an action `waits` times an environment step.

    Of 1 ms each; then come updates with kernels of 20 us and one wait each.
    """
    drawn = np.random.default_rng(0)
    launch, waits_us, now = [], [], 0.0
    for took_us in 1000 / waits * np.exp(drawn.normal(0, noise, env_steps * waits)):
        launch += [now, now + 8]
        waits_us.append(now + 16)
        now += max(20.0, took_us)
    bursts = len(launch)
    for _ in range(updates):
        launch += (now + np.linspace(0, 4000, kernels)).tolist()
        waits_us.append(now + 4500)
        now += 5000
    lengths = np.exp(drawn.normal(0, noise, len(launch)))
    duration = np.where(np.arange(len(launch)) < bursts, 4.0, 20.0) * lengths
    count = len(launch)
    trace = KernelTrace(
        classes=("gemm",),
        class_of=(0,) * count,
        launch_us=tuple(launch),
        duration_us=tuple(duration.tolist()),
        blocks=(20,) * bursts + (200,) * (count - bursts),
        threads=(256,) * count,
        resident_blocks=(4,) * count,
        waits_us=tuple(waits_us),
        steps=updates,
    )
    columns = 1e-6 * np.array(launch), 1e-6 * duration
    by_kernel = waits_for(columns[0], 1e-6 * np.array(waits_us), 1e-6 * now)
    alone_s = WaitingStep(*columns, by_kernel, 1e-6 * now, 1e-6).seconds() / updates
    made = synthetic.profile(host_s=1e-6 * now / updates, gpu_s=columns[1].sum() / updates)
    return replace(made, trace=trace, windows=(Window(100 * alone_s, 100.0),), mps=None)


LANGUAGE_MODEL = synthetic.profile("gpt2-medium-pretrain-bs8", host_s=0.02, gpu_s=0.05, kernels=600)


def updates_only(job):
    """The job as if its rollout were not in the trace: its last update alone."""
    trace = job.trace
    first = len(trace.launch_us) - 120
    starts_us = trace.launch_us[first]
    columns = {
        name: getattr(trace, name)[first:]
        for name in ("class_of", "duration_us", "blocks", "threads", "resident_blocks")
    }
    launch_us = tuple(us - starts_us for us in trace.launch_us[first:])
    waits_us = (trace.waits_us[-1] - starts_us,)
    return replace(
        job, trace=replace(trace, **columns, launch_us=launch_us, waits_us=waits_us, steps=1)
    )


def test_under_time_slicing_each_wait_of_a_rollout_costs_a_turn():
    program = rollouts(128, 16, waits=6)
    shared_s, model_s = replay_mix([program, LANGUAGE_MODEL], Naive(), H200, PHYSICS)
    without_s, _ = replay_mix([updates_only(program), LANGUAGE_MODEL], Naive(), H200, PHYSICS)
    turn_s = PHYSICS.slicing.slice_s + 2 * PHYSICS.slicing.switch_s
    waits = len(program.trace.waits_us) / program.trace.steps
    assert shared_s > 3 * without_s
    assert waits * turn_s * 0.9 < shared_s - program.step_s < (waits + 5) * turn_s * 1.1
    assert model_s < 1.5 * LANGUAGE_MODEL.step_s


@pytest.mark.parametrize(
    "program",
    [rollouts(600, 48, waits=6, kernels=300), rollouts(128, 40, kernels=450)],
    ids=["rollout", "updates"],
)
@pytest.mark.parametrize("sharing", [Naive(), Mps()], ids=str)
def test_of_a_long_round_a_part_gives_the_same_prediction(program, sharing, monkeypatch):
    mixes = [[program, LANGUAGE_MODEL], [program, LANGUAGE_MODEL, PLAIN]]
    parts = [replay_mix(mix, sharing, H200, PHYSICS) for mix in mixes]
    played = replay_trace(program, H200.sms, PHYSICS.packing)
    assert len(played.duration_s) < traces.MOST_KERNELS < len(program.trace.class_of)
    monkeypatch.setattr(traces, "MOST_KERNELS", 10**6)
    again = replace(program)
    whole = [replay_mix([again, *mix[1:]], sharing, H200, PHYSICS) for mix in mixes]
    for part_s, whole_s in zip(parts, whole, strict=True):
        assert part_s == pytest.approx(whole_s, rel=0.02)


@settings(max_examples=6)
@given(env=st.integers(300, 900), waits=st.integers(1, 8), updates=st.integers(20, 60))
def test_a_part_of_a_round_keeps_pace_busy_share_and_waits(env, waits, updates):
    program = rollouts(env, updates, waits=waits, kernels=400)
    played: ReplayTrace = replay_trace(program, H200.sms, PHYSICS.packing)
    assert played.waiting.seconds() / played.steps == pytest.approx(program.step_s)
    assert played.duration_s.sum() / played.steps == pytest.approx(program.gpu_s)
    (alone_s,) = replay_mix([program], Mps(), H200, PHYSICS)
    assert alone_s == pytest.approx(program.step_s, rel=0.01)
    kept = np.isfinite(played.waits_s).sum() / played.steps
    assert kept == pytest.approx(len(program.trace.waits_us) / updates)
    assert played.steps == pytest.approx(
        updates * len(played.duration_s) / len(program.trace.class_of), rel=0.1
    )
    assert (np.diff(played.launch_s) >= 0).all()
