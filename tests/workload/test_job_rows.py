"""Jobs as text: what a link holds comes back as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.workload.job import Job
from advisor.workload.job_rows import JobRow, jobs_of_rows, parse_rows, row_of_cells, rows_text
from tests import synthetic

TEXT = st.text(min_size=1).map(str.strip).filter(bool)
ROWS = st.builds(
    JobRow,
    TEXT,
    copies=st.integers(1, 1000),
    epochs=st.sampled_from([1, 0.5, 3, 1e6]),
    batch=st.none() | st.integers(1, 10**6),
    due=st.none() | st.sampled_from([0.5, 90.0]),
    user=st.none() | TEXT,
    alone=st.booleans(),
)


@given(st.lists(ROWS).map(tuple))
def test_rows_come_back_from_their_text_as_they_were(rows):
    assert parse_rows(rows_text(rows)) == rows


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a:2",
        "a@0.5",
        "a:2@3;batch=64;due=1.5;user=ann;alone,b",
        "a (jobs.toml 1),b;user=%2C%3B%3D",
        "",
    ],
)
def test_text_of_rows_stays_as_it_was(text):
    assert rows_text(parse_rows(text)) == text


@pytest.mark.parametrize(
    "text",
    ["a:two", "a:2.5", "a;due=soon", "a;batch=6.5", "a;price=3", "a;alone=no", "@nan"],
)
def test_a_word_that_is_not_a_job_is_named(text):
    with pytest.raises(InvalidInput, match=text):
        parse_rows(f"b,{text}")


def test_a_cell_that_is_no_whole_number_is_named():
    with pytest.raises(InvalidInput, match="COPIES"):
        row_of_cells({"job": "a", "copies": 2.5, "epochs": None})


@given(st.text())
def test_any_text_is_rows_or_gets_a_sentence(text):
    try:
        rows = parse_rows(text)
    except InvalidInput:
        return
    assert parse_rows(rows_text(rows)) == rows


def test_rows_are_jobs_with_their_cells():
    job = Job(synthetic.numbers(workload="a-bs64").whole())
    rows = parse_rows("a-bs64:2@3;due=90;user=ann;alone")
    first, second = jobs_of_rows(rows, {"a-bs64": job}.__getitem__)
    assert first is second
    assert (first.epochs, first.deadline_s, first.user, first.isolated) == (3, 5400, "ann", True)
