"""The regression of replayed steps, and profiles that lack what it uses."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.hardware.gpus import gpu
from advisor.learn.observations import Rows, shared_runs
from advisor.learn.regression import FittedCorrection
from advisor.prediction.correction import KERNEL
from advisor.prediction.mix_steps import surrogate_predictor
from advisor.prediction.model import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mps
from advisor.workload.store import load_profile, model_path
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


def test_mps_needs_no_probe(predictor, jobs):
    bare = [without_probe(each) for each in jobs]
    assert steps_s(predictor, bare, Mps()) == pytest.approx(steps_s(predictor, jobs, Mps()))


@pytest.mark.parametrize(("sharing", "off"), [(Mps(), 0.05), (Mps((57.0, 43.0, 28.0)), 0.2)])
def test_a_profile_without_probe_and_counters_is_predicted_nearly_as_with_them(
    predictor, jobs, sharing, off
):
    bare = [without_counters(without_probe(each)) for each in jobs]
    full = predictor.predict(jobs, sharing)
    assert steps_s(predictor, bare, sharing) == pytest.approx(
        [job.step_s.p50 for job in full.jobs], rel=off
    )
    answer = predictor.predict(bare, sharing)
    assert "no counters of SMs" in answer.wide_because
    assert ("no MPS probe" in answer.wide_because) == bool(sharing.limits)


def test_an_interval_under_limits_is_wider_without_a_probe(predictor, jobs):
    limits = Mps((57.0, 43.0, 28.0))
    full, bare = (
        predictor.predict(some, limits).jobs for some in (jobs, list(map(without_probe, jobs)))
    )
    widths = [[j.step_s.p95 / j.step_s.p05 for j in some] for some in (full, bare)]
    assert sum(np.log(widths[1])) > 1.1 * sum(np.log(widths[0]))


def test_jobs_without_counters_can_be_searched(predictor, jobs):
    surrogate = surrogate_predictor(list(map(without_counters, jobs)), H200, predictor.model)
    (steps,) = surrogate.limited(np.array([[50.0, 50.0, 50.0]]))
    assert (steps >= [0.99 * each.step_s for each in jobs]).all()


def made_up(seed=0):
    """Rows of mixes of three families whose error follows the first column, and their runs."""
    random = np.random.default_rng(seed)
    profiles = {name: synthetic.profile(name) for name in FAMILIES}
    pairs = [(FAMILIES[at % 3], FAMILIES[(at + at // 3) % 3]) for at in range(24)]
    runs = [
        synthetic.run([profiles[name] for name in pair], "mps", 1.3, f"r{at}")
        for at, pair in enumerate(pairs)
    ]
    observed = shared_runs(profiles, runs, H200)
    x = random.normal(size=(48, 3))
    for at, pair in enumerate(pairs):
        if pair[0] == pair[1]:
            x[2 * at + 1] = x[2 * at]  # copies
    rows = Rows(
        of_run=np.repeat(np.arange(24), 2),
        profiles=tuple(profiles[name] for pair in pairs for name in pair),
        x=x, replayed_s=np.full(48, 0.5), measured_s=0.5 * np.exp(0.1 * x[:, 0]),
    )  # fmt: skip
    return rows, observed


def test_a_family_left_out_is_predicted_as_by_a_fit_without_its_runs():
    rows, runs = made_up()
    fitted = FittedCorrection(rows, runs, ("a", "b", "c"), KERNEL)
    quick = fitted.steps_left_out(rows)
    for family in set(rows.family):
        kept = np.array([family not in run.families for run in runs])[rows.of_run]
        own = np.array(rows.family) == family
        slow = FittedCorrection(rows.chosen(kept), runs, ("a", "b", "c"), KERNEL).correction
        logs = slow.log_correction(rows.x[own])
        # Columns are scaled by all rows in the one, and by those kept in the other.
        assert np.log(quick[own] / 0.5) == pytest.approx(logs, abs=0.03)


def test_copies_of_a_job_in_a_run_count_once():
    rows, runs = made_up()
    points = FittedCorrection(rows, runs, ("a", "b", "c"), KERNEL).correction.points
    copies = sum(run.families[0] == run.families[1] for run in runs)
    assert copies > 0
    assert len(points) == len(rows.profiles) - copies
