"""Many jobs on several GPUs: never worse than obvious plans, and of few jobs the best there is."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import gpu
from advisor.hardware.partition import whole_gpu
from advisor.launch.shell import with_commands
from advisor.plan.fleet_groups import GpuQueue, Problem
from advisor.plan.forecast import over_time
from advisor.plan.group_pool import GroupPool
from advisor.plan.job_sets import Kinds
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.ranking import recommended
from advisor.plan.rules import UNCONDITIONAL, Conditions, broken_rule
from advisor.plan.values import GpuPool, Question
from advisor.prediction.caching_predictor import in_one_order
from advisor.prediction.mix_steps import Tenancy, paced_steps
from advisor.sharing import Mps, Serial
from advisor.sharing.groups import most_at_once
from advisor.simulation.events import Task, run
from advisor.simulation.queues import GpuCapacity, InOrder
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival, Job
from advisor.workload.store import load_profile
from tests import synthetic
from tests.plan.fleet_twins import (
    AIMS,
    PROFILES,
    Twin,
    drawn,
    job_of,
    least_cost,
    least_makespan_s,
    made,
    on_pools,
    planned,
)
from tests.plan.stand_in import NO_MIG, StandIn

# What passes on a GPU between two groups, which the twin leaves out.
BETWEEN_S = 0.2
QUICK, SLOW = Job(PROFILES[0]), Job(PROFILES[1])
LARGE = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))
ALONE_S = LARGE.work_steps * LARGE.profile.step_s
MAY_CAP = Conditions(power_caps=True)
TEN = [Job(profile, epochs=epochs) for profile in PROFILES for epochs in (1, 2.5)]


class Fussy(StandIn):
    """Who is named first is slowed a little more, and its copies, as replays have it."""

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        if len(profiles) == 1:
            return mix
        jobs = [
            replace(job, step_s=job.step_s.scaled(1.03), slowdown=1.03 * job.slowdown)
            if each is profiles[0]
            else job
            for each, job in zip(profiles, mix.jobs, strict=True)
        ]
        return replace(mix, jobs=tuple(jobs))


def between_s(found, jobs):
    return BETWEEN_S * len(jobs) * (found.ranked_by in ("makespan", "mean-completion"))


@given(
    drawn(most=6),
    st.integers(1, 3),
    st.sampled_from(AIMS),
    st.sampled_from(["p50", "p95"]),
    st.sampled_from([Conditions(), Conditions(root=False, memory_margin=0.2)]),
)
def test_no_answer_is_worse_than_an_obvious_plan_and_each_job_runs_once(
    jobs, gpus, aim, level, conditions
):
    jobs = made(jobs, aim)
    found = planned(jobs, gpus=gpus, objective=aim, level=level, conditions=conditions)
    twin = Twin(StandIn(), found.ranked_by, gpus, level, conditions)
    assert least_cost(found, level) <= twin.greedy(jobs) * (1 + 1e-3) + between_s(found, jobs)
    assert found.serial.one_by_one
    assert found.serial in found.plans
    for plan in found.plans:
        placed = Counter(number for each in plan.gpus for number in each.job_numbers)
        assert placed == Counter(range(1, len(jobs) + 1))
        assert {each.number for each in plan.gpus} <= set(range(gpus))
        assert plan.one_by_one or plan.way != "serial"
        for each in plan.gpus:
            assert broken_rule(each.members, each.sharing, NO_MIG, conditions) is None
            assert each.prediction.oom_probability < 0.05


@given(drawn(most=4), st.integers(1, 2), st.sampled_from(AIMS))
def test_of_few_jobs_no_plan_is_better(jobs, gpus, aim):
    jobs = made(jobs, aim)
    found = planned(jobs, gpus=gpus, objective=aim)
    least = Twin(StandIn(), found.ranked_by, gpus).least(jobs)
    assert least_cost(found) <= least * (1 + 1e-3) + between_s(found, jobs)


def test_the_same_question_has_the_same_answer_and_a_plan_is_never_worse_than_the_plain_queue():
    one, other = (planned(TEN, gpus=2, effort=0.2) for _ in range(2))
    assert one == other
    order = sorted(TEN, key=lambda job: -job.alone_s)
    for at_once in (2, 3, 4):
        fleet = Fleet(gpu=NO_MIG.key, gpus=2, policy="first-come")
        arrivals = [Arrival(job) for job in order]
        plain = over_time(arrivals, Mps(), lambda _: StandIn(NO_MIG), fleet, at_once).simulation
        assert least_cost(one) <= plain.makespan_s.p50 * (1 + 1e-9)


def test_with_the_models_predictor_no_answer_is_worse_either():
    key = "h200-141gb"
    predictor = in_one_order(Advisor(key).uncalibrated)
    names = ("bert-base-finetune-bs16", "resnet26-cifar10-bs128")
    jobs = [
        job_of(load_profile(name, key), length_s, None)
        for name in names
        for length_s in (900, 2000)
    ]
    found = planned(jobs, predictor, gpu(key))
    twin = Twin(predictor, "makespan", gpu=gpu(key))
    assert least_cost(found) <= twin.greedy(jobs) + BETWEEN_S


@pytest.mark.parametrize("way", [Mps(), Mps((30.0, 50.0, 80.0))])
def test_a_group_is_the_same_in_whatever_order_its_jobs_are_named(way):
    cached = in_one_order(Fussy())
    cached.predict(PROFILES[:3], Serial())
    one = cached.predict(PROFILES[:3], way)
    other = cached.predict(PROFILES[2::-1], Mps(way.limits[::-1]))
    assert other.jobs[::-1] == one.jobs


def test_two_gpus_halve_what_cannot_share_and_more_jobs_than_fit_run_in_groups():
    one, two = (planned([LARGE] * 4, gpus=gpus).best for gpus in (1, 2))
    assert two.makespan_s == pytest.approx(one.makespan_s / 2)
    found = planned([QUICK] * 4 + [LARGE] * 3)
    assert least_cost(found) < found.serial.makespan_s


def test_short_jobs_and_jobs_with_a_deadline_go_first_where_these_count():
    short, long = replace(LARGE, epochs=1), replace(LARGE, epochs=5)
    first_s, then_s = planned([long, short], objective="mean-completion").best.ends_s
    assert then_s.p50 < first_s.p50
    urgent = replace(LARGE, epochs=2, deadline_s=2.5 * ALONE_S)
    assert planned([LARGE, LARGE, urgent], objective="deadlines").best.late_jobs == ()
    hopeless = replace(urgent, deadline_s=ALONE_S)
    assert planned([LARGE, hopeless], objective="deadlines").best.late_jobs == (2,)
    tight = [replace(LARGE, deadline_s=1.05 * ALONE_S)]  # a step takes up to 1.1 times its median
    assert planned(tight, level="p50").best.late_jobs == ()
    assert planned(tight, level="p95").best.late_jobs == (1,)


def test_jobs_of_unknown_length_are_spread_by_throughput_and_it_is_said():
    workload = replace(SLOW.profile.workload, examples_per_epoch=None)
    found = planned([Job(replace(SLOW.profile, workload=workload))] * 3, gpus=2)
    assert (found.ranked_by, found.best.makespan_s) == ("throughput", None)
    assert "length" in found.note


class Hot(StandIn):
    """Whatever runs draws 650 W."""

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        return replace(mix, power_w=mix.power_w.scaled(650 / mix.power_w.p50))


def under_caps(jobs, predictor, conditions=MAY_CAP):
    return planned(jobs, predictor, gpus=2, objective="energy", conditions=conditions)


def test_each_gpu_may_choose_a_cap_that_saves_joules_and_makes_no_job_late():
    free, capped = (under_caps([LARGE] * 3, Hot(), each) for each in (UNCONDITIONAL, MAY_CAP))
    assert free.best.power_caps_w == ()
    assert capped.best.energy_j.p50 < free.best.energy_j.p50
    watts = capped.best.power_caps_w[0]
    assert f"cap_power {watts:.2f}" in "\n".join(with_commands(capped).best.commands)
    assert under_caps([LARGE], StandIn()).best.power_caps_w == ()
    assert under_caps([replace(LARGE, deadline_s=1.001 * ALONE_S)] * 2, Hot()).best.late_jobs == ()


def test_a_job_that_fits_nowhere_is_named():
    huge = Job(synthetic.profile("gpt2-medium-pretrain-bs16", memory_mib=190_000))
    with pytest.raises(NothingFits, match="gpt2-medium"):
        planned([QUICK, huge], gpus=2)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"effort": 0.0}, "above 0"),
        ({"effort": float("nan")}, "above 0"),
        ({"conditions": MAY_CAP}, "--objective energy"),
    ],
)
def test_terms_that_cannot_be_are_refused(wrong, named):
    with pytest.raises(InvalidInput, match=named):
        planned(TEN, gpus=2, **wrong)


@pytest.mark.parametrize("counts", [((1, 1, 1), (1, 1, 3)), ((2, 2, 1), (1, 1, 2))])
@given(jobs=drawn(most=3))
def test_on_several_models_no_plan_is_better_and_each_job_runs_once(counts, jobs):
    jobs = made(jobs, "makespan")
    found, pools = on_pools(*counts, jobs=jobs)
    assert least_cost(found) <= least_makespan_s(pools) * (1 + 1e-3) + BETWEEN_S * len(jobs)
    placed = [number for on in found.best.gpus for number in on.job_numbers]
    assert sorted(placed) == list(range(1, len(jobs) + 1))


@pytest.mark.parametrize("counts", [((2, 2, 1),), ((4, 2, 1),)])
@given(jobs=drawn(most=3), wide=st.lists(st.booleans(), min_size=3, max_size=3))
def test_jobs_that_take_two_gpus_of_a_host_run_on_both_at_once_and_no_plan_is_better(
    counts, jobs, wide
):
    jobs = [
        replace(job, gpus=2 if two else 1)
        for job, two in zip(made(jobs, "makespan"), wide, strict=False)
    ]
    found, pools = on_pools(*counts, jobs=jobs)
    assert least_cost(found) <= least_makespan_s(pools) * (1 + 1e-3) + BETWEEN_S * len(jobs)
    for number, job in enumerate(jobs, start=1):
        places = [on for on in found.best.gpus if number in on.job_numbers]
        assert len(places) == job.gpus
        assert len({on.number // counts[0][1] for on in places}) == 1  # one host
        ends_s = [on.ends_s[on.job_numbers.index(number)].p50 for on in places]
        assert max(ends_s) == pytest.approx(min(ends_s))


def test_a_job_that_takes_more_gpus_than_a_host_has_is_named():
    with pytest.raises(NothingFits, match="4 GPUs of one host"):
        on_pools((4, 2, 1), jobs=[replace(QUICK, gpus=4)])


def test_jobs_of_a_gpu_hold_their_part_of_the_hosts_memory_and_what_was_not_measured_counts_none():
    small = [replace(QUICK, epochs=epochs) for epochs in range(1, 6)]
    held = [replace(job, profile=replace(job.profile, host_memory_mib=30_000)) for job in small]
    for jobs, most in ((held, 2), (small, 5)):
        found = planned(jobs, gpus=2, host_memory_mib=120_000).best
        at_once = [most_at_once(on.sharing, len(on.members)) for on in found.gpus]
        assert max(at_once) <= most
        assert (max(at_once) > 2) == (most > 2)
    with pytest.raises(NothingFits, match="--host-memory"):
        planned(held, gpus=2, host_memory_mib=50_000)


def test_many_queues_estimated_at_once_end_as_each_by_the_event_loop():
    advisor = Advisor("h200-141gb")
    names = ("bert-base-finetune-bs16", "resnet26-cifar10-bs128", "gpt2-small-finetune-bs2")
    jobs = advisor.jobs([f"{name}@{epochs}" for name in names for epochs in (1, 2, 5)])
    pool = GpuPool(gpu=advisor.card, hosts=1, host_gpus=1, jobs=jobs, predictor=advisor.predictor)
    kinds, tenancy = Kinds(jobs), Tenancy(whole_gpu(advisor.card), Mps())
    surrogate = advisor.predictor.surrogate([job.profile for job in jobs])
    question = Question(gpu=pool.gpu, predictor=pool.predictor, objective="makespan")
    groups = GroupPool(0, Problem(kinds, OBJECTIVES["makespan"], [pool]), question)
    queues = [
        GpuQueue((0, 3, 6, 1, 4, 7), 2),
        GpuQueue((8, 7, 5), 3),
        GpuQueue((2, 5, 8, 0), 1),
        GpuQueue((4, 2, 1, 8, 3, 0, 6), 4),
    ]
    for queue, group in zip(queues, groups.estimated(queues), strict=True):
        order, tasks = queue.order, [Task(jobs[kind].work_steps) for kind in queue.order]

        def pace(seats, order=order):
            running = [order[seat.job] for seat in seats]
            ((steps_s,),) = surrogate.steps([(tenancy, np.array([running]))])
            paced_s = paced_steps([jobs[kind].profile for kind in running], steps_s)
            return (1 / paced_s).tolist()

        looped = run(tasks, pace, InOrder(GpuCapacity((0,) * queue.at_once)))
        assert group.ends_s == pytest.approx(looped.ends_s, rel=1e-9)


def test_jobs_that_only_one_model_tells_apart_are_planned_on_both():
    other = replace(NO_MIG, key="other")
    one, two = QUICK, replace(QUICK, profile=replace(QUICK.profile, gpu_s=0.003))
    pools = [
        GpuPool(gpu=model, hosts=1, host_gpus=1, jobs=jobs, predictor=StandIn(model))
        for model, jobs in ((NO_MIG, (one, two)), (other, (one, one)))
    ]
    found = recommended(pools, "makespan").best
    assert sorted(number for on in found.gpus for number in on.job_numbers) == [1, 2]


def test_of_several_models_the_job_that_none_holds_is_named():
    small = replace(NO_MIG, key="small", memory_mib=50_000)
    huge = Job(synthetic.profile("gpt2-medium-pretrain-bs16", memory_mib=190_000))
    pools = [
        GpuPool(gpu=model, hosts=1, host_gpus=1, jobs=(LARGE, huge), predictor=StandIn(model))
        for model in (NO_MIG, small)
    ]
    with pytest.raises(NothingFits, match="gpt2-medium"):
        recommended(pools, "makespan")


def test_a_short_job_of_two_gpus_lengthens_no_plan_by_much():
    jobs = [job_of(PROFILES[at % 3], 600 + 300 * at, None) for at in range(5)]
    short = job_of(PROFILES[0], 10, None)
    plans = [planned([*jobs, replace(short, gpus=each)], gpus=2) for each in (1, 2)]
    on_one, on_two = map(least_cost, plans)
    assert on_two <= on_one * 1.02 + 20


@given(drawn(most=6), st.sampled_from(AIMS))
@settings(max_examples=4)
def test_more_effort_never_finds_a_worse_plan(jobs, aim):
    jobs = made(jobs, aim)
    less, more = (planned(jobs, gpus=2, objective=aim, effort=each) for each in (0.3, 1))
    assert least_cost(more) <= least_cost(less)


def test_beside_a_job_that_rules_queues_out_the_others_share_in_batches_that_moves_improved():
    jobs = [
        "bert-base-finetune-bs16:3",
        "resnet50-imagenet64-bs128:3",
        "resnet26-cifar10-bs128@30",
        "resnet26-cifar10-bs128@60",
        "gpt2-small-finetune-bs8-fp16:2",
        "resnet152-imagenet-bs32@0.05",
        "beit_large_patch16_224-imagenet-bs64@0.01",
        "dlrm-29gb-bs128@3",
    ]
    answer = Advisor("a100-40gb").recommend(jobs, objective="mean-completion")
    assert answer.best.way == "batches"
    assert answer.best.gain.p50 > 1.09, "1.07 without, and so one after another would come first"
