"""Who is put first under MPS: the protected, or those with short steps."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.plan.fleet_plan import plan_fleet
from advisor.plan.fleet_terms import FleetTerms
from advisor.plan.ranking import ranked
from advisor.plan.search.priority_candidates import priority_candidates
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

SHORT = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
MIDDLE = Job(synthetic.profile("resnet50-imagenet64-bs128", host_s=0.01, gpu_s=0.05))
LONG = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))


def test_jobs_with_short_steps_are_put_before_those_with_long_ones():
    found = [each.priorities for each in priority_candidates([LONG, SHORT, MIDDLE])]
    assert found == [(1, 0, 1), (1, 0, 0)]


def test_copies_of_a_job_are_not_put_before_each_other():
    assert priority_candidates([LONG, LONG]) == []
    assert [each.priorities for each in priority_candidates([LONG, LONG, SHORT])] == [(1, 1, 0)]


def test_a_protected_job_comes_first_and_its_mates_may_be_limited():
    found = priority_candidates([SHORT, replace(LONG, protect=0.1)])
    assert {each.priorities for each in found} == {(), (1, 0)}
    assert {each.limits for each in found if each.limits} == {
        (57.0, 100.0), (43.0, 100.0), (28.0, 100.0), (14.0, 100.0)
    }  # fmt: skip
    assert priority_candidates([replace(LONG, protect=0.1)] * 2) == []


class LateWait(StandIn):
    """All take twice as long together, but for those that come first."""

    def _steps(self, profiles, sharing):
        late = sharing.priorities or (sharing.mode != "serial",) * len(profiles)
        return [each.step_s * (1 + bool(at)) for each, at in zip(profiles, late, strict=True)]


def test_no_plan_slows_a_protected_job_more_than_it_may_be_and_one_after_another_always_stays():
    jobs = [replace(SHORT, protect=0.1), LONG]
    advised = ranked(jobs, H200, LateWait(H200), "throughput")
    assert all(plan.prediction.jobs[0].slowdown <= 1.1 for plan in advised.plans)
    modes = {plan.sharing.mode for plan in advised.plans}
    assert "serial" in modes
    assert "mps-priority" in modes
    assert "mps" not in modes
    assert any("protected" in each.why for each in advised.left_out)


def test_a_protected_job_is_refused_where_nobody_looks_after_it():
    with pytest.raises(InvalidInput, match="protected"):
        plan_fleet([replace(SHORT, protect=0.1)], H200, StandIn(H200), FleetTerms(gpus=2))


@pytest.mark.parametrize("share", [-0.1, float("nan"), float("inf")])
def test_a_share_that_is_none_protects_nobody(share):
    with pytest.raises(InvalidInput, match="protect"):
        replace(SHORT, protect=share)
