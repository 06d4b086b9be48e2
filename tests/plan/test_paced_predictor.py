"""Jobs that fill the GPU, predicted as the user's own runs of them were beside others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.plan.paced_predictor import PacedPredictor
from advisor.prediction.interval import Interval
from advisor.prediction.own_pace import OwnPace, OwnStep
from advisor.sharing import Instance, Mig, Mps, Naive, Serial
from tests import synthetic
from tests.plan.stand_in import StandIn

LARGE = synthetic.profile("bert-base-finetune-bs16", host_s=0.004, gpu_s=0.020)
OTHER = synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2)
THREE = Mig((Instance("3g.71gb"),) * 2)


class Metered(StandIn):
    """With energy: each job draws 100 W."""

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        jobs = [replace(job, energy_step_j=job.step_s.scaled(100.0)) for job in mix.jobs]
        return replace(mix, jobs=tuple(jobs))


def paced(factor, mode="mps", profiled=LARGE.provenance.date):
    own = OwnPace(
        slowdown=1.0, runs=0, profiled=profiled, beside={mode: OwnStep(factor=factor, runs=3)}
    )
    return PacedPredictor(Metered(), {LARGE.name: own})


def test_a_job_is_as_much_slower_beside_others_as_in_earlier_runs():
    plain, own = (each.predict([LARGE, OTHER], Mps()) for each in (Metered(), paced(1.1)))
    before, after = plain.jobs[0], own.jobs[0]
    for name in ("step_s", "epoch_s", "energy_step_j"):
        wanted = getattr(before, name).scaled(1.1)
        assert getattr(after, name) == wanted
    assert after.slowdown == pytest.approx(1.1 * before.slowdown)
    assert own.weighted_speedup == pytest.approx(sum(1 / job.slowdown for job in own.jobs))
    assert own.power_w == plain.power_w


def test_its_mates_are_predicted_as_before():
    plain, own = (each.predict([LARGE, OTHER], Mps()) for each in (Metered(), paced(1.1)))
    assert own.jobs[1] == plain.jobs[1]


@pytest.mark.parametrize("sharing", [Serial(), Naive(), Mps((50.0, 50.0)), THREE])
def test_runs_under_mps_say_nothing_of_other_ways_to_share(sharing):
    asked = [LARGE, OTHER], sharing
    assert paced(1.1).predict(*asked) == Metered().predict(*asked)


def test_limits_of_all_sms_are_no_limits():
    found = paced(1.1).predict([LARGE, OTHER], Mps((100.0, 100.0)))
    assert found.jobs == paced(1.1).predict([LARGE, OTHER], Mps()).jobs


def test_a_job_alone_is_as_it_was_profiled():
    assert paced(1.1).predict([LARGE], Mps()) == Metered().predict([LARGE], Mps())


def test_a_profile_that_was_made_since_is_left_as_it_is():
    since = paced(1.1, profiled="2026-01-01T00:00:00+00:00")
    assert since.predict([LARGE, OTHER], Mps()) == Metered().predict([LARGE, OTHER], Mps())


@given(factor=st.floats(0.01, 100.0), copies=st.integers(2, 5))
def test_equal_jobs_have_equal_answers_and_none_is_faster_than_alone(factor, copies):
    first, *others = paced(factor).predict([LARGE] * copies, Mps()).jobs
    assert all(each == first for each in others)
    assert first.slowdown >= 1 - 1e-9
    assert first.step_s.p50 >= LARGE.step_s * (1 - 1e-9)


@given(factor=st.floats(0.01, 100.0))
def test_ranges_stay_as_wide(factor):
    def ends(step_s: Interval) -> tuple[float, float]:
        return step_s.p05 / step_s.p50, step_s.p95 / step_s.p50

    found, plain = (
        each.predict([LARGE, OTHER], Mps()).jobs[0].step_s for each in (paced(factor), Metered())
    )
    assert ends(found) == pytest.approx(ends(plain))


def test_an_impossible_factor_is_refused():
    with pytest.raises(InvalidInput, match="factor on steps in runs of your own"):
        OwnStep(factor=0.0, runs=1)
