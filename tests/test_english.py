"""Counts and articles in messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import counted, with_article
from advisor.hardware.gpus import catalogue


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "job", "1 job"), (0, "job", "0 jobs"), (1200, "memory slice", "1,200 memory slices"),
        (2, "family", "2 families"), (3, "process", "3 processes"), (0.5, "epoch", "0.5 epochs"),
    ],
)  # fmt: skip
def test_a_count_agrees_with_its_noun(number, noun, text):
    assert counted(number, noun) == text


@given(st.integers(0, 10**9))
def test_only_one_is_singular(number):
    assert counted(number, "GPU").endswith(" GPU") is (number == 1)


def test_an_h200_but_a_b200():
    texts = {with_article(name) for name in (*catalogue(), "NVIDIA H200")}
    assert {
        "an h200-141gb",
        "an a100-40gb",
        "an l4-24gb",
        "a b200-180gb",
        "an NVIDIA H200",
    } <= texts
