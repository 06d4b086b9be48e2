"""Answers where a profile has what nvidia-smi shows and no more."""

import json
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.doubt_fit import NO_BOUNDS
from advisor.prediction.fit.observation import shared_runs
from advisor.prediction.fit.utilisation_fit import fit_utilisation
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.model_file import load_model, model_text
from advisor.prediction.predictor import Predictor
from advisor.prediction.utilisation_model import (
    UtilisationModel,
    capacity_steps,
    columns,
    seen_by_driver,
)
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.workload.measured import Window
from advisor.workload.minimal_profile import MinimalProfile
from tests import synthetic
from tests.fitted import fit

H200 = gpu("h200-141gb")
TRUTH = 1.3  # how much slower than the capacity model says these made-up runs are
NAMES = (
    "resnet26-cifar10-bs128",
    "cait_xxs24_224-cifar10-bs128",
    "bert-base-finetune-bs16",
    "gpt2-small-finetune-bs2",
    "mlp-toy-bs128",
    "vit_small_patch16_224-imagenet64-bs128",
)
PROFILES = {
    name: synthetic.profile(name, gpu_s=0.004 + 0.003 * number, host_s=0.008)
    for number, name in enumerate(NAMES)
}
MODES = ("naive", "mps", "mps=43,43")


def _run(number, pair, sharing, factor):
    """As the capacity model says of bare profiles, but `factor` times as slow."""
    bare = [seen_by_driver(each) for each in pair]
    steps = factor * np.array(capacity_steps(bare, parse_sharing(sharing)))
    made = synthetic.run(list(pair), sharing, run_id=f"r{number}-{sharing}")
    tenants = tuple(
        replace(tenant, windows=(Window(float(step), 1.0),) * 3)
        for tenant, step in zip(made.tenants, steps, strict=True)
    )
    return replace(made, tenants=tenants)


def _runs(factor_of=lambda _: TRUTH):
    pairs = list(combinations_with_replacement(PROFILES.values(), 2))
    return [_run(n, pair, sharing, factor_of(n))
            for n, pair in enumerate(pairs) for sharing in MODES]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return fit(PROFILES, _runs(), H200)


def _bare(names=NAMES[:2]):
    return [seen_by_driver(PROFILES[name]) for name in names]


def test_what_the_driver_sees_is_pace_utilisation_power_and_memory():
    whole = PROFILES[NAMES[0]]
    bare = seen_by_driver(whole)
    assert (bare.step_s, bare.power_w, bare.memory) == (whole.step_s, whole.power_w, whole.memory)
    assert (bare.trace, bare.mps, bare.host_s) == (None, None, None)
    assert bare.counters.source == "nvml"
    assert bare.counters.sm_active is None
    assert bare.busy_share == pytest.approx(whole.counters.gract)
    assert seen_by_driver(bare) == bare


def test_utilisation_alone_is_answered_as_what_was_learnt_of_capacity(model):
    for sharing in map(parse_sharing, MODES):
        mix = Predictor(H200, model).predict(_bare(), sharing)
        learnt = TRUTH * np.array(capacity_steps(_bare(), sharing))
        assert [job.step_s.p50 for job in mix.jobs] == pytest.approx(list(learnt), rel=0.03)


def test_a_mix_with_one_bare_profile_is_answered_as_if_all_were_bare(model):
    one, other = (PROFILES[name] for name in NAMES[:2])
    mixed = Predictor(H200, model).predict([seen_by_driver(one), other], Mps())
    bare = Predictor(H200, model).predict(_bare(), Mps())
    assert [job.step_s for job in mixed.jobs] == [job.step_s for job in bare.jobs]


def test_who_gets_a_wide_range_is_told_why(model):
    predictor = Predictor(H200, model)
    one, other = (PROFILES[name] for name in NAMES[:2])
    for sharing in map(parse_sharing, MODES):
        said = predictor.predict([seen_by_driver(one), other], sharing).wide_because
        assert f"for {one.name} has no kernel trace" in said
        assert predictor.predict([one, other], sharing).wide_because is None
    assert predictor.predict(_bare(), parse_sharing("serial")).wide_because is None


def test_without_power_or_far_from_anything_known_an_answer_stays_finite(model):
    odd = replace(PROFILES[NAMES[0]], power_w=None, windows=(Window(5000.0, 1.0),) * 3)
    for sharing in (Naive(), Mps(), Mps((1.0, 100.0))):
        mix = Predictor(H200, model).predict([seen_by_driver(odd), *_bare(NAMES[1:2])], sharing)
        for job in mix.jobs:
            assert np.isfinite(job.step_s.p95)
            assert job.slowdown >= 1


SHIPPED = Path(__file__).parents[2] / "models" / "sharing.json"


@pytest.mark.parametrize("sharing", ["naive", "mps", "mps=50,50,50"])
@pytest.mark.parametrize(("utilisation", "power_w"), [(0.05, 35), (0.5, 150), (1.0, 280)])
def test_a_job_of_unknown_power_is_answered_like_one_that_draws_what_is_usual(
    sharing, utilisation, power_w
):
    """Three hardly busy jobs slow each other by nothing, and three busy ones take no five times."""
    predictor = Predictor(gpu("a100-40gb"), load_model(SHIPPED))
    silent, told = (
        MinimalProfile(
            schema=1, workload="mine", gpu="a100-40gb", batch_size=64, step_s=0.12,
            memory_mib=5300, power_w=watts, gpu_utilization=utilisation, memory_utilization=None,
        ).whole()
        for watts in (None, power_w)
    )  # fmt: skip
    answers = [
        predictor.predict([each] * 3, parse_sharing(sharing)).jobs[0] for each in (silent, told)
    ]
    assert answers[0].slowdown == pytest.approx(answers[1].slowdown, rel=0.1)


@pytest.mark.parametrize("sharing", ["naive", "mps", "mps=50,50", "mig=3g.20gb[1,2]/mps"])
def test_a_range_never_says_that_mates_hasten_a_job_of_bare_numbers(sharing):
    predictor = Predictor(gpu("a100-40gb"), load_model(SHIPPED))
    numbers = {"schema": 1, "workload": "mine", "gpu": "a100-40gb", "batch_size": 64,
               "step_s": 0.12, "memory_mib": 5300, "examples_per_epoch": 6400}  # fmt: skip
    for busy in (None, 0.3, 0.9):
        job = MinimalProfile(
            **numbers, power_w=None, gpu_utilization=busy, memory_utilization=None
        ).whole()
        alone = predictor.predict([job], parse_sharing("serial")).jobs[0]
        shared = predictor.predict([job, job], parse_sharing(sharing)).jobs[0]
        assert alone.step_s.p05 <= shared.step_s.p05 * (1 + 1e-12)
        assert shared.step_s.p05 <= shared.step_s.p50
        assert shared.epoch_s.p05 == pytest.approx(100 * shared.step_s.p05)


@pytest.mark.parametrize("sharing", [Naive(), Mps(), Mps((43.0, 43.0))])
def test_a_profile_that_says_nothing_of_the_gpu_may_be_of_any_job(model, sharing):
    known, predictor = _bare()[0], Predictor(H200, model)
    silent = replace(known, counters=None, gpu_s=None)
    widest = predictor.predict([silent, silent], sharing).jobs[0].step_s
    for share in (0.05, 0.5, 1.0):
        job = replace(known, counters=None, gpu_s=share * known.step_s)
        answer = predictor.predict([job, job], sharing).jobs[0].step_s
        assert widest.p05 <= answer.p05 <= answer.p95 <= widest.p95
    assert widest.p95 > 1.9 * widest.p05, "from nearly no loss to turns, or worse"


def test_the_interval_is_that_of_errors_on_families_left_out():
    random = np.random.default_rng(5)
    noisy = shared_runs(PROFILES, _runs(lambda _: TRUTH * np.exp(random.normal(0, 0.2))), H200)
    naive = [each for each in noisy if each.mode == "naive"]
    plain = fit_utilisation(naive)
    inside, widths = [], []
    for shared in naive:
        bare = [seen_by_driver(each) for each in shared.profiles]
        steps = np.array(capacity_steps(bare, shared.sharing))
        missed = np.log(shared.measured_s / steps) - plain.log_correction(
            columns(bare, shared.sharing, H200, steps)
        )
        for each, log_error in zip(bare, missed, strict=True):
            said = plain.interval(each, 1.0)
            inside.append(said.contains(np.exp(log_error)))
            widths.append(np.log(said.p95 / said.p05))
    assert np.mean(inside) >= 0.85
    assert 0.4 < min(widths) <= max(widths) < 1.2, "about 3.3 standard deviations of 0.2"


def test_jobs_that_follow_their_host_have_bounds_of_their_own():
    """Where runs vary as their hosts do, jobs that keep the GPU busy are known as well as ever."""
    random, runs = np.random.default_rng(6), []
    for number, pair in enumerate(list(combinations_with_replacement(PROFILES.values(), 2)) * 3):
        noise = 0.01 if all(map(is_gpu_bound, pair)) else 0.2
        runs.append(_run(number, pair, "naive", TRUTH * np.exp(random.normal(0, noise))))
    plain = fit_utilisation(shared_runs(PROFILES, runs, H200))
    busy, idle = (
        plain.interval(seen_by_driver(PROFILES[name]), 1.0) for name in (NAMES[-1], NAMES[0])
    )
    assert idle.p95 / idle.p05 > 1.1 * busy.p95 / busy.p05


@pytest.fixture(scope="module")
def contrary():
    """Fitted to made-up runs in which a tight limit hastens a job: no more than noise can be."""
    random, runs = np.random.default_rng(8), []
    for number in range(80):
        pair = [PROFILES[name] for name in random.choice(NAMES, 2)]
        limits = random.choice((14, 28, 43, 57, 86), 2)
        factor = TRUTH * (limits / 50.0) ** 1.5
        runs.append(_run(number, pair, f"mps={limits[0]},{limits[1]}", factor))
    return fit(PROFILES, runs, H200)


@given(
    names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=4),
    limits=st.lists(st.integers(5, 100), min_size=4, max_size=4),
    raised=st.integers(5, 100),
)
def test_raising_its_own_limit_never_slows_a_job(contrary, names, limits, raised):
    bare, predictor = _bare(names), Predictor(H200, contrary)
    low, high = sorted((limits[0], raised))
    tight, loose = (
        predictor.predict(bare, Mps((float(own), *map(float, limits[1 : len(names)])))).jobs[0]
        for own in (low, high)
    )
    assert loose.step_s.p50 <= tight.step_s.p50 * (1 + 1e-9)


def test_runs_whose_profiles_say_nothing_of_the_gpu_teach_nothing():
    silent = {name: replace(p, counters=None, gpu_s=None) for name, p in PROFILES.items()}
    assert fit_utilisation(shared_runs(silent, _runs()[:6], H200)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plain: plain["gpu_bound"].update(low=0.1), "both sides"),
        (lambda plain: plain.update(weights=[1.0]), "other columns"),
        (lambda plain: plain.update(scale=[0.0] * len(plain["scale"])), "above 0"),
    ],
)
def test_a_malformed_answer_without_traces_is_refused(model, tmp_path, change, said):
    document = json.loads(model_text(model))
    change(document["capacity"]["mps"])
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=said):
        load_model(path)


def test_where_nothing_was_learnt_the_capacity_model_stands_as_it_is(model):
    nothing = UtilisationModel(gpu_bound=NO_BOUNDS, host_bound=NO_BOUNDS)
    untaught = replace(model, capacity={"naive": nothing})
    mix = Predictor(H200, untaught).predict(_bare(), Naive())
    said = capacity_steps(_bare(), Naive())
    assert [job.step_s.p50 for job in mix.jobs] == pytest.approx(said)
