from itertools import permutations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.objectives import OBJECTIVES
from advisor.plan.search.fleet.group_costs import WAYS
from advisor.plan.search.fleet.placement import Problem, dealt, job_ends_s, makespan_s, queued
from advisor.plan.search.fleet.queue_order import soonest_first
from advisor.sharing import Serial
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


@given(GROUPS, st.integers(1, 3), st.data())
def test_other_groups_let_jobs_end_sooner_and_no_gpu_later(ends_s, gpus, data):
    groups = [group((kind,) * len(each), WAYS["naive"], each) for kind, each in enumerate(ends_s)]
    alone = [group((kind,), WAYS["naive"], (data.draw(st.floats(10.0, 9000.0)),))
             for kind in range(len(ends_s))]  # fmt: skip
    before = soonest_first(dealt(groups, gpus), problem_of(groups, gpus))
    after = soonest_first(dealt(groups, gpus), problem_of(groups, gpus), [*groups, *alone])
    assert mean_end_s(after) <= mean_end_s(before) * (1 + 1e-9)
    for gpu in range(gpus):
        one, other = ([each for each in plan if each.gpu == gpu] for plan in (before, after))
        assert sorted(kind for kind, _ in job_ends_s(one)) == sorted(
            kind for kind, _ in job_ends_s(other)
        )
        if one:
            assert makespan_s(other) <= makespan_s(one) * (1 + 1e-6)


def test_a_gpu_that_is_done_early_anyhow_lets_its_jobs_end_early():
    """Two that end together after 50 s on a GPU, while another works for 100."""
    long, short = group((0,), Serial(), (100.0,)), group((1,), Serial(), (20.0,))
    both = group((1, 1), WAYS["mps"], (50.0, 50.0))
    problem = problem_of([long, short], 2)
    after = soonest_first(queued([[long], [both]]), problem, [long, short, both])
    assert [each.group for each in after] == [long, short, short]


def test_groups_stay_where_others_hardly_let_jobs_end_sooner():
    short = group((0,), Serial(), (40.0,))
    both = group((0, 0), WAYS["mps"], (40.0, 80.1))
    plan = queued([[both]])
    assert soonest_first(plan, problem_of([short], 1), [short, both]) == plan


def test_a_plan_whose_cost_the_order_decides_stays_as_it_is():
    groups = [group((at,), WAYS["naive"], (end_s,)) for at, end_s in enumerate((9.0, 1.0))]
    plan = dealt(groups, 1)
    assert soonest_first(plan, problem_of(groups, 1, "deadlines")) == plan
