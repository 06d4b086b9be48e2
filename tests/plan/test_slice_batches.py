"""The largest batch of each slice."""

from dataclasses import replace

import pytest

from advisor.errors import NothingFits, UnknownName
from advisor.hardware.catalogue import gpu
from advisor.plan.slice_batches import WHOLE, slices_for_job
from advisor.prediction.batch_profile import at_batch
from advisor.prediction.predictor import Predictor
from advisor.sharing import Instance, Mig
from tests import synthetic
from tests.fitted import fit
from tests.prediction.test_other_batch import LARGE, SMALL

H200 = gpu("h200-141gb")
BOTH = (SMALL, LARGE)


@pytest.fixture(scope="module")
def predictor():
    runs = [synthetic.run([SMALL, SMALL], run_id=f"r{number}") for number in range(5)]
    model = fit({SMALL.name: SMALL}, runs, H200)
    return Predictor(H200, model)


def heavy(profile, mib_each):
    """`profile` with so much memory for each example."""
    held = 2000.0 + mib_each * profile.workload.batch
    memory = replace(profile.memory, allocated_mib=0.8 * held, reserved_mib=0.9 * held,
                     device_mib=held)  # fmt: skip
    return replace(profile, memory=memory, mps=None)


def test_the_largest_batch_fits_and_one_more_example_does_not(predictor):
    jobs = [heavy(each, 100.0) for each in BOTH]
    (held,) = slices_for_job(jobs, H200, predictor, ["1g.18gb"]).slices
    assert held.instances == 7
    assert not held.open_ended
    for batch, fits in ((held.largest, True), (held.largest + 1, False)):
        mix = predictor.predict([at_batch(jobs, batch)], Mig((Instance("1g.18gb"),)))
        assert (mix.jobs[0].memory_interval_mib.p95 <= mix.memory_capacity_mib) == fits


@pytest.mark.parametrize("on", [WHOLE, "1g.18gb", "3g.71gb"])
def test_the_largest_batch_fits_at_the_upper_end_of_what_it_takes(predictor, on):
    jobs = [heavy(each, 300.0) for each in BOTH]
    (held,) = slices_for_job(jobs, H200, predictor, [on]).slices
    assert held.memory_mib.p95 <= held.capacity_mib


def test_a_larger_slice_never_holds_a_smaller_batch(predictor):
    jobs = [heavy(each, 300.0) for each in BOTH]
    found = slices_for_job(jobs, H200, predictor).slices
    assert [each.name for each in found][-1] == WHOLE
    most = [each.largest for each in found]
    assert most == sorted(most)


def test_more_than_can_be_told_is_said_to_be_open(predictor):
    (held,) = slices_for_job(BOTH, H200, predictor, [WHOLE]).slices
    assert (held.largest, held.open_ended) == (4 * 256, True)


def test_nothing_fits_where_the_job_is_too_large_at_any_size(predictor):
    jobs = [heavy(each, 20_000.0) for each in BOTH]
    (held,) = slices_for_job(jobs, H200, predictor, ["1g.18gb"]).slices
    assert (held.largest, held.open_ended) == (None, False)


def test_a_slice_and_a_size_that_was_not_measured_are_not_confirmed(predictor):
    assert slices_for_job([SMALL], H200, predictor, [WHOLE]).confirmed_on_hardware
    assert not slices_for_job(BOTH, H200, predictor, [WHOLE]).confirmed_on_hardware
    assert not slices_for_job([SMALL], H200, predictor, ["1g.18gb"]).confirmed_on_hardware


def test_a_job_measured_at_one_size_is_answered_for_at_that_size(predictor):
    (held,) = slices_for_job([SMALL], H200, predictor, ["1g.18gb"]).slices
    assert (held.largest, held.open_ended) == (32, True)


@pytest.mark.parametrize(("card", "error"), [(H200, UnknownName), (gpu("l4-24gb"), NothingFits)])
def test_wrong_slices_are_refused(predictor, card, error):
    with pytest.raises(error):
        slices_for_job(BOTH, card, predictor, ["1g.5gb"])
