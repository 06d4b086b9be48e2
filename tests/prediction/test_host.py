"""Hosts: slower ones, calibrated ones, and too few cores."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.gpus import gpu
from advisor.learn.observations import shared_runs
from advisor.prediction.caching_predictor import CachingPredictor
from advisor.prediction.host import (
    Host,
    core_seconds,
    host_factor,
    on_host,
    on_like_core,
    stretch_on,
)
from advisor.prediction.predictor import Predictor, calibrated_predictor
from advisor.sharing import Instance, Mig, Mps, Naive, Serial
from advisor.workload.profile import HostSide
from advisor.workload.profile_checks import at_pace
from tests import shelf, synthetic
from tests.fitted import fit
from tests.measure.calibrate.recorded import calibration, host_check
from tests.plan.stand_in import Apart

SECONDS = st.floats(1e-4, 0.5)
SLOWDOWNS = st.floats(0.3, 3.0)


@given(SECONDS, SECONDS, SLOWDOWNS, SLOWDOWNS)
def test_a_slower_host_never_makes_a_step_faster(host_s, gpu_s, one, other):
    job = synthetic.profile(host_s=host_s, gpu_s=gpu_s)
    slow, fast = max(one, other), min(one, other)
    assert on_host(job, slow).step_s >= on_host(job, fast).step_s * (1 - 1e-12)


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


def test_a_host_bound_step_follows_its_host_and_a_gpu_bound_one_does_not():
    host_bound = synthetic.profile(host_s=0.02, gpu_s=0.005)
    gpu_bound = synthetic.profile(host_s=0.005, gpu_s=0.02)
    assert on_host(host_bound, 1.3).step_s == pytest.approx(0.026)
    assert on_host(gpu_bound, 1.3).step_s == pytest.approx(0.02)
    assert on_host(gpu_bound, 5).step_s == pytest.approx(0.025)


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


NAME = "resnet50-imagenet64-bs128-loader4"


def hosted(host_s=0.01, gpu_s=0.008, loader_cpu_s=None):
    """A job whose loader, if any, works so long for a batch."""
    found = synthetic.profile(NAME if loader_cpu_s else NAME[:-8], host_s=host_s, gpu_s=gpu_s)
    if loader_cpu_s is None:
        return found
    return replace(found, host=HostSide(main_s=host_s / 2, loader_cpu_s=loader_cpu_s))


JOBS = st.lists(
    st.builds(hosted, st.floats(1e-4, 0.1), st.floats(1e-4, 0.1), st.none() | st.floats(1e-4, 0.3)),
    min_size=1,
    max_size=6,
)


def busy(jobs, stretch):
    """Cores at work where host work takes so many times as long."""
    return sum(core_seconds(j) / max(j.step_s, stretch * j.host_s) for j in jobs)


@given(JOBS, st.integers(1, 16))
def test_host_work_slows_just_so_far_that_the_cores_suffice(jobs, cores):
    stretch = stretch_on(jobs, [each.step_s for each in jobs], cores)
    assert stretch >= 1
    assert busy(jobs, stretch) <= cores * (1 + 1e-6)
    if stretch > 1:
        assert busy(jobs, stretch * (1 - 1e-6)) >= cores * (1 - 1e-4)


@given(JOBS, st.integers(1, 8), st.integers(0, 8))
def test_more_cores_never_slow_anybody(jobs, cores, more):
    steps_s = [each.step_s for each in jobs]
    assert stretch_on(jobs, steps_s, cores + more) <= stretch_on(jobs, steps_s, cores) * (1 + 1e-9)


def test_workers_that_decode_need_cores_too():
    assert core_seconds(hosted(host_s=0.02, loader_cpu_s=0.06)) == pytest.approx(0.07)
    assert stretch_on([hosted(host_s=0.02, loader_cpu_s=0.06)], [0.02], 2) == pytest.approx(1.75)


SLOW_HOST = replace(synthetic.profile(host_s=0.02, gpu_s=0.004), host_check_s=1e-3)
SLOW_GPU = replace(
    synthetic.profile("bert-base-finetune-bs16", host_s=0.004, gpu_s=0.02), host_check_s=1e-3
)
UNKNOWN = replace(
    synthetic.profile("resnet26-cifar10-bs128", host_s=0.02, gpu_s=0.004), host_check_s=None
)


@pytest.fixture(scope="module")
def plain():
    jobs = [SLOW_HOST, SLOW_GPU]
    runs = [synthetic.run(jobs, "mps", 1.3, f"r{number}") for number in range(5)]
    return Predictor(
        gpu("h200-141gb"), fit({each.name: each for each in jobs}, runs, gpu(shelf.GPU))
    )


def test_a_host_bound_job_takes_most_of_what_its_host_check_takes_longer(plain):
    there = replace(plain, host=Host(host_check(2e-3), {}))
    before, after = (each.predict([SLOW_HOST], Serial()).jobs[0] for each in (plain, there))
    assert after.step_s.p50 == pytest.approx(2**0.73 * before.step_s.p50, rel=0.01)
    slowed = plain.predict([on_host(SLOW_HOST, 2**0.73)] * 8, Naive())
    assert there.predict([SLOW_HOST] * 8, Naive()).jobs == pytest.approx(slowed.jobs)


CHECKS = st.floats(2e-4, 5e-3)


@given(CHECKS, st.floats(0.005, 0.1))
def test_the_factor_of_a_host_is_the_mean_of_its_check_and_the_jobs_own_pace(check_s, solo_s):
    checked, paced = host_factor(SLOW_HOST, check_s), host_factor(SLOW_HOST, None, solo_s)
    assert host_factor(SLOW_HOST, check_s, solo_s) == pytest.approx((checked * paced) ** 0.5)
    assert checked == pytest.approx((check_s / 1e-3) ** 0.73)
    assert host_factor(SLOW_GPU, check_s, solo_s) == checked, "the GPU sets its pace"
    assert host_factor(UNKNOWN, check_s) == host_factor(SLOW_HOST, None) == 1


@pytest.mark.parametrize(("date", "counts"), [("2027-01-01", True), ("2025-01-01", False)])
def test_a_run_alone_counts_for_profiles_made_before_it(date, counts):
    run = synthetic.run([SLOW_HOST], "naive", 1.5)
    run = replace(run, provenance=replace(run.provenance, date=f"{date}T00:00:00+00:00"))
    host = Host(None, {SLOW_HOST.name: run})
    assert host.factor(SLOW_HOST) == pytest.approx(1.5 if counts else 1)
    (there,) = host.convert([SLOW_HOST])
    assert (there.step_s > SLOW_HOST.step_s) == counts


def test_driver_server_and_contexts_of_this_machine_replace_those_of_the_model(plain):
    there = calibrated_predictor(plain, calibration())
    pair = [UNKNOWN, UNKNOWN]
    whole_mib = gpu("h200-141gb").memory_mib
    assert there.predict(pair, Naive()).memory_capacity_mib == whole_mib - 700
    assert there.predict(pair, Mps()).memory_capacity_mib == whole_mib - 700 - 100
    context = there.model.of(there.gpu).context
    assert (context.usual_mib, context.per_sm_mib) == (742, pytest.approx(4.4, abs=0.01))


QUICK = synthetic.profile("resnet26-cifar10-bs128", host_s=0.01, gpu_s=0.001)


@pytest.mark.parametrize("sharing", [Mps(), Mig((Instance("1g.18gb"),) * 4)])
def test_four_jobs_on_two_cores_take_twice_as_long_also_on_instances_of_their_own(sharing):
    found = CachingPredictor(Apart(), cores=2).predict([QUICK] * 4, sharing)
    assert found.host_stretch == pytest.approx(2.0)
    assert [job.step_s.p50 for job in found.jobs] == pytest.approx([0.02] * 4)
    assert [job.slowdown for job in found.jobs] == pytest.approx([2.0] * 4)
    assert found.weighted_speedup == pytest.approx(2.0)


@pytest.mark.parametrize("cores", [0, -1, 10**9])
def test_a_host_without_cores_is_refused(cores):
    with pytest.raises(InvalidInput, match="1 to"):
        CachingPredictor(Apart(), cores=cores)


@given(SECONDS, st.floats(0.3, 3.0), st.integers(1, 6), st.floats(0.5, 16))
def test_jobs_never_keep_more_cores_busy_than_there_are(step_s, path_share, jobs, cores):
    """Also if the host path of a profile was timed in a slower moment than its step."""
    made = synthetic.profile("resnet50-imagenet64-bs128-loader4", host_s=step_s, gpu_s=step_s / 9)
    path_s = step_s * path_share
    host = HostSide(main_s=path_s / 3, loader_s=path_s, loader_cpu_s=4 * path_s)
    profile = replace(made, host_s=path_s, host=host)
    mix = CachingPredictor(Apart(), cores=cores).predict([profile] * jobs, Naive())
    busy = sum(core_seconds(profile) / job.step_s.p50 for job in mix.jobs)
    assert busy <= cores * 1.001
