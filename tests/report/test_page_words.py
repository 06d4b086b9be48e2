"""Sentences on the page name its fields, and no options of the command."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.report.page_words import in_page_words, plain


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("Rank by that: --objective deadlines.", "the goal “"),
        ("Add it by `advisor profile --from-numbers` with --gpu-utilization.", "Add your own job"),
        ("Set others by `NAME@EPOCHS`.", "column “epochs”"),
        ("It takes 2 GPUs: `advisor recommend --gpus 2`.", "Several GPUs"),
    ],
)
def test_an_option_is_a_field_of_the_page(text, field):
    assert field in in_page_words(text)
    assert "--" not in in_page_words(text)


def test_what_the_page_lacks_is_left_out_and_the_rest_stays():
    text = "Host not checked (--check-host). --effort 2 searches longer. It fits."
    assert in_page_words(text) == "Host not checked. It fits."


def test_a_command_for_another_machine_stays():
    text = "Measure it there: `advisor profile --probe resnet50`."
    assert in_page_words(text) == text


@given(st.text())
def test_no_option_is_left_in_any_text(text):
    outside = re.sub(r"`[^`]+`", "", in_page_words(text))
    assert not re.search(r"(?<![\w-])--[a-z][a-z-]+", outside)


def test_names_are_shown_as_they_are():
    assert plain("[a](http://b)").replace("\\", "").replace("\u2060", "") == "[a](http://b)"
    assert "](" not in plain("[a](http://b)")
