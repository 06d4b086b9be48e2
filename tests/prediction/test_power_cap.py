from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.plan.candidates import CappedPredictor
from advisor.prediction.interval import Interval
from advisor.prediction.power import Power
from advisor.prediction.power_cap import POWER, TIME, check_cap, throttled
from advisor.sharing import Mps, Serial
from benchmarks import fit_power_cap
from tests import synthetic
from tests.plan.stand_in import StandIn

H200 = gpu("h200-141gb")
TRACES = Path(__file__).parents[3] / "shared" / "data" / "power_limit_training.csv"
PAIR = [synthetic.profile("resnet26-cifar10-bs128"), synthetic.profile("mlp-toy-bs128")]
caps = st.floats(100, 700)


def ratio(law, power_w, cap_w):
    return float(np.exp(law.log_ratio(*(np.array([w]) for w in (power_w, cap_w, 700.0))))[0])


@given(st.floats(80, 700), caps, caps)
def test_a_lower_cap_never_speeds_up_and_never_draws_more(power_w, one, other):
    low, high = sorted((one, other))
    assert ratio(TIME, power_w, low) >= ratio(TIME, power_w, high) - 1e-12
    assert ratio(POWER, power_w, low) <= ratio(POWER, power_w, high) + 1e-12
    assert ratio(TIME, power_w, high) >= 1 - 1e-12
    assert ratio(POWER, power_w, high) <= 1 + 1e-12


def test_the_gpus_own_limit_as_a_cap_changes_nothing_but_the_label():
    free = StandIn().predict(PAIR, Mps())
    capped = CappedPredictor(StandIn(), H200, 700).predict(PAIR, Mps())
    assert [job.step_s.p50 for job in capped.jobs] == [job.step_s.p50 for job in free.jobs]
    assert capped.power_w.p50 == pytest.approx(free.power_w.p50)
    assert capped.power_cap_w == 700
    assert not capped.confirmed_on_hardware


def test_a_cap_below_what_the_jobs_draw_slows_them_and_widens_the_answer():
    free = StandIn().predict(PAIR, Mps())  # draws 300 W
    capped = CappedPredictor(StandIn(), H200, 240).predict(PAIR, Mps())
    assert 180 < capped.power_w.p50 < 250
    for job, before in zip(capped.jobs, free.jobs, strict=True):
        assert job.step_s.p50 > 1.05 * before.step_s.p50
        assert job.slowdown > before.slowdown
        assert job.step_s.p95 / job.step_s.p05 > before.step_s.p95 / before.step_s.p05


def test_jobs_in_turn_are_each_slowed_by_their_own_power():
    class Uneven(StandIn):
        def predict(self, profiles, sharing):
            mix = super().predict(profiles, sharing)
            watts = np.mean([100.0 if p.name.startswith("mlp") else 600.0 for p in profiles])
            return replace(mix, power_w=self._around(float(watts)))

    capped = CappedPredictor(Uneven(), H200, 300).predict(PAIR, Serial())
    hungry, modest = capped.jobs
    assert hungry.slowdown > 1.3
    assert modest.slowdown == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("watts", [0, -5, 200, 701, float("nan"), float("inf")])
def test_a_cap_that_the_gpu_cannot_be_set_to_is_refused_with_the_range(watts):
    with pytest.raises(InvalidInput, match="Use 234 W to 700 W"):
        check_cap(watts, H200)


def test_a_cap_that_is_lower_than_any_measured_is_told_from_one_that_cannot_be_set():
    with pytest.raises(
        InvalidInput, match=r"50 W is too low .* how low it can be set is not known"
    ):
        check_cap(50, H200)
    with pytest.raises(InvalidInput, match="701 W cannot be set on"):
        check_cap(701, H200)


def test_where_the_least_cap_is_known_it_is_checked_too():
    known = replace(H200, power_limit_min_w=200.0)
    check_cap(200, known)
    with pytest.raises(
        InvalidInput, match="cannot be set on h200-141gb, which takes 200 W to 700 W"
    ):
        check_cap(199, known)
    with pytest.raises(InvalidInput, match="not known"):
        check_cap(300, replace(H200, power_limit_w=None))


def test_jobs_without_power_cannot_be_capped_and_say_what_to_do():
    dark = [replace(PAIR[0], power_w=None), PAIR[1]]
    with pytest.raises(InvalidInput, match="Profile them anew"):
        CappedPredictor(StandIn(), H200, 300).predict(dark, Mps())


@pytest.mark.skipif(not TRACES.is_file(), reason="the published traces do not lie here")
@pytest.mark.parametrize(("what", "law"), [("time", TIME), ("power", POWER)])
def test_the_constants_are_those_that_the_published_traces_give(what, law):
    data = fit_power_cap.read(TRACES)
    assert len(data.gpu) > 800
    assert fit_power_cap.fit(data, what) == law
    for by, most in (("network", 0.08), ("gpu", 0.12)):
        left_out = np.abs(fit_power_cap.errors(data, law, what, by))
        as_if_uncapped = np.abs(1 / getattr(data, what) - 1)
        assert left_out.mean() < min(most, as_if_uncapped.mean())


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


def test_a_job_that_is_near_the_limit_alone_slows_less_than_one_that_is_not():
    (before, _, _), (hot, cool, _) = on_instances([650, 300, 300])
    assert before.p50 < hot.p50 < cool.p50


def test_jobs_of_which_no_power_is_known_are_left_as_they_are():
    jobs = [replace(PAIR[0], power_w=None)] * 2
    steps = [Interval(1.0, 1.0, 1.0)] * 2
    assert throttled(jobs, steps, H200, Power(awake_w=100.0)) == steps
