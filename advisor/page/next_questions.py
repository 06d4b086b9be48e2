"""Predicts what is likely asked next, one more of a job, while its asker reads the last answer.

`advisor.page.serve` starts `foresee` in a thread; where nobody did, as under ``streamlit run``,
nothing is predicted before it is asked.
"""

from collections.abc import Iterator
from contextlib import suppress
from queue import Queue
from threading import Event

from advisor.errors import AdvisorError
from advisor.page.answers import PageQuestion, advisor_of
from advisor.report.page_jobs import WantedJob
from advisor.workload.job import Job

_MOST_JOBS = 6  # of more, predicting takes longer than people read

_last: Queue[tuple[PageQuestion, tuple[Job, ...]] | None] = Queue()
_foreseeing = Event()


def asking() -> None:
    """Somebody waits for an answer: predict nothing else."""
    if _foreseeing.is_set():
        _last.put(None)


def answer_stands(asked: PageQuestion, jobs: tuple[Job, ...]) -> None:
    """The answer for `jobs`, which are those of `asked`, can be read."""
    if _foreseeing.is_set():
        _last.put((asked, jobs))


def foresee() -> None:
    """Predict what may follow each question that was answered, for as long as the server runs."""
    _foreseeing.set()
    before: tuple[WantedJob, ...] = ()
    while True:
        if question := _last.get():
            asked, jobs = question
            follow(asked, jobs, before)
            before = asked.jobs


def follow(asked: PageQuestion, jobs: tuple[Job, ...], before: tuple[WantedJob, ...]) -> None:
    """Predict what may follow `asked` until somebody asks; `before`: the rows asked before it."""
    for each in one_more(asked.jobs, jobs, before):
        if not _last.empty():
            return
        # The page says what is wrong, if it is asked; and a server that ends takes no more work.
        with suppress(AdvisorError, RuntimeError):
            advisor_of(asked.gpu, asked.cap_w).recommend(
                each, asked.objective, conditions=asked.conditions, level=asked.level
            )


def one_more(
    rows: tuple[WantedJob, ...], jobs: tuple[Job, ...], before: tuple[WantedJob, ...] = ()
) -> Iterator[tuple[Job, ...]]:
    """`jobs` with one more of a row's, row by row; first of those that were not asked `before`."""
    ends, end = [], 0
    for row in rows:
        end += row.copies
        ends.append((row in before, end))
    if len(jobs) < _MOST_JOBS:
        for _, end in sorted(ends):
            yield (*jobs[:end], *jobs[end - 1 :])
