"""What a plan is called, and why the best is first."""

from advisor.api import Advisor
from advisor.report.headline import why_first


def test_a_plan_that_costs_the_same_is_not_called_faster():
    advisor = Advisor("h200-141gb")
    advised = advisor.recommend(advisor.chosen_jobs(), gpus=2)
    costs_s = {plan.makespan_interval_s.p50 for plan in advised.plans}
    assert len(costs_s) < len(advised.plans), "two plans place the jobs in one way"
    assert "0.0 %" not in why_first(advised)
