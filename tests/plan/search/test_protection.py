"""Limits that protect jobs, and plans that they rule out."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.plan.fleet_plan import plan_fleet
from advisor.plan.fleet_terms import FleetTerms
from advisor.plan.ranking import ranked
from advisor.plan.search.limit_tuning import protecting_limits
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

SHORT = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
LONG = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))


def test_the_jobs_that_are_not_protected_are_limited():
    found = protecting_limits([SHORT, replace(LONG, protect=0.1)])
    assert {each.limits for each in found} == {
        (57.0, 100.0), (43.0, 100.0), (28.0, 100.0), (14.0, 100.0)
    }  # fmt: skip
    assert protecting_limits([replace(LONG, protect=0.1)] * 2) == []
    assert protecting_limits([SHORT, LONG]) == []


class LimitedWait(StandIn):
    """Jobs take twice as long together, except a job whose partner has a limit of 14 %."""

    def _steps(self, profiles, sharing):
        if sharing.limits == (100.0, 14.0):
            return [profiles[0].step_s, 2 * profiles[1].step_s]
        return [each.step_s * (1 + (sharing.mode != "serial")) for each in profiles]


def test_no_plan_slows_a_protected_job_more_than_it_may_be_and_one_after_another_always_stays():
    jobs = [replace(SHORT, protect=0.1), LONG]
    advised = ranked(jobs, H200, LimitedWait(H200), "throughput")
    assert all(plan.prediction.jobs[0].slowdown <= 1.1 for plan in advised.plans)
    modes = {plan.sharing.mode for plan in advised.plans}
    assert "serial" in modes
    assert (100.0, 14.0) in {plan.sharing.limits for plan in advised.plans}
    assert "mps" not in modes
    assert any("protected" in each.why for each in advised.left_out)


def test_a_protected_job_is_refused_where_nobody_looks_after_it():
    with pytest.raises(InvalidInput, match="protected"):
        plan_fleet([replace(SHORT, protect=0.1)], H200, StandIn(H200), FleetTerms(gpus=2))


@pytest.mark.parametrize("share", [-0.1, float("nan"), float("inf")])
def test_a_share_that_is_none_protects_nobody(share):
    with pytest.raises(InvalidInput, match="protect"):
        replace(SHORT, protect=share)
