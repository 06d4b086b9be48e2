"""Reads what MLflow tracked, and radT on top of it, from its files: without MLflow.

A store is a folder (``mlruns/EXPERIMENT/RUN/`` with ``meta.yaml``, ``metrics``, ``params`` and
``tags``) or an SQLite database (with tables of these names), as MLflow 3.17 writes both.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

from advisor.errors import InvalidInput
from advisor.workload.files import reason_of, shown

_SQLITE = b"SQLite format 3\0"
# A day of a reading a second is 86,400.
_MOST_POINTS = 1_000_000
# The year 5138.
_MOST_S = 1e11


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a metric: when it was logged, in seconds since 1970, and at which step."""

    at_s: float
    value: float
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """One run of a store.

    Attributes:
        experiment: The name of its experiment.
        metrics: Finite values by name, in the order of time.
        start_s: Seconds since 1970; None if not known, as `end_s` while it goes on.
    """

    id: str
    name: str
    experiment: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, tuple[Point, ...]]
    start_s: float | None
    end_s: float | None


def tracked_runs(store: Path) -> tuple[TrackedRun, ...]:
    """Every run in `store` that was not deleted, the oldest first.

    Raises:
        InvalidInput: It is no store, or part of it is malformed.
    """
    if re.match(r"[a-z+]+:/", str(store)):  # a path keeps one of two strokes
        raise InvalidInput(
            f"{store}: runs are read from files. Name the folder or the database behind the server."
        )
    try:
        found = _of_folder(store) if store.is_dir() else _of_database(store)
        return tuple(sorted(found, key=lambda each: (each.start_s or 0.0, each.id)))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{shown(store)}: {_reason(error)}. Check the path.") from None
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise _malformed(shown(store), str(error)) from None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return reason_of(error) if isinstance(error, OSError) else "it is not text"


def _malformed(where: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"{where}: not as MLflow writes it: {why}. Name a folder such as mlruns, or the file of "
        f"its SQLite database."
    )


def _of_folder(store: Path) -> list[TrackedRun]:
    experiments = [each for each in sorted(store.iterdir()) if (each / "meta.yaml").is_file()]
    if not experiments:
        raise _malformed(shown(store), "no experiment is in it")
    return [run for each in experiments for run in _of_experiment(each)]


def _of_experiment(folder: Path) -> Iterator[TrackedRun]:
    meta = _meta(folder / "meta.yaml")
    if meta.get("lifecycle_stage") == "deleted":
        return
    for run in sorted(folder.iterdir()):
        if (run / "meta.yaml").is_file() and (run / "metrics").is_dir():
            about = _meta(run / "meta.yaml")
            if about.get("lifecycle_stage") != "deleted":
                yield _of_run_folder(run, about, meta.get("name") or folder.name)


def _of_run_folder(folder: Path, about: Mapping[str, str], experiment: str) -> TrackedRun:
    tags = _texts(folder / "tags")
    return TrackedRun(
        id=folder.name,
        name=about.get("run_name") or tags.get("mlflow.runName") or folder.name,
        experiment=experiment,
        params=_texts(folder / "params"),
        tags=tags,
        metrics={name: points for name, path in _files(folder / "metrics")
                 if (points := _points(path))},
        start_s=_seconds(about.get("start_time")),
        end_s=_seconds(about.get("end_time")),
    )  # fmt: skip


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Each file below `folder`, by what MLflow calls it: names may hold slashes."""
    if folder.is_dir():
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path


def _texts(folder: Path) -> dict[str, str]:
    return {name: path.read_text() for name, path in _files(folder)}


def _meta(path: Path) -> dict[str, str]:
    """The flat ``key: value`` lines of a meta.yaml; quotes taken off, null left out."""
    pairs = (line.partition(": ") for line in path.read_text().splitlines() if line[:1].isalpha())
    said = {key: value.strip().strip("'\"") for key, _, value in pairs}
    return {key: value for key, value in said.items() if value not in ("", "null")}


def _seconds(milliseconds: object) -> float | None:
    if milliseconds is None:
        return None
    found_s = float(str(milliseconds)) / 1000
    if not 0 <= found_s < _MOST_S:
        raise ValueError(f"{milliseconds} ms are no time since 1970")
    return found_s


def _points(path: Path) -> tuple[Point, ...]:
    """Lines ``milliseconds value step``; old ones have no step."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            at_ms, value, *step = line.split()[:3]
            found.append(Point(float(at_ms) / 1000, float(value), int(step[0]) if step else 0))
        except ValueError:
            raise _malformed(f"{shown(path)}:{number}", f"{line[:40]!r}") from None
        if len(found) > _MOST_POINTS:
            raise _malformed(shown(path), f"more than {_MOST_POINTS:,} lines")
    return _in_time(found)


def _in_time(points: list[Point]) -> tuple[Point, ...]:
    kept = (each for each in points if isfinite(each.value) and isfinite(each.at_s))
    return tuple(sorted(kept, key=lambda each: (each.at_s, each.step)))


def _of_database(store: Path) -> list[TrackedRun]:
    with store.open("rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            raise _malformed(shown(store), "it is no SQLite database")
    where = f"file:{quote(str(store.resolve()))}?mode=ro"
    with closing(sqlite3.connect(where, uri=True)) as database:
        rows = database.execute(
            "SELECT r.run_uuid, r.name, e.name, r.start_time, r.end_time FROM runs r "
            "JOIN experiments e ON e.experiment_id = r.experiment_id "
            "WHERE r.lifecycle_stage = 'active' AND e.lifecycle_stage = 'active'"
        ).fetchall()
        return [_of_row(database, row) for row in rows]


def _of_row(database: sqlite3.Connection, row: tuple[Any, ...]) -> TrackedRun:
    run, name, experiment, start_ms, end_ms = row

    def pairs(table: str) -> dict[str, str]:
        asked = f"SELECT key, value FROM {table} WHERE run_uuid = ?"
        return {str(key): str(value) for key, value in database.execute(asked, (run,))}

    points: dict[str, list[Point]] = {}
    asked = "SELECT key, timestamp, value, step FROM metrics WHERE run_uuid = ? AND NOT is_nan"
    for key, at_ms, value, step in database.execute(asked, (run,)):
        points.setdefault(str(key), []).append(Point(at_ms / 1000, float(value), int(step)))
    tags = pairs("tags")
    return TrackedRun(
        id=str(run), name=str(name or tags.get("mlflow.runName") or run),
        experiment=str(experiment), params=pairs("params"), tags=tags,
        metrics={key: _in_time(each) for key, each in points.items()},
        start_s=_seconds(start_ms), end_s=_seconds(end_ms),
    )  # fmt: skip
