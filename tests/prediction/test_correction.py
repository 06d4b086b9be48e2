"""The regression of replayed steps, and profiles that lack what it uses."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.hardware.gpus import gpu
from advisor.learn.observations import Rows, shared_runs
from advisor.learn.regression import FittedCorrection
from advisor.prediction.correction import COLUMNS, KERNEL, features
from advisor.prediction.mix_steps import surrogate_predictor
from advisor.prediction.model import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.replay import replay_mix
from advisor.sharing import Mps
from advisor.workload.store import load_profile, model_path, sound_profiles
from tests import synthetic

H200 = gpu("h200-141gb")
NAMES = ["resnet50-imagenet64-bs128", "bert-base-finetune-bs16", "gpt2-small-finetune-bs2"]
FAMILIES = ["resnet50-imagenet64-bs128", "bert-base-finetune-bs16", "t5-small-pretrain-bs16"]


@pytest.fixture(scope="module")
def predictor():
    return Predictor(H200, load_model(model_path()))


@pytest.fixture(scope="module")
def jobs():
    return [load_profile(name, H200.key) for name in NAMES]


def without_probe(profile):
    return replace(profile, mps=None, sm_exponent=None)


def without_counters(profile):
    bare = dict.fromkeys(("sm_active", "sm_occupancy", "tensor_active", "dram_active"))
    return replace(profile, counters=replace(profile.counters, **bare))


def steps_s(predictor, jobs, sharing):
    return np.array([each.step_s.p50 for each in predictor.predict(jobs, sharing).jobs])


@pytest.fixture(scope="module")
def mixes():
    """Mixes of shipped profiles, and limits for them."""
    random = np.random.default_rng(6)
    profiles = sorted(sound_profiles(H200.key)[0].values(), key=lambda each: each.name)
    limits = (14.0, 28.0, 43.0, 57.0, 71.0, 86.0)
    return [
        (
            list(random.choice(profiles, jobs, replace=False)),
            Mps(tuple(random.choice(limits, jobs))),
        )
        for jobs in (2, 3) * 5
    ]


def mean_off(predictor, mixes, change, sharing=None):
    """Return the mean of how far steps of changed profiles are from those of whole ones."""
    off = [
        np.abs(
            np.log(
                steps_s(predictor, list(map(change, some)), sharing or limits)
                / steps_s(predictor, some, sharing or limits)
            )
        )
        for some, limits in mixes
    ]
    return np.concatenate(off).mean()


def test_without_probe_and_counters_predictions_stay_near_those_with_them(predictor, mixes):
    assert (
        mean_off(predictor, mixes, lambda each: without_counters(without_probe(each)), Mps()) < 0.02
    )
    assert mean_off(predictor, mixes, without_probe, Mps()) < 1e-6, "MPS needs no probe"
    assert mean_off(predictor, mixes, without_probe) < 0.04
    assert mean_off(predictor, mixes, lambda each: without_counters(without_probe(each))) < 0.055


def test_an_answer_names_the_probe_as_lacking_only_where_limits_need_it(predictor, jobs):
    bare = [without_counters(without_probe(each)) for each in jobs]
    for sharing in (Mps(), Mps((57.0, 43.0, 28.0))):
        because = predictor.predict(bare, sharing).wide_because
        assert "no counters of SMs" in because
        assert ("no MPS probe" in because) == bool(sharing.limits)


def test_columns_under_limits_show_the_probe_and_without_one_the_replayed_job(jobs):
    limits, physics = Mps((28.0, 57.0, 57.0)), load_model(model_path()).of(H200).physics
    at = COLUMNS["mps-limits"].index("log_alone_limited")
    for change in (lambda each: each, without_probe):
        job = change(jobs[0])
        row, *_ = features([job, *jobs[1:]], limits, H200, physics, np.ones(3))
        if job.mps:
            alone_s = job.mps.limited[1].step_s / job.mps.unlimited.step_s
        else:
            alone_s = replay_mix([job], Mps((28.0,)), H200, physics)[0] / job.step_s
        assert row[at] == pytest.approx(np.log(alone_s))


def test_an_interval_under_limits_is_wider_without_a_probe(predictor, jobs):
    limits = Mps((57.0, 43.0, 28.0))
    full, bare = (
        predictor.predict(some, limits).jobs for some in (jobs, list(map(without_probe, jobs)))
    )
    widths = [[j.step_s.p95 / j.step_s.p05 for j in some] for some in (full, bare)]
    assert sum(np.log(widths[1])) > 1.1 * sum(np.log(widths[0]))


def test_a_search_of_jobs_without_counters_is_as_near_as_one_with_them(predictor, mixes):
    off = {}
    for change in (lambda each: each, without_counters):
        logs = []
        for some, sharing in mixes:
            jobs = list(map(change, some))
            surrogate = surrogate_predictor(jobs, H200, predictor.model)
            (estimated_s,) = surrogate.limited(np.array([sharing.limits]))
            logs.append(np.log(estimated_s / steps_s(predictor, some, sharing)))
        off[change] = np.abs(np.concatenate(logs)).mean()
    whole, bare = off.values()
    assert whole < 0.07
    assert bare < whole + 0.02


MIXED = [(FAMILIES[at % 3], FAMILIES[(at + at // 3) % 3]) for at in range(24)]
ALL_WITH_ONE = [(FAMILIES[0], FAMILIES[at % 3]) for at in range(24)]


def made_up(pairs):
    """Rows of pairs of jobs whose error follows the first column, and their runs."""
    random = np.random.default_rng(0)
    profiles = {name: synthetic.profile(name) for name in FAMILIES}
    runs = [
        synthetic.run([profiles[name] for name in pair], "mps", 1.3, f"r{at}")
        for at, pair in enumerate(pairs)
    ]
    x = random.normal(size=(len(pairs), 2, 3))
    copies = np.array([one == other for one, other in pairs])
    x[copies, 1] = x[copies, 0]
    logs = 0.1 * x[:, :, 0] + random.normal(0, 0.05, size=(len(pairs), 2))
    rows = Rows(
        of_run=np.repeat(np.arange(len(pairs)), 2),
        profiles=tuple(profiles[name] for pair in pairs for name in pair),
        x=x.reshape(-1, 3),
        replayed_s=np.full(logs.size, 0.5),
        measured_s=0.5 * np.exp(logs).reshape(-1),
    )
    return rows, shared_runs(profiles, runs, H200)


def with_copies_once(rows, runs):
    """Return the rows with the mean of two copies of a job in place of both."""
    copies = np.array([one == other for one, other in (run.families for run in runs)])
    logs = np.log(rows.measured_s / rows.replayed_s).reshape(-1, 2)
    logs[copies] = logs[copies].mean(axis=1, keepdims=True)
    once = replace(rows, measured_s=rows.replayed_s * np.exp(logs).reshape(-1))
    return once.chosen(np.stack([np.ones_like(copies), ~copies], axis=1).reshape(-1))


def fitted(rows, runs):
    return FittedCorrection(rows, runs, ("a", "b", "c"), KERNEL)


def test_copies_of_a_job_in_a_run_count_once_by_their_mean():
    rows, runs = made_up(MIXED)
    once = with_copies_once(rows, runs)
    assert len(once.profiles) < len(rows.profiles)
    quick, slow = fitted(rows, runs).correction, fitted(once, runs).correction
    assert quick.points == slow.points
    assert quick.weights == pytest.approx(slow.weights)


def process_of(rows, correction, points):
    """Return log corrections at `points` by a process fitted to `rows`, with the same scales."""
    x, at = ((each - correction.mean) / correction.scale for each in (rows.x, points))
    kernel = correction.kernel
    covariance = kernel.likeness(x, x) + kernel.noise * np.eye(len(x))
    weights = np.linalg.solve(covariance, np.log(rows.measured_s / rows.replayed_s))
    return kernel.likeness(at, x) @ weights


@pytest.mark.parametrize("pairs", [MIXED, ALL_WITH_ONE])
def test_a_family_left_out_is_predicted_as_by_a_fit_without_its_runs(pairs):
    rows, runs = made_up(pairs)
    every, once = fitted(rows, runs), with_copies_once(rows, runs)
    quick, families = np.log(every.steps_left_out(rows) / 0.5), np.array(rows.family)
    for family in set(rows.family):
        with_it = np.array([family in run.families for run in runs])[once.of_run]
        if with_it.all():  # then only its own rows are left out
            with_it = np.array(once.family) == family
        own = families == family
        slow = process_of(once.chosen(~with_it), every.correction, rows.x[own])
        assert quick[own] == pytest.approx(slow, abs=2e-4), "points are rounded to four decimals"
