"""A link that asks what was asked on the page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.report.page_jobs import WantedJob
from advisor.report.page_link import LinkedQuestion, linked_question, parameters

JOBS = st.builds(
    WantedJob,
    name=st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True),
    copies=st.integers(1, 40),
    epochs=st.integers(1, 999).map(float),
    batch=st.none() | st.integers(1, 9999),
    user=st.none() | st.text(min_size=1, max_size=8),
    isolated=st.booleans(),
    deadline_min=st.none() | st.integers(1, 999).map(float),
)


def read(found):
    return linked_question({name: [each] if isinstance(each, str) else each
                            for name, each in found.items()})  # fmt: skip


@given(st.lists(JOBS, max_size=5))
def test_a_link_asks_what_was_asked(jobs):
    asked = LinkedQuestion("a100-40gb", "energy", tuple(jobs))
    assert read(parameters(asked)) == asked


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":2",
        "a:x",
        "a:0",
        "a:1:-1",
        "a:1:nan",
        "a:1:1e9",
        "a:1:1:1:1",
        "a:9999999",
        "a:1:1:batch=x",
        "a:1:1:due=",
        "a:1:1:who=b",
    ],
)
def test_what_nobody_can_have_meant_is_left_out(text):
    assert linked_question({"job": [text]}) == LinkedQuestion()


def test_a_name_alone_is_one_copy_for_one_epoch():
    assert linked_question({"job": ["bert"]}).jobs == (WantedJob("bert"),)
