"""What reaches a terminal: no character that it obeys, and tables of any width."""

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from advisor.hardware.catalogue import catalogue
from advisor.report.listing_text import gpus_table
from advisor.report.table_layout import plain_table
from advisor.terminal import clean
from advisor.terminal.terminal_tables import FixedRow

OBEYED = ["\x1b[31m", *"\a\b\r\n\x7f\u202e\u2066\u2028\udc80", "\x9b2J"]


def printed(report, columns):
    console = Console(file=io.StringIO(), width=columns)
    console.print(report)
    return console.file.getvalue()


@pytest.mark.parametrize("obeyed", OBEYED, ids=ascii)
def test_a_character_that_a_terminal_obeys_is_shown_as_an_escape(obeyed):
    said = clean(f"a{obeyed}b")
    assert obeyed[0] not in said
    assert said.startswith("a\\")


@given(st.text())
def test_nothing_is_left_that_is_no_writing(text):
    left = {unicodedata.category(each) for each in clean(text)}
    assert not left & {"Cc", "Cs", "Zl", "Zp"}
    assert not any(unicodedata.bidirectional(each) in {"LRO", "RLO", "RLI"} for each in clean(text))


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_writing_stays_as_it_is(text):
    assert clean(text) == text


def test_the_lines_of_a_text_may_stay():
    assert clean("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@given(st.integers(20, 120))
def test_no_heading_and_no_number_of_a_table_vanishes_at_any_width(columns):
    text = printed(gpus_table(catalogue().values(), ["h200-141gb"]), columns)
    assert max(map(len, text.splitlines())) <= columns
    words = " ".join(text.split())
    for gpu in catalogue().values():
        assert gpu.key in words.replace(" ", "") or gpu.key in words
        assert f"{gpu.memory_mib:,}" in words
    assert all(name in words for name in ("bandwidth", "power", "profiles"))
    assert "…" not in text


def test_a_long_name_is_never_cut_off():
    table = plain_table("profile", "step")
    table.add_row("n" * 70, "1.0 ms")
    assert "n" * 70 in printed(table, 74)
    assert "step: 1.0 ms" in printed(table, 74)


@given(st.integers(20, 120))
def test_a_row_of_fixed_widths_keeps_what_comes_first_and_all_its_words(columns):
    cells = ("12", ("A  5.4 min", "B  3.5 min"), "6.5 GiB", "1.43x")
    row = FixedRow(cells, ("", "an epoch", "memory", "gain"), (2, 43, 11, 16))
    text = printed(row, columns)
    assert text.startswith("12")
    assert all(word in text for word in ("A  5.4 min", "B  3.5 min", "6.5 GiB", "1.43x"))
    if columns < 78:
        assert "memory: 6.5 GiB" in text
