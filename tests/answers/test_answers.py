"""Answers as numbers: whoever changes code without meaning to change advice changes none of them.

`python -m tests.answers` writes them again; `python -m tests.answers --check` compares them all.
"""

import pytest

from tests.answers.asking import ask
from tests.answers.differences import differences
from tests.answers.questions import APART, HERE
from tests.answers.rows import rows_of
from tests.answers.stored import read

STORED = read()


def test_every_question_has_a_stored_answer():
    assert set(STORED) == {*HERE, *APART}
    assert len({*HERE, *APART}) == 62


@pytest.mark.parametrize("question", STORED)
def test_the_answer_is_as_stored(question):
    printed = ask(question)
    found = list(differences(question, STORED[question], rows_of(question, printed)))
    head = "plan, quantity, stored, now, difference:"
    assert not found, "\n".join([f"advisor {question}", head, *found, printed.err])


def row(plan, makespan_s, *, kind="limits"):
    return {"kind": kind, "plan": plan, "makespan_s": [1.0, makespan_s, 1000.0], "oom": 0.0}


BEST, NEXT, LAST = row("mps=50,50", 100.0), row("mps", 104.0, kind="mps"), row("mps=70,30", 104.1)


@pytest.mark.parametrize(
    ("now", "quantities"),
    [
        ([BEST, NEXT, LAST], []),
        ([BEST, LAST, NEXT], []),  # they cost the same
        ([NEXT, BEST, LAST], ["rank"]),
        ([BEST, LAST], ["rank"]),
        ([row("naive", 99.0, kind="naive"), BEST, NEXT, LAST], ["rank"]),
        ([BEST, NEXT, LAST, row("naive", 300.0, kind="naive")], []),
        ([row("mps=50,50", 101.0), NEXT, LAST], ["makespan_s[1]"]),
        ([row("mps=60,40", 100.2), NEXT, LAST], []),  # another of its kind
        ([BEST | {"oom": 0.3}, NEXT, LAST], ["oom"]),
    ],
)
def test_what_counts_as_a_difference(now, quantities):
    found = differences("recommend", [BEST, NEXT, LAST], now)
    assert [line[43:].split()[0] for line in found] == quantities
