"""What binds a plan, why it is where it is, and no claim that intervals do not support."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import known_cost, starved, tied, weighed
from advisor.plan.ranking import verdict
from advisor.plan.reasons import binding, compare, limit_in_words
from advisor.prediction.caching_predictor import CachingPredictor
from advisor.prediction.prediction import LEVELS, Interval
from advisor.report.comparison import comparison_text
from advisor.report.recommendation import answer
from advisor.sharing import Mps, Serial, parse_sharing
from advisor.sharing.groups import one_by_one
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn, ranked

GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
ADA, BEN = (Job(GPU_BOUND.profile, user=user) for user in ("ada", "ben"))


def test_the_best_plan_names_what_was_ruled_out_and_by_which_rule():
    best, *others = ranked([ADA, BEN], H200, StandIn(), "makespan").plans
    assert "; ruled out: mps (MPS serves one user at a time, and these jobs are of" in best.why
    assert not any("ruled out" in plan.why for plan in others)


HOST_BOUND = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))


def bound(jobs, sharing, **changes):
    """What binds `jobs`, where the prediction says `changes`."""
    return binding(jobs, H200, predicted(jobs, sharing, **changes))


def predicted(jobs, sharing, **changes):
    return replace(Mixes(jobs, StandIn()).whole(parse_sharing(sharing)), **changes)


def watts(share):
    value = H200.power_limit_w * share
    return StandIn(wide=0)._around(value)


def with_dram(job, share):
    counters = replace(job.profile.counters, dram_active=share)
    return replace(job, profile=replace(job.profile, counters=counters))


def test_jobs_that_wait_for_their_hosts_are_bound_by_them_under_every_sharing():
    for sharing in ("serial", "naive", "mps", "mps=50,50", "mig=3g.71gb,3g.71gb"):
        found = bound([HOST_BOUND] * 2, sharing, smact=0.5)
        assert found.limit == found.limit_of(0) == "host path"
        assert found.use_of(0) == pytest.approx(1)


@pytest.mark.parametrize(
    ("changes", "dram", "limit"),
    [
        ({"smact": 0.9, "power_w": watts(0.5)}, 0.1, "SMs"),
        ({"smact": 0.7, "power_w": watts(1.0)}, 0.1, "power"),
        ({"smact": 0.7, "power_w": watts(0.5)}, 0.9, "DRAM bandwidth"),
        ({"smact": 0.7, "power_w": watts(0.5)}, 0.1, None),
        ({"smact": None, "gract": 1.0, "power_w": None}, 0.1, "GPU time"),
    ],
)
def test_side_by_side_the_fullest_resource_of_the_gpu_binds(changes, dram, limit):
    jobs = [with_dram(GPU_BOUND, dram)] * 2
    found = bound(jobs, "mps", **changes)
    assert found.limit == found.limit_of(1) == limit


def test_what_was_not_measured_binds_nobody_and_is_said_to_be_unknown():
    counters = replace(GPU_BOUND.profile.counters, dram_active=None)
    dark = Job(replace(GPU_BOUND.profile, host_s=None, power_w=None, counters=counters))
    mix = predicted([dark], "mps", smact=None, gract=None, power_w=None)
    found = binding([dark], H200, mix)
    assert (found.uses, found.host_shares, found.limit) == ({}, (None,), None)
    assert limit_in_words(mix, found) == "GPU activity not measured"


SMALL = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
LARGE = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
JOBS = (SMALL, LARGE)
PLANS = ("serial", "naive", "mps", "mps=30,70", "mig=3g.71gb,3g.71gb", "naive[1];mps[2]")
OBJECTIVES = ("makespan", "throughput", "energy", "mean-completion")


def compared(first, second, jobs=JOBS, objective="makespan", wide=0.1):
    mixes = Mixes(jobs, StandIn(wide=wide))
    plans = forecast(mixes, parse_sharing(first)), forecast(mixes, parse_sharing(second))
    return compare(jobs, H200, plans, objective)


@given(st.sampled_from(PLANS), st.sampled_from(PLANS), st.sampled_from(OBJECTIVES))
def test_plans_compared_the_other_way_round_are_the_mirror_image(first, second, objective):
    there, back = (
        compared(*pair, objective=objective) for pair in ((first, second), (second, first))
    )
    for name in ("forecast", "binding", "forbidden", "cost"):
        assert [getattr(each, name) for each in back.plans] == [
            getattr(each, name) for each in there.plans[::-1]
        ]
    assert (back.objective, back.note) == (there.objective, there.note)
    gains = there.plans[1].gain_over_first, back.plans[1].gain_over_first
    for level, opposite in zip(LEVELS, reversed(LEVELS), strict=True):
        assert gains[0].at(level) == pytest.approx(1 / gains[1].at(opposite))
    for at in range(len(JOBS)):
        step = there.plans[1].step_over_first[at]
        assert step.p50 == pytest.approx(1 / back.plans[1].step_over_first[at].p50)
    assert comparison_text(back) == comparison_text(there)


@given(st.permutations(PLANS), st.sampled_from(OBJECTIVES))
def test_of_many_plans_the_best_is_allowed_and_is_the_one_that_comes_first(plans, objective):
    mixes = Mixes(JOBS, StandIn())
    compared_plans = [forecast(mixes, parse_sharing(each)) for each in plans]
    found = compare(JOBS, H200, compared_plans, objective)
    allowed = [each.forecast for each in found.plans if each.forbidden is None]
    best_plan = found.best.forecast
    assert best_plan in allowed
    fair = [plan for plan in allowed if not starved(plan, "p50")]
    costs = [weighed(known_cost(plan, found.objective).p50, plan.sharing) for plan in fair]
    best = weighed(known_cost(best_plan, found.objective).p50, best_plan.sharing)
    assert best == min(costs)
    assert found.plans[0].gain_over_first.p50 == 1


@st.composite
def intervals(draw):
    bounds = st.floats(min_value=0.1, max_value=10.0)
    return Interval(*sorted(draw(st.tuples(bounds, bounds, bounds))))


@given(st.sampled_from(PLANS), st.floats(min_value=0.0, max_value=0.9))
def test_a_plan_never_differs_from_itself(plan, wide):
    found = compared(plan, plan, wide=wide)
    assert found.plans[1].gain_over_first.contains(1)
    for at in range(len(JOBS)):
        assert found.plans[1].step_over_first[at].contains(1)
    assert ": equal to " in comparison_text(found)


def under_a_cap(cap_w, wide):
    """MPS as it is, and under a cap."""
    jobs, free = (LARGE, LARGE), StandIn(wide=wide)
    plans = (
        forecast(Mixes(jobs, each), parse_sharing("mps"))
        for each in (free, CachingPredictor(free, H200, cap_w=cap_w))
    )
    return compare(jobs, H200, tuple(plans))


@given(st.floats(234, 290), st.floats(0.01, 0.5))
def test_what_a_cap_does_is_as_sure_as_the_law_of_caps_however_unsure_the_pace(cap_w, wide):
    found = under_a_cap(cap_w, wide)  # of 300 W
    assert found.best is found.plans[0]
    assert found.plans[1].gain_over_first.p95 <= 1 + 1e-9
    assert ", a tie" not in comparison_text(found)


@given(intervals(), intervals(), intervals())
def test_an_error_that_two_numbers_share_cancels_in_their_ratio(common, one, other):
    alone = common.times(one).over_alike(common)
    for level in LEVELS:
        assert alone.at(level) == pytest.approx(one.at(level), rel=1e-6)
    there = common.times(one).over_alike(common.times(other))
    back = common.times(other).over_alike(common.times(one))
    assert (back.p05, back.p95) == pytest.approx((1 / there.p95, 1 / there.p05))


class Slowing(StandIn):
    """Sharing costs a third more than it gives."""

    def _steps(self, profiles, sharing):
        if isinstance(sharing, Serial):
            return super()._steps(profiles, sharing)
        return [1.3 * sum(each.step_s for each in profiles)] * len(profiles)


class Plain(StandIn):
    """Every sharing but plain MPS costs a third more than it gives."""

    def _steps(self, profiles, sharing):
        steps = super()._steps(profiles, sharing)
        return steps if sharing in (Serial(), Mps()) else [1.3 * each for each in steps]


class Apart(StandIn):
    """Under plain MPS nobody is in anybody's way."""

    def _steps(self, profiles, sharing):
        if sharing == Mps():
            return [each.step_s for each in profiles]
        return [2 * each for each in super()._steps(profiles, sharing)]


def advised(jobs, predictor=None, variants=()):
    return replace(ranked(jobs, H200, predictor or StandIn(), "makespan"), variants=variants)


def test_dont_share_says_by_how_much():
    found = advised([GPU_BOUND] * 3, Slowing(wide=0.01))
    assert verdict(found).answers == ("dont-share",)
    assert verdict(found).next_behind == pytest.approx(0.2, abs=0.01)
    assert answer(found).startswith("Don't share: ")
    assert "the best sharing has a gain of 0.83" in answer(found)


def test_plans_that_the_error_does_not_tell_apart_are_equal():
    found = advised([GPU_BOUND] * 2, StandIn(wide=0.5))
    assert verdict(found).answers == ("share", "equal")
    assert found.plans[1].ties_best


@settings(deadline=None)
@given(st.floats(min_value=0.0, max_value=0.9), st.sampled_from([StandIn, Slowing, Plain, Apart]))
def test_the_answer_claims_no_difference_that_the_intervals_do_not_support(wide, predictor):
    found = advised([HOST_BOUND, GPU_BOUND], predictor(wide=wide))
    best, *others = found.plans
    equal = any(tied(best, other, "makespan") for other in others)
    assert ("equal" in verdict(found).answers) == equal
    sure = next((plan for plan in found.plans if plan.gain.p05 > 1), None)
    if found.best.gain.p05 < 1 and not one_by_one(found.best.sharing):
        assert ("To be sure of a gain" in answer(found)) == (sure is not None)
        assert sure is None or f"take {sure.sharing}: " in answer(found)
    else:
        assert "To be sure of a gain" not in answer(found)
