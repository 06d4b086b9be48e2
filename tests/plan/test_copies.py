"""The copies of a job, trials or examples in a batch that fit and are worthwhile."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.errors import NothingFits, UnknownName
from advisor.hardware.gpus import gpu
from advisor.plan.copies import MIN_GAIN, PATIENCE, CopiesTable, worthwhile_copies
from advisor.plan.objectives import weighed
from advisor.plan.rules import UNCONDITIONAL
from advisor.plan.slices import WHOLE, slices_for_job
from advisor.plan.values import equal_work
from advisor.prediction.other_batch import at_batch
from advisor.sharing import SHARED_MODES, Instance, Mig
from advisor.workload.job import MAX_JOBS, Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn
from tests.prediction.test_other_batch import LARGE as AT_256
from tests.prediction.test_other_batch import SMALL as AT_32

HOST_BOUND = Job(
    synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002, memory_mib=2_000)
)
LARGE = Job(synthetic.profile("dlrm-29gb-bs128", host_s=0.01, gpu_s=0.001, memory_mib=40_000))


def copies(job, conditions=UNCONDITIONAL):
    return worthwhile_copies(CopiesTable(job, H200, StandIn(), conditions))


def test_copies_pay_until_the_gpu_is_busy():
    found = copies(HOST_BOUND)
    # Alone 7 ms, of which the GPU works 2 ms; under MPS it does with 1.6 ms: at most 4.4 of them.
    assert found.worthwhile == 5
    assert [row.copies for row in found.rows] == list(range(1, 8))
    assert all(found.gain(row) > MIN_GAIN for row in found.rows[1:5])
    assert all(found.gain(row) <= MIN_GAIN for row in found.rows[5:])


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
    found = worthwhile_copies(CopiesTable(HOST_BOUND, H200, predictor))
    done = [row.throughput for row in found.rows]

    def more_are_worthwhile(copies):
        return max(done[copies : copies + PATIENCE]) > (1 + MIN_GAIN) * done[copies - 1]

    assert len(done) == found.worthwhile + PATIENCE
    assert not more_are_worthwhile(found.worthwhile)
    assert all(more_are_worthwhile(fewer) for fewer in range(1, found.worthwhile))


def test_memory_says_how_many_fit_and_why_no_more_do():
    found = copies(LARGE)
    assert found.fit == found.worthwhile == len(found.rows) == 3
    assert "does not fit: the jobs take 160,000 MiB" in found.limited_by


def test_what_mps_serves_is_another_number_than_what_fits():
    tiny = Job(synthetic.profile("resnet26-cifar10-bs128", memory_mib=500))
    found = copies(tiny)
    # Each holds up to 10 % more than 500 MiB, and memory adds up.
    assert found.fit == pytest.approx(H200.usable_mib / 550, abs=2)
    assert "MiB" in found.limited_by
    assert found.mps_clients == MAX_JOBS < found.fit
    newer = copies(tiny, replace(UNCONDITIONAL, cuda="13.1"))
    assert (newer.mps_clients, newer.fit) == (60, found.fit)


def test_a_job_of_which_not_one_fits_is_refused():
    with pytest.raises(NothingFits, match="smaller batch"):
        copies(Job(synthetic.profile("gpt2-medium-pretrain-bs16", memory_mib=190_000)))


@pytest.mark.parametrize("copies", [3, pytest.param(8, marks=pytest.mark.exhaustive)])
def test_a_plan_for_copies_and_the_number_of_copies_come_from_the_same_limits(copies):
    advisor = Advisor("h200-141gb")
    row = advisor.recommend_copies("resnet50-imagenet64-bs128").rows[copies - 1]
    plans = advisor.recommend(f"resnet50-imagenet64-bs128:{copies}".split(), "throughput").plans
    whole = [each for each in plans if each.sharing.mode in SHARED_MODES]
    best = min(
        weighed(equal_work(each.prediction).p50, each.sharing)
        for each in whole
        if len(set(each.sharing.limits)) <= 1
    )
    assert weighed(1 / row.throughput, row.prediction.sharing) == pytest.approx(best)


BOTH = (AT_32, AT_256)


@pytest.fixture(scope="module")
def predictor():
    return Advisor(H200.key).uncalibrated


def heavy(profile, mib_each):
    """`profile` with so much memory for each example."""
    held = 2000.0 + mib_each * profile.workload.batch
    memory = replace(
        profile.memory, allocated_mib=0.8 * held, reserved_mib=0.9 * held, device_mib=held
    )
    return replace(profile, memory=memory, mps=None)


def test_the_largest_batch_fits_and_one_more_example_does_not(predictor):
    jobs = [heavy(each, 100.0) for each in BOTH]
    (held,) = slices_for_job(jobs, H200, predictor, ["1g.18gb"]).slices
    assert held.instances == 7
    assert not held.open_ended
    for batch, fits in ((held.largest, True), (held.largest + 1, False)):
        mix = predictor.predict([at_batch(jobs, batch)], Mig((Instance("1g.18gb"),)))
        assert (mix.jobs[0].memory_interval_mib.p95 <= mix.memory_capacity_mib) == fits


def test_a_larger_slice_never_holds_a_smaller_batch(predictor):
    jobs = [heavy(each, 300.0) for each in BOTH]
    found = slices_for_job(jobs, H200, predictor).slices
    assert [each.name for each in found][-1] == WHOLE
    most = [each.largest for each in found]
    assert most == sorted(most)


def test_nothing_fits_where_the_job_is_too_large_at_any_size(predictor):
    jobs = [heavy(each, 20_000.0) for each in BOTH]
    (held,) = slices_for_job(jobs, H200, predictor, ["1g.18gb"]).slices
    assert (held.largest, held.open_ended) == (None, False)


def test_a_slice_and_a_size_that_was_not_measured_are_not_confirmed(predictor):
    assert slices_for_job([AT_32], H200, predictor, [WHOLE]).confirmed_on_hardware
    assert not slices_for_job(BOTH, H200, predictor, [WHOLE]).confirmed_on_hardware
    assert not slices_for_job([AT_32], H200, predictor, ["1g.18gb"]).confirmed_on_hardware


@pytest.mark.parametrize(("card", "error"), [(H200, UnknownName), (gpu("l4-24gb"), NothingFits)])
def test_wrong_slices_are_refused(predictor, card, error):
    with pytest.raises(error):
        slices_for_job(BOTH, card, predictor, ["1g.5gb"])
