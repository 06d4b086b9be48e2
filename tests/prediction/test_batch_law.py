"""What the laws of batch sizes allow between and beyond the sizes that were measured."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.prediction.batch_law import FARTHEST, band, check_near, memory_at, step_at

SIZES = st.integers(1, 4096)
PARTS = st.floats(0.0, 10.0)


@st.composite
def lawful(draw):
    """A step that has a fixed part, a part an example, and a floor where the GPU is not full."""
    fixed, each, floor = draw(PARTS), draw(st.floats(0.001, 10.0)), draw(PARTS)
    known = draw(st.sets(SIZES, min_size=1, max_size=5))

    def takes(batch):
        return fixed + max(floor, each * batch)

    return takes, {size: takes(size) for size in known}


@given(lawful(), SIZES)
def test_what_obeys_the_laws_lies_in_the_band(step, batch):
    takes, known = step
    low, high = band(known, batch)
    assert low * (1 - 1e-9) <= takes(batch) <= high * (1 + 1e-9)


@given(lawful(), SIZES)
def test_the_expected_value_lies_in_the_band_and_is_exact_where_it_was_measured(step, batch):
    _, known = step
    low, high = band(known, batch)
    found = step_at(known, batch)
    assert low * (1 - 1e-9) <= found.middle <= high * (1 + 1e-9)
    if batch in known:
        assert (found.middle, found.spread) == (known[batch], 0.0)
    else:
        assert found.spread > 0


@given(lawful(), SIZES, SIZES)
def test_another_measurement_never_widens_the_band(step, batch, also):
    takes, known = step
    (low, high), (lower, higher) = band(known | {also: takes(also)}, batch), band(known, batch)
    assert low >= lower * (1 - 1e-9)
    assert high <= higher * (1 + 1e-9)


@given(st.floats(0.1, 1e4), st.floats(0.1, 100.0), st.sets(SIZES, min_size=2, max_size=4), SIZES)
def test_memory_that_grows_in_proportion_is_found_anywhere(fixed, each, sizes, batch):
    known = {size: fixed + each * size for size in sizes}
    assert memory_at(known, batch).middle == pytest.approx(fixed + each * batch)


@given(lawful(), st.integers(2, 64))
def test_the_farther_out_the_less_sure(step, times):
    _, known = step
    most = max(known)
    assert step_at(known, most * times).spread >= step_at(known, most * (times - 1)).spread - 1e-9


@given(st.dictionaries(SIZES, st.floats(0.01, 100.0), min_size=2, max_size=5), SIZES)
def test_measurements_that_break_the_laws_still_give_a_number(known, batch):
    found = step_at(known, batch)
    assert 0 < found.middle < float("inf")
    assert found.spread < 30


@given(st.sets(st.integers(8, 512), min_size=2, max_size=4), st.booleans())
def test_far_out_is_refused_with_what_to_do(sizes, larger):
    known = dict.fromkeys(sizes, 1.0)
    least, most = int(min(sizes) / FARTHEST), int(max(sizes) * FARTHEST)
    for batch in (least + 1, most):
        check_near("mine", known, batch)
    batch = most + 1 if larger else least - 1
    with pytest.raises(InvalidInput, match=r"more than 4 times beyond .* Measure it nearer"):
        check_near("mine", known, batch)


def test_between_close_sizes_little_is_left_open():
    low, high = band({96: 96.0 + 10, 128: 128.0 + 10, 256: 256.0 + 10}, 112)
    assert log(high / low) < 0.02
