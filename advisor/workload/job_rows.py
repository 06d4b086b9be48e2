"""The rows of a table of jobs, and their text: ``NAME:COPIES@EPOCHS;batch=64;due=30,NAME2``."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

from advisor.errors import InvalidInput
from advisor.workload.job import Job, checked_copies, job_set, name_at_batch, split_word


@dataclass(frozen=True, slots=True)
class JobRow:
    """Copies of a job, as a row of a table.

    Attributes:
        job: Name by which it is found.
        batch: Examples of a step; None: those of the profile.
        due: Minutes until it should end; None: no deadline.
        user: Name of its owner.
        alone: Whether no other job may share its memory.
    """

    job: str
    copies: float = 1
    epochs: float = 1
    batch: float | None = None
    due: float | None = None
    user: str | None = None
    alone: bool = False

    def __str__(self) -> str:
        """Return the row as text, without cells that have their defaults."""
        text = quote(self.job, safe=" ()")
        text += "" if self.copies == 1 else f":{self.copies:.12g}"
        text += "" if self.epochs == 1 else f"@{self.epochs:.12g}"
        text += "" if self.batch is None else f";batch={self.batch:.12g}"
        text += "" if self.due is None else f";due={self.due:.12g}"
        text += "" if self.user is None else f";user={quote(self.user, safe=' ')}"
        return text + ";alone" * self.alone


def row_of(job: Job, name: str | None = None, copies: int = 1) -> JobRow:
    """Return `copies` of a job as a row, which has its name or another `name`."""
    due_min = None if job.deadline_s is None else job.deadline_s / 60
    row = JobRow(name or job.name, copies, job.epochs)
    return replace(row, due=due_min, user=job.user, alone=job.isolated)


def row_of_cells(cells: Mapping[str, Any]) -> JobRow:
    """Return the row with these `cells` by name; those that are None have their defaults.

    Raises:
        InvalidInput: A cell is impossible.
    """
    row = JobRow(**{name: cell for name, cell in cells.items() if cell is not None})
    return parse_row(str(row))


def rows_text(rows: Iterable[JobRow]) -> str:
    """Return `rows` as text."""
    return ",".join(map(str, rows))


def parse_rows(text: str) -> tuple[JobRow, ...]:
    """Return the rows in `text`.

    Raises:
        InvalidInput: A word is not a row.
    """
    return tuple(parse_row(word) for word in map(str.strip, text.split(",")) if word)


def parse_row(word: str) -> JobRow:
    """Return the row that `word` is.

    Raises:
        InvalidInput: It is not a row.
    """
    first, *others = word.split(";")
    name, copies, epochs = split_word(first)
    row, strange = JobRow(unquote(name), copies, epochs), False
    for cell in others:
        column, _, value = cell.partition("=")
        try:
            match column:
                case "batch":
                    row = replace(row, batch=int(value))
                case "due":
                    row = replace(row, due=float(value))
                case "user":
                    row = replace(row, user=unquote(value))
                case _:
                    row, strange = replace(row, alone=True), strange or cell != "alone"
        except ValueError:
            strange = True
    if strange:
        raise InvalidInput(
            f"{word!r} is not a job. Write NAME:COPIES@EPOCHS;batch=64;due=30;user=ann;alone."
        )
    return row


def jobs_of_rows(rows: Iterable[JobRow], find: Callable[[str], Job]) -> tuple[Job, ...]:
    """Return the jobs of `rows`, copies next to each other; `find` finds a job by its name.

    Raises:
        InvalidInput: A number is impossible, or there are no jobs or too many.
    """
    jobs: list[Job] = []
    for row in rows:
        job = find(row.job)
        if row.batch not in (None, job.batch):
            other = name_at_batch(job.name, job.profile, int(row.batch))
            job = replace(job, profile=find(other).profile)
        due_s = None if row.due is None else 60 * row.due
        job = replace(job, epochs=row.epochs, user=row.user, isolated=row.alone, deadline_s=due_s)
        jobs += [job] * checked_copies(int(row.copies), job.name, 1)
    return job_set(jobs, max((job.gpus for job in jobs), default=1))
