"""A queue is offered where it wins: longest first, shortest first, or earliest due."""

from dataclasses import replace

import pytest

from advisor.hardware.gpus import gpu
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import cost
from advisor.plan.ranking import ranked
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.sharing import Group, Mps, Queue
from advisor.sharing.groups import groups, in_turn, kind_of
from tests.plan.brute_force import Toy, drawn_jobs

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


def test_the_longest_jobs_start_first():
    jobs = jobs_of([1, 3, 2, 5, 4])
    (plan,) = queues(jobs, "makespan")
    assert order(plan, 5) == [3, 4, 1, 2, 0]


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


def test_the_queue_offered_is_nearly_as_good_as_the_best_one():
    jobs = [
        replace(job, user=None, isolated=False, data_parallel=False) for job in drawn_jobs(3, 5)
    ]
    (plan,) = queues(jobs, "makespan")
    line, mixes = tuple(at + 1 for at in order(plan, 5)), Mixes(jobs, Toy(L40S))
    every = [in_turn([Group(line, Queue(Mps(), most))]) for most in (2, 3, 4)]
    least = min(cost(forecast(mixes, each), "makespan").p50 for each in every)
    assert cost(plan, "makespan").p50 <= 1.03 * least
