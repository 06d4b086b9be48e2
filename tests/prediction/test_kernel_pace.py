from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_partition import partition_of, whole_gpu
from advisor.prediction.kernel_pace import measured_exponent, slowdowns, sm_pace
from advisor.prediction.trace import replay_trace
from advisor.workload.measured import Window
from tests import synthetic

H200 = gpu("h200-141gb")
SHARES, DEMANDS = st.floats(0.01, 1.0), st.floats(0.0, 1.0)
EXPONENTS = st.floats(0.0, 2.0)  # what a file may say


def pace(demand, share, exponent):
    return float(sm_pace(np.array([demand]), share, exponent)[0])


@given(DEMANDS, SHARES, SHARES, EXPONENTS)
def test_fewer_sms_never_make_a_kernel_faster(demand, one, other, exponent):
    fewer, more = sorted((one, other))
    assert pace(demand, fewer, exponent) <= pace(demand, more, exponent) <= 1


@given(DEMANDS, SHARES, EXPONENTS)
def test_an_sm_more_changes_the_pace_of_a_kernel_by_little(demand, share, exponent):
    less = share * (1 - 1e-6)
    assert pace(demand, less, exponent) == pytest.approx(pace(demand, share, exponent), rel=1e-5)
    assert pace(demand, max(demand, share), exponent) == 1  # as many as it can use


@given(st.floats(0.1, 1.0), st.floats(0.35, 2.0))
def test_an_exponent_is_that_of_a_kernel_with_a_quarter_of_the_sms_it_could_use(demand, exponent):
    assert pace(demand, demand / 4, exponent) == pytest.approx(0.25**exponent, rel=1e-6)


@given(st.floats(0.35, 0.95))
def test_kernels_that_move_data_lose_most_with_the_last_sms(exponent):
    halved = [pace(1, share / 2, exponent) / pace(1, share, exponent) for share in (1, 0.5, 0.25)]
    assert 1 >= halved[0] > halved[1] > halved[2] > 0.5


def limited(job, exponent, off=(1.0, 1.0, 1.0)):
    """`job` with steps under its limits as `exponent` has them, each `off` times as long."""
    played = replay_trace(job, H200.sms, 0.3)
    step_s = [
        (played.duration_s / sm_pace(played.demand, run.sms / H200.sms, exponent)).sum() * longer
        for run, longer in zip(job.mps.limited, off, strict=True)
    ]
    runs = tuple(
        replace(run, windows=(Window(100 * seconds, 100),))
        for run, seconds in zip(job.mps.limited, step_s, strict=True)
    )
    return replace(job, mps=replace(job.mps, limited=runs))


@given(st.floats(0.4, 1.1))
def test_a_probe_tells_the_exponent_that_its_steps_follow(exponent):
    job = limited(synthetic.profile(host_s=0.001, gpu_s=0.02), exponent)
    assert measured_exponent(job, H200) == pytest.approx(exponent, abs=0.03)


@pytest.mark.parametrize("off", [(1.4, 1, 1), (1, 1.4, 1), (1, 1, 1.4)])
def test_what_a_host_did_under_one_limit_of_a_probe_moves_its_exponent_little(off):
    job = synthetic.profile(host_s=0.001, gpu_s=0.02)
    assert measured_exponent(limited(job, 0.8, off), H200) == pytest.approx(0.8, abs=0.15)


@given(DEMANDS, EXPONENTS, st.integers(2, 130))
def test_a_part_with_all_of_the_bandwidth_slows_kernels_as_a_limit_does(demand, exponent, sms):
    job, part = synthetic.profile(), replace(whole_gpu(H200), sms=sms)
    (slower,) = slowdowns(np.array([demand]), job, part, exponent)
    assert slower == pytest.approx(1 / pace(demand, part.sm_share, exponent), rel=1e-6)


@given(DEMANDS, EXPONENTS, st.integers(2, 32), st.floats(0.25, 1.0), st.floats(0.25, 1.0))
def test_more_bandwidth_never_makes_kernels_slower(demand, exponent, sms, one, other):
    job = synthetic.profile()
    less, more = (
        replace(partition_of(H200, "1g.18gb"), sms=sms, bandwidth_share=share)
        for share in sorted((one, other))
    )
    (poor,), (rich,) = (slowdowns(np.array([demand]), job, part, exponent) for part in (less, more))
    assert rich <= poor * (1 + 1e-9)
