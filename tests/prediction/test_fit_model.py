import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.fit_model import fit
from advisor.prediction.fit.observation import MeasuredGpu, shared_runs
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.model_file import load_model, model_text
from advisor.prediction.physics import replay_mix
from advisor.prediction.predictor import Predictor
from advisor.prediction.utilisation_model import seen_by_driver
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.workload.measured import Window
from tests import synthetic

H200 = gpu("h200-141gb")
TRUTH = 1.2  # how much slower than replayed these made-up runs are
NAMES = (
    "resnet26-cifar10-bs128",
    "resnet50-imagenet64-bs128",
    "cait_xxs24_224-cifar10-bs128",
    "vit_small_patch16_224-imagenet64-bs128",
    "bert-base-finetune-bs16",
    "gpt2-small-finetune-bs2",
    "mlp-toy-bs128",
)
PROFILES = {
    name: synthetic.profile(
        name, gpu_s=0.002 + 0.004 * number, host_s=0.008, blocks=40 + 60 * number
    )
    for number, name in enumerate(NAMES)
}


@pytest.fixture(scope="module")
def physics():
    from advisor.prediction.fit.physics_fit import _START

    return _START


@pytest.fixture(scope="module")
def runs(physics):
    random, made = Random(7), []
    for number in range(45):
        degree = random.choice((2, 3))
        chosen = [PROFILES[name] for name in random.sample(NAMES, degree)]
        sharing = ("naive", "mps", "mps=" + ",".join(["43"] * degree))[number % 3]
        steps = TRUTH * replay_mix(chosen, parse_sharing(sharing), H200, physics)
        run = synthetic.run(chosen, sharing, run_id=f"r{number}")
        tenants = tuple(
            replace(tenant, windows=(Window(step, 1.0),) * 3)
            for tenant, step in zip(run.tenants, steps, strict=True)
        )
        made.append(replace(run, tenants=tenants))
    alone = [PROFILES[name] for name in NAMES for _ in range(3)]
    solo = [synthetic.run([each], "naive", 1.0, f"s{n}") for n, each in enumerate(alone)]
    return [*made, *solo]


@pytest.fixture(scope="module")
def model(runs):
    return fit([MeasuredGpu(H200, PROFILES, runs)])


def _as_with_priorities(runs, count):
    """So many of the runs under MPS once more, in which the first job came before the others."""
    served = [run for run in runs if run.sharing == "mps"]
    for number in range(count):
        run = served[number % len(served)]
        order = ",".join(["0", *["1"] * (len(run.tenants) - 1)])
        yield replace(run, id=f"p{number}", sharing=f"mps/priority={order}")


def test_runs_with_priorities_change_nothing_that_is_learnt_of_other_modes(model, runs):
    few = fit([MeasuredGpu(H200, PROFILES, [*runs, *_as_with_priorities(runs, 6)])])
    joined = model.corrections | {"mps": few.corrections["mps"]}
    assert replace(few, data=model.data) == replace(model, corrections=joined)
    assert few.data["h200-141gb"].runs["mps-priority"] == 6


def test_priorities_borrow_the_correction_of_mps_and_count_as_confirmed_once_they_ran(model, runs):
    pair, order = [PROFILES[name] for name in NAMES[:2]], parse_sharing("mps/priority=0,1")
    borrowed = Predictor(H200, model).predict(pair, order)
    assert not borrowed.confirmed_on_hardware
    ran = fit([MeasuredGpu(H200, PROFILES, [*runs, *_as_with_priorities(runs, 6)])])
    assert Predictor(H200, ran).predict(pair, order).confirmed_on_hardware


def _off_by(predictor, runs):
    """Median of log of measured over predicted steps."""
    logs = []
    for run in runs:
        chosen = [PROFILES[tenant.workload.name] for tenant in run.tenants]
        mix = predictor.predict(chosen, parse_sharing(run.sharing))
        pairs = zip(mix.jobs, run.tenants, strict=True)
        logs += [np.log(tenant.step_s / job.step_s.p50) for job, tenant in pairs]
    return np.median(logs)


def test_what_runs_with_priorities_took_is_learnt_for_these_and_not_for_others(model, runs):
    slower = [
        replace(run, tenants=tuple(
            replace(each, windows=(Window(1.4 * each.step_s, 1.0),) * 3) for each in run.tenants
        ))
        for run in _as_with_priorities(runs, 12)
    ]  # fmt: skip
    taught = fit([MeasuredGpu(H200, PROFILES, [*runs, *slower])])
    before, after = Predictor(H200, model), Predictor(H200, taught)
    assert abs(_off_by(after, slower)) < 0.5 * abs(_off_by(before, slower))
    plain = [run for run in runs if run.sharing == "mps"]
    assert abs(_off_by(after, plain)) < abs(_off_by(before, plain)) + 0.02


def test_runs_with_priorities_alone_make_no_mode(runs):
    naive = [run for run in runs if run.sharing != "mps"]
    model = fit([MeasuredGpu(H200, PROFILES, [*naive, *_as_with_priorities(runs, 12)])])
    assert "mps" not in model.corrections


def test_equal_priorities_are_predicted_as_none_are(model):
    pair, predictor = [PROFILES[name] for name in NAMES[:2]], Predictor(H200, model)
    plain, alike = (predictor.predict(pair, parse_sharing(s)) for s in ("mps", "mps/priority=1,1"))
    assert replace(alike, sharing=plain.sharing) == plain


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
