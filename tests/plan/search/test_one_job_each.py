from itertools import permutations

import pytest

from advisor.hardware.mig_layouts import layouts
from advisor.plan.recommendation import Question
from advisor.plan.search.proposals import Solver
from advisor.sharing import Mig
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

SMALL = synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002, memory_mib=2000)
LARGE = synthetic.profile("resnet152-imagenet-bs128", host_s=0.1, gpu_s=0.5, memory_mib=60000)
MIDDLE = synthetic.profile("bert-base-finetune-bs16", host_s=0.02, gpu_s=0.05, memory_mib=20000)


def layouts_for(jobs, objective):
    """With an instance for each of `jobs`, the best first."""
    question = Question(gpu=H200, predictor=StandIn(), objective=objective)
    return [each.candidate.sharing for each in Solver(jobs, question).one_job_each()]


def by_brute_force(jobs, value):
    """The best of every layout and every order of its instances, by `value` of the answer."""
    predictor = StandIn()
    profiles = [job.profile for job in jobs]
    values = [
        value(predictor.predict(profiles, Mig(way)))
        for layout in layouts(H200)
        for way in permutations(layout, len(jobs))
        if all(
            job.memory_mib <= partition.memory_mib
            for job, partition in zip(
                predictor.predict(profiles, Mig(way)).jobs,
                [next(p for p in H200.mig if p.name == each.profile) for each in way],
                strict=True,
            )
        )
    ]
    return min(values)


@pytest.mark.parametrize("profiles", [(SMALL, LARGE), (MIDDLE, SMALL, LARGE), (MIDDLE, MIDDLE)])
def test_no_layout_ends_sooner_than_the_one_proposed(profiles):
    jobs = [Job(profile) for profile in profiles]

    def makespan_s(mix):
        return max(
            job.work_steps * answer.step_s.p50 for job, answer in zip(jobs, mix.jobs, strict=True)
        )

    best, *_ = layouts_for(jobs, "makespan")
    found = makespan_s(StandIn().predict(profiles, best))
    assert found == pytest.approx(by_brute_force(jobs, makespan_s))


@pytest.mark.parametrize("profiles", [(SMALL, LARGE), (MIDDLE, SMALL, LARGE)])
def test_no_layout_does_more_work_than_the_one_proposed(profiles):
    jobs = [Job(profile) for profile in profiles]
    best, *_ = layouts_for(jobs, "throughput")
    found = StandIn().predict(profiles, best).weighted_speedup
    assert found == pytest.approx(-by_brute_force(jobs, lambda mix: -mix.weighted_speedup))


def test_a_job_is_never_put_where_its_memory_does_not_fit():
    jobs = [Job(LARGE)] * 2 + [Job(SMALL)]
    assert layouts_for(jobs, "makespan") == []


def test_seven_jobs_get_an_instance_each():
    for found in layouts_for([Job(SMALL)] * 7, "makespan"):
        assert len({each.start for each in found.instances}) == 7


def test_eight_jobs_have_no_layout():
    assert layouts_for([Job(SMALL)] * 8, "makespan") == []
