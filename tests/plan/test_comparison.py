from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.candidates import CappedPredictor
from advisor.plan.comparison import Difference, compare
from advisor.plan.forecast import Mixes, forecast
from advisor.prediction.interval import LEVELS, Interval
from advisor.report.comparison_text import comparison_document, comparison_text, job_reason
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

SMALL = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
LARGE = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
JOBS = (SMALL, LARGE)
PLANS = ("serial", "naive", "mps", "mps=30,70", "mig=3g.71gb,3g.71gb", "naive[1];mps[2]")
OBJECTIVES = ("makespan", "throughput", "energy", "mean-completion")


def compared(first, second, jobs=JOBS, objective="makespan", wide=0.1):
    mixes = Mixes(jobs, StandIn(wide=wide))
    plans = forecast(mixes, parse_sharing(first)), forecast(mixes, parse_sharing(second))
    return compare(jobs, H200, plans, objective)


def swapped(value):
    """A difference, or a pair, the other way round."""
    if isinstance(value, Difference):
        return Difference(value.second, value.first, value.alike)
    return value[::-1] if isinstance(value, tuple) else value


@given(st.sampled_from(PLANS), st.sampled_from(PLANS), st.sampled_from(OBJECTIVES))
def test_plans_compared_the_other_way_round_are_the_mirror_image(first, second, objective):
    there, back = (
        compared(*pair, objective=objective) for pair in ((first, second), (second, first))
    )
    for name in ("cost", "power_w", "plans", "bindings", "forbidden", "objective", "note"):
        assert getattr(back, name) == swapped(getattr(there, name))
    for change, other in zip(there.jobs, back.jobs, strict=True):
        for name in change.__slots__:
            assert getattr(other, name) == swapped(getattr(change, name))
        assert job_reason(back, other) == job_reason(there, change)
    assert comparison_text(back) == comparison_text(there)


@st.composite
def intervals(draw):
    bounds = st.floats(min_value=0.1, max_value=10.0)
    return Interval(*sorted(draw(st.tuples(bounds, bounds, bounds))))


@given(intervals(), intervals())
def test_no_difference_is_claimed_that_the_intervals_do_not_support(first, second):
    found = Difference(first, second)
    if found.less is not None:
        assert not first.contains(second.p50)
        assert not second.contains(first.p50)
        less, more = (first, second) if found.less == 0 else (second, first)
        assert less.p50 < more.p50
        assert (found.change > 0) == (found.less == 0)
    assert (found.less is None) == found.within_error


@given(st.sampled_from(PLANS), st.floats(min_value=0.0, max_value=0.9))
def test_a_plan_never_differs_from_itself(plan, wide):
    found = compared(plan, plan, wide=wide)
    assert found.cost.within_error
    for change in found.jobs:
        assert change.step_s.within_error
        assert job_reason(found, change).startswith("no difference in pace beyond our error")
    assert " come out the same (" in comparison_text(found)


def test_the_better_plan_is_named_with_how_far_it_is_ahead():
    said = comparison_text(compared("naive", "mps", [LARGE] * 2, wide=0.01))
    assert said.startswith("mps is 25% ahead of naive, more than our error (until all are done: ")


def test_what_the_intervals_do_not_tell_apart_may_be_equal():
    said = comparison_text(compared("naive", "mps", [LARGE] * 2, wide=0.5))
    assert said.startswith(
        "mps looks 25% ahead of naive, within our error: they may be equal (until "
    )


def test_each_job_says_which_resource_explains_its_pace():
    found = compared("serial", "naive", wide=0.01)
    assert job_reason(found, found.jobs[0]) == (
        "28.9x as fast under serial; naive: held back by GPU time (100%); "
        "serial: alone, held back by its host path (100%)"
    )
    slower = compared("mps", "mps=30,100", [LARGE] * 2, wide=0.01)
    assert "as fast under mps; mps=30,100: held back by " in job_reason(slower, slower.jobs[0])


def test_jobs_on_instances_are_held_back_by_their_own():
    found = compared("mps", "mig=3g.71gb,3g.71gb", [LARGE] * 2)
    assert found.jobs[1].limits == ("GPU time", "own instances")
    assert "mig=3g.71gb@0,3g.71gb@4: held back by its instance" in job_reason(found, found.jobs[0])


def test_a_plan_that_a_rule_forbids_is_said_to_be_none():
    big = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))
    found = compared("serial", "mps", [big, big])
    assert found.forbidden == (None, "does not fit: the jobs take 200,000 MiB of 143,771 MiB")
    assert "mps is no plan: does not fit: the jobs take 200,000 MiB" in comparison_text(found)
    users = [Job(LARGE.profile, user=user) for user in ("ada", "ben")]
    assert "mps is no plan: MPS serves one user" in comparison_text(compared("mps", "naive", users))


def test_without_epoch_lengths_plans_are_compared_by_throughput_and_it_is_said():
    endless = replace(LARGE.profile.workload, examples_per_epoch=None)
    found = compared("serial", "mps", [Job(replace(LARGE.profile, workload=endless)), SMALL])
    assert (found.objective, found.jobs[0].ends_s) == ("throughput", None)
    assert "Compared by throughput: makespan needs every job's length" in comparison_text(found)
    assert comparison_document(found)["jobs"][0]["ends_s"] is None


def under_a_cap(cap_w, wide):
    """MPS as it is, and under a cap."""
    jobs, free = (LARGE, LARGE), StandIn(wide=wide)
    plans = (
        forecast(Mixes(jobs, each), parse_sharing("mps"))
        for each in (free, CappedPredictor(free, H200, cap_w))
    )
    return compare(jobs, H200, tuple(plans))


@given(st.floats(234, 290), st.floats(0.01, 0.5))
def test_what_a_cap_does_is_as_sure_as_the_law_of_caps_however_unsure_the_pace(cap_w, wide):
    found = under_a_cap(cap_w, wide)  # of 300 W
    assert found.cost.less == 0
    assert not found.power_w.within_error
    assert "since both err alike" in comparison_text(found)


@given(st.floats(234, 700), st.floats(0.01, 0.5))
def test_no_cap_is_ever_said_to_speed_up(cap_w, wide):
    found = under_a_cap(cap_w, wide)
    for one in (found.cost, found.jobs[0].step_s):
        for level in LEVELS:
            assert one.second.at(level) >= one.first.at(level) * (1 - 1e-9)
    assert found.power_w.second.p95 <= min(cap_w, found.power_w.first.p95 * (1 + 1e-9))


@given(intervals(), intervals(), intervals())
def test_an_error_that_two_numbers_share_cancels_in_their_ratio(common, one, other):
    alone = common.times(one).over_alike(common)
    for level in LEVELS:
        assert alone.at(level) == pytest.approx(one.at(level), rel=1e-6)
    there = common.times(one).over_alike(common.times(other))
    back = common.times(other).over_alike(common.times(one))
    assert (back.p05, back.p95) == pytest.approx((1 / there.p95, 1 / there.p05))
