"""Texts for a terminal: no control characters, tables of any width, near names, counts."""

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from advisor.errors import UnknownName, clean, counted, with_article
from advisor.hardware.gpus import catalogue
from advisor.report.format import plain_table
from advisor.report.lists import gpus_table

KNOWN = [
    "resnet50-imagenet64-bs128",
    "resnet50-imagenet64-bs32",
    "resnet152-imagenet-bs128",
    "regnety_016-imagenet64-bs128",
    "gpt2-small-finetune-bs2",
    "gpt2-small-pretrain-bs8",
    "gpt2-medium-pretrain-bs4",
    "gpt2-medium-finetune-bs4",
    "gpt2-medium-finetune-bs16",
]


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys_and_writing_stays(text):
    left = clean(text)
    assert not {unicodedata.category(each) for each in left} & {"Cc", "Cs", "Zl", "Zp"}
    assert not any(unicodedata.bidirectional(each) in {"LRO", "RLO", "RLI"} for each in left)
    writing = "".join(each for each in text if unicodedata.category(each)[0] in "LNP")
    assert clean(writing) == writing
    assert clean("a\nb\x1b", keep="\n") == "a\nb\\x1b"


def printed(report, columns):
    console = Console(file=io.StringIO(), width=columns)
    console.print(report)
    return console.file.getvalue()


@given(st.integers(20, 120))
def test_no_heading_and_no_number_of_a_table_vanishes_at_any_width(columns):
    text = printed(gpus_table(catalogue().values(), ["h200-141gb"]), columns)
    assert max(map(len, text.splitlines())) <= columns
    words = "".join(text.split())
    for gpu in catalogue().values():
        assert gpu.key in words
        assert f"{gpu.memory_mib:,}" in words
    assert all(name in words for name in ("bandwidth", "power", "profiles"))
    table = plain_table("profile", "step")
    table.add_row("n" * 70, "1.0 ms")
    assert "n" * 70 in "".join(printed(table, columns).split())


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("resnet50-imagnet64-bs128", KNOWN[:2]),
        ("ResNet50", sorted(KNOWN[:2])),
        ("zzz", None),
        ("", None),
    ],
)
def test_an_unknown_name_is_answered_with_those_about_as_near_as_the_nearest(typed, near):
    message = str(UnknownName("profile", typed, KNOWN, "Name another."))
    _, mark, listed = message.partition("Did you mean ")
    assert (listed.partition("?")[0].split(", ") if mark else None) == near


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "job", "1 job"),
        (0, "job", "0 jobs"),
        (1200, "memory slice", "1,200 memory slices"),
        (2, "family", "2 families"),
        (3, "process", "3 processes"),
        (0.5, "epoch", "0.5 epochs"),
    ],
)
def test_a_count_agrees_with_its_noun(number, noun, text):
    assert counted(number, noun) == text


def test_an_h200_but_a_b200():
    texts = {with_article(name) for name in (*catalogue(), "NVIDIA H200")}
    assert {
        "an h200-141gb",
        "an a100-40gb",
        "an l4-24gb",
        "a b200-180gb",
        "an NVIDIA H200",
    } <= texts
