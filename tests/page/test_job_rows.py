"""Jobs as text: what a link holds comes back as it was."""

import pytest

from advisor.errors import InvalidInput
from advisor.page.question import rows_of, rows_text


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
def test_rows_in_text_come_back_as_they_were(text):
    assert rows_text(rows_of(text)) == text


@pytest.mark.parametrize("text", ["a:two", "a;due=soon", "a;price=3", "a:2:3", "a:inf", "a@nan"])
def test_a_word_that_is_not_a_job_is_named(text):
    with pytest.raises(InvalidInput, match="is not a job"):
        rows_of(text)
