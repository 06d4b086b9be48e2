"""Plans for many jobs beside those that anybody would think of."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.hardware.catalogue import gpu
from advisor.plan.fleet_plan import plan_fleet
from advisor.plan.fleet_terms import FleetTerms
from advisor.plan.forecast import CachingPredictor
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import Conditions
from advisor.plan.search.fleet.group_costs import WAYS
from advisor.plan.search.fleet.placement import Problem, dealt, levelled, makespan_s
from advisor.sharing import Mps, Naive, Serial
from advisor.workload.job import Job
from advisor.workload.store import load_profile
from tests.plan.search.fleet.drawn import (
    AIMS,
    NO_MIG,
    PROFILES,
    Counting,
    drawn_jobs,
    made,
    planned,
)
from tests.plan.search.fleet.obvious import greedy_costs
from tests.plan.search.fleet.test_packing import group
from tests.plan.stand_in import StandIn

TIMED = tuple(each for each in AIMS if each != "throughput")
# What passes on a GPU between two groups, which the greedy plans leave out.
BETWEEN_S = 0.2


class Fussy(StandIn):
    """Who is named first is slowed a little more, and its copies, as replays have it."""

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        if len(profiles) == 1:
            return mix
        jobs = [
            replace(job, step_s=job.step_s.scaled(1.03), slowdown=1.03 * job.slowdown)
            if each is profiles[0] else job
            for each, job in zip(profiles, mix.jobs, strict=True)
        ]  # fmt: skip
        return replace(mix, jobs=tuple(jobs))


def reported_cost(found):
    """What the answer says of itself, in the words of the objective."""
    level = found.terms.level
    match found.ranked_by:
        case "makespan":
            return found.makespan_s.at(level)
        case "mean-completion":
            return sum(each.at(level) for each in found.ends_s) / len(found.jobs)
        case "energy":
            return found.energy_j.at(level)
        case "deadlines":
            return len(found.late)


@given(drawn_jobs(), st.integers(1, 3), st.sampled_from(AIMS), st.sampled_from(["p50", "p95"]),
       st.sampled_from([Conditions(), Conditions(root=False, memory_margin=0.2)]))  # fmt: skip
def test_no_answer_is_worse_than_a_greedy_plan(drawn, gpus, aim, level, conditions):
    jobs = made(drawn)
    terms = FleetTerms(objective=aim, gpus=gpus, level=level, conditions=conditions, limit_s=300.0)
    found = planned(jobs, terms)
    asked = replace(terms, objective=found.ranked_by)
    greedy = greedy_costs(jobs, NO_MIG, StandIn(), asked)
    in_seconds = found.ranked_by in ("makespan", "mean-completion")
    may_lose = BETWEEN_S * len(jobs) * in_seconds
    best = min(greedy.values())
    assert found.search.cost <= best * (1 + 1e-3) + may_lose, greedy


@given(drawn_jobs(), st.integers(1, 3), st.sampled_from(TIMED), st.sampled_from(["p50", "p95"]))
def test_what_is_optimised_is_what_is_reported(drawn, gpus, aim, level):
    jobs = made(drawn)
    terms = FleetTerms(objective=aim, gpus=gpus, level=level, limit_s=100.0)
    found = planned(jobs, terms, Fussy())
    assert found.search.cost == pytest.approx(reported_cost(found), rel=1e-9)


@pytest.mark.parametrize("way", [Naive(), Mps(), Mps((30.0, 50.0, 80.0))])
def test_a_group_is_the_same_in_whatever_order_its_jobs_are_named(way):
    asked = CachingPredictor(Fussy())
    asked.predict(PROFILES[:3], Serial())
    one = asked.predict(PROFILES[:3], way)
    limits = getattr(way, "limits", ())
    other = asked.predict(PROFILES[2::-1], Mps(limits[::-1]) if limits else way)
    assert other.jobs[::-1] == one.jobs
    assert getattr(other.sharing, "limits", ()) == limits[::-1]


@given(drawn_jobs(most=14), st.integers(1, 3), st.sampled_from(AIMS))
def test_time_to_search_never_makes_a_plan_worse_than_what_is_found_at_once(drawn, gpus, aim):
    jobs = made(drawn)
    at_once, *later = (
        planned(jobs, FleetTerms(objective=aim, gpus=gpus, limit_s=limit_s)).search.cost
        for limit_s in (1e-6, 15.0, 50.0, 120.0)
    )
    assert max(later) <= at_once


def test_two_searches_find_one_plan():
    drawn = [Job(profile, epochs=epochs) for profile in PROFILES for epochs in (1, 2.5)]
    one, other = (planned(drawn, FleetTerms(gpus=2, limit_s=200.0)) for _ in range(2))
    assert one.on == other.on


def test_with_no_time_at_all_jobs_run_one_after_another():
    drawn = [Job(profile, epochs=epochs) for profile in PROFILES for epochs in (1, 2.5)]
    found = planned(drawn, FleetTerms(gpus=2, limit_s=1e-6))
    assert found.makespan_s.p50 <= found.serial_s * (1 + 1e-9)
    assert not found.search.in_time


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 6))
def test_levelling_loses_no_group_and_no_time(takes_s, gpus):
    groups = [group((at,), WAYS["naive"], [float(each)]) for at, each in enumerate(takes_s)]
    ones = (1.0,) * len(groups)
    problem = Problem(
        objective=OBJECTIVES["makespan"],
        gpus=gpus, counts=(1,) * len(groups), alone_s=ones, least_s=ones,
        deadlines_s=(None,) * len(groups), idle_power_w=None,
    )  # fmt: skip
    before = dealt(groups, gpus)
    after = levelled(before, problem)
    assert Counter(each.group for each in after) == Counter(groups)
    assert makespan_s(after) <= makespan_s(before) + 1e-9


class Counted:
    """Answers as another does, and counts."""

    def __init__(self, predictor):
        self._predictor, self.asked = predictor, 0

    def predict(self, profiles, sharing):
        self.asked += 1
        return self._predictor.predict(profiles, sharing)

    def surrogate(self, profiles):
        return self._predictor.surrogate(profiles)


def test_where_groups_are_estimated_first_no_answer_is_worse_either():
    key = "h200-141gb"
    predictor = Counted(CachingPredictor(Advisor(key).uncalibrated))
    names = ("bert-base-finetune-bs16", "resnet26-cifar10-bs128")
    profiles = [load_profile(name, key) for name in names]
    drawn = [Job(each, epochs=length_s / (each.workload.steps_per_epoch * each.step_s))
             for each in profiles for length_s in (900, 2000)]  # fmt: skip
    terms = FleetTerms(limit_s=25.0)
    found = plan_fleet(drawn, gpu(key), predictor, terms, Counting(predictor))
    best = min(greedy_costs(drawn, gpu(key), predictor, terms).values())
    assert found.search.groups > found.search.predicted > 0
    assert found.search.cost <= best * (1 + 1e-9) + BETWEEN_S
    assert found.search.cost == pytest.approx(found.makespan_s.p50, rel=1e-9)
