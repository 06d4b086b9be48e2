"""Reads jobs that arrive over time from a CSV file."""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Annotated

from advisor.errors import InvalidInput
from advisor.workload.job import Arrival, Job, name_from
from advisor.workload.profile import FindsProfiles
from advisor.workload.reading import located, read_bytes
from advisor.workload.records import OrText, expecting
from advisor.workload.units import amount, seconds

_Seconds = Annotated[float, OrText(seconds)]


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One job of a trace, by its columns: when it arrives, and how long it is."""

    arrival_s: _Seconds
    job: str
    epochs: float = 1.0
    validation_s: _Seconds = 0.0
    checkpoint_s: _Seconds = 0.0
    duration_s: Annotated[float | None, OrText(seconds)] = None
    gpus: int = 1


_NEEDED = ("arrival_s", "job")
_NUMBERS = {"epochs": "1", "validation_s": "0", "checkpoint_s": "0"}  # with defaults
_DURATION = "duration_s"  # instead of epochs
_WIDTH = "gpus"
_PLAIN = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")


def read_arrivals(path: Path, load: FindsProfiles) -> tuple[Arrival, ...]:
    """Return the arrivals in the CSV file `path`, in its order; equal jobs are one object.

    `templates/trace.csv` is an example. Rows may be in any order of time; `arrival_s` and `job`, a
    profile's name or its path relative to this file, are required. `duration_s`, the seconds that
    the job takes alone on all of its `gpus`, sets `epochs`.

    Raises:
        InvalidInput: The file is malformed, has impossible values, or lists no job.
    """
    content = read_bytes(path)
    text, sign = csv_text(content, path)
    rows = csv.reader(text, strict=True, delimiter=sign)

    @cache
    def job_of(name: str, gpus: int, *numbers: float) -> Job:
        epochs, validation_s, checkpoint_s = numbers
        return Job(
            load(name_from(path.parent, name)), epochs, validation_s, checkpoint_s, gpus=gpus
        )

    with expecting("a CSV table", content, path):
        try:
            columns = _columns(next(rows, []))
            _check_columns(columns)
            arrivals = [_arrival(columns, row, job_of) for row in rows if row]
        except (csv.Error, InvalidInput) as error:
            where, reason = f"{path}:{max(1, rows.line_num)}", str(error).removesuffix(".")
            raise InvalidInput(f"{where}: {reason}. Correct the file.") from None
    if not arrivals:
        raise InvalidInput(f"{path}: it lists no job. Write one in each line.")
    return tuple(arrivals)


def names_in_arrivals(path: Path) -> set[str]:
    """Return the names of the profiles in a CSV file of arrivals.

    Raises:
        InvalidInput: The file is malformed.
    """
    text, sign = csv_text(read_bytes(path), path)
    rows = csv.reader(text, delimiter=sign)
    columns = _columns(next(rows, []))
    names = {dict(zip(columns, row, strict=False)).get("job", "").strip() for row in rows}
    return {name_from(path.parent, name) for name in names}


def arrivals_text(rows: Iterable[tuple[float, str, int]]) -> str:
    """Return jobs as a CSV table for `read_arrivals`: their arrival, name or path, and GPUs."""
    csv.writer(text := StringIO(), lineterminator="\n").writerows(
        [
            ("arrival_s", "job", "gpus"),
            *((f"{at_s:.12g}", name, gpus) for at_s, name, gpus in rows),
        ]
    )
    return text.getvalue()


def csv_text(content: bytes, path: Path) -> tuple[StringIO, str]:
    """Return the text of a table, and the sign between fields: that most in its first line."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: {error}. Correct the file.") from None
    sign = max(",;\t|", key=text.partition("\n")[0].count)
    return StringIO(text, newline=""), sign


def _columns(row: Sequence[str]) -> list[str]:
    return [heading.strip().lower() for heading in row]


def _check_columns(columns: Sequence[str]) -> None:
    allowed = [column.name for column in fields(TraceRow)]
    got = f"got {','.join(columns)[:200] or 'nothing'}"
    if lacking := [column for column in _NEEDED if column not in columns]:
        raise InvalidInput(
            f"it has no column {' and no '.join(lacking)}: begin with the line {','.join(_NEEDED)} "
            f"(seconds from the first job on, a profile's name); {got}"
        )
    if not {*columns} <= {*allowed} or len(set(columns)) < len(columns):
        raise InvalidInput(f"its columns are {', '.join(allowed)}, each once; {got}")
    if {"epochs", _DURATION} <= {*columns}:
        raise InvalidInput(f"epochs and {_DURATION} both set how long a job is: leave one out")


def _arrival(columns: Sequence[str], row: Sequence[str], job_of: Callable[..., Job]) -> Arrival:
    if len(row) != len(columns):
        raise InvalidInput(f"{len(row)} fields for {len(columns)} columns")
    cells = _NUMBERS | {column: cell for column, cell in zip(columns, row, strict=True) if cell}
    numbers = [_number(column, cells[column]) for column in _NUMBERS]
    job = job_of(cells["job"].strip(), _width(cells.get(_WIDTH, "1")), *numbers)
    if _DURATION in cells:
        if job.alone_s is None:
            raise InvalidInput(f"the length of an epoch of {job.name} is not known")
        job = replace(job, epochs=_number(_DURATION, cells[_DURATION]) / job.alone_s)
    return Arrival(job, _number("arrival_s", cells["arrival_s"]))


def _number(column: str, text: str) -> float:
    if _PLAIN.fullmatch(text):  # most cells; a trace may have a million
        return float(text)
    with located("arrival_s, from the first job on" if column == "arrival_s" else column):
        return seconds(text) if column.endswith("_s") else amount(text, {}, "a number")


def _width(text: str) -> int:
    """The GPUs of one host that a job takes at once."""
    if not re.fullmatch(r" *[0-9]{1,4} *", text):
        raise InvalidInput(
            f"gpus is a whole number, the GPUs of one host at once; got {text!r:.60}"
        )
    return int(text)
