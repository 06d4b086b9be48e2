"""What of a step grows where its kernels take longer: on a part of a GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.prediction.partition_transfer import longer_step


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
