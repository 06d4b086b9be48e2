"""What of a step grows where its kernels take longer: on a part of a GPU, or on another GPU."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.prediction.partition_transfer import longer_step
from advisor.prediction.stretched_profile import engine_growth
from tests import synthetic

JOB = synthetic.profile(host_s=0.02, gpu_s=0.004)


@given(st.floats(0.01, 1.05), st.floats(0.01, 8.0))
def test_a_step_on_a_part_of_the_gpu_takes_as_long_as_host_or_gpu_and_at_most_a_16th_longer(
    before, there
):
    slower = max(1.0, there)
    assert slower <= longer_step(before, there) <= slower * 17 / 16


@given(st.floats(0.01, 1.0), st.floats(0.01, 8.0), st.floats(0.01, 8.0))
def test_a_step_is_no_shorter_where_its_kernels_take_longer(before, one, other):
    fast, slow = sorted((one, other))
    assert longer_step(before, fast) <= longer_step(before, slow) * (1 + 1e-12)


@given(st.floats(0.01, 1.0))
def test_a_part_on_which_kernels_take_as_long_as_before_costs_nothing(before):
    assert longer_step(before, before) == pytest.approx(1)


def test_host_and_gpu_hide_less_of_each_other_where_both_take_as_long():
    assert longer_step(0.3, 1.0) == pytest.approx(1.06, abs=0.005)
    assert longer_step(0.3, 0.6) == pytest.approx(1, abs=0.005)
    assert longer_step(0.3, 2.0) == pytest.approx(2, abs=0.005)


def active_for(job, gract):
    return replace(job, counters=replace(job.counters, gract=gract))


def test_what_passes_between_kernels_does_not_grow_with_them():
    job = active_for(JOB, 0.3)
    active_s = 0.3 * job.step_s
    grown_s = engine_growth(job, 2.5) * active_s
    assert grown_s == pytest.approx(active_s + 1.5 * job.gpu_s)
    assert engine_growth(job, 1.0) == pytest.approx(1)


@given(st.floats(0.05, 1.0), st.floats(1.0, 10.0))
def test_the_engine_is_active_for_no_longer_than_if_all_of_it_grew_with_the_kernels(gract, busier):
    job = active_for(JOB, gract)
    assert 1 - 1e-12 <= engine_growth(job, busier) <= busier * (1 + 1e-12)


def test_all_that_is_known_of_a_job_without_kernels_grows_with_its_work():
    assert engine_growth(replace(JOB, counters=None), 3.0) == 3.0
    assert engine_growth(replace(JOB, gpu_s=None), 3.0) == 3.0
