"""Reads jobs from files, which can say more about them than a command line.

A TOML file holds one table for each job, or for equal copies of it: `templates/jobs.toml` says
each field, and ``advisor init jobs`` writes it. A CSV file holds jobs that arrive over time, in any
order, as `templates/trace.csv`: `arrival_s` and `job`, a profile's name, are required.
"""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.workload.documents import parse_toml, read_toml
from advisor.workload.files import located, read_bytes, shown
from advisor.workload.job import Arrival, Job
from advisor.workload.job_count import checked_copies, job_set
from advisor.workload.other_batches import batch_name
from advisor.workload.profile import FindsProfiles, Profile
from advisor.workload.records import parse_record
from advisor.workload.spec import Script

_REMEDY = "Correct the file."
_REMOVED = {
    "batches": "a job has one batch size. `advisor batch JOB` prints the largest batch of each MIG "
    "slice: write that profile's name",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One ``[[job]]`` of a job file."""

    profile: str
    copies: int = 1
    epochs: float = 1.0
    examples_per_epoch: int | None = None
    validation_s: float = 0.0
    checkpoint_s: float = 0.0
    user: str | None = None
    data_parallel: bool = False
    isolated: bool = False
    deadline_s: float | None = None
    protect: float | None = None
    command: tuple[str, ...] | None = None
    folder: str | None = None
    environment: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _JobFile:
    """A whole job file."""

    job: tuple[_Entry, ...]


def read_jobs(path: Path, load: FindsProfiles, gpus: int = 1) -> tuple[Job, ...]:
    """The jobs of the TOML file `path`; arguments and errors as for `parse_jobs`.

    A profile's path is relative to the file's folder.
    """
    where = shown(path)
    return _jobs(_entries(read_toml(path), where), where, path.parent, load, gpus)


@dataclass(frozen=True, slots=True)
class HandedJobs:
    """Jobs of a file that somebody handed in.

    Attributes:
        left_out: What the file says and does not hold here, in words.
    """

    jobs: tuple[Job, ...]
    left_out: tuple[str, ...]


def handed_jobs(content: bytes, file: str, load: FindsProfiles) -> HandedJobs:
    """The jobs in the `content` of a TOML `file` that somebody handed in; errors as of `read_jobs`.

    It names profiles and no files: those of whoever handed it in are not here, nor is a folder that
    is relative to it.
    """

    @cache
    def named(name: str) -> Profile:
        if _is_path(name) or name.endswith(".py"):
            raise InvalidInput(f"{name}: hand that profile in too, and write its name here")
        return load(name)

    entries = _entries(parse_toml(content, file), file)
    found = _jobs(entries, file, None, named, 1)
    nowhere = [each.profile for each in entries if _runs_nowhere(each, named(each.profile))]
    return HandedJobs(found, tuple(
        f"{name}: its command is left out, since it does not say in which folder, /... , "
        f"it runs"
        for name in nowhere
    ))  # fmt: skip


def _entries(document: dict[str, Any], where: str) -> tuple[_Entry, ...]:
    if not document.get("job"):
        meant = "".join(
            f", but one called {each}" for each in get_close_matches("job", document, n=1)
        )
        raise InvalidInput(
            f"{where}: it has no [[job]] table{meant}. `advisor init jobs` writes a file to start "
            f"from."
        )
    if isinstance(document["job"], dict):
        raise InvalidInput(f"{where}: it has [job], in single brackets: write [[job]] before each.")
    tables = document["job"] if isinstance(document["job"], list) else []
    for table in tables:
        for field, instead in _REMOVED.items():
            if isinstance(table, dict) and field in table:
                raise InvalidInput(f"{where}: {field} is no longer there: {instead}.")
    return parse_record(_JobFile, json.dumps(document, default=str), where, _REMEDY).job


def _jobs(
    entries: Sequence[_Entry], where: str, folder: Path | None, load: FindsProfiles, gpus: int
) -> tuple[Job, ...]:
    load = cache(load)
    with located(where):
        found = [
            job
            for entry in entries
            for job in [_job(entry, folder, load)]
            * checked_copies(entry.copies, entry.profile, gpus)
        ]
        return job_set(found, gpus)


def _job(entry: _Entry, folder: Path | None, load: Callable[[str], Profile]) -> Job:
    name = str(folder / entry.profile) if folder and _is_path(entry.profile) else entry.profile
    return Job(
        _asked(load(name), entry, folder), entry.epochs, entry.validation_s, entry.checkpoint_s,
        user=entry.user, data_parallel=entry.data_parallel, isolated=entry.isolated,
        deadline_s=entry.deadline_s, protect=entry.protect,
    )  # fmt: skip


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith(".json")


def _asked(profile: Profile, entry: _Entry, folder: Path | None) -> Profile:
    """`profile`, with the examples per epoch and the script of the entry, if it has any."""
    workload = profile.workload
    if entry.examples_per_epoch is not None:
        workload = replace(workload, examples_per_epoch=entry.examples_per_epoch)
    script = workload.script
    if folder is not None or not _runs_nowhere(entry, profile):
        script = _script(script, entry, folder)
    return replace(profile, workload=replace(workload, script=script))


def _runs_nowhere(entry: _Entry, profile: Profile) -> bool:
    """Whether the folder of the entry's command is relative to a file that is not here."""
    if entry.folder is not None:
        return not Path(entry.folder).is_absolute()
    return entry.command is not None and profile.workload.script is None


def _script(known: Script | None, entry: _Entry, folder: Path | None) -> Script | None:
    """What starts the job of `entry`: the script that was profiled, with what the entry changes.

    Raises:
        InvalidInput: The entry says where or with what a command runs, and there is none.
    """
    where = entry.folder
    if folder is not None and (known is None or where is not None):
        where = str((folder / (where or "")).resolve())
    if known is not None:
        return known.with_words(entry.command, where, entry.environment)
    if entry.command is not None and where is not None:
        given = entry.environment or {}
        return Script(command=entry.command, folder=where, environment=given)
    if entry.folder is not None or entry.environment is not None:
        raise InvalidInput(
            f"{entry.profile}: folder and environment are those of a command, and it has none"
        )
    return None


def name_at_batch(name: str, profile: Profile, batch: int) -> str:
    """What the profile `name` is called at another batch size.

    Raises:
        InvalidInput: Its name does not say the batch size.
    """
    said = batch_name(name.removesuffix(".json"))
    if said is None or said.batch != profile.workload.batch:
        raise InvalidInput(
            f"{name}: other batch sizes are found by names that end in "
            f"-bs{profile.workload.batch} or go on with a -, as the shipped ones do. Rename the "
            f"profile, or leave the batch size out."
        )
    return said.at(batch) + (".json" if name.endswith(".json") else "")


_NEEDED = ("arrival_s", "job")
_NUMBERS = {"epochs": "1", "validation_s": "0", "checkpoint_s": "0"}  # with defaults


def read_arrivals(path: Path, load: FindsProfiles) -> tuple[Arrival, ...]:
    """The arrivals in the CSV file `path`, in its order; equal jobs are one object.

    Args:
        path: In the format shown in this module's docstring.
        load: Finds a profile by its name, or the path of its file.

    Raises:
        InvalidInput: The file is malformed, has impossible values, or lists no job.
    """
    rows = csv.reader(StringIO(_text(path), newline=""), strict=True)
    job_of = cache(lambda name, *numbers: Job(load(name), *numbers))
    try:
        columns = [each.strip() for each in next(rows, [])]
        _check(columns)
        found = [_arrival(columns, row, job_of) for row in rows if row]
    except (csv.Error, InvalidInput) as error:
        said = str(error).removesuffix(".")
        raise InvalidInput(f"{path}:{max(1, rows.line_num)}: {said}. Correct the file.") from None
    if not found:
        raise InvalidInput(f"{path}: it lists no job. Write one in each line.")
    return tuple(found)


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: {error}. Correct the file.") from None


def _check(columns: Sequence[str]) -> None:
    missing = [each for each in _NEEDED if each not in columns]
    strange = [each for each in columns if each not in (*_NEEDED, *_NUMBERS)]
    if missing or strange or len(set(columns)) < len(columns):
        raise InvalidInput(
            f"its first line names the columns {', '.join(_NEEDED)} and optionally "
            f"{', '.join(_NUMBERS)}, each once; got {','.join(columns)[:200] or 'nothing'}"
        )


def _arrival(columns: Sequence[str], row: Sequence[str], job_of: Callable[..., Job]) -> Arrival:
    if len(row) != len(columns):
        raise InvalidInput(f"{len(row)} fields for {len(columns)} columns")
    given = _NUMBERS | dict(zip(columns, row, strict=True))
    job = job_of(given["job"].strip(), *(_number(column, given[column]) for column in _NUMBERS))
    return Arrival(job, _number("arrival_s", given["arrival_s"]))


def _number(column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{column} is a number, got {text[:40]!r}") from None
