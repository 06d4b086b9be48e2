from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.prediction.job_features import TRAITS, log_slowdown_alone, traits
from advisor.prediction.mix_features import FEATURES, features
from advisor.prediction.physics import Replayed
from advisor.prediction.trace import replay_trace
from advisor.sharing import Mps, Naive
from tests import synthetic

H200 = gpu("h200-141gb")
JOB = synthetic.profile(host_s=0.01, gpu_s=0.02)
MATE = synthetic.profile("bert-base-finetune-bs16", host_s=0.02, gpu_s=0.005, blocks=30)


@given(st.floats(0.02, 1.0), st.floats(0.02, 1.0))
def test_a_tighter_limit_never_makes_a_job_faster_alone(one, other):
    tight, loose = sorted((one, other))
    assert log_slowdown_alone(JOB, tight, H200) >= log_slowdown_alone(JOB, loose, H200)


def test_under_a_limit_that_the_probe_tried_a_job_is_as_slow_as_it_was_there():
    for run in JOB.mps.limited:
        expected = np.log(run.step_s / JOB.mps.unlimited.step_s)
        assert log_slowdown_alone(JOB, run.sms / H200.sms, H200) == pytest.approx(expected)


def test_a_job_without_a_probe_slows_with_the_sms_it_misses():
    unprobed = replace(JOB, mps=None)
    assert log_slowdown_alone(unprobed, 1.0, H200) == 0
    assert log_slowdown_alone(unprobed, 0.1, H200) == pytest.approx(np.log(8.5))


def test_traits_are_finite_also_of_a_profile_with_the_least_that_a_profile_has():
    bare = replace(JOB, mps=None, counters=None)
    for profile in (JOB, bare):
        assert np.isfinite(traits(profile, H200)).all()
        assert len(traits(profile, H200)) == len(TRAITS)


def test_the_order_of_the_mates_says_nothing():
    def seen(jobs):
        steps_s = np.array([0.03 if job is JOB else 0.05 for job in jobs])
        return features(jobs, Mps((50.0,) * 3), H200, Replayed(*[steps_s] * 4))

    first, second = seen([JOB, MATE, JOB]), seen([JOB, JOB, MATE])
    assert first.shape == (3, len(FEATURES))
    assert first[0] == pytest.approx(second[0])
    assert first[1] == pytest.approx(second[2])


def test_copies_of_a_job_look_the_same():
    steps_s = np.array([0.03, 0.03])
    rows = features([JOB, JOB], Naive(), H200, Replayed(*[steps_s] * 4))
    assert rows[0] == pytest.approx(rows[1])


def test_kernels_of_two_streams_that_ran_side_by_side_are_replayed_as_one_after_the_other():
    kernels = 2 * len(JOB.trace.duration_us)
    twice = synthetic.trace(kernels, 2 * JOB.gpu_s, JOB.host_s, blocks=40)
    side_by_side = replace(JOB, trace=twice)  # they add up to twice the time in which any ran
    played = replay_trace(side_by_side, H200.sms, 0.0)
    assert len(played.duration_s) == pytest.approx(kernels / 2, abs=1)
    assert played.duration_s.sum() == pytest.approx(JOB.gpu_s, rel=0.02)
    assert played.demand == pytest.approx(2 * 40 / H200.sms, rel=0.02)


def test_kernels_of_known_streams_are_taken_together_where_their_streams_differ():
    kernels = 2 * len(JOB.trace.duration_us)
    twice = synthetic.trace(kernels, 2 * JOB.gpu_s, JOB.host_s, blocks=40)
    apart = replace(twice, stream_of=(0, 0, 1, 1) * (kernels // 4))
    played = replay_trace(replace(JOB, trace=apart), H200.sms, 0.0)
    # 0 | 0 1 | 1 0 | 0 1 | 1 0 ...: but for the first and the last, two at a time.
    assert len(played.duration_s) == kernels / 2 + 1
    assert played.duration_s.sum() == pytest.approx(JOB.gpu_s, rel=0.02)
    assert played.demand[1:-1] == pytest.approx(2 * 40 / H200.sms, rel=0.02)
