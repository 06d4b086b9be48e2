from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.prediction import power
from advisor.prediction.fit.observation import shared_runs
from advisor.prediction.fit.power_fit import fit_power
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.interval import Interval
from advisor.prediction.model_file import load_model, model_text
from advisor.prediction.power import Power, PowerLaw, power_in_turn, power_together, with_energy
from advisor.prediction.predictor import Predictor
from advisor.sharing import SHARED_MODES, Mps, Naive, Serial, parse_sharing
from advisor.workload.store import load_profiles, model_path
from advisor.workload.stored_runs import load_runs
from tests import synthetic

H200 = gpu("h200-141gb")
AWAKE_W = 116.0
shares = st.floats(0, 1)
laws = st.builds(
    PowerLaw, waiting=shares, working=st.floats(0, 2), working_half=st.floats(0, 2),
    gract=st.floats(0, 2), gract_least=shares, smact=st.floats(0, 2), smact_apart=st.floats(0, 2),
)  # fmt: skip
jobs = st.lists(st.tuples(st.floats(60, 700), shares), min_size=1, max_size=8)


def mix(drawn):
    return [replace(synthetic.profile(), power_w=watts) for watts, _ in drawn]


def whole_w(drawn, law):
    return Power(awake_w=AWAKE_W).shares_w(mix(drawn), [v for _, v in drawn], H200, law).sum()


@given(jobs, laws)
def test_power_is_never_below_that_of_the_awake_gpu_nor_above_its_limit(drawn, law):
    assert AWAKE_W - 1e-9 <= whole_w(drawn, law) <= H200.power_limit_w + 1e-6


@given(jobs, laws, st.floats(0, 1), st.data())
def test_a_job_that_gets_faster_never_makes_the_gpu_draw_less(drawn, law, more, data):
    at = data.draw(st.integers(0, len(drawn) - 1))
    watts, pace = drawn[at]
    faster = [*drawn[:at], (watts, pace + more * (1 - pace)), *drawn[at + 1 :]]
    assert whole_w(faster, law) >= whole_w(drawn, law) - 1e-9


@given(jobs, laws, st.floats(60, 700), shares)
def test_one_more_job_never_makes_the_gpu_draw_less(drawn, law, watts, pace):
    assert whole_w([*drawn, (watts, pace)], law) >= whole_w(drawn, law) - 1e-6


@given(jobs, laws)
def test_activity_stays_between_none_and_all(drawn, law):
    paces = [pace for _, pace in drawn]
    for share in (power.gract(mix(drawn), paces, law), power.smact(mix(drawn), paces, law)):
        assert 0 <= share <= 1


@given(jobs, laws, st.lists(st.floats(1, 100), min_size=8, max_size=8))
def test_a_job_that_limits_slow_is_slowed_only_while_the_gpu_works(drawn, law, slowdowns):
    profiles = mix(drawn)
    paces = [1 / slowed for _, slowed in zip(profiles, slowdowns, strict=False)]
    busy = power.gract_under_limits(profiles, paces, law)
    assert power.gract(profiles, paces, law) <= busy <= 1
    for profile, slowed in zip(profiles, slowdowns, strict=False):
        longer_s = profile.step_s * (slowed - 1)
        assert busy * profile.step_s * slowed >= longer_s * (1 - 1e-9)


def test_kernels_on_few_sms_keep_the_gpu_busy_all_the_time(real):
    profiles, _, model = real
    pair = [profiles["resnet50-imagenet64-bs128"]] * 2
    found = Predictor(H200, model).predict(pair, Mps((2.0, 2.0)))
    assert found.jobs[0].slowdown > 10
    assert found.gract > 0.95
    assert found.smact < 0.1


@given(jobs, laws, st.floats(1, 20))
def test_the_energy_of_all_steps_adds_up_to_what_the_gpu_draws(drawn, law, slowdown):
    profiles = mix(drawn)
    steps = [Interval(*[each.step_s * slowdown] * 3) for each in profiles]
    whole = power_together(profiles, steps, H200, Power(awake_w=AWAKE_W), law)
    a_second = sum(
        joules.p50 / step.p50 for joules, step in zip(whole.energy_step_j, steps, strict=True)
    )
    assert a_second == pytest.approx(whole.power_w.p50)


def test_jobs_in_turn_pay_for_their_own_power_alone():
    profiles = mix([(200, 1), (600, 1)])
    steps = [Interval(*[each.step_s] * 3) for each in profiles]
    whole = power_in_turn(profiles, steps, H200, Power(awake_w=AWAKE_W))
    assert whole.power_w.p50 == pytest.approx(400)
    assert [e.p50 for e in whole.energy_step_j] == pytest.approx(
        [200 * steps[0].p50, 600 * steps[1].p50]
    )


def test_a_job_without_power_leaves_the_power_of_its_mix_unsaid():
    dark = [replace(synthetic.profile(), power_w=None), synthetic.profile()]
    steps = [Interval(1, 1, 1)] * 2
    whole = power_together(dark, steps, H200, Power(awake_w=AWAKE_W), PowerLaw())
    assert whole.power_w is None
    assert whole.energy_step_j == (None, None)
    assert power_in_turn(dark, steps, H200, Power(awake_w=AWAKE_W)).power_w is None


def test_a_law_that_would_let_power_fall_with_pace_is_refused():
    with pytest.raises(InvalidInput, match="at least 0"):
        PowerLaw(working=-0.1)
    with pytest.raises(InvalidInput, match="hold its middle"):
        PowerLaw(low=0.1, high=0.2)


@pytest.fixture(scope="module")
def real():
    """The shipped profiles and runs, and the shipped model with power learnt from a quarter."""
    profiles = load_profiles(H200.key)
    runs = [run for run in load_runs(H200.key) if run.purpose != "repeat"]
    model = load_model(model_path())
    constants = model.of(H200)
    learnt = [each for each in shared_runs(profiles, runs[::4], H200) if each.mode in SHARED_MODES]
    power = fit_power(learnt, (), H200, constants.physics, ReplayCache())
    return profiles, runs, model.with_own(H200, replace(constants, power=power))


def test_recorded_power_and_activity_are_met_for_runs_that_were_not_fitted(real):
    profiles, runs, model = real
    seen = [
        run for index, run in enumerate(runs)
        if index % 4 and run.shows_pace and len(run.tenants) > 1
        and all(tenant.workload.name in profiles for tenant in run.tenants)
    ]  # fmt: skip
    misses = []
    for run in seen:
        chosen = [profiles[tenant.workload.name] for tenant in run.tenants]
        pairs = zip(chosen, run.tenants, strict=True)
        paces = [min(1.0, profile.step_s / tenant.step_s) for profile, tenant in pairs]
        sharing = parse_sharing(run.sharing)
        apart = sharing.keeps_sms_apart
        law = model.of(H200).power.law(sharing.mode, len(chosen), apart)
        watts = model.of(H200).power.shares_w(chosen, paces, H200, law).sum()
        misses.append((
            abs(watts / run.power_w - 1),
            abs(power.gract(chosen, paces, law) - run.counters.gract),
            abs(power.smact(chosen, paces, law) - run.counters.sm_active),
        ))  # fmt: skip
    off = np.mean(misses, axis=0)
    assert off[0] < 0.06
    assert max(off[1:]) < 0.05


def test_the_awake_gpu_draws_more_than_a_sleeping_one_and_less_than_any_job(real):
    profiles, _, model = real
    asleep = min(profile.idle_power_w for profile in profiles.values())
    assert (
        asleep
        < model.of(H200).power.awake_w
        <= min(profile.power_w for profile in profiles.values())
    )


def test_laws_read_back_equal_from_the_models_file(real, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(model_text(real[2]))
    assert load_model(path).of(H200).power == real[2].of(H200).power


@pytest.mark.parametrize("sharing", [Serial(), Naive(), Mps(), Mps((50.0, 50.0))])
def test_every_job_is_told_its_energy_by_step_by_epoch_and_by_example(real, sharing):
    profiles, _, model = real
    pair = [profiles["resnet50-imagenet64-bs128"], profiles["bert-base-finetune-bs16"]]
    foreseen = Predictor(H200, model).predict(pair, sharing)
    for job, profile in zip(foreseen.jobs, pair, strict=True):
        step = job.energy_step_j
        assert 0 < step.p05 < step.p50 < step.p95
        steps = profile.workload.steps_per_epoch
        assert job.energy_epoch_j.p50 == pytest.approx(steps * step.p50)
        assert job.energy_example_j.p50 == pytest.approx(step.p50 / profile.workload.batch)


def test_a_job_without_a_known_pass_has_no_energy_of_an_epoch(real):
    profiles, _, model = real
    profile = profiles["mlp-toy-bs128"]
    endless = replace(profile, workload=replace(profile.workload, examples_per_epoch=None))
    (job,) = Predictor(H200, model).predict([endless], Serial()).jobs
    assert job.energy_epoch_j is None
    assert job.energy_example_j.p50 > 0
    assert with_energy(job, endless, None) is job


def test_where_limits_keep_jobs_apart_another_law_of_activity_holds():
    power = Power(awake_w=AWAKE_W, laws={"mps-limits": PowerLaw(smact=0.9, smact_apart=0.8)})
    assert Mps((40, 60)).keeps_sms_apart
    assert not Mps((60, 60)).keeps_sms_apart
    assert not Mps().keeps_sms_apart, "without limits each may have every SM"
    assert power.law("mps-limits", 2).smact == 0.9
    assert power.law("mps-limits", 2, apart=True).smact == 0.8
