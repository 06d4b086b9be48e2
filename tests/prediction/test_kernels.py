"""How kernels and steps slow with fewer SMs, less bandwidth and on another GPU."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.gpus import gpu
from advisor.hardware.partition import partition_of, rates_of, whole_gpu
from advisor.prediction.mig_instances import longer_step
from advisor.prediction.other_gpu import RatedGpu, scaled_us
from advisor.prediction.trace import measured_exponent, replay_trace, slowdowns, sm_pace
from advisor.workload.catalogue import workload
from advisor.workload.profile import KernelTrace, Window
from tests import synthetic

H200 = gpu("h200-141gb")
SHARES, DEMANDS = st.floats(0.01, 1.0), st.floats(0.0, 1.0)
EXPONENTS = st.floats(0.0, 2.0)  # what a file may say


def pace(demand, share, exponent):
    return float(sm_pace(np.array([demand]), share, exponent)[0])


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


@given(DEMANDS, EXPONENTS, st.integers(2, 130))
def test_a_part_with_all_of_the_bandwidth_slows_kernels_as_a_limit_does(demand, exponent, sms):
    job, part = synthetic.profile(), replace(whole_gpu(H200), sms=sms)
    (slower,) = slowdowns(np.array([demand]), job, part, exponent)
    assert slower == pytest.approx(1 / pace(demand, part.sm_share, exponent), rel=1e-6)


@given(st.floats(0.01, 1.05), st.floats(0.01, 8.0))
def test_a_step_on_a_part_of_the_gpu_takes_as_long_as_host_or_gpu_and_at_most_a_16th_longer(
    before, there
):
    slower = max(1.0, there)
    assert slower <= longer_step(before, there) <= slower * 17 / 16


JOB = synthetic.profile(host_s=0.01, gpu_s=0.02)


def test_kernels_of_two_streams_that_ran_side_by_side_are_replayed_as_one_after_the_other():
    kernels = 2 * len(JOB.trace.duration_us)
    twice = synthetic.trace(kernels, 2 * JOB.gpu_s, JOB.host_s, blocks=40)
    side_by_side = replace(JOB, trace=twice)  # they add up to twice the time in which any ran
    played = replay_trace(side_by_side, H200.sms, 0.0)
    assert len(played.duration_s) == pytest.approx(kernels / 2, abs=1)
    assert played.duration_s.sum() == pytest.approx(JOB.gpu_s, rel=0.02)
    assert played.demand == pytest.approx(2 * 40 / H200.sms, rel=0.02)


def rated(key):
    return RatedGpu(gpu(key), rates_of(gpu(key)))


ON_H100, ON_H200, ON_A100 = map(rated, ("h100-sxm-80gb", "h200-141gb", "a100-80gb"))
FP32, AMP = "bert-base-finetune-bs16", "bert-base-finetune-bs16-amp"


def slower(kind, us, there, *, name=FP32, blocks=100_000, here=ON_H200, **counters):
    """How many times as long one kernel takes `there` as `here`."""
    trace = KernelTrace(
        classes=(kind,),
        class_of=(0,),
        launch_us=(0.0,),
        duration_us=(us,),
        blocks=(blocks,),
        threads=(256,),
        resident_blocks=(4,),
    )
    job = synthetic.profile(host_s=1e-6, gpu_s=1e-6 * us)
    seen = replace(job.counters, **{"tensor_active": 0.0, "dram_active": 0.0} | counters)
    job = replace(job, workload=workload(name), trace=trace, counters=seen)
    return float(scaled_us(job, here, there)[0]) / us


CLOCKS = 1980 / 1410


@pytest.mark.parametrize(
    ("kind", "us", "there", "more", "expected"),
    [
        ("optimizer", 500, ON_H100, {}, 4800 / 3350),  # moves more than L2 holds
        (
            "optimizer",
            500,
            ON_A100,
            {},
            ON_H200.rates.bandwidth_gb_s / ON_A100.rates.bandwidth_gb_s,
        ),
        ("optimizer", 4, ON_H100, {}, 1),  # fits into L2
        ("elementwise", 1.5, ON_A100, {}, CLOCKS),  # hardly lasts
        ("norm", 5000, ON_A100, {"blocks": 8}, CLOCKS),  # too few blocks for all of the bandwidth
        ("host copy", 500, ON_A100, {"blocks": 0}, 1),
        ("gemm", 1000, ON_A100, {}, ON_H200.rates.fp32_tflops / ON_A100.rates.fp32_tflops),
        (
            "gemm",
            1000,
            ON_A100,
            {"name": AMP, "tensor_active": 0.74},
            ON_H200.rates.fp16_tflops / ON_A100.rates.fp16_tflops,
        ),
    ],
)
def test_a_kernel_follows_what_bounds_it_to_another_gpu(kind, us, there, more, expected):
    assert slower(kind, us, there, **more) == pytest.approx(expected, rel=0.05)


@given(DEMANDS, SHARES, SHARES, EXPONENTS)
def test_fewer_sms_never_make_a_kernel_faster(demand, one, other, exponent):
    fewer, more = sorted((one, other))
    assert pace(demand, fewer, exponent) <= pace(demand, more, exponent) <= 1


@given(DEMANDS, SHARES, EXPONENTS)
def test_an_sm_more_changes_the_pace_of_a_kernel_by_little(demand, share, exponent):
    less = share * (1 - 1e-6)
    assert pace(demand, less, exponent) == pytest.approx(pace(demand, share, exponent), rel=1e-5)
    assert pace(demand, max(demand, share), exponent) == 1  # as many as it can use


@given(DEMANDS, EXPONENTS, st.integers(2, 32), st.floats(0.25, 1.0), st.floats(0.25, 1.0))
def test_more_bandwidth_never_makes_kernels_slower(demand, exponent, sms, one, other):
    job = synthetic.profile()
    less, more = (
        replace(partition_of(H200, "1g.18gb"), sms=sms, bandwidth_share=share)
        for share in sorted((one, other))
    )
    (poor,), (rich,) = (slowdowns(np.array([demand]), job, part, exponent) for part in (less, more))
    assert rich <= poor * (1 + 1e-9)


@given(st.floats(0.01, 1.0), st.floats(0.01, 8.0), st.floats(0.01, 8.0))
def test_a_step_is_no_shorter_where_its_kernels_take_longer(before, one, other):
    fast, slow = sorted((one, other))
    assert longer_step(before, fast) <= longer_step(before, slow) * (1 + 1e-12)
