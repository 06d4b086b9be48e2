"""A job that a person types: its numbers in milliseconds, GiB and per cent."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.workload.minimal_profile import minimal_text
from advisor.workload.nvidia_smi import read_nvidia_smi
from advisor.workload.store import parse_profile
from advisor.workload.typed_job import MORE_QUANTITIES, QUANTITIES, numbers_of, typed_job

GPU = "h200-141gb"
NUMBERS = {"step_s": 120, "memory_mib": 8.5, "gpu_utilization": 83, "batch_size": 64}
SMI = Path(__file__).parent / "nvidia_smi" / "580.txt"


def test_a_typed_job_has_the_numbers_in_the_units_of_a_profile():
    more = {"steps_per_epoch": 100, "step_s_under_50": 150, "power_w": 300}
    job = typed_job("mine", GPU, NUMBERS | more)
    assert (job.step_s, job.memory_mib, job.gpu_utilization) == (0.12, 8704, 0.83)
    assert (job.batch_size, job.examples_per_epoch, job.power_w) == (64, 6400, 300)
    assert job.step_s_under_limit == {"50": 0.15}


def test_a_downloaded_job_is_read_again_as_it_was():
    job = typed_job("mine", GPU, NUMBERS)
    assert parse_profile(minimal_text(job).encode(), "mine.json") == job.whole()


def test_a_job_of_which_only_the_duration_is_known_needs_no_batch():
    assert typed_job("mine", GPU, {"duration_s": 60, "memory_mib": 8}).duration_s == 3600


@pytest.mark.parametrize("missing", ["step_s", "memory_mib", "batch_size"])
def test_a_number_that_is_needed_and_missing_is_named(missing):
    name = {"step_s": "length", "memory_mib": "Memory", "batch_size": "batch"}[missing]
    with pytest.raises(InvalidInput, match=name):
        typed_job("mine", GPU, NUMBERS | {missing: None})


def test_what_nvidia_smi_shows_fills_the_form_and_comes_out_as_it_was():
    seen = read_nvidia_smi(SMI.read_text())
    job = typed_job("mine", GPU, NUMBERS | numbers_of(seen))
    assert job.memory_mib == pytest.approx(seen.memory_mib, rel=0.01)
    assert job.gpu_utilization == seen.gpu_utilization


NAMES = [each.name for each in (*QUANTITIES, *MORE_QUANTITIES)]


@given(st.text(), st.dictionaries(st.sampled_from(NAMES), st.none() | st.floats(0, 1e12)))
def test_any_numbers_are_a_job_or_get_a_sentence(name, numbers):
    try:
        job = typed_job(name, GPU, numbers)
    except InvalidInput:
        return
    assert job.memory_mib == numbers["memory_mib"] * 1024
