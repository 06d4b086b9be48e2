"""The solver against a program that tries every plan.

A few hundred questions each time; ``python -m tests.plan.search.thousands`` asks as many as
there is time for.
"""

from random import Random

import pytest

from tests.plan.search.cases import A30, L40S, OBJECTIVES, Case, case, drawn

# Seeds for each number of jobs: the more jobs, the longer it takes to try every plan. Of five and
# six jobs most are left to `make check-all`.
SEEDS = [(count, seed) for count, seeds in {2: 12, 3: 12, 4: 10, 5: 2}.items()
         for seed in range(seeds)]  # fmt: skip
LONG = [pytest.param(count, seed, marks=pytest.mark.exhaustive)
        for count, seed in [(5, 2), (5, 3), (5, 4), (6, 0)]]  # fmt: skip


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("count", "seed"), [*SEEDS, *LONG])
def test_no_plan_is_better_than_the_one_found(objective, count, seed):
    asked = case(seed, count, objective)
    least, _ = asked.least()
    assert asked.found() <= least * (1 + 1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("level", ["p50", "p95"])
@pytest.mark.parametrize("seed", range(6))
def test_without_mig_the_plan_found_costs_what_the_best_plan_costs(objective, level, seed):
    random = Random(f"{objective} {level} {seed}")
    jobs = drawn(random, random.randint(2, 5), random.randint(1, 4), ruled=seed % 2 == 0)
    asked = Case(jobs, L40S, objective, level)
    least, _ = asked.least()
    assert asked.found() == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize(
    ("objective", "count"),
    [("makespan", 2), ("energy", 2), ("mean-completion", 2), ("throughput", 3)],
)
def test_no_groups_on_instances_one_after_another_are_better(objective, count):
    random = Random(f"phases {objective}")
    asked = Case(drawn(random, count, 2), A30, objective).lasting()
    least, _ = asked.least(phases_on_mig=True)
    assert asked.found() == pytest.approx(least, rel=1e-4)


def test_groups_on_instances_that_seem_better_do_not_hide_the_ones_that_are():
    # One instance at a time, instances seem faster than they are: how they slow each other comes
    # last.
    asked = case(0, 5, "throughput")
    least, _ = asked.least()
    assert asked.found() == pytest.approx(least, rel=1e-6)


def test_jobs_of_seconds_stay_on_instances_where_leaving_mig_takes_longer():
    asked = case(500016, 3, "makespan")
    least, _ = asked.least(phases_on_mig=True)
    assert asked.found() <= least + 0.5  # making and destroying a few instances
