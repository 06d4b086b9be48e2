import json
from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.prediction.fit.fit_model import fit
from advisor.prediction.fit.observation import MeasuredGpu, shared_runs
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.model_file import load_model, model_text
from advisor.prediction.predictor import Predictor
from advisor.prediction.utilisation_model import seen_by_driver
from advisor.sharing import Mps, Naive, parse_sharing
from tests import synthetic
from tests.prediction.made_up_runs import H200, NAMES, PROFILES, TRUTH, made_up_runs


@pytest.fixture(scope="module")
def runs():
    return made_up_runs()


@pytest.fixture(scope="module")
def model(runs):
    return fit([MeasuredGpu(H200, PROFILES, runs)])


def test_a_fit_finds_what_replay_misses(model, runs):
    errors = []
    for run in runs:
        chosen = [PROFILES[tenant.workload.name] for tenant in run.tenants]
        mix = Predictor(H200, model).predict(chosen, parse_sharing(run.sharing))
        pairs = zip(mix.jobs, run.tenants, strict=True)
        errors += [abs(job.step_s.p50 / tenant.step_s - 1) for job, tenant in pairs]
    assert np.median(errors) < 0.05 < TRUTH - 1


def test_nine_of_ten_measurements_fall_into_their_interval_on_the_fitted_data(model, runs):
    inside = []
    for run in runs:
        chosen = [PROFILES[tenant.workload.name] for tenant in run.tenants]
        mix = Predictor(H200, model).predict(chosen, parse_sharing(run.sharing))
        pairs = zip(mix.jobs, run.tenants, strict=True)
        inside += [job.step_s.contains(tenant.step_s) for job, tenant in pairs]
    assert np.mean(inside) >= 0.85


def test_a_model_reads_back_equal_from_its_file(model, tmp_path):
    path = tmp_path / "m.json"
    path.write_text(model_text(model))
    assert load_model(path) == model


def _as_scikit_learn_has_it(kernel):
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    return ConstantKernel(kernel.signal) * RBF(kernel.length) + WhiteKernel(kernel.noise)


def test_the_plain_arrays_answer_as_scikit_learn_does(model, runs):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    naive = [each for each in shared_runs(PROFILES, runs, H200) if each.mode == "naive"]
    rows = ReplayCache().telling_rows(naive, model.of(H200).physics)
    ours = model.corrections["naive"]
    kernel = _as_scikit_learn_has_it(ours.kernel)
    theirs = make_pipeline(
        StandardScaler(), GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0)
    ).fit(rows.x, np.log(rows.measured_s / rows.replayed_s))
    elsewhere = rows.x + np.linspace(-1, 1, rows.x.size).reshape(rows.x.shape)
    for x in (rows.x, elsewhere):
        mean, spread = theirs.predict(x, return_std=True)
        near = ours.near(x)
        assert ours.log_correction(near) == pytest.approx(mean, abs=1e-4)  # the file's points are
        assert ours.spread(near) == pytest.approx(spread, abs=1e-4)  # rounded to four decimals


def test_what_is_unlike_anything_seen_gets_a_wider_answer_and_replay_as_it_is(model, runs):
    naive = [each for each in shared_runs(PROFILES, runs, H200) if each.mode == "naive"]
    rows = ReplayCache().telling_rows(naive, model.of(H200).physics)
    ours = model.corrections["naive"]
    strange = rows.x[:1] + 100 * np.array(ours.scale)
    assert ours.spread(ours.near(strange))[0] > ours.spread(ours.near(rows.x)).max()
    assert ours.log_correction(ours.near(strange))[0] == pytest.approx(0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["corrections"]["mps"].update(features=["speed"]), "other features"),
        (lambda m: m["corrections"]["mps"].update(mean=[1.0]), "not as long"),
        (lambda m: m.update(extra=1), "extra"),
        (lambda m: m.pop("constants"), "constants"),
    ],
)
def test_a_malformed_model_is_refused(model, tmp_path, change, said):
    document = json.loads(model_text(model))
    change(document)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=said):
        load_model(path)


def test_a_gpu_without_a_model_is_told_how_to_get_one(tmp_path):
    with pytest.raises(InvalidInput, match="advisor fit"):
        load_model(tmp_path / "none.json")


def test_runs_of_another_gpu_never_teach_silently(runs):
    strange = [*runs, replace(runs[0], gpu="a100-40gb")]
    with pytest.raises(InvalidInput, match="a100-40gb cannot be used to fit h200-141gb"):
        MeasuredGpu(H200, PROFILES, strange)


def test_too_few_runs_are_refused(runs):
    with pytest.raises(InvalidInput, match="at least 5"):
        fit([MeasuredGpu(H200, PROFILES, runs[:4])])


def test_profiles_without_a_trace_get_a_wider_answer_under_mps(model):
    """Of jobs in turn utilisation says nearly all."""
    full = [PROFILES[name] for name in NAMES[:3]]
    bare = [seen_by_driver(each) for each in full]
    for sharing in (Mps(), Mps((43, 43, 43))):
        answers = (Predictor(H200, model).predict(each, sharing).jobs for each in (full, bare))
        for sure, unsure in zip(*answers, strict=True):
            narrow, wide = (job.step_s.p95 / job.step_s.p05 for job in (sure, unsure))
            assert 1 < narrow < wide


@pytest.mark.parametrize("sharing", ["mps=50", "mps=50,50,50", "mig=3g.71gb"])
def test_limits_or_instances_for_another_number_of_jobs_are_refused(model, sharing):
    pair = [PROFILES[name] for name in NAMES[:2]]
    with pytest.raises(InvalidInput, match="for 2 jobs"):
        Predictor(H200, model).predict(pair, parse_sharing(sharing))


def test_serial_slows_nobody_and_holds_one_job_at_a_time(model):
    mix = Predictor(H200, model).predict(list(PROFILES.values()), parse_sharing("serial"))
    assert mix.weighted_speedup == 1
    assert [job.slowdown for job in mix.jobs] == [1.0] * len(PROFILES)
    assert mix.memory_total_mib == max(job.memory_mib for job in mix.jobs)


def test_a_mix_that_cannot_fit_is_predicted_with_its_risk(model):
    big = synthetic.profile("resnet152-imagenet-bs128", memory_mib=100_000)
    mix = Predictor(H200, model).predict([big, big], Mps())
    assert mix.oom_probability > 0.99
    assert mix.memory_total_mib > mix.memory_capacity_mib


def test_a_smaller_slice_never_makes_a_job_faster(model):
    big = synthetic.profile(gpu_s=0.02, host_s=0.005)
    steps = [
        Predictor(H200, model).predict([big], parse_sharing(f"mig={name}")).jobs[0].step_s.p50
        for name in ("7g.141gb", "4g.71gb", "3g.71gb", "2g.35gb", "1g.18gb")
    ]
    assert steps == sorted(steps)
    assert (
        not Predictor(H200, model)
        .predict([big], parse_sharing("mig=3g.71gb"))
        .confirmed_on_hardware
    )


def test_what_the_driver_and_the_mps_server_keep_is_nobodys(model):
    pair = [PROFILES[name] for name in NAMES[:2]]
    naive, mps = (Predictor(H200, model).predict(pair, each) for each in (Naive(), Mps()))
    assert naive.memory_capacity_mib == 143_771 - 615
    assert mps.memory_capacity_mib == naive.memory_capacity_mib - 66


def test_a_mode_of_which_no_run_is_known_is_not_called_confirmed(model):
    pair = [PROFILES[name] for name in NAMES[:2]]
    seen = model.data["h200-141gb"]
    without = replace(seen, runs={mode: n for mode, n in seen.runs.items() if mode != "mps"})
    predictor = Predictor(H200, replace(model, data={"h200-141gb": without}))
    assert predictor.predict(pair, Naive()).confirmed_on_hardware
    assert not predictor.predict(pair, Mps()).confirmed_on_hardware
