from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_partition import partition_of, whole_gpu
from advisor.prediction.fit.observation import shared_runs
from advisor.prediction.physics import Physics, replay_mix
from advisor.prediction.replay import TimeSlicing
from advisor.prediction.tenant_hosts import on_like_core, profiles_on_host
from advisor.prediction.transfer import on_host, on_partition
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
    replayed = replay_mix([job], Mps((100 * limited.sms / H200.sms + 1e-9,)), H200, alone)
    if replayed is not None:
        assert there.step_s == pytest.approx(replayed[0], rel=0.01)


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
