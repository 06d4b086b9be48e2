"""The words for a plan, and the reason why the best is first."""

from advisor.api import Advisor
from advisor.report.headline import difference, headline, why_first


def test_a_plan_that_costs_the_same_is_not_called_faster():
    advisor = Advisor("h200-141gb")
    advised = advisor.recommend(advisor.chosen_jobs(), gpus=2)
    costs_s = {plan.makespan_interval_s.p50 for plan in advised.plans}
    assert len(costs_s) < len(advised.plans), "two plans place the jobs in one way"
    assert "" in [difference(advised, each, advised.best) for each in advised.plans[1:]]
    texts = why_first(advised), *(headline(advised, each) for each in advised.plans)
    assert not any(" 0.0 %" in text for text in texts)
