"""A candidate from its first step to its last, by a predictor that can be checked by hand."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor import recommend
from advisor.api import Advisor
from advisor.errors import InvalidInput
from advisor.launch.shell import with_commands
from advisor.plan import ObjectiveName
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import OBJECTIVES, cost, rankable_by, tied
from advisor.plan.rules import Conditions
from advisor.prediction.caching_predictor import CachingPredictor
from advisor.prediction.prediction import Interval
from advisor.sharing import parse_sharing
from advisor.simulation.turns import repartition_s
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn, ranked

# Alone: 10, 20 and 40 ms a step, and 100 steps each.
SHORT = Job(synthetic.profile("resnet26-cifar10-bs500", host_s=0.01, gpu_s=0.01))
LONG = Job(synthetic.profile("resnet50-cifar10-bs500", host_s=0.02, gpu_s=0.02))
LAST = Job(synthetic.profile("cnn-cifar10-bs500", host_s=0.04, gpu_s=0.04))
BOTH, JOBS = [SHORT, LONG], [SHORT, LONG, LAST]
TWICE = [SHORT, replace(LONG, epochs=2)]
EVERY = pytest.mark.parametrize("name", get_args(ObjectiveName))


def seen(jobs, sharing, predictor=None):
    return forecast(Mixes(jobs, predictor or StandIn()), parse_sharing(sharing))


@pytest.mark.parametrize(
    ("jobs", "sharing", "makespan_s"),
    [
        (BOTH, "serial", 1 + 2),
        (BOTH, "naive", 100 * 0.03),
        (TWICE, "naive", 3 + 2),  # the second hundred run alone at 20 ms
        (TWICE, "mps=100,50", 200 * 0.04),  # a limit holds when the other job has left
        ([SHORT, replace(LONG, epochs=5)], "mig=3g.71gb,3g.71gb", 500 * 0.02 * 132 / 60),
        ([replace(SHORT, validation_s=7)], "serial", 1 + 7),
    ],
)
def test_jobs_that_are_left_speed_up_where_they_shared(jobs, sharing, makespan_s):
    assert seen(jobs, sharing).makespan_s == pytest.approx(makespan_s)


def test_costs_of_one_after_another_and_energy_of_whoever_still_runs():
    serial = seen(BOTH, "serial")
    assert [end.p50 for end in serial.ends_s] == pytest.approx([1, 3])
    assert cost(serial, "mean-completion").p50 == pytest.approx(2)
    assert (serial.speedup_vs_serial, serial.prediction.weighted_speedup) == (1, 1)
    assert cost(serial, "throughput") == Interval(1, 1, 1)
    due = [replace(SHORT, deadline_s=2), replace(LONG, deadline_s=2.5)]
    assert cost(seen(due, "serial"), "deadlines").p50 == pytest.approx(3 / 2.5)
    energy = seen(TWICE, "naive").energy_j
    assert energy.p50 == pytest.approx(3 * 300 + 2 * 200)
    assert energy.p05 == pytest.approx(0.9 * 0.9 * energy.p50)


@EVERY
def test_any_objective_costs_less_faster_or_falls_back_and_says_why(name):
    due = [replace(SHORT, deadline_s=2.0), replace(LONG, epochs=2)]
    slow = StandIn()
    slow._steps = lambda profiles, _: [9 * each.step_s for each in profiles]
    plans = [seen(due, "mps", StandIn()), seen(due, "naive", slow)]
    good, bad = (cost(each, name) for each in plans)
    assert good.p05 <= good.p50 <= good.p95
    assert good.p50 < bad.p50
    assert not tied(*plans, name)
    plain = SHORT.profile
    endless = [Job(replace(plain, workload=replace(plain.workload, examples_per_epoch=None)))]
    lost = seen(endless, "serial")
    ranked_by, note = rankable_by([lost], name)
    assert (ranked_by, note is None) == ("throughput", name == "throughput")
    assert cost(lost, ranked_by) is not None
    assert OBJECTIVES[name].name == name


def test_without_power_or_deadlines_plans_are_ranked_by_their_makespan():
    dark = Job(replace(SHORT.profile, power_w=None))
    for jobs, name in (([dark, LONG], "energy"), (BOTH, "deadlines")):
        ranked_by, note = rankable_by([seen(jobs, "naive")], name)
        assert ranked_by == "makespan"
        assert note


class Counted(StandIn):
    """Notes what it is asked."""

    def __init__(self):
        super().__init__()
        self.noted = []

    def predict(self, profiles, sharing):
        self.noted.append((tuple(each.name for each in profiles), str(sharing)))
        return super().predict(profiles, sharing)


def test_a_question_that_changes_another_one_asks_only_for_mixes_that_are_new():
    counted = Counted()
    cache = CachingPredictor(counted)
    for jobs, objective in (
        (BOTH, "makespan"),
        ([replace(SHORT, epochs=2), LONG], "makespan"),
        (BOTH, "energy"),
    ):
        assert ranked(jobs, H200, cache, objective) == ranked(jobs, H200, StandIn(), objective)
    assert len(set(counted.noted)) == len(counted.noted) > 0


@given(st.sampled_from(["serial", "naive", "mps", "mps=60,30"]), st.sampled_from(["naive", "mps"]))
def test_phases_take_what_their_groups_take_and_the_pauses(first, second):
    phases = parse_sharing(f"{first}[1,3];{second}[2]")
    pause_s = sum(map(repartition_s, phases.groups, phases.groups[1:]))
    apart = seen([SHORT, LAST], first).makespan_s + seen([LONG], second).makespan_s
    assert seen(JOBS, str(phases)).makespan_s == pytest.approx(apart + pause_s)


def test_groups_hold_their_memory_one_after_another():
    def huge(job):
        memory = replace(job.profile.memory, reserved_mib=80_000, device_mib=90_000)
        return replace(job, profile=replace(job.profile, memory=memory))

    big = list(map(huge, JOBS))
    assert seen(big, "naive").prediction.oom_probability == 1
    assert seen(big, "naive[1];naive[2];naive[3]").prediction.oom_probability == 0


class Unsure(StandIn):
    """Each of the three jobs may be faster by a part of its own."""

    def __init__(self, parts):
        super().__init__()
        self.parts = dict(zip((job.name for job in JOBS), parts, strict=True))

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        jobs = [
            replace(job, step_s=replace(job.step_s, p05=job.step_s.p50 * (1 - self.parts[job.job])))
            for job in mix.jobs
        ]
        return replace(mix, jobs=tuple(jobs))


@example((0.0, 0.9, 0.0), "naive[1,2];serial[3]")
@given(
    st.tuples(*[st.floats(0, 0.95)] * 3),
    st.sampled_from(["naive[1,2];serial[3]", "mps[1,3];naive[2]", "naive[2,3];serial[1]"]),
)
def test_phases_cost_an_interval_however_unsure_each_job_is(parts, text):
    found = cost(seen(JOBS, text, Unsure(parts)), "throughput")
    assert found.p05 <= found.p50 <= found.p95
    assert found.p50 == pytest.approx(cost(seen(JOBS, text), "throughput").p50)


class Hot(StandIn):
    """Whatever runs draws 650 W."""

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        return replace(mix, power_w=mix.power_w.scaled(650 / mix.power_w.p50))


def test_a_cap_saves_energy_for_time():
    free, capped = (
        seen(BOTH, "naive", each) for each in (Hot(), CachingPredictor(Hot(), H200, cap_w=400))
    )
    assert capped.makespan_s > free.makespan_s
    assert capped.energy_j.p50 < free.energy_j.p50


def test_a_plan_may_choose_the_cap_that_saves_most_and_makes_no_job_late():
    allowed = Conditions(power_caps=True)
    advised = with_commands(ranked(BOTH, H200, Hot(), "energy", allowed))
    capped = [plan for plan in advised.plans if plan.prediction.power_cap_w is not None]
    assert 0 < len(capped) < len(advised.plans)
    assert advised.serial.prediction.power_cap_w is None
    for plan in capped:
        assert f"cap_power {plan.prediction.power_cap_w:.2f}" in "\n".join(plan.commands)
        assert not plan.prediction.confirmed_on_hardware
    free = seen(BOTH, "serial", Hot())
    due = [
        replace(job, deadline_s=1.001 * end.p50) for job, end in zip(BOTH, free.ends_s, strict=True)
    ]
    hurried = ranked(due, H200, Hot(), "energy", allowed)
    assert hurried.best.late_jobs == ()
    assert {plan.prediction.power_cap_w for plan in ranked(BOTH, H200, Hot(), "energy").plans} == {
        None
    }
    with pytest.raises(InvalidInput, match="Leave one"):
        recommend(["cnn-cifar10-bs128"], power_cap_w=400.0, conditions=allowed)


SERIAL_JOBS = ("cnn-cifar10-bs128", "bert-base-finetune-bs16", "gcn-molecules-bs256")


@given(
    st.lists(st.tuples(st.sampled_from(SERIAL_JOBS), st.floats(0.01, 100)), min_size=1, max_size=5),
    st.booleans(),
)
def test_one_after_another_has_the_mean_power_and_activity_over_time(each, phases):
    advisor = Advisor("h200-141gb")
    jobs = [Job(advisor.find_profile(name), epochs=epochs) for name, epochs in each]
    turns = ";".join(f"serial[{job}]" for job in range(1, len(jobs) + 1))
    whole = advisor.predict(jobs, turns if phases and len(jobs) > 1 else "serial")
    mix, alone = whole.prediction, [advisor.predict([job], "serial") for job in jobs]
    assert whole.energy_j.p50 == pytest.approx(mix.power_w.p50 * whole.makespan_s)
    for name in ("gract", "smact"):
        shares = [getattr(own.prediction, name) for own in alone]
        assert min(shares) - 1e-9 <= getattr(mix, name) <= max(shares) + 1e-9
        parts = [share * own.makespan_s for share, own in zip(shares, alone, strict=True)]
        assert getattr(mix, name) == pytest.approx(sum(parts) / whole.makespan_s)
