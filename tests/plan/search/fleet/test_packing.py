"""Packing beside a program that looks at every plan."""

from collections import Counter
from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.objectives import OBJECTIVES
from advisor.plan.search.fleet.packing import bound, packed
from advisor.plan.search.fleet.placement import FleetGroup, Problem, dealt
from advisor.sharing import Mps, Naive, Serial
from tests.plan.search.fleet.twin import least_cost

AIMS = ("makespan", "mean-completion", "throughput", "energy", "deadlines")


@st.composite
def puzzles(draw):
    """A problem of up to four jobs, and groups of which each plan of it consists."""
    counts = draw(st.sampled_from([(1,), (1, 1), (2, 1), (1, 1, 1), (2, 2), (4,), (1, 1, 2)]))
    seconds = st.integers(500, 10_000).map(float)  # long beside what setting a GPU up takes
    alone_s = tuple(draw(seconds) for _ in counts)
    groups = [group((kind,), Serial(), [alone], 2 * alone) for kind, alone in enumerate(alone_s)]
    member_sets = [
        members
        for size in (2, 3)
        for members in combinations_with_replacement(range(len(counts)), size)
        if all(needed <= counts[kind] for kind, needed in Counter(members).items())
    ]
    for members in (
        draw(st.lists(st.sampled_from(member_sets), unique=True, max_size=3)) if member_sets else ()
    ):
        ends_s = [alone_s[kind] * draw(st.floats(1, 2)) for kind in members]
        sharing = draw(st.sampled_from([Naive(), Mps()]))
        groups.append(group(members, sharing, ends_s, draw(seconds) * len(members)))
    deadlines_s = tuple(draw(st.none() | seconds) for _ in counts)
    problem = Problem(
        objective=OBJECTIVES[draw(st.sampled_from(AIMS))],
        gpus=draw(st.integers(1, 3)), counts=counts,
        alone_s=alone_s, least_s=alone_s, deadlines_s=deadlines_s,
        idle_power_w=draw(st.floats(1, 100)),
    )  # fmt: skip
    return problem, groups


def group(members, sharing, ends_s, energy_j=100.0):
    return FleetGroup(
        members=tuple(members),
        sharing=sharing,
        ends_s=tuple(ends_s),
        energy_j=energy_j,
        predicted=True,
    )


def solved(problem, groups, limit_s=0.5):
    alone = [groups[kind] for kind, count in enumerate(problem.counts) for _ in range(count)]
    return packed(groups, problem, limit_s, dealt(alone, problem.gpus))


@given(puzzles())
def test_no_plan_is_better_than_the_one_found(puzzle):
    problem, groups = puzzle
    found = solved(problem, groups)
    least = least_cost(groups, problem)
    assert found.cost == pytest.approx(least, rel=1e-3)
    assert found.bound <= least * (1 + 1e-9)


@given(puzzles(), st.sampled_from([1e-3, 0.5]))
def test_each_job_runs_once_and_no_gpu_more_is_taken_than_given(puzzle, limit_s):
    problem, groups = puzzle
    plan = solved(problem, groups, limit_s).plan
    ran = Counter(kind for each in plan for kind in each.group.members)
    assert ran == Counter(dict(enumerate(problem.counts)))
    for gpu in {each.gpu for each in plan}:
        assert gpu in range(problem.gpus)
        own = sorted((each for each in plan if each.gpu == gpu), key=lambda each: each.start_s)
        for before, after in pairwise(own):
            ended_s = before.start_s + before.group.runs_s
            assert after.start_s >= ended_s + after.group.after_s(before.group) - 1e-9


def test_where_time_runs_out_at_once_jobs_run_one_by_one_and_the_gap_is_said():
    jobs = 20
    groups = [group((kind,), Serial(), [10.0 + kind]) for kind in range(jobs)]
    groups += [
        group((one, other), Naive(), [14.0 + one + other] * 2)
        for one in range(jobs) for other in range(one)
    ]  # fmt: skip
    problem = Problem(
        objective=OBJECTIVES["mean-completion"], gpus=3, counts=(1,) * jobs,
        alone_s=tuple(10.0 + kind for kind in range(jobs)),
        least_s=tuple(10.0 + kind for kind in range(jobs)), deadlines_s=(None,) * jobs,
        idle_power_w=None,
    )  # fmt: skip
    found = solved(problem, groups, limit_s=1e-3)
    assert not found.in_time
    assert found.bound < found.cost
    assert found.cost <= problem.cost(dealt(groups[:jobs], 3))


@given(puzzles())
def test_no_plan_falls_below_the_bound_that_looks_at_none(puzzle):
    problem, groups = puzzle
    assert bound(groups, problem, 1.0) <= least_cost(groups, problem) * (1 + 1e-9)
