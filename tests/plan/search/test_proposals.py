import pytest

from advisor.plan.recommendation import Question
from advisor.plan.search.proposals import OneGpuSolver
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

SMALL = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
LARGE = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
HUGE = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=200_000))


def one_gpu(jobs, objective="makespan"):
    return OneGpuSolver(jobs, Question(gpu=H200, predictor=StandIn(), objective=objective))


def test_copies_are_worked_out_once():
    asked = one_gpu([SMALL, LARGE, SMALL, LARGE])
    first = asked.best((0, 1))
    predictions = asked.question.predictor.asked
    assert asked.best((2, 3)) is first
    assert asked.question.predictor.asked == predictions


@pytest.mark.parametrize("objective", ["makespan", "throughput", "energy"])
def test_a_job_that_fits_nowhere_has_no_plan(objective):
    assert one_gpu([SMALL, HUGE], objective).best((0, 1)) is None
    assert one_gpu([SMALL, HUGE], objective).best((0,)) is not None
