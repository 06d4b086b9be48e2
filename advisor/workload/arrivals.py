"""Reads jobs that arrive over time from a CSV file."""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

from advisor.errors import InvalidInput
from advisor.files.reading import read_bytes
from advisor.files.records import OrText, expecting
from advisor.files.units import amount, seconds
from advisor.workload.job import Arrival, Job, name_from
from advisor.workload.profile import FindsProfiles

_PLAIN = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")


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


def _read(column: str, text: str) -> Any:
    """The value of a cell of `column`."""
    if column == "job":
        return text.strip()
    if column == "gpus":
        if not re.fullmatch(r" *[0-9]{1,4} *", text):
            raise InvalidInput(f"expected a whole number, got {text!r:.60}")
        return int(text)
    if _PLAIN.fullmatch(text):  # most cells are, and a trace may have a million
        return float(text)
    return amount(text, {}, "a number") if column == "epochs" else seconds(text)


_NEEDED = ("arrival_s", "job")


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
    def job_of(name: str, epochs: float, validation_s: float, checkpoint_s: float, of: int) -> Job:
        profile = load(name_from(path.parent, name))
        return Job(profile, epochs, validation_s, checkpoint_s, gpus=of)

    with expecting("a CSV table", content, path):
        try:
            columns = _columns(next(rows, []))
            _check_columns(columns)
            arrivals = [_arrival(_row(columns, cells), job_of) for cells in rows if cells]
        except (csv.Error, InvalidInput) as error:
            where, reason = f"{path}:{max(1, rows.line_num)}", str(error).removesuffix(".")
            raise InvalidInput(f"{where}: {reason}. Correct the file.") from None
    if not arrivals:
        raise InvalidInput(f"{path}: no job found. Write one in each line.")
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
    table = csv.writer(text := StringIO(), lineterminator="\n")
    table.writerow(("arrival_s", "job", "gpus"))
    table.writerows((f"{at_s:.12g}", name, gpus) for at_s, name, gpus in rows)
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
            f"column {' and no '.join(lacking)} not found. Begin with the line "
            f"{','.join(_NEEDED)} (seconds from the first job on, a profile's name); {got}"
        )
    if not {*columns} <= {*allowed} or len(set(columns)) < len(columns):
        raise InvalidInput(f"expected the columns {', '.join(allowed)}, each once; {got}")
    if {"epochs", "duration_s"} <= {*columns}:
        raise InvalidInput("epochs and duration_s both set the length of a job. Leave one out")


def _row(columns: Sequence[str], texts: Sequence[str]) -> TraceRow:
    """One line as a record; an empty cell has the default of its column."""
    if len(texts) != len(columns):
        raise InvalidInput(f"{len(texts)} fields for {len(columns)} columns")
    cells: dict[str, Any] = {}
    for column, text in zip(columns, texts, strict=True):
        if text.strip():
            try:
                cells[column] = _read(column, text)
            except InvalidInput as error:
                since = ", from the first job on" if column == "arrival_s" else ""
                raise InvalidInput(f"{column}{since}: {error}") from None
    for column in _NEEDED:
        if column not in cells:
            raise InvalidInput(f"{column} is empty")
    return TraceRow(**cells)


def _arrival(row: TraceRow, job_of: Callable[[str, float, float, float, int], Job]) -> Arrival:
    job = job_of(row.job, row.epochs, row.validation_s, row.checkpoint_s, row.gpus)
    if row.duration_s is not None:
        if job.alone_s is None:
            raise InvalidInput(f"the length of an epoch of {job.name} is unknown")
        job = replace(job, epochs=row.duration_s / job.alone_s)
    return Arrival(job, row.arrival_s)
