"""Jobs as the page asks for them: the rows of its table, and the jobs that these stand for."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from advisor.errors import InvalidInput
from advisor.workload.job import Job
from advisor.workload.job_count import checked_copies, job_set
from advisor.workload.job_file import name_at_batch
from advisor.workload.profile import FindsProfiles


@dataclass(frozen=True, slots=True)
class WantedJob:
    """A row of the table of jobs on the page.

    Attributes:
        name: Name of a profile, or of a job that was handed in.
        batch: Batch size; None: the job's own.
        user: Its owner; None: the one user of all jobs that name none.
        deadline_min: Deadline in minutes; None: none.
        isolated: Whether no other job may share its memory.
    """

    name: str
    copies: int = 1
    epochs: float = 1.0
    batch: int | None = None
    user: str | None = None
    deadline_min: float | None = None
    isolated: bool = False


def wanted_job(row: Mapping[str, Any]) -> WantedJob:
    """A row of the table as a value; empty cells take the defaults of `WantedJob`.

    Raises:
        InvalidInput: A count is not a whole number.
    """
    given = {name: value for name, value in row.items() if value is not None}
    for field in given.keys() & {"copies", "batch"}:
        if given[field] != int(given[field]):
            raise InvalidInput(f"{given['name']}: {field} is a whole number, got {given[field]:g}")
        given[field] = int(given[field])
    return WantedJob(**given)


def asked_jobs(
    wanted: Iterable[WantedJob], own: Mapping[str, Job], find: FindsProfiles
) -> tuple[Job, ...]:
    """The jobs that the rows `wanted` stand for, copies next to each other.

    Args:
        wanted: As asked for.
        own: Jobs that were handed in, by the names of their rows.
        find: Finds all other profiles, and those of other batch sizes.

    Raises:
        InvalidInput: A number is impossible, a batch size cannot be estimated, or there are no jobs
            or too many.
    """
    found: list[Job] = []
    for each in wanted:
        copies = checked_copies(each.copies, each.name, 1)
        found += [_job(each, own.get(each.name) or Job(find(each.name)), find)] * copies
    return job_set(found)


def _job(asked: WantedJob, known: Job, find: FindsProfiles) -> Job:
    if asked.batch not in (None, known.batch):
        known = replace(known, profile=find(name_at_batch(known.name, known.profile, asked.batch)))
    return replace(
        known, epochs=asked.epochs, user=asked.user, isolated=asked.isolated,
        deadline_s=None if asked.deadline_min is None else 60 * asked.deadline_min,
    )  # fmt: skip


def handed_rows(jobs: Sequence[Job], file: str) -> tuple[tuple[WantedJob, Job], ...]:
    """A row for each different one of `jobs`, which were handed in with `file`."""
    file = re.sub(r"[^\w.+-]", "_", file)  # jobs' names are shown as Markdown
    equal = [(job, len(list(same))) for _, same in groupby(jobs, key=id) for job in [next(same)]]
    return tuple(
        (_row(job, 1 + others, f"{job.name} ({file}, {number})"), job)
        for number, (job, others) in enumerate(equal, 1)
    )


def _row(job: Job, copies: int, name: str) -> WantedJob:
    deadline_min = None if job.deadline_s is None else job.deadline_s / 60
    return WantedJob(name, copies, job.epochs, None, job.user, deadline_min, job.isolated)
