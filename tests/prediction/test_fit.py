"""Fitting finds what replay misses; one model answers for all GPUs and says which it has seen."""

import json
from dataclasses import replace
from itertools import combinations
from math import log

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.hardware.gpus import gpu
from advisor.learn.fit import Constants, StepsLeftOut, fit, runs_by_mode, tune
from advisor.learn.observations import MeasuredGpu, ReplayCache
from advisor.prediction.model import load_model, model_text
from advisor.prediction.prediction import LEVELS
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mps, Naive, Serial, parse_sharing
from tests import synthetic
from tests.prediction.made_up_runs import H200, PROFILES, TRUTH, made_up_runs


@pytest.fixture(scope="module")
def runs():
    return made_up_runs()


@pytest.fixture(scope="module")
def model(runs):
    return fit([MeasuredGpu(H200, PROFILES, runs)])


def test_a_fit_finds_what_replay_misses_and_nine_of_ten_runs_lie_in_their_ranges(model, runs):
    errors, inside = [], []
    for run in runs:
        chosen = [PROFILES[tenant.workload.name] for tenant in run.tenants]
        mix = Predictor(H200, model).predict(chosen, parse_sharing(run.sharing))
        for job, tenant in zip(mix.jobs, run.tenants, strict=True):
            errors.append(abs(job.step_s.p50 / tenant.step_s - 1))
            inside.append(job.step_s.contains(tenant.step_s))
    assert np.median(errors) < 0.05 < TRUTH - 1
    assert np.mean(inside) >= 0.85


def test_a_search_of_the_constants_never_ends_with_more_error_than_it_began(runs, monkeypatch):
    monkeypatch.setattr("advisor.learn.fit._TRIALS", 6)  # the last of which is not the best
    measured, playback = [MeasuredGpu(H200, PROFILES, runs)], ReplayCache()
    modes = runs_by_mode(measured[0].shared)

    def error(constants):
        return np.mean(
            [
                StepsLeftOut(of_mode, mode, playback, constants).error()
                for mode, of_mode in modes.items()
            ]
        )

    assert error(tune(measured, playback)) < 0.9 * error(Constants())
    monkeypatch.setattr("advisor.learn.fit._TRIALS", 1)
    assert error(tune(measured, playback)) == pytest.approx(error(Constants()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["corrections"]["mps"]["columns"].__setitem__(0, "speed"), "other columns"),
        (lambda m: m["corrections"]["mps"].update(mean=[1.0]), "coefficients"),
        (lambda m: m.update(extra=1), "extra"),
        (lambda m: m.pop("constants"), "constants"),
    ],
)
def test_a_malformed_model_is_refused(model, tmp_path, change, said):
    document = json.loads(model_text(model))
    change(document)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=rf"m.json.*{said}"):
        load_model(path)


def test_without_a_model_or_enough_runs_it_is_said_what_to_do(runs, tmp_path):
    with pytest.raises(InvalidInput, match="advisor fit"):
        load_model(tmp_path / "none.json")
    with pytest.raises(InvalidInput, match="at least 5"):
        fit([MeasuredGpu(H200, PROFILES, runs[:4])])


H100, A100 = gpu("h100-sxm-80gb"), gpu("a100-40gb")
TRIO = ("resnet50-imagenet64-bs128", "bert-base-finetune-bs16", "gpt2-small-pretrain-bs8")


def profiles_on(on):
    made = [synthetic.profile(n, gpu_s=0.01 * k, blocks=100 * k) for k, n in enumerate(TRIO, 1)]
    return {each.name: replace(each, gpu=on.key) for each in made}


def measured_on(on, modes=("naive", "mps"), slowdown=1.4, times=2):
    profiles = profiles_on(on)
    pairs = list(combinations(profiles.values(), 2)) * times
    runs = [
        replace(synthetic.run(list(pair), mode, slowdown, f"{mode}-{number}"), gpu=on.key)
        for mode in modes
        for number, pair in enumerate(pairs)
    ]
    return MeasuredGpu(on, profiles, runs)


@pytest.fixture(scope="module")
def fitted():
    return fit([measured_on(H200)])


def pair_on(on):
    return list(profiles_on(on).values())[:2]


def test_an_answer_for_a_gpu_without_runs_is_never_called_confirmed(fitted):
    for sharing in (Naive(), Mps(), parse_sharing("mps=50,50"), parse_sharing("mig=3g.20gb")):
        jobs = pair_on(A100)[: 1 if sharing.mode == "mig" else 2]
        mix = Predictor(A100, fitted).predict(jobs, sharing)
        assert not mix.confirmed_on_hardware
    seen = Predictor(H200, fitted).predict(pair_on(H200), Mps())
    assert seen.confirmed_on_hardware
    assert seen.estimated_from is None


def test_a_mode_that_only_another_gpu_ran_is_estimated_from_it():
    both = fit([measured_on(H200), measured_on(H100, ("naive",))])
    predictor = Predictor(H100, both)
    assert predictor.predict(pair_on(H100), Naive()).confirmed_on_hardware
    mps = predictor.predict(pair_on(H100), Mps())
    assert (mps.confirmed_on_hardware, mps.estimated_from) == (False, "h200-141gb")


def test_intervals_of_a_gpu_never_seen_are_as_much_wider_as_the_model_says(fitted):
    learnt = replace(fitted, data={A100.key: fitted.data[H200.key]})
    near, far = (Predictor(A100, m).predict(pair_on(A100), Mps()) for m in (learnt, fitted))
    for sure, unsure in zip(near.jobs, far.jobs, strict=True):
        assert unsure.step_s.p50 == sure.step_s.p50
        for end in ("p05", "p95"):
            widths = [log(each.at(end) / each.p50) for each in (sure.step_s, unsure.step_s)]
            assert widths[1] == pytest.approx(fitted.unseen.widening * widths[0])
    assert far.power_w.p05 < near.power_w.p05
    assert far.power_w.p95 == near.power_w.p95 == A100.power_limit_w


def test_runs_of_several_gpus_each_go_with_the_profiles_of_their_own(tmp_path):
    both = fit([measured_on(H200), measured_on(H100, slowdown=1.8)])
    assert set(both.data) == set(both.constants) == {H200.key, H100.key}
    assert both.data[H100.key].runs == {"naive": 6, "mps": 6}
    (tmp_path / "sharing.json").write_text(model_text(both))
    assert load_model(tmp_path / "sharing.json") == both
    with pytest.raises(InvalidInput, match="h100-sxm-80gb cannot be used"):
        MeasuredGpu(H200, profiles_on(H200), measured_on(H100).runs)


def test_the_first_run_on_a_gpu_teaches_together_with_those_of_another(fitted):
    one = replace(measured_on(A100), runs=measured_on(A100).runs[:1])
    taught = fit([measured_on(H200), one])
    assert taught.data[A100.key].runs == {"naive": 1}
    assert A100.key not in taught.constants, "one run says too little of a GPU's own constants"
    assert taught.data[H200.key] == fitted.data[H200.key]
    assert Predictor(A100, taught).predict(pair_on(A100), Naive()).estimated_from == H200.key


@pytest.mark.parametrize("sharing", ["naive", "mps=100"])
def test_a_job_alone_is_exactly_as_fast_as_alone_however_sharing_is_set_up(fitted, sharing):
    found = Predictor(A100, fitted).predict(pair_on(A100)[:1], parse_sharing(sharing))
    alone = Predictor(A100, fitted).predict(pair_on(A100)[:1], Serial())
    assert [found.jobs[0].slowdown_at(level) for level in LEVELS] == [1, 1, 1]
    assert found.jobs[0].step_s == alone.jobs[0].step_s
    assert found.power_w == alone.power_w
