from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_partition import partition_of, whole_gpu
from advisor.prediction.fit.observation import shared_runs
from advisor.prediction.host_transfer import host_slowdown_at, on_host
from advisor.prediction.kernel_pace import exponent_alone, slowdowns
from advisor.prediction.partition_transfer import on_partition, step_on
from advisor.prediction.physics import Physics, replay_mix
from advisor.prediction.replay import TimeSlicing
from advisor.prediction.stretched_profile import at_pace
from advisor.prediction.tenant_hosts import on_like_core, profiles_on_host
from advisor.sharing import Mps
from tests import synthetic

H200 = gpu("h200-141gb")
PHYSICS = Physics(
    packing=0.3,
    slicing=TimeSlicing(slice_s=0.001, patience_s=0.0002, switch_s=0.0001),
    ceded=0.05,
    bandwidth=0.5,
)
SECONDS = st.floats(1e-4, 0.5)
SLOWDOWNS = st.floats(0.3, 3.0)


@given(SECONDS, SECONDS, SLOWDOWNS, SLOWDOWNS)
def test_a_slower_host_never_makes_a_step_faster(host_s, gpu_s, one, other):
    job = synthetic.profile(host_s=host_s, gpu_s=gpu_s)
    slow, fast = max(one, other), min(one, other)
    assert on_host(job, slow).step_s >= on_host(job, fast).step_s * (1 - 1e-12)


@given(SECONDS, SECONDS, SLOWDOWNS)
def test_no_host_makes_a_step_faster_than_its_kernels(host_s, gpu_s, slowdown):
    job = synthetic.profile(host_s=host_s, gpu_s=gpu_s)
    assert on_host(job, slowdown).step_s >= gpu_s * (1 - 1e-9)


@given(SECONDS, SECONDS, SLOWDOWNS)
def test_the_work_of_the_gpu_in_a_step_stays_what_it_was(host_s, gpu_s, slowdown):
    job = synthetic.profile(host_s=host_s, gpu_s=gpu_s)
    there = on_host(job, slowdown)
    assert there.gpu_s == job.gpu_s
    assert there.trace.duration_us == job.trace.duration_us
    assert there.counters.gract <= 1


def test_of_a_job_that_waits_for_the_gpu_the_host_and_the_gpu_both_count():
    job = synthetic.profile(host_s=0.005, gpu_s=0.020)
    waiting = at_pace(replace(job, trace=replace(job.trace, waits_us=(5000.0,))), 1.2)
    assert on_host(waiting, 2.0).step_s > 1.1 * waiting.step_s
    assert on_host(job, 2.0).step_s == job.step_s
    assert on_host(on_host(waiting, 2.0), 0.5).step_s == pytest.approx(waiting.step_s)


def test_of_a_job_that_waits_for_the_gpu_its_activity_tells_how_slow_the_host_is():
    job = synthetic.profile(host_s=0.005, gpu_s=0.020)
    waiting = at_pace(replace(job, trace=replace(job.trace, waits_us=(5000.0,))), 1.2)
    slow = on_host(waiting, 1.7)
    assert host_slowdown_at(waiting, slow.counters.gract) == pytest.approx(1.7)
    assert host_slowdown_at(waiting, waiting.counters.gract) == pytest.approx(1)
    assert 0 < host_slowdown_at(waiting, 1.0) < 1, "as far as a faster host can help"


def test_a_host_bound_step_follows_its_host_and_a_gpu_bound_one_does_not():
    host_bound = synthetic.profile(host_s=0.02, gpu_s=0.005)
    gpu_bound = synthetic.profile(host_s=0.005, gpu_s=0.02)
    assert on_host(host_bound, 1.3).step_s == pytest.approx(0.026)
    assert on_host(gpu_bound, 1.3).step_s == pytest.approx(0.02)
    assert on_host(gpu_bound, 5).step_s == pytest.approx(0.025)


def test_runs_and_profiles_without_a_host_check_are_taken_as_measured():
    job = replace(synthetic.profile(host_s=0.02, gpu_s=0.005), host_check_s=None)
    run = synthetic.run([job, job], "naive")
    assert profiles_on_host(run, {job.name: job}) == (job, job)


def test_each_tenant_is_predicted_for_the_core_it_had():
    job = replace(synthetic.profile(host_s=0.02, gpu_s=0.005), host_check_s=0.001)
    run = synthetic.run([job, job], "naive")
    slow = replace(run.tenants[1], host_check_s=0.0015)
    quick = replace(run.tenants[0], host_check_s=0.001)
    steps = [
        p.step_s for p in profiles_on_host(replace(run, tenants=(quick, slow)), {job.name: job})
    ]
    assert steps == pytest.approx([0.02, 0.02 * 1.5**0.73])  # a check tells most of it


@pytest.mark.parametrize(
    ("check_s", "tells"),
    [(0.001, True), (0.0011, True), (0.0013, False), (0.0007, False), (None, False)],
)
def test_a_core_of_another_speed_tells_more_of_itself_than_of_mates(check_s, tells):
    job = replace(synthetic.profile(host_s=0.02, gpu_s=0.005), host_check_s=0.001)
    run = synthetic.run([job, job], "naive")
    there = replace(run, tenants=tuple(replace(t, host_check_s=check_s) for t in run.tenants))
    assert on_like_core(job, there.tenants[0]) is tells
    (shared,) = shared_runs({job.name: job}, [there], gpu("h200-141gb"))
    assert list(shared.telling) == [tells, tells]


def test_a_job_that_the_gpu_paces_teaches_on_any_core():
    job = replace(synthetic.profile(host_s=0.005, gpu_s=0.02), host_check_s=0.001)
    run = synthetic.run([job, job], "naive")
    there = replace(run, tenants=tuple(replace(t, host_check_s=0.003) for t in run.tenants))
    (shared,) = shared_runs({job.name: job}, [there], gpu("h200-141gb"))
    assert shared.telling.all()


GPU_BOUND = synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.05, kernels=40)
HOST_BOUND = synthetic.profile("resnet26-cifar10-bs128", host_s=0.02, gpu_s=0.004, blocks=60)
JOBS = st.sampled_from([GPU_BOUND, HOST_BOUND, replace(GPU_BOUND, trace=None)])
SMS = st.integers(1, 66).map(lambda pairs: 2 * pairs)
EIGHTHS = st.integers(1, 8).map(lambda slices: slices / 8)
WHOLE = whole_gpu(H200)


def part(sms, bandwidth_share=1.0):
    return replace(WHOLE, sms=sms, bandwidth_share=bandwidth_share)


@given(JOBS, SMS, SMS, EIGHTHS, EIGHTHS)
def test_fewer_sms_or_less_bandwidth_never_make_a_step_faster(job, one, other, some, more):
    smaller = on_partition(job, part(min(one, other), min(some, more)), PHYSICS)
    larger = on_partition(job, part(max(one, other), max(some, more)), PHYSICS)
    assert smaller.step_s >= larger.step_s * (1 - 1e-9) >= job.step_s * (1 - 1e-8)
    assert smaller.gpu_s >= larger.gpu_s * (1 - 1e-9)


@given(JOBS, SMS)
def test_all_bandwidth_and_what_a_limit_leaves_of_the_sms_are_that_limit(job, sms):
    limited = WHOLE.limited(100 * sms / H200.sms)
    there = on_partition(job, limited, PHYSICS)
    assert there == on_partition(job, part(limited.sms), PHYSICS)
    alone = replace(PHYSICS, bandwidth=1.0)  # nobody else is there to take any
    limit_pct = min(100.0, 100 * limited.sms / H200.sms + 1e-9)
    replayed = replay_mix([job], Mps((limit_pct,)), H200, alone)
    if replayed is not None:
        # In a replay host and GPU hide each other wholly.
        assert replayed[0] * 0.99 <= there.step_s <= replayed[0] * 17 / 16


@given(JOBS)
def test_the_whole_gpu_is_where_a_job_was_measured(job):
    assert on_partition(job, WHOLE, PHYSICS) is job
    assert on_partition(job, partition_of(H200, "7g.141gb"), PHYSICS) is job


@given(JOBS, SMS, EIGHTHS)
def test_a_step_does_the_same_work_on_any_part(job, sms, bandwidth_share):
    there = on_partition(job, part(sms, bandwidth_share), PHYSICS)
    if there.counters.dram_active < 1:
        moved_s = there.counters.dram_active * there.step_s * bandwidth_share
        assert moved_s == pytest.approx(job.counters.dram_active * job.step_s)
    if there.counters.sm_active < 1:
        active_s = there.counters.sm_active * there.step_s * sms
        assert active_s == pytest.approx(job.counters.sm_active * job.step_s * H200.sms)


@given(JOBS, SMS)
def test_a_limit_of_a_part_costs_what_its_probe_there_says(job, sms):
    there = on_partition(job, part(sms), PHYSICS)
    steps_s = [run.step_s for run in sorted(there.mps.limited, key=lambda run: run.limit_pct)]
    assert steps_s == pytest.approx(sorted(steps_s, reverse=True), rel=1e-12)
    assert there.mps.unlimited.sms == sms
    assert min(steps_s) >= there.mps.unlimited.step_s * (1 - 1e-9)


SLICES = st.sampled_from(["1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"])


@given(SECONDS, st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_a_host_told_by_the_utilisation_alone_gives_that_utilisation(host_s, busy, told):
    job = synthetic.profile(host_s=host_s, gpu_s=busy * host_s)
    slowdown = host_slowdown_at(job, told)
    if slowdown >= 1:
        assert on_host(job, slowdown).counters.gract == pytest.approx(told)


def test_a_gpu_that_sets_the_pace_tells_of_a_slower_host_only_where_it_is_idle_at_times():
    job = synthetic.profile(host_s=0.005, gpu_s=0.02)
    assert host_slowdown_at(job, 1.0) == 1.0
    assert on_host(job, host_slowdown_at(job, 0.5)).counters.gract == pytest.approx(0.5)


@pytest.mark.parametrize("share", [0.0, 60.0, float("nan")])
def test_a_utilisation_is_a_share(share):
    with pytest.raises(InvalidInput, match="GPU utilisation"):
        host_slowdown_at(synthetic.profile(), share)


def test_without_a_host_path_a_utilisation_tells_nothing_of_the_host():
    with pytest.raises(InvalidInput, match="Leave it out"):
        host_slowdown_at(replace(synthetic.profile(), host_s=None), 0.5)


@given(SECONDS, st.floats(0.1, 1.0), st.floats(0.1, 1.0), SLICES)
def test_a_job_that_uses_less_of_the_gpu_is_slowed_no_more_by_a_slice(host_s, one, other, name):
    part = partition_of(H200, name)

    def slowed(busy):
        job = synthetic.profile(host_s=host_s, gpu_s=busy * host_s)
        return step_on(job, part, PHYSICS).p50 / job.step_s

    assert slowed(min(one, other)) <= slowed(max(one, other)) * (1 + 1e-9)


@given(SECONDS, SECONDS, st.floats(0.3, 3.0), SLICES)
def test_how_kernels_slow_on_a_slice_does_not_depend_on_the_host(host_s, gpu_s, slower, name):
    job, part = synthetic.profile(host_s=host_s, gpu_s=gpu_s), partition_of(H200, name)
    there = on_host(job, slower)
    assert exponent_alone(there, H200) == exponent_alone(job, H200)
    least_s = step_on(job, part, PHYSICS).p50 * min(1.0, slower)
    assert step_on(there, part, PHYSICS).p50 >= least_s * (1 - 1e-6)


def test_a_limit_that_is_not_felt_bounds_how_steeply_kernels_slow():
    busy, idle = (synthetic.profile(host_s=0.01, gpu_s=gpu_s) for gpu_s in (0.004, 0.001))
    unfelt = replace(
        busy, mps=replace(busy.mps, limited=tuple(
            replace(each, windows=busy.mps.unlimited.windows) for each in busy.mps.limited
        ))
    )  # fmt: skip
    # 4 ms of kernels that a seventh of the SMs hides in 10 ms; 1 ms would fit at any exponent.
    assert exponent_alone(unfelt, H200) < 0.6
    assert exponent_alone(replace(idle, mps=unfelt.mps), H200) == 0.8


@given(st.floats(0.0, 1.0), st.floats(0.3, 1.2), SLICES, SLICES)
def test_kernels_that_fill_a_slice_slow_at_most_in_proportion_to_what_it_lacks(
    demand, exponent, one, other
):
    job, parts = synthetic.profile(), [partition_of(H200, each) for each in (one, other)]
    for part in parts:
        (slowed,) = slowdowns(np.array([demand]), job, part, min(1.0, exponent))
        lacks = max(1 / part.sm_share, 1 / part.bandwidth_share)
        assert 1 <= slowed <= lacks * (1 + 1e-9)
    small, large = sorted(parts, key=lambda part: part.sms)
    slow, fast = (slowdowns(np.array([demand]), job, part, exponent) for part in (small, large))
    assert slow >= fast * (1 - 1e-9)
