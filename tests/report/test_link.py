"""Links to the page: each parameter that does not fit is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.report.link import misread

LISTS = {"gpu": ["h200-141gb"], "running": ["1 · a", "2 · b"]}


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("gpu", ["h200-141gb"]),
        ("running", ["1 · a", "2 · b"]),
        ("root", ["false"]),
        ("root", ["TRUE"]),
        ("free", ["20"]),
        ("cap", ["250.5"]),
        ("gpus", ["128"]),
        ("by", ["mps=50,50"]),
        ("by", ["as now on GPU 0"]),
        ("jobs", ["anything"]),
    ],
)
def test_what_fits_is_not_named(key, values):
    assert misread({key: values}, LISTS) == {}


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("gpu", ["rtx-5090"]),
        ("gpu", ["h200-141gb", "h200-141gb"]),
        ("running", ["3 · c"]),
        ("root", ["maybe"]),
        ("free", ["100"]),
        ("cap", ["nan"]),
        ("gpus", ["1.5"]),
        ("max_slowdown", ["-1"]),
        ("by", ["magic"]),
        ("speed", ["9"]),
    ],
)
def test_what_does_not_fit_is_named_with_its_value(key, values):
    (sentence,) = misread({key: values}, LISTS).values()
    assert sentence.startswith(f"{key}: ")
    assert repr(values[0]) in sentence


@given(st.dictionaries(st.text(), st.lists(st.text(), min_size=1)))
def test_any_link_can_be_read(parameters):
    assert misread(parameters, LISTS).keys() <= parameters.keys()
