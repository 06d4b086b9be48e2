from itertools import permutations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.objectives import OBJECTIVES
from advisor.plan.search.fleet.group_costs import WAYS
from advisor.plan.search.fleet.placement import Problem, dealt, job_ends_s, makespan_s, queued
from advisor.plan.search.fleet.queue_order import soonest_first
from tests.plan.search.fleet.test_packing import group

GROUPS = st.lists(
    st.lists(st.floats(100.0, 9000.0), min_size=1, max_size=3), min_size=1, max_size=5
)  # fmt: skip


def problem_of(groups, gpus, objective="makespan"):
    return Problem(
        objective=OBJECTIVES[objective], gpus=gpus, counts=(1,) * len(groups),
        alone_s=(1.0,) * len(groups), least_s=(1.0,) * len(groups),
        deadlines_s=(None,) * len(groups), idle_power_w=None,
    )  # fmt: skip


def mean_end_s(plan):
    return fmean(end_s for _, end_s in job_ends_s(plan))


@given(GROUPS, st.integers(1, 3))
def test_jobs_end_as_soon_as_they_can_where_all_are_done_no_later(ends_s, gpus):
    groups = [group((kind,) * len(each), WAYS["naive"], each) for kind, each in enumerate(ends_s)]
    before = dealt(groups, gpus)
    after = soonest_first(before, problem_of(groups, gpus))
    assert makespan_s(after) <= makespan_s(before) * (1 + 1e-6)
    for gpu in range(gpus):
        own = [each.group for each in before if each.gpu == gpu]
        if own:
            least_s = min(mean_end_s(queued([order])) for order in permutations(own))
            done = mean_end_s([each for each in after if each.gpu == gpu])
            assert done == pytest.approx(least_s, rel=0.01)  # but for pauses


def test_a_plan_whose_cost_the_order_decides_stays_as_it_is():
    groups = [group((at,), WAYS["naive"], (end_s,)) for at, end_s in enumerate((9.0, 1.0))]
    plan = dealt(groups, 1)
    assert soonest_first(plan, problem_of(groups, 1, "deadlines")) == plan
