from dataclasses import replace

import pytest

from advisor.plan.bottlenecks import FULL, binding
from advisor.plan.forecast import Mixes
from advisor.plan.reasons import limit_in_words
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

HOST_BOUND = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))


def bound(jobs, sharing, **changes):
    """What binds `jobs`, where the prediction says `changes`."""
    return binding(jobs, H200, predicted(jobs, sharing, **changes))


def predicted(jobs, sharing, **changes):
    return replace(Mixes(jobs, StandIn()).whole(parse_sharing(sharing)), **changes)


def watts(share):
    value = H200.power_limit_w * share
    return StandIn(wide=0)._around(value)


def with_dram(job, share):
    counters = replace(job.profile.counters, dram_active=share)
    return replace(job, profile=replace(job.profile, counters=counters))


def test_jobs_that_wait_for_their_hosts_are_bound_by_them_under_every_sharing():
    for sharing in ("serial", "naive", "mps", "mps=50,50", "mig=3g.71gb,3g.71gb"):
        found = bound([HOST_BOUND] * 2, sharing, smact=0.5)
        assert found.limit == found.limit_of(0) == "host path"
        assert found.use_of(0) == pytest.approx(1)


def test_a_job_that_others_slow_down_no_longer_waits_for_its_host():
    found = bound([HOST_BOUND, GPU_BOUND], "naive")
    assert found.by_host == ()
    assert found.host_shares[0] == pytest.approx(0.007 / 0.202)


@pytest.mark.parametrize(
    ("changes", "dram", "limit"),
    [
        ({"smact": 0.9, "power_w": watts(0.5)}, 0.1, "SMs"),
        ({"smact": 0.7, "power_w": watts(1.0)}, 0.1, "power"),
        ({"smact": 0.7, "power_w": watts(0.5)}, 0.9, "DRAM bandwidth"),
        ({"smact": 0.7, "power_w": watts(0.5)}, 0.1, None),
        ({"smact": None, "gract": 1.0, "power_w": None}, 0.1, "GPU time"),
    ],
)
def test_side_by_side_the_fullest_resource_of_the_gpu_binds(changes, dram, limit):
    jobs = [with_dram(GPU_BOUND, dram)] * 2
    found = bound(jobs, "mps", **changes)
    assert found.limit == found.limit_of(1) == limit


def test_by_turns_it_is_the_gpus_time_that_is_full_however_few_sms_are():
    found = bound([GPU_BOUND] * 2, "naive", smact=0.3)
    assert found.limit == "GPU time"
    assert "SMs" not in {use.resource for use in found.uses}


def test_dram_of_jobs_in_turn_is_their_mean_and_side_by_side_their_sum():
    def dram(sharing):
        uses = {each.resource: each.share for each in bound([GPU_BOUND] * 2, sharing).uses}
        return uses["DRAM bandwidth"]

    assert dram("serial") == pytest.approx(0.3)
    assert dram("serial[1];serial[2]") == pytest.approx(0.3)
    assert dram("mps") == pytest.approx(2 * 0.3 / 1.6)


def test_limits_bind_where_nothing_is_full():
    free = {"smact": 0.5, "power_w": watts(0.5)}
    assert bound([GPU_BOUND] * 2, "mps=40,40", **free).limit == "MPS limits"
    assert bound([GPU_BOUND] * 2, "mps=100,100", **free).limit is None
    assert bound([GPU_BOUND] * 2, "mps=40,40", smact=FULL["SMs"]).limit == "SMs"


def test_what_was_not_measured_binds_nobody_and_is_said_to_be_unknown():
    counters = replace(GPU_BOUND.profile.counters, dram_active=None)
    dark = Job(replace(GPU_BOUND.profile, host_s=None, power_w=None, counters=counters))
    mix = predicted([dark], "mps", smact=None, gract=None, power_w=None)
    found = binding([dark], H200, mix)
    assert (found.uses, found.host_shares, found.limit) == ((), (None,), None)
    assert limit_in_words(mix, found) == "GPU activity not measured"


def test_each_job_in_turn_is_bound_by_itself():
    found = bound([HOST_BOUND, GPU_BOUND], "serial")
    assert (found.limit_of(0), found.limit_of(1)) == ("host path", "GPU time")
    assert found.use_of(1) == 1


def test_a_cap_is_what_power_is_measured_against():
    found = bound([GPU_BOUND] * 2, "mps", smact=0.1, power_w=watts(0.5), power_cap_w=350.0)
    assert found.limit == "power"


@pytest.mark.parametrize(
    ("jobs", "sharing", "changes", "said"),
    [
        ([HOST_BOUND] * 2, "mps", {}, "the host is the limit: its path takes 100%"),
        ([GPU_BOUND] * 2, "mps", {"smact": 0.9}, "the SMs are the limit (SMs 90%, "),
        ([GPU_BOUND] * 2, "mps", {"smact": 0, "power_w": watts(1.0)}, "power is the limit (power"),
        ([GPU_BOUND] * 2, "naive", {}, "GPU time is the limit (GPU busy 100%, "),
        ([GPU_BOUND] * 2, "mps=40,40", {"smact": 0.1}, "MPS limits hold the jobs back ("),
        ([GPU_BOUND] * 2, "mps", {"smact": 0.1}, "nothing is full ("),
        ([GPU_BOUND] * 2, "mps", {"memory_total_mib": 140_000.0}, "memory 97% full"),
        ([GPU_BOUND] * 2, "mps", {"wide_because": "no trace"}, "no trace"),
        ([HOST_BOUND, GPU_BOUND], "serial", {}, "the host holds back resnet26-cifar10-bs128"),
        ([GPU_BOUND] * 2, "mig=3g.71gb,3g.71gb", {}, "estimated, not confirmed on hardware"),
    ],
)
def test_every_limit_has_its_words(jobs, sharing, changes, said):
    mix = predicted(jobs, sharing, **changes)
    assert said in limit_in_words(mix, binding(jobs, H200, mix))
