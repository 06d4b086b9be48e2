"""Counts and articles, and that nobody writes them by hand."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.english import counted, is_or_are, with_article
from advisor.hardware.catalogue import catalogue

SOURCES = [*Path("advisor").rglob("*.py"), Path("app.py")]
NOUNS = "job|run|GPU|profile|epoch|limit|instance|process|tenant|workload|plan|family|step|copy"


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "job", "1 job"),
        (0, "job", "0 jobs"),
        (1200, "memory slice", "1,200 memory slices"),
        (2, "family", "2 families"),
        (3, "process", "3 processes"),
        (150.0, "epoch", "150 epochs"),
        (1.0, "epoch", "1 epoch"),
        (0.5, "epoch", "0.5 epochs"),
        (2, "day", "2 days"),
    ],
)
def test_so_many_of_a_thing_are_said_as_people_say_it(number, noun, said):
    assert counted(number, noun) == said


@given(st.integers(0, 10**9), st.sampled_from(NOUNS.split("|")))
def test_only_one_is_singular(number, noun):
    assert counted(number, noun).endswith(f" {noun}") is (number == 1)
    assert is_or_are(number) == ("is" if number == 1 else "are")


def test_an_h200_but_a_b200():
    names = (*catalogue(), "NVIDIA H200", "Tesla V100-SXM2-32GB")
    said = {with_article(name) for name in names}
    assert {"an h200-141gb", "an a100-40gb", "an l4-24gb", "a b200-180gb", "a gh200-96gb"} <= said
    assert {"an NVIDIA H200", "a Tesla V100-SXM2-32GB", "an rtx-4090-24gb", "a v100-32gb"} <= said


def test_no_article_is_written_before_the_name_of_a_gpu():
    written = re.compile(r"\b[Aa]n? \{[a-z_.]*(?:gpu|key|product)\}")
    assert not [path for path in SOURCES if written.search(path.read_text())]
