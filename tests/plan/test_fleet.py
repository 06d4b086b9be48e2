"""Many jobs on several GPUs: never worse than obvious plans, and of few jobs the best there is."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.hardware.gpus import gpu
from advisor.plan.forecast import Mixes, forecast, over_time
from advisor.plan.rules import Conditions, broken_rule
from advisor.prediction.caching_predictor import in_one_order
from advisor.sharing import Group, Mps, Serial
from advisor.sharing.groups import groups, in_turn
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
    made,
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
    tight = [
        synthetic.profile(name, host_s=0.02, gpu_s=gpu_s, memory_mib=memory_mib)
        for name, gpu_s, memory_mib in (
            ("resnet26-cifar10-bs128", 0.004, 60_000),
            ("resnet50-cifar10-bs128", 0.006, 75_000),
            ("resnet152-cifar10-bs128", 0.002, 90_000),
        )
    ]
    jobs = [Job(tight[at % 3], epochs=1 + at % 4) for at in range(10)]
    best = planned(jobs).best
    batches = [[job - 1 for job in each.jobs] for each in groups(best.forecast.sharing, len(jobs))]
    for one, other in permutations(range(len(batches)), 2):
        for job in batches[one]:
            moved = [[*each] for each in batches]
            moved[one].remove(job)
            moved[other].append(job)
            shared = [
                Group(tuple(at + 1 for at in each), Mps() if len(each) > 1 else Serial())
                for each in moved
                if each
            ]
            plan = forecast(Mixes(jobs, StandIn(NO_MIG)), in_turn(shared))
            assert not plan.fits or plan.makespan_s >= 0.99 * best.makespan_s
