"""What no plan can save, beside all plans there are."""

from dataclasses import replace
from itertools import combinations_with_replacement

from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.fleet_terms import FleetTerms
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.recommendation import Question
from advisor.plan.search.fleet.group_costs import WAYS, PredictedGroups
from advisor.plan.search.fleet.group_pool import MOST_TOGETHER
from advisor.plan.search.fleet.placement import Problem
from advisor.plan.search.job_sets import kinds
from advisor.plan.search.proposals import WholeGpuSolver
from advisor.report.fleet_text import search_line
from advisor.workload.job import Job
from tests.plan.search.fleet import twin
from tests.plan.search.fleet.drawn import AIMS, NO_MIG, PROFILES, drawn_jobs, made, planned
from tests.plan.search.fleet.obvious import alone_s
from tests.plan.search.fleet.test_packing import puzzles
from tests.plan.stand_in import StandIn


@given(puzzles())
def test_no_plan_costs_less_than_what_jobs_take_alone_at_least(puzzle):
    problem, groups = puzzle
    known = problem.objective.least_cost(problem, problem.gpus * MOST_TOGETHER)
    assert (known is None) == (problem.objective.name == "energy")
    if known is not None:
        assert known <= twin.least_cost(groups, problem) * (1 + 1e-9)


def every_group(jobs, terms):
    """All groups of `jobs`, time-sliced and under MPS."""
    question = Question(
        gpu=NO_MIG, predictor=StandIn(), objective="makespan", conditions=terms.conditions
    )
    jobs = kinds(jobs).together
    distinct = kinds(jobs)
    objective = OBJECTIVES[terms.objective]
    solvers = [WholeGpuSolver(jobs, question, way) for way in WAYS.values()]
    sources = [PredictedGroups(distinct, each, objective) for each in solvers]
    member_sets = [
        members
        for size in range(1, len(jobs) + 1)
        for members in combinations_with_replacement(range(len(distinct.jobs)), size)
        if distinct.allows(members)
    ]
    found = [
        source.group(members)
        for members in member_sets
        for source in sources[: 1 + (len(members) > 1)]
    ]
    return [each for each in found if each is not None]


@given(drawn_jobs(most=4), st.integers(1, 2), st.sampled_from(AIMS))
def test_of_few_jobs_no_plan_is_better_and_the_bound_holds(drawn, gpus, aim):
    jobs = made(drawn)
    terms = FleetTerms(objective=aim, gpus=gpus, limit_s=500.0)
    found = planned(jobs, terms)
    asked = replace(terms, objective=found.ranked_by)
    distinct = kinds(jobs)
    alone = tuple(alone_s(job) for job in distinct.jobs)
    ones = (1.0,) * len(alone)
    known = ones if found.ranked_by == "throughput" else alone
    problem = Problem(
        objective=OBJECTIVES[found.ranked_by],
        gpus=gpus, counts=distinct.counts, alone_s=known, least_s=known,
        deadlines_s=tuple(job.deadline_s for job in distinct.jobs),
        idle_power_w=found.idle_power_w,
    )  # fmt: skip
    least = twin.least_cost(every_group(jobs, asked), problem)
    assert found.search.complete
    assert found.search.bound <= least * (1 + 1e-9)
    assert found.search.cost <= least * (1 + 1e-3)
    said = search_line(found)
    others = "no plan with up to 8 jobs at once on a GPU, without limits and MIG,"
    assert f"{others} {'is better' if found.search.gap < 2e-3 else 'saves more than'}" in said


def test_a_gap_that_tells_nothing_of_the_plan_is_not_shown():
    drawn = [Job(PROFILES[at % 4], epochs=1 + at / 10) for at in range(16)]
    found = planned(drawn, FleetTerms(limit_s=100.0))
    assert not found.search.complete
    assert "best found in" in search_line(found)
    assert "%" not in search_line(found)


def test_nothing_is_said_of_joules_that_no_plan_can_save():
    drawn = [Job(PROFILES[at % 4], epochs=1 + at / 10) for at in range(16)]
    found = planned(drawn, FleetTerms(limit_s=100.0, objective="energy"))
    assert found.search.bound is None
    assert found.search.gap is None
