"""A queue is offered where it wins: longest first, shortest first, or earliest due."""

from dataclasses import replace
from itertools import permutations

import pytest

from advisor.hardware.gpus import gpu
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import cost
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.sharing import Group, Mps, Queue
from advisor.sharing.groups import groups, in_turn, kind_of
from tests.plan.brute_force import Toy, drawn_jobs
from tests.plan.stand_in import ranked

L40S = gpu("l40s-48gb")


def jobs_of(lengths, **wishes):
    """Jobs of one kind that differ in length alone."""
    first = replace(drawn_jobs(1, 1)[0], user=None, isolated=False, data_parallel=False)
    return [replace(first, epochs=each, deadline_s=None, **wishes) for each in lengths]


def queues(jobs, objective, conditions=UNCONDITIONAL):
    """The plans that are queues."""
    plans = ranked(jobs, L40S, Toy(L40S), objective, conditions).plans
    return [each for each in plans if kind_of(each.sharing) == "queue"]


def order(plan, jobs):
    """Positions of the jobs, in the order in which they start."""
    (group,) = groups(plan.sharing, jobs)
    return [number - 1 for number in group.jobs]


def test_for_the_mean_completion_the_shortest_jobs_start_first():
    jobs = jobs_of([1, 3, 2, 5, 4])
    (plan,) = queues(jobs, "mean-completion")
    assert order(plan, 5) == [0, 2, 1, 4, 3]


def test_for_deadlines_the_job_that_is_due_first_starts_first():
    jobs = [
        replace(job, deadline_s=due_s)
        for job, due_s in zip(jobs_of([1, 1, 1, 1]), (900, 300, 600, 1200), strict=True)
    ]
    (plan,) = queues(jobs, "deadlines")
    assert order(plan, 4) == [1, 2, 0, 3]


@pytest.mark.parametrize("count", [1, 2])
def test_so_few_jobs_need_no_queue(count):
    assert not queues(jobs_of([1, 2][:count]), "makespan")


def test_jobs_of_different_users_share_no_queue():
    one, other, third = jobs_of([1, 2, 3])
    jobs = [replace(one, user="ada"), replace(other, user="ben"), third]
    assert not queues(jobs, "makespan", Conditions(root=False))


@pytest.mark.parametrize("objective", ["makespan", "mean-completion", "deadlines"])
def test_no_order_and_width_of_a_queue_is_much_better_than_the_one_offered(objective):
    jobs = [
        replace(job, user=None, isolated=False, data_parallel=False) for job in drawn_jobs(3, 4)
    ]
    (plan,) = queues(jobs, objective)
    mixes = Mixes(jobs, Toy(L40S))
    every = [
        in_turn([Group(order, Queue(Mps(), most))])
        for order in permutations(range(1, 5))
        for most in (2, 3)
    ]
    least = min(cost(forecast(mixes, each), objective).p50 for each in every)
    assert cost(plan, objective).p50 <= 1.02 * least
