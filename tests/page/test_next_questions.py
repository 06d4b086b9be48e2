"""What is predicted while somebody reads an answer: one more of each job."""

from dataclasses import replace
from queue import Queue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.page import next_questions
from advisor.page.answers import PageQuestion, advisor_of
from advisor.page.next_questions import answer_stands, asking, follow, one_more
from advisor.plan.rules import Conditions
from advisor.report.page_jobs import WantedJob, asked_jobs
from tests import shelf, synthetic

ROWS = tuple(
    WantedJob(name) for name in ("cnn-cifar10-bs128", "bert-base-finetune-bs16", "mlp-toy-bs64")
)
PROFILES = {row.name: synthetic.profile(row.name) for row in ROWS}


def jobs_of(rows):
    return asked_jobs(rows, {}, PROFILES.__getitem__)


def names(jobs):
    return [job.name for job in jobs]


@given(st.lists(st.tuples(st.sampled_from(ROWS), st.integers(1, 3)), min_size=1, max_size=2))
def test_the_jobs_are_those_that_the_page_would_ask_for(chosen):
    rows = tuple(replace(row, copies=copies) for row, copies in chosen)
    wanted = [
        (*rows[:at], replace(row, copies=row.copies + 1), *rows[at + 1 :])
        for at, row in enumerate(rows)
    ]
    found = list(one_more(rows, jobs_of(rows)))
    assert found == ([] if sum(row.copies for row in rows) > 5 else list(map(jobs_of, wanted)))


def test_the_job_whose_count_was_changed_last_comes_first():
    changed = (ROWS[0], replace(ROWS[1], copies=2), ROWS[2])
    first, *_ = one_more(changed, jobs_of(changed), before=ROWS)
    assert names(first) == [ROWS[0].name, *[ROWS[1].name] * 3, ROWS[2].name]


@pytest.fixture
def asked(monkeypatch, page):  # noqa: ARG001
    """What is predicted for a question of two jobs."""
    monkeypatch.setattr(next_questions, "_last", Queue())
    advisor = advisor_of(shelf.GPU, None)
    jobs = tuple(advisor.chosen_jobs()[:2])
    rows = tuple(WantedJob(job.name) for job in jobs)
    question = PageQuestion(shelf.GPU, rows, "makespan", None, Conditions(), "p50")
    predicted = []
    monkeypatch.setattr(
        type(advisor), "recommend", lambda _, them, *__, **___: predicted.append(names(them))
    )
    return question, jobs, predicted


def test_one_more_of_each_job_is_predicted(asked):
    question, jobs, predicted = asked
    one, other = names(jobs)
    follow(question, jobs, ())
    assert predicted == [[one, one, other], [one, other, other]]


def test_nothing_more_is_predicted_once_somebody_asks(asked, monkeypatch):
    question, jobs, predicted = asked
    monkeypatch.setattr(next_questions._foreseeing, "is_set", lambda: True)
    asking()
    follow(question, jobs, ())
    assert predicted == []


def test_without_a_server_that_foresees_nothing_waits_to_be_predicted(asked):
    question, jobs, _ = asked
    asking()
    answer_stands(question, jobs)
    assert next_questions._last.empty()
