from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.observation import shared_runs
from advisor.prediction.transfer import on_host, on_like_core, profiles_on_host
from tests import synthetic

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
