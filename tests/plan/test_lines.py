"""A MIG instance is a small GPU: each runs jobs of its own, one after another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.hardware.gpus import catalogue
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.lines import Instances
from advisor.plan.rules import Conditions
from advisor.plan.values import Question
from advisor.sharing.groups import kind_of, most_at_once
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.fleet_twins import planned
from tests.plan.stand_in import H200, StandIn

SMALL = [
    synthetic.profile(name, host_s=host_s, gpu_s=gpu_s, memory_mib=memory_mib)
    for name, host_s, gpu_s, memory_mib in (
        ("resnet26-cifar10-bs128", 0.02, 0.002, 2_000),
        ("bert-base-finetune-bs16", 0.03, 0.02, 9_000),
        ("resnet50-imagenet64-bs128", 0.01, 0.015, 30_000),
    )
]
JOBS = st.lists(
    st.builds(Job, st.sampled_from(SMALL), epochs=st.sampled_from([1, 2, 5])),
    min_size=3,
    max_size=9,
)


@given(JOBS, st.data())
def test_lines_are_estimated_as_they_are_forecast_and_each_job_goes_where_it_ends_soonest(
    jobs, data
):
    question = Question(gpu=H200, predictor=StandIn(), objective="makespan")
    instances = Instances(jobs, question, 0.0, in_seconds=True)
    cut = data.draw(st.sampled_from(instances.cuts))
    line = instances.lined(tuple(range(len(jobs))), cut)
    if line is None:
        names = {each.profile for each in cut.instances}
        assert any(
            all(instances.alone(at, name) is None for name in names) for at in range(len(jobs))
        )
        return
    plan = forecast(Mixes(jobs, StandIn()), line.sharing)
    assert [each.p50 for each in plan.ends_s] == pytest.approx(line.ends_s)
    free_s = dict.fromkeys(range(len(cut.instances)), 0.0)
    for at, end_s in enumerate(line.ends_s):
        ends = {
            place: before_s + own.takes_s
            for place, before_s in free_s.items()
            if (own := instances.alone(at, cut.instances[place].profile))
        }
        assert end_s == pytest.approx(min(ends.values()))
        free_s[min(ends, key=ends.get)] = end_s


@pytest.mark.parametrize("count", [5, 10])
def test_more_jobs_than_instances_line_up_on_them_where_root_may_cut_the_gpu(count):
    jobs = [Job(SMALL[at % 2], epochs=1 + at % 3) for at in range(count)]
    plans = planned(jobs, gpu=H200).plans
    lines = [plan for plan in plans if kind_of(plan.sharing) == "mig"]
    assert any(most_at_once(plan.sharing, count) < count for plan in lines)
    assert all(len(each.prediction.jobs) == count for each in lines)
    confined = planned(jobs, gpu=H200, conditions=Conditions(root=False))
    assert not any(plan.sharing.instances for plan in confined.plans)


def test_isolated_jobs_wait_for_an_instance_and_not_for_the_gpu():
    jobs = [Job(SMALL[0], epochs=5, isolated=True) for _ in range(12)]
    best = planned(jobs, gpu=H200).best
    assert best.sharing.instances
    assert best.gain.p50 > 3


def test_no_gpu_is_cut_while_another_is_idle():
    answer = planned([Job(SMALL[0], epochs=3), Job(SMALL[1])], gpu=H200, gpus=2)
    assert not any(each.sharing.instances for plan in answer.plans for each in plan.gpus)


@pytest.mark.parametrize("objective", ["makespan", "throughput"])
def test_on_several_gpus_each_instance_has_a_line_of_its_own(objective):
    jobs = [Job(SMALL[at % 2], epochs=1 + at % 3, isolated=True) for at in range(12)]
    answer = planned(jobs, gpu=H200, gpus=2, objective=objective)
    (lines,) = (plan for plan in answer.plans if plan.way == "mig")
    assert sorted(number for each in lines.gpus for number in each.job_numbers) == [*range(1, 13)]
    assert lines.gain.p50 > 1


@pytest.mark.parametrize(
    "key",
    [
        key if key in ("a100-40gb", "a30-24gb") else pytest.param(key, marks=pytest.mark.exhaustive)
        for key, each in catalogue().items()
        if each.mig
    ],
)
def test_every_gpu_with_mig_offers_lines(key):
    advisor = Advisor(key)
    jobs = ["resnet26-cifar10-bs128:9", "resnet50-imagenet64-bs128:6"]
    answer = advisor.recommend(jobs)
    (lines,) = (plan for plan in answer.plans if plan.way == "mig")
    assert not lines.confirmed_on_hardware
    assert lines.makespan_s > 0
