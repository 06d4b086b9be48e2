"""Many jobs on equal GPUs, with a predictor that can be checked by hand."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput, NothingFits
from advisor.plan.cap_choice import cap_choices
from advisor.plan.fleet_plan import plan_fleet
from advisor.plan.fleet_terms import FleetTerms
from advisor.plan.rules import UNCONDITIONAL, Conditions, first_broken, rules
from advisor.report.fleet_document import fleet_commands
from advisor.sharing import Mps
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

HOST_BOUND = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
LARGE = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))
HUGE = Job(synthetic.profile("gpt2-medium-pretrain-bs16", memory_mib=190_000))
NO_MIG = replace(H200, mig=(), memory_slices=0)
MAY_CAP = Conditions(power_caps=True)
CAPS_W = cap_choices(NO_MIG)
RULES = rules(NO_MIG, UNCONDITIONAL)
AIMS = ("makespan", "mean-completion", "throughput", "energy", "deadlines")


def planned(jobs, limit_s=1.0, **terms):
    return plan_fleet(jobs, NO_MIG, StandIn(), FleetTerms(limit_s=limit_s, **terms))


@given(
    st.lists(st.sampled_from([HOST_BOUND, GPU_BOUND, LARGE]), min_size=1, max_size=7),
    st.integers(1, 3),
    st.sampled_from(AIMS),
)
def test_each_job_runs_once_on_no_more_gpus_than_given_and_no_rule_is_broken(jobs, gpus, aim):
    found = planned(jobs, 0.3, gpus=gpus, objective=aim)
    placed = Counter(number for each in found.on for number in each.candidate.jobs)
    assert placed == Counter(range(1, len(jobs) + 1))
    assert {each.number for each in found.on} <= set(range(gpus))
    for each in found.on:
        assert first_broken(RULES, each.candidate.chosen(jobs), each.candidate.sharing) is None
    assert all(each.forecast.prediction.oom_probability < 0.05 for each in found.on)


def test_more_jobs_than_fit_at_once_run_in_groups():
    found = planned([HOST_BOUND] * 4 + [LARGE] * 3)
    assert found.makespan_s.p50 < found.serial_s
    assert found.on[0].candidate.sharing.groups


def test_two_gpus_halve_what_cannot_share():
    one, two = (planned([LARGE] * 4, gpus=gpus) for gpus in (1, 2))
    assert two.makespan_s.p50 == pytest.approx(one.makespan_s.p50 / 2)
    assert two.search.gap < 0.01


def test_short_jobs_go_first_where_the_mean_completion_counts():
    short, long = replace(LARGE, epochs=1), replace(LARGE, epochs=5)
    found = planned([long, short], objective="mean-completion")
    ends_s = [each.p50 for each in found.ends_s]
    assert ends_s[1] < ends_s[0]
    assert found.mean_completion_s == pytest.approx(sum(ends_s) / 2)


def test_the_job_with_a_deadline_goes_first():
    alone_s = LARGE.work_steps * LARGE.profile.step_s
    urgent = replace(LARGE, epochs=2, deadline_s=2.5 * alone_s)
    found = planned([LARGE, LARGE, urgent], objective="deadlines")
    assert found.late == ()
    hopeless = replace(urgent, deadline_s=alone_s)
    assert planned([LARGE, hopeless], objective="deadlines").late == (2,)


def test_energy_counts_the_gpus_that_stand_idle():
    found = planned([LARGE], gpus=2, objective="energy")
    busy_j = found.on[0].forecast.energy_j.p50
    assert found.energy_j.p50 == pytest.approx(
        busy_j + found.makespan_s.p50 * LARGE.profile.idle_power_w
    )


def test_jobs_of_unknown_length_are_spread_by_throughput_and_it_is_said():
    workload = replace(GPU_BOUND.profile.workload, examples_per_epoch=None)
    unknown = Job(replace(GPU_BOUND.profile, workload=workload))
    found = planned([unknown] * 3, gpus=2)
    assert found.ranked_by == "throughput"
    assert "every job's length" in found.note
    assert found.makespan_s is None


class DoubtfulMps(StandIn):
    """Under MPS a step may take three times as long as its median, and is sure otherwise."""

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        if not isinstance(sharing, Mps):
            return mix
        slow = (
            replace(job, step_s=replace(job.step_s, p95=3 * job.step_s.p50)) for job in mix.jobs
        )
        return replace(mix, jobs=tuple(slow))


@pytest.mark.parametrize("aim", ["makespan", "throughput"])
def test_whoever_is_pessimistic_gets_no_plan_that_may_take_long(aim):
    hopeful, careful = (
        plan_fleet(
            [GPU_BOUND, HOST_BOUND] * 2, NO_MIG, DoubtfulMps(),
            FleetTerms(gpus=2, limit_s=0.5, objective=aim, level=level),
        )
        for level in ("p50", "p95")
    )  # fmt: skip
    assert any("mps" in str(each.candidate.sharing) for each in hopeful.on)
    assert not any("mps" in str(each.candidate.sharing) for each in careful.on)
    assert careful.makespan_s.p95 < hopeful.makespan_s.p95


def test_whoever_is_pessimistic_is_told_of_deadlines_that_may_be_missed():
    alone_s = LARGE.work_steps * LARGE.profile.step_s
    jobs = [replace(LARGE, deadline_s=1.05 * alone_s)]  # a step takes up to 1.1 times its median
    assert planned(jobs, level="p50").late == ()
    assert planned(jobs, level="p95").late == (1,)


class Hot(StandIn):
    """Whatever runs draws 650 W."""

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        return replace(mix, power_w=mix.power_w.scaled(650 / mix.power_w.p50))


def under_caps(jobs, predictor, conditions=MAY_CAP):
    terms = FleetTerms(objective="energy", gpus=2, limit_s=0.5, conditions=conditions)
    return plan_fleet(jobs, NO_MIG, predictor, terms)


def test_each_of_several_gpus_may_choose_a_cap_that_saves_joules_of_all():
    jobs = [LARGE] * 3
    free, capped = (under_caps(jobs, Hot(), each) for each in (UNCONDITIONAL, MAY_CAP))
    assert {each.candidate.power_cap_w for each in free.on} == {None}
    assert {each.forecast.prediction.power_cap_w for each in capped.on} <= {None, *CAPS_W}
    assert capped.energy_j.p50 < free.energy_j.p50
    assert [each.candidate.sharing for each in capped.on] == [
        each.candidate.sharing for each in free.on
    ]
    scripts = fleet_commands(capped, 1).split(" GPU=")[1:]
    for each, lines in zip(capped.on, scripts, strict=True):
        assert lines.startswith(f"{each.number}\n")
        assert f' -i "$GPU" --power-limit={each.candidate.power_cap_w:g} || exit\n' in lines


def test_gpus_that_draw_little_are_not_capped():
    assert {each.candidate.power_cap_w for each in under_caps([LARGE] * 3, StandIn()).on} == {None}


def test_no_cap_on_several_gpus_makes_a_job_late():
    alone_s = LARGE.work_steps * LARGE.profile.step_s
    due = [replace(LARGE, deadline_s=alone_s * 1.001)] * 2
    assert under_caps(due, Hot()).late == ()


def test_a_job_that_fits_nowhere_is_named():
    with pytest.raises(NothingFits, match="gpt2-medium"):
        planned([HOST_BOUND, HUGE], gpus=2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gpus": 0}, "at least 1 GPU"),
        ({"limit_s": 0.0}, "more than 0 s"),
        ({"limit_s": float("nan")}, "more than 0 s"),
        ({"conditions": MAY_CAP}, "--objective energy"),
        ({"objective": "energy", "conditions": replace(MAY_CAP, root=False)}, "--no-root"),
    ],
)
def test_terms_that_cannot_be_are_refused(wrong, said):
    with pytest.raises(InvalidInput, match=said):
        FleetTerms(**wrong)


class Crowded(StandIn):
    """Two gain a fifth and more nothing; but with limits four and more gain a half."""

    def _steps(self, profiles, sharing):
        if not isinstance(sharing, Mps) or len(profiles) == 1:
            return super()._steps(profiles, sharing)
        share = 1.5 if sharing.limits and len(profiles) >= 4 else 1.2 if len(profiles) == 2 else 1.0
        return [len(profiles) * each.step_s / share for each in profiles]


def test_groups_that_only_limits_make_worth_while_are_found():
    terms = FleetTerms(limit_s=60.0)
    found = plan_fleet([GPU_BOUND] * 12, NO_MIG, Crowded(), terms)
    assert found.serial_s / found.makespan_s.p50 == pytest.approx(1.5, rel=0.01)
