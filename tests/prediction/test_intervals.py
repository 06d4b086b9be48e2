"""Nine in ten steps lie in their intervals, and a longer step never ends earlier."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.learn.observations import Rows, SoloSteps, profiles_on_checked_host
from advisor.learn.regression import fit_intervals, for_other_hosts
from advisor.prediction.correction import GPU_BOUND_AT, HOST_BOUND_AT, Ends, Intervals
from advisor.prediction.host import host_path_s
from advisor.prediction.model import load_model
from advisor.sharing import SHARED_MODES
from advisor.workload.store import model_path
from tests import synthetic

HOST_BOUND = synthetic.profile("resnet26-cifar10-bs128", host_s=0.010, gpu_s=0.002)
GPU_BOUND = synthetic.profile("bert-base-finetune-bs16", host_s=0.004, gpu_s=0.020)


def rows_of(profiles, middle_s, logs, run_size=1):
    """Rows of jobs that were predicted to take `middle_s`, and are off by `logs`."""
    return Rows(
        of_run=np.arange(len(profiles)) // run_size,
        profiles=profiles,
        x=np.empty((len(profiles), 0)),
        replayed_s=middle_s,
        measured_s=middle_s * np.exp(logs),
    )


def drawn(seed, spread=0.2, runs=400):
    """Rows of pairs whose steps are off by a normal error that shrinks away from the host path."""
    random = np.random.default_rng(seed)
    profiles = (HOST_BOUND, GPU_BOUND) * runs
    middle_s = np.array([each.step_s for each in profiles]) * random.uniform(1, 3, 2 * runs)
    path_s = np.array([host_path_s(each) for each in profiles])
    sigma = np.where(np.arange(2 * runs) % 2, 0.02, spread * path_s / middle_s)
    return rows_of(profiles, middle_s, random.normal(0, sigma), 2), middle_s


@pytest.mark.parametrize("mode", ["naive", "mps"])
def test_nine_in_ten_fresh_steps_lie_in_their_intervals(mode):
    intervals = fit_intervals(*drawn(1), mode)
    rows, middle_s = drawn(2)
    inside = np.zeros((2, len(middle_s)), dtype=bool)
    for run in rows.by_run():
        low, high = intervals.log_ends([rows.profiles[at] for at in run], middle_s[run])
        logs = np.log(rows.measured_s[run] / middle_s[run])
        inside[:, run] = (low <= logs) & (logs <= high)
    host_bound, gpu_bound = inside[0, ::2].mean(), inside[0, 1::2].mean()
    assert 0.86 < host_bound < 0.94
    assert 0.86 < gpu_bound < 0.94


def test_intervals_of_a_few_runs_hold_nine_in_ten_as_well():
    """Quantiles of 30 steps as they are would hold 84 %."""
    profiles, inside = (HOST_BOUND,) * 30, []
    middle_s = np.full(30, HOST_BOUND.step_s)
    for seed in range(100):
        seen, fresh = np.random.default_rng(seed).normal(0, 0.2, (2, 30))
        rows = rows_of(profiles, middle_s, seen)
        interval = fit_intervals(rows, middle_s, "mps").around(HOST_BOUND, HOST_BOUND.step_s)
        inside += [interval.contains(HOST_BOUND.step_s * factor) for factor in np.exp(fresh)]
    assert 0.89 < np.mean(inside) < 0.95


LOGS = st.floats(0, 2)


def check_no_end_falls(intervals, job):
    steps_s = job.step_s * np.geomspace(1, 5, 60)
    ends = np.array(
        [
            (each.p05, each.p50, each.p95)
            for each in (intervals.around(job, step_s) for step_s in steps_s)
        ]
    )
    assert (np.diff(ends, axis=0) > -1e-12).all()
    assert (np.diff(ends, axis=1) >= 0).all()


@given(st.lists(st.tuples(LOGS, LOGS), min_size=4, max_size=4))
def test_a_longer_step_never_ends_earlier(errors):
    """Errors shrink and grow with the distance from the host path as they like."""
    distances = np.repeat(HOST_BOUND_AT, 40)
    below, above = (np.repeat(each, 40) for each in zip(*errors, strict=True))
    middle_s = HOST_BOUND.step_s * np.exp(distances)
    logs = np.where(np.arange(160) % 2, above, -below)
    rows = rows_of((HOST_BOUND,) * 160, middle_s, logs)
    fitted = fit_intervals(rows, middle_s, "mps")
    check_no_end_falls(fitted, HOST_BOUND)
    check_no_end_falls(for_other_hosts(fitted, "mps", checked=False), HOST_BOUND)


@pytest.mark.parametrize("job", [HOST_BOUND, GPU_BOUND])
def test_no_end_of_the_shipped_intervals_falls_as_a_step_grows(job):
    model = load_model(model_path())
    for each in (model.intervals, model.intervals_on_known_host):
        for intervals in each.values():
            check_no_end_falls(intervals, job)


def test_a_faster_host_than_all_that_the_zoo_saw_is_in_the_shipped_intervals():
    """Zoo runs were on slower hosts than their profiles, which says nothing of other hosts."""
    model = load_model(model_path())
    for of_mode, mode in product((model.intervals, model.intervals_on_known_host), SHARED_MODES):
        for ends in (of_mode[mode].gpu_bound, of_mode[mode].host_bound):
            assert (np.array(ends.low) <= -0.39 * np.array(ends.high)).all()
        low, high = of_mode["naive"].log_ends([GPU_BOUND] * 2, np.full(2, 0.045))
        assert max(low) <= -0.03
        assert min(high) >= 0.03


def test_under_time_slicing_a_job_that_fills_the_gpu_is_less_sure_next_to_host_bound_ones():
    flat = Ends(at=GPU_BOUND_AT, low=(-0.02,), high=(0.02,))
    wide = Ends(at=HOST_BOUND_AT, low=(-0.2,) * 4, high=(0.4,) * 4)
    intervals = Intervals(gpu_bound=flat, host_bound=wide, by_others=20.0)
    profiles, steps_s = [GPU_BOUND, GPU_BOUND, HOST_BOUND], np.array([0.045, 0.045, 0.0105])
    _, apart = intervals.log_ends(profiles[:2], steps_s[:2])
    _, near = intervals.log_ends(profiles, steps_s)
    assert apart == pytest.approx(0.02)
    assert near[0] > 0.04
    assert near[2] == pytest.approx(0.4)


def at(hour, run, profile, slowdown=1.0):
    alone = synthetic.run([profile], "naive", slowdown, run)
    date = f"2026-11-20T{hour:02}:00:00+00:00"
    return replace(alone, provenance=replace(alone.provenance, date=date))


def test_the_host_of_a_run_is_known_by_one_check_and_by_earlier_steps_alone():
    shared = synthetic.run([HOST_BOUND, GPU_BOUND], "naive", 1.3, "c-9")
    shared = replace(
        shared,
        provenance=replace(shared.provenance, date="2026-11-20T12:00:00+00:00"),
        tenants=tuple(replace(each, host_check_s=2e-3) for each in shared.tenants),
    )
    runs = [
        at(5, "c-1", HOST_BOUND, 9.0),
        at(7, "c-5", GPU_BOUND, 3.0),
        at(10, "c-2", HOST_BOUND, 4.0),
        at(11, "c-3", HOST_BOUND, 1.5),
        at(12, "other-1", HOST_BOUND, 5.0),
        at(13, "c-4", HOST_BOUND, 7.0),
        shared,
    ]
    solo = SoloSteps(runs)
    alone_s = HOST_BOUND.step_s
    assert solo.before(shared, HOST_BOUND.name) == pytest.approx(1.5 * alone_s)
    third = runs[3]
    assert solo.before(third, HOST_BOUND.name) == pytest.approx(4.0 * alone_s), "not its own"
    assert solo.before(shared, GPU_BOUND.name) is None, "five hours are too many"
    profiles = {each.name: each for each in (HOST_BOUND, GPU_BOUND)}
    here, _ = profiles_on_checked_host(shared, profiles, solo)
    assert here.host_s / HOST_BOUND.host_s == pytest.approx((2**0.73 * 1.5) ** 0.5)
    unknown = replace(shared, tenants=tuple(replace(t, host_check_s=None) for t in shared.tenants))
    assert profiles_on_checked_host(unknown, profiles, SoloSteps([unknown])) is None
