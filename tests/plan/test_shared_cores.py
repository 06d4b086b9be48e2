"""Plans for a host whose cores the jobs have in common."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.plan.bottlenecks import binding
from advisor.plan.shared_cores import SharedCores
from advisor.sharing import Instance, Mig, Mps, Serial
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

HOST_BOUND = synthetic.profile("resnet26-cifar10-bs128", host_s=0.01, gpu_s=0.001)


class Apart:
    """Jobs that do not slow each other on the GPU."""

    def __init__(self):
        self._alone = StandIn(wide=0)

    def predict(self, profiles, sharing):
        mix = self._alone.predict(profiles, Serial())
        jobs = tuple(replace(job, slowdown=1.0) for job in mix.jobs)
        return replace(mix, sharing=sharing, jobs=jobs, weighted_speedup=float(len(jobs)))

    def surrogate(self, _profiles):
        return None


def test_with_a_core_for_each_nothing_changes():
    free = Apart().predict([HOST_BOUND] * 3, Mps())
    assert SharedCores(Apart(), 3).predict([HOST_BOUND] * 3, Mps()) == free


@pytest.mark.parametrize("sharing", [Mps(), Mig((Instance("1g.18gb"),) * 4)])
def test_four_jobs_on_two_cores_take_twice_as_long_also_on_instances_of_their_own(sharing):
    found = SharedCores(Apart(), 2).predict([HOST_BOUND] * 4, sharing)
    assert found.host_stretch == pytest.approx(2.0)
    assert [job.step_s.p50 for job in found.jobs] == pytest.approx([0.02] * 4)
    assert [job.slowdown for job in found.jobs] == pytest.approx([2.0] * 4)
    assert found.weighted_speedup == pytest.approx(2.0)


def test_one_after_the_other_each_has_all_cores():
    found = SharedCores(Apart(), 1).predict([HOST_BOUND] * 4, Serial())
    assert found.host_stretch == 1.0


def test_alone_with_too_few_cores_for_its_loader_a_job_is_slow_and_not_slowed():
    loaded = synthetic.profile("resnet26-cifar10-bs128-loader4", host_s=0.01, gpu_s=0.001)
    loaded = replace(loaded, host_cpu_share=1.0)
    found = SharedCores(Apart(), 1).predict([loaded], Serial())
    assert found.jobs[0].slowdown == pytest.approx(1.0)
    assert found.jobs[0].step_s.p50 == pytest.approx(0.05)
    assert found.weighted_speedup == 1.0


def test_the_host_is_said_to_bind_where_cores_are_short():
    jobs = [Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.005, gpu_s=0.01))] * 4
    profiles = [each.profile for each in jobs]
    enough = binding(jobs, H200, Apart().predict(profiles, Mps()))
    short = binding(jobs, H200, SharedCores(Apart(), 1).predict(profiles, Mps()))
    assert enough.by_host == ()
    assert short.limit == "host path"


@pytest.mark.parametrize("cores", [0, -1, 10**9])
def test_a_host_without_cores_is_refused(cores):
    with pytest.raises(InvalidInput, match="a host has 1 to"):
        SharedCores(Apart(), cores)
