"""Power, its caps and limits, and activity: laws, and recorded runs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.gpus import gpu
from advisor.learn.memory_power import fit_power
from advisor.learn.observations import ReplayCache, shared_runs
from advisor.prediction import power
from advisor.prediction.caching_predictor import CachingPredictor
from advisor.prediction.model import load_model
from advisor.prediction.power import (
    POWER,
    TIME,
    Power,
    PowerLaw,
    check_cap,
    held_to,
    power_and_energy,
    throttled,
)
from advisor.prediction.prediction import LEVELS, Interval
from advisor.prediction.predictor import Predictor
from advisor.sharing import SHARED_MODES, Mps, Naive, Serial, parse_sharing
from advisor.workload.store import model_path, runs_by_owner, sound_profiles
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

AWAKE_W = 116.0
shares = st.floats(0, 1)
laws = st.builds(PowerLaw, waiting=shares, working=st.floats(0, 2), working_half=st.floats(0, 2))
draws = st.lists(st.tuples(st.floats(60, 700), shares), min_size=1, max_size=8)


def mix(drawn):
    return [replace(synthetic.profile(), power_w=watts) for watts, _ in drawn]


def whole_w(drawn, law):
    return Power(awake_w=AWAKE_W).shares_w(mix(drawn), [v for _, v in drawn], H200, law).sum()


@given(draws, laws, st.floats(0, 1), st.floats(60, 700), shares)
def test_power_stays_in_its_bounds_and_grows_with_pace_and_with_jobs(drawn, law, more, watts, pace):
    least_w = whole_w(drawn, law)
    assert AWAKE_W - 1e-9 <= least_w <= H200.power_limit_w + 1e-6
    faster = [(drawn[0][0], drawn[0][1] + more * (1 - drawn[0][1])), *drawn[1:]]
    for busier in (faster, [*drawn, (watts, pace)]):
        assert whole_w(busier, law) >= least_w - 1e-6


@given(draws, st.sampled_from([Serial(), Naive(), Mps()]))
def test_activity_is_a_share_and_grows_with_jobs(drawn, sharing):
    paces = [pace for _, pace in drawn]
    for activity in (
        lambda jobs: power.gract(mix(jobs), paces[: len(jobs)], sharing.mode),
        lambda jobs: power.smact(mix(jobs), paces[: len(jobs)], sharing),
    ):
        assert 0 <= activity(drawn) <= 1
        assert len(drawn) == 1 or activity(drawn[:1]) <= activity(drawn)


@given(draws, st.lists(st.floats(1, 100), min_size=8, max_size=8))
def test_a_job_that_limits_slow_is_slowed_only_while_the_gpu_works(drawn, slowdowns):
    profiles = mix(drawn)
    paces = [1 / slowed for _, slowed in zip(profiles, slowdowns, strict=False)]
    busy = power.gract(profiles, paces, "mps-limits")
    assert power.gract(profiles, paces, "serial") <= busy <= 1
    for profile, slowed in zip(profiles, slowdowns, strict=False):
        longer_s = profile.step_s * (slowed - 1)
        assert busy * profile.step_s * slowed >= longer_s * (1 - 1e-9)


@given(draws, laws, st.floats(1, 20))
def test_the_energy_of_all_steps_adds_up_to_what_the_gpu_draws(drawn, law, slowdown):
    profiles = mix(drawn)
    steps = [Interval(*[each.step_s * slowdown] * 3) for each in profiles]
    fitted = Power(awake_w=AWAKE_W, laws={"mps": law})
    power_w, energies = power_and_energy(profiles, steps, H200, fitted, "mps")
    a_second = sum(j.p50 / step.p50 for j, step in zip(energies, steps, strict=True))
    assert a_second == pytest.approx(power_w.p50)


def test_a_job_without_power_leaves_the_power_of_its_mix_unsaid():
    dark = [replace(synthetic.profile(), power_w=None), synthetic.profile()]
    steps = [Interval(1, 1, 1)] * 2
    for mode in ("mps", "serial"):
        whole = power_and_energy(dark, steps, H200, Power(awake_w=AWAKE_W), mode)
        assert whole == (None, (None, None))


@pytest.fixture(scope="module")
def real():
    """The shipped profiles and runs, and the shipped model with power learnt from one in thirty."""
    profiles = sound_profiles(H200.key)[0]
    runs = [run for run in runs_by_owner(H200.key)[0] if run.purpose != "repeat"]
    model = load_model(model_path())
    constants = model.of(H200)
    learnt = [each for each in shared_runs(profiles, runs[::30], H200) if each.mode in SHARED_MODES]
    power = fit_power(learnt, (), H200, constants.physics, ReplayCache())
    return (
        profiles,
        runs,
        replace(model, constants={**model.constants, H200.key: replace(constants, power=power)}),
    )


@pytest.mark.parametrize(("waiting", "working"), [(0.0, 1.0), (0.05, 0.9)])
def test_a_law_is_found_again_from_runs_that_follow_it(waiting, working):
    law, true = PowerLaw(waiting=waiting, working=working), Power(awake_w=AWAKE_W)
    random, runs = np.random.default_rng(1), []
    names = ["resnet26-cifar10-bs128", "mlp-toy-bs128", "lstm-wikitext-bs32", "unet-cifar10-bs64"]
    profiles = {
        name: replace(synthetic.profile(name), power_w=watts)
        for name, watts in zip(names, (118.0, 180.0, 260.0, 350.0), strict=True)
    }
    for number in range(60):
        pair = [profiles[name] for name in random.choice(names, 2)]
        slowdown = random.uniform(1, 3)
        watts = true.shares_w(pair, [1 / slowdown] * 2, H200, law).sum()
        run = synthetic.run(pair, slowdown=slowdown, run_id=f"r{number}")
        runs.append(replace(run, power_w=float(watts)))
    physics = load_model(model_path()).of(H200).physics
    fitted = fit_power(shared_runs(profiles, runs, H200), (), H200, physics, ReplayCache())
    assert fitted.awake_w == pytest.approx(AWAKE_W, rel=0.05)
    for pace in (0.3, 1.0):
        drawn_w = fitted.shares_w([*profiles.values()], [pace] * 4, H200, fitted.laws["mps"]).sum()
        expected_w = true.shares_w([*profiles.values()], [pace] * 4, H200, law).sum()
        assert drawn_w == pytest.approx(expected_w, rel=0.03)


def test_recorded_power_and_activity_are_met_for_runs_that_were_not_fitted(real):
    profiles, runs, model = real
    seen = [
        run
        for index, run in enumerate(runs)
        if index % 30
        and run.shows_pace
        and len(run.tenants) > 1
        and all(tenant.workload.name in profiles for tenant in run.tenants)
    ]
    misses = []
    for run in seen:
        chosen = [profiles[tenant.workload.name] for tenant in run.tenants]
        pairs = zip(chosen, run.tenants, strict=True)
        paces = [min(1.0, profile.step_s / tenant.step_s) for profile, tenant in pairs]
        sharing = parse_sharing(run.sharing)
        law = model.of(H200).power.law(sharing.mode, len(chosen))
        watts = model.of(H200).power.shares_w(chosen, paces, H200, law).sum()
        misses.append(
            (
                abs(watts / run.power_w - 1),
                abs(power.gract(chosen, paces, sharing.mode) - run.counters.gract),
                abs(power.smact(chosen, paces, sharing) - run.counters.sm_active),
            )
        )
    off = np.mean(misses, axis=0)
    assert off[0] < 0.06
    assert max(off[1:]) < 0.05


PAIR = [synthetic.profile("resnet26-cifar10-bs128"), synthetic.profile("mlp-toy-bs128")]
caps = st.floats(100, 700)


def ratio(law, power_w, cap_w):
    return np.exp(law.log_ratio(power_w, cap_w, 700.0))


@given(st.floats(80, 700), caps, caps)
def test_a_lower_cap_never_speeds_up_and_never_draws_more(power_w, one, other):
    low, high = sorted((one, other))
    assert ratio(TIME, power_w, low) >= ratio(TIME, power_w, high) - 1e-12
    assert ratio(POWER, power_w, low) <= ratio(POWER, power_w, high) + 1e-12
    assert ratio(TIME, power_w, high) >= 1 - 1e-12
    assert ratio(POWER, power_w, high) <= 1 + 1e-12


def test_a_cap_below_what_the_jobs_draw_slows_them_and_widens_the_answer():
    free = StandIn().predict(PAIR, Mps())  # draws 300 W
    capped = CachingPredictor(StandIn(), H200, cap_w=240).predict(PAIR, Mps())
    assert 180 < capped.power_w.p50 < 250
    for job, before in zip(capped.jobs, free.jobs, strict=True):
        assert job.step_s.p50 > 1.05 * before.step_s.p50
        assert job.slowdown > before.slowdown
        assert job.step_s.p95 / job.step_s.p05 > before.step_s.p95 / before.step_s.p05


def test_jobs_without_power_cannot_be_capped_and_say_what_to_do():
    dark = [replace(PAIR[0], power_w=None), PAIR[1]]
    with pytest.raises(InvalidInput, match="Profile them"):
        CachingPredictor(StandIn(), H200, cap_w=300).predict(dark, Mps())


WATTS = st.lists(st.floats(80, 700), min_size=2, max_size=7)


def on_instances(watts):
    """Jobs on instances of their own that keep their pace alone, and what power does to them."""
    jobs = [replace(PAIR[0], power_w=each) for each in watts]
    alone = [Interval(each.step_s, each.step_s, each.step_s) for each in jobs]
    return alone, throttled(jobs, alone, H200, Power(awake_w=100.0))


@given(WATTS)
def test_jobs_on_instances_that_draw_more_than_the_gpu_may_slow_together(watts):
    alone, found = on_instances(watts)
    for before, after in zip(alone, found, strict=True):
        assert after.p05 == pytest.approx(before.p05)
        assert before.p50 * (1 - 1e-9) <= after.p50 <= after.p95
    if 100 + sum(each - 100 for each in watts if each > 100) < 0.6 * 700:
        assert all(
            after.p50 < 1.02 * before.p50 for before, after in zip(alone, found, strict=True)
        )


@pytest.mark.parametrize("watts", [0, 50, 200, 701, float("nan")])
def test_a_cap_that_the_gpu_cannot_be_set_to_is_refused_with_the_range(watts):
    with pytest.raises(InvalidInput, match="700 W"):
        check_cap(watts, H200)


SHARINGS = st.sampled_from([Serial(), Naive(), Mps()])
positive = st.floats(1e-3, 1e3)
WIDE = st.tuples(positive, positive, positive).map(lambda ends: Interval(*sorted(ends)))
WATTS_AND_STEPS = st.lists(st.tuples(WIDE, WIDE), min_size=1, max_size=5)


def mix_of(jobs, sharing):
    """Jobs with these watts and seconds of a step, whose powers add up where they run at once."""
    answer = StandIn().predict([synthetic.profile()] * len(jobs), sharing)
    of_jobs = tuple(
        replace(job, step_s=step, energy_step_j=watts.times(step))
        for job, (watts, step) in zip(answer.jobs, jobs, strict=True)
    )
    watts = [watts for watts, _ in jobs]
    total = [sum(each.at(level) for each in watts) for level in LEVELS]
    part = len(jobs) if sharing.mode == "serial" else 1
    return replace(answer, jobs=of_jobs, power_w=Interval(*total).scaled(1 / part))


@given(WATTS_AND_STEPS, SHARINGS, st.floats(1, 5000))
def test_no_gpu_draws_more_than_it_may_nor_uses_more_energy(jobs, sharing, most_w):
    held = held_to(mix_of(jobs, sharing), most_w)
    assert held.power_w.p95 <= most_w
    used_w = [job.energy_step_j.p95 / job.step_s.p95 for job in held.jobs]
    together_w = max(used_w) if sharing.mode == "serial" else sum(used_w)
    assert together_w <= most_w * (1 + 1e-9)


@given(WATTS_AND_STEPS, SHARINGS)
def test_a_limit_that_nothing_reaches_changes_nothing(jobs, sharing):
    mix = mix_of(jobs, sharing)
    assert held_to(mix, None) == mix
    held = held_to(mix, 1e12)
    assert held.power_w == mix.power_w
    assert [job.energy_step_j for job in held.jobs] == [job.energy_step_j for job in mix.jobs]


A100 = gpu("a100-40gb")


@pytest.fixture(scope="module")
def predictor():
    return Predictor(A100, load_model(model_path()))


def job(host_s, gpu_s):
    return replace(synthetic.profile(host_s=host_s, gpu_s=gpu_s), gpu=A100.key)


BUSY, IDLE = job(0.001, 0.02), job(0.02, 0.0005)


FULL = replace(BUSY, counters=replace(BUSY.counters, sm_active=1.0))


@pytest.mark.parametrize(
    ("jobs", "sharing", "slices"),
    [
        ([BUSY], "mig=1g.5gb", 1),
        ([BUSY], "mig=7g.40gb", 7),
        ([BUSY] * 2, "mig=3g.20gb,3g.20gb", 6),
        ([BUSY] * 7, "mig=" + ",".join(["1g.5gb"] * 7), 7),
        ([BUSY, IDLE], "mig=4g.20gb[1,2]/mps", 4),
    ],
)
def test_a_full_instance_counts_for_its_slices(predictor, jobs, sharing, slices):
    found = predictor.predict(jobs, parse_sharing(sharing))
    assert found.gract == pytest.approx(slices / 7, rel=0.15)


@pytest.mark.parametrize(
    ("name", "sms"), [("1g.5gb", 14), ("2g.10gb", 28), ("4g.20gb", 56), ("7g.40gb", 98)]
)
def test_a_job_keeps_busy_at_most_the_sms_of_its_instance(predictor, name, sms):
    found = predictor.predict([FULL], parse_sharing(f"mig={name}")).smact
    assert 0.6 * sms / A100.sms < found <= sms / A100.sms * (1 + 1e-9)
