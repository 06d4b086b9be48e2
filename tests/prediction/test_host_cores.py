"""What too few host cores cost jobs that share them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.prediction.host_cores import core_seconds, stretch_on
from advisor.workload.host_side import HostSide
from tests import synthetic

NAME = "resnet50-imagenet64-bs128-loader4"


def job(host_s=0.01, gpu_s=0.008, loader_cpu_s=None):
    """A job whose loader, if any, works so long for a batch."""
    found = synthetic.profile(NAME if loader_cpu_s else NAME[:-8], host_s=host_s, gpu_s=gpu_s)
    if loader_cpu_s is None:
        return found
    return replace(found, host=HostSide(main_s=host_s / 2, loader_cpu_s=loader_cpu_s))


JOBS = st.lists(
    st.builds(job, st.floats(1e-4, 0.1), st.floats(1e-4, 0.1), st.none() | st.floats(1e-4, 0.3)),
    min_size=1, max_size=6,
)  # fmt: skip


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


def test_jobs_with_a_core_each_do_not_disturb_each_other():
    assert stretch_on([job()] * 4, [0.01] * 4, 4) == 1.0


def test_twice_as_many_host_bound_jobs_as_cores_take_twice_as_long():
    jobs = [job(host_s=0.01, gpu_s=0.001)] * 4
    assert stretch_on(jobs, [0.01] * 4, 2) == pytest.approx(2.0)


def test_a_job_that_waits_for_the_gpu_leaves_its_core_to_others():
    jobs = [job(host_s=0.001, gpu_s=0.02), job(host_s=0.02, gpu_s=0.001)]
    assert stretch_on(jobs, [0.02, 0.02], 1) == pytest.approx(0.02 / 0.019, rel=0.01)


def test_workers_that_decode_need_cores_too():
    assert core_seconds(job(host_s=0.02, loader_cpu_s=0.06)) == pytest.approx(0.07)
    assert stretch_on([job(host_s=0.02, loader_cpu_s=0.06)], [0.02], 2) == pytest.approx(1.75)


def test_of_a_loader_that_was_not_measured_apart_its_processes_use_counts():
    with_loader = replace(job().workload, loader_workers=4)
    older = replace(job(), workload=with_loader, cores=tuple(range(5)), host_cpu_share=0.5)
    assert core_seconds(older) == pytest.approx(0.5 * 5 * older.step_s)


def test_a_job_whose_host_path_is_not_known_needs_a_core():
    bare = replace(job(), host_s=None)
    assert core_seconds(bare) is None
    assert stretch_on([bare, bare], [0.01, 0.01], 2) == 1.0
