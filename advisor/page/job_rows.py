"""Jobs as rows of a table, as one line of text for a link, and in files that a user uploads.

A row in text is ``NAME:COPIES@EPOCHS;batch=64;due=30;user=ann;alone``, of which only the name is
needed; commas separate rows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from math import isfinite
from typing import Any
from urllib.parse import quote, unquote

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.prediction.find_profile import profile_of_file
from advisor.workload.job import Job, checked_copies, handed_jobs, job_set, name_at_batch
from advisor.workload.profile import FindsProfiles, Profile

Row = dict[str, Any]
"""The cells of a job by the names of `COLUMNS`; None or missing: empty."""

COLUMNS = ("job", "copies", "epochs", "batch", "due", "user", "alone")
_NUMBERS = ("copies", "epochs", "batch", "due")
_WHOLE = ("copies", "batch")


def row_of(job: Job, name: str, copies: int = 1) -> Row:
    """Return `copies` of a job as a row with that `name`."""
    due_min = None if job.deadline_s is None else job.deadline_s / 60
    return {
        "job": name,
        "copies": float(copies),
        "epochs": float(job.epochs),
        "batch": None,
        "due": due_min,
        "user": job.user,
        "alone": job.isolated,
    }


def rows_text(rows: Iterable[Row]) -> str:
    """Return `rows` as text, without cells that have their defaults."""
    texts = []
    for row in rows:
        copies, epochs = row.get("copies"), row.get("epochs")
        text = quote(str(row["job"]), safe=" ()")
        text += "" if copies in (None, 1) else f":{copies:.12g}"
        text += "" if epochs in (None, 1) else f"@{epochs:.12g}"
        for name in ("batch", "due"):
            text += "" if row.get(name) is None else f";{name}={row[name]:.12g}"
        text += "" if row.get("user") is None else f";user={quote(str(row['user']), safe=' ')}"
        texts.append(text + (";alone" if row.get("alone") else ""))
    return ",".join(texts)


def rows_of(text: str) -> list[Row]:
    """Return the rows in `text`, or raise InvalidInput."""
    rows = []
    for word in filter(None, map(str.strip, text.split(","))):
        first, *others = word.split(";")
        job, _, epochs = first.partition("@")
        name, _, copies = job.partition(":")
        cells = dict(each.partition("=")[::2] for each in others)
        row: Row = {"job": unquote(name), "copies": copies or 1, "epochs": epochs or 1, **cells}
        try:
            row |= {column: float(row[column]) for column in _NUMBERS if column in row}
        except ValueError:
            row = {}
        numbers = [row[column] for column in _NUMBERS if column in row]
        if not row or row.keys() - {*COLUMNS} or not all(map(isfinite, numbers)):
            raise InvalidInput(f"{word!r} is not a job. Write NAME, or NAME:COPIES@EPOCHS.")
        user = unquote(row["user"]) if "user" in row else None
        rows.append(dict.fromkeys(COLUMNS) | row | {"user": user, "alone": "alone" in row})
    return rows


def jobs_of_rows(rows: Iterable[Row], find: Callable[[str], Job]) -> tuple[Job, ...]:
    """Return the jobs of `rows`, copies next to each other; `find` finds a job by its name.

    Raises:
        InvalidInput: A cell is impossible, or there are no jobs or too many.
    """
    jobs: list[Job] = []
    for row in rows:
        cells = {name: value for name, value in row.items() if value is not None}
        for column in cells.keys() & {*_WHOLE}:
            if cells[column] != int(cells[column]):
                raise InvalidInput(
                    f"{cells['job']}: {column} is a whole number, got "
                    f"{cells[column]:g}. Correct the cell."
                )
        job, due_min = find(cells["job"]), cells.get("due")
        batch = int(cells.get("batch", job.batch))
        if batch != job.batch:
            job = replace(job, profile=find(name_at_batch(job.name, job.profile, batch)).profile)
        job = replace(
            job,
            epochs=cells.get("epochs", 1.0),
            user=cells.get("user"),
            isolated=bool(cells.get("alone")),
            deadline_s=None if due_min is None else 60 * due_min,
        )
        jobs += [job] * checked_copies(int(cells.get("copies", 1)), job.name, 1)
    return job_set(jobs, max((job.gpus for job in jobs), default=1))


Uploaded = tuple[dict[str, Job], list[Row], list[str], list[str]]
"""Jobs by the names of their rows, these rows, what files of jobs leave out, and errors."""


def read_uploaded(files: Sequence[tuple[str, bytes]], gpu: Gpu, find: FindsProfiles) -> Uploaded:
    """Read `files`, names and contents, for `gpu`; `find` finds all other profiles."""
    jobs: dict[str, Job] = {}
    rows: list[Row] = []
    notes: list[str] = []
    errors: list[str] = []

    def find_here(name: str) -> Profile:
        return jobs[name].profile if name in jobs else find(name)

    # Profiles before the jobs that use them.
    for file, content in sorted(files, key=lambda each: each[0].endswith(".toml")):
        try:
            if not file.endswith(".toml"):
                profile = profile_of_file(content, file, gpu)
                jobs[profile.name] = Job(profile)
                rows.append(row_of(jobs[profile.name], profile.name))
                continue
            handed, left_out = handed_jobs(content, file, find_here)
            notes += left_out
            for number, (_, run) in enumerate(groupby(handed, key=id), start=1):
                job, *copies = run
                name = f"{job.name} ({file} {number})"
                jobs[name] = job
                rows.append(row_of(job, name, 1 + len(copies)))
        except AdvisorError as error:
            errors.append(str(error))
    return jobs, rows, notes, errors
