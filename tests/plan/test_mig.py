"""The search for one GPU against a program that tries every plan, and laws of what it proposes."""

from collections import Counter
from dataclasses import replace
from math import inf
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NothingFits
from advisor.hardware.gpus import gpu
from advisor.hardware.mig import place
from advisor.plan import Layouts, ObjectiveName
from advisor.plan.objectives import cost
from advisor.plan.rules import Conditions, broken_rule, memory_problem
from advisor.sharing import Mig
from advisor.sharing.groups import check_count, groups, instance_sets, memories, most_at_once
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.brute_force import NAMES, Toy, drawn_jobs, every_plan
from tests.plan.stand_in import ranked

A30, L40S = gpu("a30-24gb"), gpu("l40s-48gb")
# Seven instances make more plans than can be tried.
_LARGE = replace(gpu("a100-40gb"), sources={})
A100 = replace(_LARGE, mig=tuple(each for each in _LARGE.mig if each.name != "1g.5gb"))
OBJECTIVES = get_args(ObjectiveName)
# Odd seeds have plain MIG, every fourth has no root. The others take seconds each.
QUICK = {(A30, 2): (0, 1, 3), (A30, 3): (2, 3), (A100, 3): (1,), (L40S, 3): (0, 3)}
CASES = [
    pytest.param(
        card,
        count,
        seed,
        marks=[pytest.mark.exhaustive] * (seed not in QUICK.get((card, count), ())),
    )
    for card, counts in ((A30, {2: 8, 3: 8, 4: 3}), (A100, {2: 3, 3: 2}), (L40S, {3: 4, 4: 2}))
    for count, seeds in counts.items()
    for seed in range(seeds)
]


def is_plain(sharing):
    """Whether each of its instances, if it has any, is whole and has one job."""
    parts = [part for each in instance_sets(sharing) for part in each.partitions]
    return all(part.slices is None and len(part.jobs) == 1 for part in parts)


@pytest.mark.parametrize(
    ("card", "count", "seed"), CASES, ids=lambda each: getattr(each, "key", each)
)
def test_no_plan_is_better_than_the_best_one_shown(card, count, seed):
    mig = "plain" if seed % 2 else "any"
    jobs, conditions = drawn_jobs(seed, count), Conditions(root=seed % 4 < 3, mig=mig)
    tried = [
        each
        for each in every_plan(jobs, card, conditions)
        if mig == "any" or is_plain(each.sharing)
    ]
    for objective in OBJECTIVES:
        for level in ("p50", "p95"):
            advised = ranked(jobs, card, Toy(card), objective, conditions, level)
            shown = min(cost(plan, objective).at(level) for plan in advised.plans)
            least = min(cost(each, objective).at(level) for each in tried)
            assert shown <= least * (1 + 1e-6), (objective, level)


KINDS = st.builds(
    lambda name, gpu_s, mib, epochs, user, isolated, parallel: Job(
        synthetic.profile(name, gpu_s=gpu_s, memory_mib=mib),
        epochs=epochs,
        user=user,
        isolated=isolated,
        data_parallel=parallel,
        deadline_s=600.0,
    ),
    st.sampled_from(NAMES),
    st.floats(0.001, 0.05),
    st.sampled_from([500, 3000, 9000, 20000]),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([None, "ada", "ben"]),
    st.sampled_from([False, False, True]),
    st.sampled_from([False, False, True]),
)
JOB_SETS = st.lists(KINDS, min_size=1, max_size=3).flatmap(
    lambda made: st.lists(st.sampled_from(made), min_size=2, max_size=6)
)


@given(
    JOB_SETS,
    st.sampled_from([A30, A100, L40S]),
    st.sampled_from(OBJECTIVES),
    st.booleans(),
    st.sampled_from(get_args(Layouts)),
)
def test_every_plan_shown_keeps_the_rules_and_fits_the_hardware(jobs, card, objective, root, mig):
    conditions = Conditions(root=root, memory_margin=0.1, mig=mig)
    advised = ranked(jobs, card, Toy(card), objective, conditions)
    shown = [plan.sharing for plan in advised.plans]
    assert len(set(map(str, shown))) == len(shown)
    for plan in advised.plans:
        check_count(plan.sharing, len(jobs))
        assert mig == "any" or is_plain(plan.sharing)
        assert broken_rule(jobs, plan.sharing, card, conditions) is None
        assert memory_problem(plan.prediction, card, 0.1) is None
        assert root or not (isinstance(plan.sharing, Mig) or instance_sets(plan.sharing))
        for hybrid in instance_sets(plan.sharing):
            assert place(card, hybrid.instances) == hybrid.instances
        for memory in memories(plan.sharing, len(jobs)):
            mates = [jobs[number - 1] for part in memory for number in part.jobs]
            held_mib = sorted(job.profile.memory.device_mib for job in mates)
            at_once = most_at_once(plan.sharing, len(jobs))  # a queue holds some of its jobs
            assert sum(held_mib[-at_once:]) <= card.memory_mib


def test_no_plan_on_the_instances_that_are_there_is_better_than_the_best_one_shown():
    there = ("2g.12gb", "1g.6gb", "1g.6gb")
    confined = Conditions(root=False, instances=there, mig="any")
    for count, seed in ((2, 0), (2, 1), (2, 2), (3, 0), (3, 1)):
        jobs = [
            replace(job, user=None, isolated=False, data_parallel=False)
            for job in drawn_jobs(seed, count)
        ]
        tried = list(every_plan(jobs, A30, confined))
        advised = ranked(jobs, A30, Toy(A30), "makespan", confined)
        for plan in advised.plans:
            for group in groups(plan.sharing, count):
                used = Counter(each.profile for each in group.instances)
                assert used <= Counter(there)
                assert used
        shown = min(cost(plan, "makespan").p50 for plan in advised.plans)
        least = min((cost(each, "makespan").p50 for each in tried), default=inf)
        assert shown <= least * (1 + 1e-6)


def test_a_job_that_fits_on_no_instance_that_is_there_is_refused():
    confined = Conditions(root=False, instances=("1g.6gb",))
    profile = synthetic.profile(memory_mib=9000)
    for job in (Job(profile), Job(synthetic.profile(memory_mib=900), data_parallel=True)):
        with pytest.raises(NothingFits):
            ranked([job], A30, Toy(A30), "makespan", confined)
