import pytest

from advisor.plan.ranking import ranked
from advisor.report.headline import gain
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))


def advised(jobs, predictor=None):
    return ranked(jobs, H200, predictor or StandIn(), "makespan")


def test_the_gain_of_serial_over_itself_is_one_and_certain():
    found = advised([GPU_BOUND] * 2)
    certain = gain(found, found.serial)
    assert (certain.p05, certain.p50, certain.p95) == (1, 1, 1)


def test_the_gain_of_a_plan_is_its_speedup_with_bounds():
    found = advised([GPU_BOUND] * 2, StandIn(wide=0.1))
    better = gain(found, found.best)
    assert better.p50 == pytest.approx(found.best.speedup_vs_serial)
    assert better.p05 < better.p50 < better.p95
