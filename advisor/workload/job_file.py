"""Reads jobs from files, which can say more about them than a command line.

A TOML file holds one table for each job, or for equal copies of it::

    [[job]]
    profile = "resnet50-imagenet64-bs128"
    copies = 2
    epochs = 3
    validation_s = 40      # seconds of validation an epoch, alone
    batches = [64, 256]    # other acceptable batch sizes, each with a profile
    user = "ada"           # its owner: MPS serves one user at a time
    data_parallel = true   # it exchanges data with other GPUs, which MIG instances cannot
    isolated = true        # no other job may run in the same memory
    deadline_s = 7200      # seconds from the start of all jobs in which it should end
    protect = 0.1          # its steps may take a tenth longer than alone at most

A CSV file holds jobs that arrive over time, in any order; `arrival_s` and `job`, a profile's name,
are required, and `epochs`, `validation_s` and `checkpoint_s` optional::

    arrival_s,job,epochs
    0,resnet26-cifar10-bs128,5
    12.5,bert-base-finetune-bs16,3
"""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.workload.files import read_bytes, read_toml, shown
from advisor.workload.job import Arrival, FindsProfiles, Job, checked_copies, job_set
from advisor.workload.profile import Profile
from advisor.workload.spec import STRICT
from advisor.workload.store import parse_record


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One ``[[job]]`` of a job file."""

    __pydantic_config__ = STRICT

    profile: str
    copies: int = 1
    epochs: float = 1.0
    examples_per_epoch: int | None = None
    validation_s: float = 0.0
    checkpoint_s: float = 0.0
    batches: tuple[int, ...] = ()
    user: str | None = None
    data_parallel: bool = False
    isolated: bool = False
    deadline_s: float | None = None
    protect: float | None = None


@dataclass(frozen=True, slots=True)
class _JobFile:
    __pydantic_config__ = STRICT

    job: tuple[_Entry, ...]


def read_jobs(path: Path, load: FindsProfiles, gpus: int = 1) -> tuple[Job, ...]:
    """The jobs of the TOML file `path`; arguments and errors as for `parse_jobs`.

    A profile's path is relative to the file's folder.
    """
    remedy = "Correct the file."
    text = json.dumps(read_toml(path), default=str)
    entries = parse_record(_JobFile, text, shown(path), remedy).job
    load = cache(load)
    try:
        found = [
            job
            for entry in entries
            for job in [_job(entry, path.parent, load)]
            * checked_copies(entry.copies, entry.profile, gpus)
        ]
        return job_set(found, gpus)
    except InvalidInput as error:
        raise InvalidInput(f"{shown(path)}: {error}") from None


def _job(entry: _Entry, folder: Path, load: Callable[[str], Profile]) -> Job:
    is_path = "/" in entry.profile or entry.profile.endswith(".json")
    name = str(folder / entry.profile) if is_path else entry.profile
    first = load(name)
    profile, *choices = (
        _asked(each, entry) for each in (first, *(load(_at(name, first, n)) for n in entry.batches))
    )
    return Job(
        profile, entry.epochs, entry.validation_s, entry.checkpoint_s,
        user=entry.user, data_parallel=entry.data_parallel, isolated=entry.isolated,
        deadline_s=entry.deadline_s, protect=entry.protect, choices=tuple(choices),
    )  # fmt: skip


def _asked(profile: Profile, entry: _Entry) -> Profile:
    """`profile`, with the entry's examples per epoch if it has any."""
    if entry.examples_per_epoch is None:
        return profile
    asked = replace(profile.workload, examples_per_epoch=entry.examples_per_epoch)
    return replace(profile, workload=asked)


def _at(name: str, profile: Profile, batch: int) -> str:
    """What the profile `name` is called at another batch size.

    Raises:
        InvalidInput: Its name does not say the batch size.
    """
    head, said, tail = name.rpartition(f"-bs{profile.workload.batch}")
    if not said or tail[:1].isdigit():
        raise InvalidInput(
            f"{name}: batches are found by names that end in -bs{profile.workload.batch} or go on "
            f"with a -, as the shipped ones do. Rename the profile, or leave batches out."
        )
    return f"{head}-bs{batch}{tail}"


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
        raise InvalidInput(f"{path}:{max(1, rows.line_num)}: {error}. Correct the file.") from None
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
