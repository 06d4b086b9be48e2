"""Reads jobs that arrive over time from a CSV file, in any order.

    arrival_s,job,epochs
    0,resnet26-cifar10-bs128,5
    12.5,bert-base-finetune-bs16,3

`arrival_s` and `job`, a profile's name, are required; `epochs`, `validation_s` and `checkpoint_s`
are optional, as in a job file.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from io import StringIO
from math import isfinite
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.workload.files import read_bytes
from advisor.workload.job import Job
from advisor.workload.plausible import MOST_WAIT_S
from advisor.workload.store import load_profile

_NEEDED = ("arrival_s", "job")
_NUMBERS = {"epochs": "1", "validation_s": "0", "checkpoint_s": "0"}  # with defaults


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job, and how many seconds after the start it arrives.

    Raises:
        InvalidInput: `arrival_s` is below 0, or no number.
    """

    job: Job
    arrival_s: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.arrival_s) and self.arrival_s >= 0):
            raise InvalidInput(
                f"{self.job.name}: arrival_s must be at least 0, got {self.arrival_s:g}"
            )
        if self.arrival_s > MOST_WAIT_S:
            raise InvalidInput(
                f"{self.job.name}: arrival_s counts seconds from the first job on, at most "
                f"{MOST_WAIT_S:,.0f}, got {self.arrival_s:,.0f}. Of times since 1970, or in "
                f"nanoseconds, take away the first, and divide"
            )


def read_arrivals(path: Path, gpu: str, profiles: Path | None = None) -> tuple[Arrival, ...]:
    """The arrivals in the CSV file `path`, in its order; equal jobs are one object.

    Args:
        path: In the format shown in this module's docstring.
        gpu: Catalogue key; the profiles must have been measured on it.
        profiles: Folder of profiles; None: where `advisor.workload.store` finds them.

    Raises:
        InvalidInput: The file is malformed, has impossible values, or lists no job.
    """
    rows = csv.reader(StringIO(_text(path), newline=""), strict=True)
    try:
        columns = [each.strip() for each in next(rows, [])]
        _check(columns)
        job_of = _jobs(gpu, profiles)
        found = [_arrival(_matched(columns, row), job_of) for row in rows if row]
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


def _jobs(gpu: str, profiles: Path | None) -> Callable[..., Job]:
    load = cache(lambda name: load_profile(name, gpu, profiles))

    @cache
    def job_of(name: str, epochs: float, validation_s: float, checkpoint_s: float) -> Job:
        return Job(load(name), epochs, validation_s, checkpoint_s)

    return job_of


def _matched(columns: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    if len(row) != len(columns):
        raise InvalidInput(f"{len(row)} fields for {len(columns)} columns")
    return dict(zip(columns, row, strict=True))


def _arrival(row: dict[str, str], job_of: Callable[..., Job]) -> Arrival:
    numbers = [_number(column, row.get(column, usual)) for column, usual in _NUMBERS.items()]
    job = job_of(row["job"].strip(), *numbers)
    return Arrival(job, _number("arrival_s", row["arrival_s"]))


def _number(column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{column} is a number, got {text[:40]!r}") from None
