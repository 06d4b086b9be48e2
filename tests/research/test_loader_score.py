"""Predictions for jobs whose loaders decode images, beside what a study measured."""

from dataclasses import replace

import pytest

from advisor.prediction.host_loader import with_loader, with_workers
from advisor.workload.writing import append_run, profile_text
from research.loader_score import steps_in
from tests import synthetic
from tests.plan.test_remedies import loading
from tests.plan.test_shared_cores import Apart


def study(folder, slowdown):
    """Two sizes of a loader, and a run of two jobs on the cores of one."""
    jobs = [replace(loading(workers), cores=tuple(range(1 + workers))) for workers in (2, 4)]
    (folder / "profiles").mkdir()
    for each in jobs:
        (folder / "profiles" / f"{each.name}.json").write_text(profile_text(each))
    run = synthetic.run([jobs[0]] * 2, slowdown=slowdown)
    tenants = tuple(replace(each, cores=(0, 1)) for each in run.tenants)
    append_run(folder / "runs-crowded.jsonl", replace(run, tenants=tenants))
    return folder


def test_jobs_that_share_too_few_cores_are_scored_with_and_without_that(tmp_path):
    found = steps_in(study(tmp_path, slowdown=2.2), Apart())
    crowded = [each for each in found if each.case == "crowded"]
    assert len(crowded) == 2
    for each in crowded:  # 2 x 44 ms of work in 20 ms, on two cores
        assert each.predicted_s == pytest.approx(0.044, rel=1e-3)
        assert each.error == pytest.approx(0.0, abs=1e-3)
        assert each.enough_s == pytest.approx(0.02)


def test_more_workers_are_foretold_from_the_fewest(tmp_path):
    (found,) = (each for each in steps_in(study(tmp_path, 1.0), Apart()) if each.case == "workers")
    assert (found.what, found.error) == ("resnet26-imagenet64-bs128-loader4", 0.0)


def test_twice_the_workers_bring_batches_twice_as_fast_until_something_else_is_slower():
    two = loading(2)
    assert with_workers(two, 4).step_s == pytest.approx(two.step_s / 2)
    assert with_workers(two, 400).step_s == pytest.approx(two.host.main_s)
    assert with_workers(two, 1).step_s == pytest.approx(2 * two.step_s)
    assert with_workers(two, 4).host.loader_cpu_s == two.host.loader_cpu_s


def test_a_job_of_whose_loader_nothing_is_known_stays_as_it_is():
    old = replace(loading(2), host=None)
    assert with_loader(old, 0.5) is old
