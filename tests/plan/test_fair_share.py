"""How jobs fare beside each other: an equal share of the GPU's time is what sharing must beat."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.fair_share import treatments
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import known_cost
from advisor.prediction.interval import LEVELS
from advisor.report.treatment_text import UNFAIR, fairness_text
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import StandIn

SMALL = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
LARGE = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
PLANS = ("serial", "naive", "mps", "mps=30,70", "mig=3g.71gb,3g.71gb", "naive[1];mps[2]")


def shared(sharing):
    return forecast(Mixes((SMALL, LARGE), StandIn()), parse_sharing(sharing))


def slowed(*times):
    mix = shared("mps").prediction
    jobs = [replace(job, slowdown=each) for job, each in zip(mix.jobs, times, strict=True)]
    return replace(mix, jobs=tuple(jobs))


def test_a_job_that_is_slowed_more_often_than_there_are_jobs_is_unfair_and_marked():
    worse, better = treatments(slowed(3.0, 1.2))
    assert (worse.unfair, better.unfair) == (True, False)
    assert worse.over_equal_share.p50 == pytest.approx(1.5)
    assert worse.equal_slowdown == better.equal_slowdown == pytest.approx(2)
    said = fairness_text([worse, better])
    assert said.startswith(f"{UNFAIR} Unfair: {SMALL.name} takes 1.50x")
    assert LARGE.name not in said


def test_what_our_error_may_explain_is_not_called_unfair():
    fares = treatments(slowed(2.05, 1.0))
    assert not any(each.unfair for each in fares)
    assert fairness_text(fares).startswith("No job is worse off")


def test_one_after_another_nobody_pays_for_the_others_not_even_under_a_power_cap():
    mix = replace(shared("serial").prediction, power_cap_w=200.0)
    capped = replace(mix, jobs=tuple(replace(job, slowdown=1.5) for job in mix.jobs))
    assert not any(each.unfair for each in treatments(capped))


@given(st.sampled_from(PLANS))
def test_the_job_that_fares_worst_is_what_fairness_counts(sharing):
    plan = shared(sharing)
    worst = known_cost(plan, "fairness")
    fares = [each.over_equal_share for each in treatments(plan.prediction)]
    for level in LEVELS:
        assert worst.at(level) == pytest.approx(max(each.at(level) for each in fares))
