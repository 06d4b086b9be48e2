from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NothingFits
from advisor.plan.copies_search import PATIENCE, PAYS, copies_that_pay
from advisor.plan.rules import UNCONDITIONAL
from advisor.workload.job import Job
from advisor.workload.job_count import MAX_JOBS
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

HOST_BOUND = Job(
    synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002, memory_mib=2_000)
)
GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
LARGE = Job(synthetic.profile("dlrm-29gb-bs128", host_s=0.01, gpu_s=0.001, memory_mib=40_000))


def copies(job, conditions=UNCONDITIONAL):
    return copies_that_pay(job, H200, StandIn(), conditions)


def test_copies_pay_until_the_gpu_is_busy():
    found = copies(HOST_BOUND)
    # Alone 7 ms, of which the GPU works 2 ms; under MPS it does with 1.6 ms: at most 4.4 of them.
    assert found.pay == 5
    assert [row.copies for row in found.rows] == list(range(1, 8))
    assert all(row.gain > PAYS for row in found.rows[1:5])
    assert all(row.gain <= PAYS for row in found.rows[5:])


class Saturating(StandIn):
    """Jobs that do so much together, by how many they are: as an A100 does, in small steps."""

    def __init__(self, gains):
        super().__init__()
        self.done = [1.0]
        for gain in gains:
            self.done.append(self.done[-1] * (1 + gain))

    def _steps(self, profiles, _):
        done = self.done[min(len(profiles), len(self.done)) - 1]
        return [each.step_s * len(profiles) / done for each in profiles]


@given(st.lists(st.floats(-0.05, 0.1), min_size=3, max_size=12))
def test_as_many_pay_as_the_printed_rule_says(gains):
    predictor = Saturating(gains)
    found = copies_that_pay(HOST_BOUND, H200, predictor)
    done = [row.throughput for row in found.rows]

    def more_pay(copies):
        return max(done[copies : copies + PATIENCE]) > (1 + PAYS) * done[copies - 1]

    assert len(done) == found.pay + PATIENCE
    assert not more_pay(found.pay)
    assert all(more_pay(fewer) for fewer in range(1, found.pay))


def test_two_more_that_bring_too_little_do_not_pay_however_they_were_reached():
    # 1.8 % from one more, and 2.8 % from two: then one of them pays, since of three 1.4 % is left.
    assert copies_that_pay(HOST_BOUND, H200, Saturating([0.018, 0.009, 0.005, 0.0])).pay == 2


def test_copies_that_only_slow_each_other_do_not_pay_beyond_what_mps_wins():
    found = copies(GPU_BOUND)
    assert found.pay == 2
    assert found.rows[0].throughput == 1


def test_memory_says_how_many_fit_and_why_no_more_do():
    found = copies(LARGE)
    assert found.fit == found.pay == len(found.rows) == 3
    assert "does not fit: the jobs take 160,000 MiB" in found.limited_by


def test_a_margin_leaves_memory_for_fewer():
    assert copies(LARGE, replace(UNCONDITIONAL, memory_margin=0.15)).fit == 2


def test_what_mps_serves_is_another_number_than_what_fits():
    tiny = Job(synthetic.profile("resnet26-cifar10-bs128", memory_mib=500))
    found = copies(tiny)
    # Each holds up to 10 % more than 500 MiB, and memory adds up.
    assert found.fit == pytest.approx(H200.usable_mib / 550, abs=2)
    assert "MiB" in found.limited_by
    assert found.mps_clients == MAX_JOBS < found.fit
    newer = copies(tiny, replace(UNCONDITIONAL, cuda="13.1"))
    assert (newer.mps_clients, newer.fit) == (60, found.fit)


def test_no_more_copies_are_looked_at_than_one_question_may_name():
    idle = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=1.0, gpu_s=0.001, memory_mib=500))
    found = copies(idle)
    assert found.pay == len(found.rows) == MAX_JOBS


def test_an_isolated_job_shares_with_no_copy_of_itself():
    found = copies(replace(HOST_BOUND, isolated=True))
    assert (found.fit, found.pay) == (1, 1)
    assert "isolated" in found.limited_by


def test_copies_that_may_slow_each_other_do_not_pay_by_the_upper_ends():
    job = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.01, gpu_s=0.008))
    # By medians MPS wins a fifth: 1.25 times; by the upper ends a step takes 1.6 times as long.
    found = copies_that_pay(job, H200, StandIn(wide=0.6), level="p95")
    assert copies(job).pay == 2
    assert found.pay == 1
    assert found.rows[0].throughput == 1
    assert found.rows[1].throughput == pytest.approx(2 / 1.28 / 1.6)


def test_a_job_of_which_not_one_fits_is_refused():
    with pytest.raises(NothingFits, match="smaller batch"):
        copies(Job(synthetic.profile("gpt2-medium-pretrain-bs16", memory_mib=190_000)))
