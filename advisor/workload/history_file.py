"""Reads what ``nvidia-smi``, ``dcgmi dmon`` or Grafana wrote about GPUs over time.

A file is a table. Its columns are quantities of GPUs, labels, and perhaps a time; or each row has
one value with the name of its metric. ``dmon`` separates columns by spaces, and its header lines
begin with ``#``.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from math import inf, isfinite
from pathlib import Path

from advisor.errors import InvalidInput, shortened
from advisor.workload.history import DCGM_FIELDS, Labels, Quantity, Series, in_range
from advisor.workload.reading import read_bytes

# Columns of nvidia-smi --query-gpu, of dcgmi dmon and of nvidia-smi dmon, in lower case.
_COLUMNS: dict[str, tuple[Quantity, float]] = {
    **{name.lower(): field for name, field in DCGM_FIELDS.items()},
    "utilization.gpu": ("coarse_busy", 0.01), "utilization.memory": ("memory_busy", 0.01),
    "memory.used": ("memory_mib", 1.0), "power.draw": ("power_w", 1.0),
    "power.draw.instant": ("power_w", 1.0), "power.draw.average": ("power_w", 1.0),
    "gputl": ("coarse_busy", 0.01), "gract": ("busy", 1.0), "mcutl": ("memory_busy", 0.01),
    "fbusd": ("memory_mib", 1.0), "power": ("power_w", 1.0),
    "sm": ("coarse_busy", 0.01), "mem": ("memory_busy", 0.01), "fb": ("memory_mib", 1.0),
    "pwr": ("power_w", 1.0),
}  # fmt: skip
_LABELS = {"index": "gpu", "uuid": "UUID", "gpu_uuid": "UUID", "name": "modelName"}
_TIMES = ("time", "timestamp", "date")
_METRIC, _VALUE = ("__name__", "metric"), "value"

_SELECTOR = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)?\{(?P<labels>.*)\}", re.DOTALL)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_UNIT_IN_HEADING = re.compile(r"\s*\[[^\]]*\]$")
_CELL = re.compile(r"([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*(%|W|MiB|MB|GiB|GB|s|ms)?")
_FACTORS = {"GiB": 1024.0, "GB": 1024.0, "ms": 1e-3}
_NONE = {"", "-", "n/a", "nan", "null", "undefined"}
_LAST_EPOCH_S = 1e11  # larger numbers are milliseconds


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table: of a quantity with its factor and labels, else of the label `name`."""

    name: str
    quantity: Quantity | None = None
    factor: float = 1.0
    labels: Labels | None = None


def read_history(path: Path, step_metric: str | None) -> tuple[list[Series], bool]:
    """Return the series in a file, and whether its samples have times.

    Raises:
        InvalidInput: The file is not such a table, or a cell cannot be read.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: {error}. Correct the file.") from None
    points: dict[tuple[Quantity, tuple[tuple[str, str], ...]], dict[float, float]] = {}
    timed = True
    rows = _of_dmon(text) if text.lstrip().startswith("#") else _of_csv(text)
    heading: list[str] = []
    columns: list[_Column] = []
    for line, number_of, (names, cells) in rows:
        if names != heading:
            heading, columns = names, [_column(name, step_metric) for name in names]
            _check_columns(columns, path)
        try:
            at_s, row = _values(columns, cells, step_metric)
        except InvalidInput as error:
            raise InvalidInput(f"{path}:{line}: {error}. Correct the file.") from None
        timed = timed and at_s is not None
        at_s = float(number_of) if at_s is None else at_s
        for quantity, labels, value in row:
            key = quantity, tuple(sorted(labels.items()))
            points.setdefault(key, {})[at_s] = value
    if not points:
        raise InvalidInput(f"{path}: it has no numbers of a GPU. {_EXPECTED}")
    series = [
        Series(quantity, {"gpu": "0", **dict(labels)}, list(at.items()))
        for (quantity, labels), at in points.items()
    ]
    return series, timed


_EXPECTED = (
    "Expected columns such as utilization.gpu, memory.used and power.draw of nvidia-smi, those of "
    "`dcgmi dmon -e 203,204,252,155`, or DCGM_FI_DEV_GPU_UTIL{...} of Grafana."
)


def _of_csv(text: str) -> Iterator[tuple[int, int, tuple[list[str], list[str]]]]:
    """Each row of a CSV table with its line, its number among those of its GPU, and headings."""
    skipped = text.startswith("sep=")  # for Excel
    _, _, rest = text.partition("\n") if skipped else ("", "", text)
    sign = max(",;\t", key=rest.partition("\n")[0].count)
    rows = csv.reader(StringIO(rest, newline=""), delimiter=sign, skipinitialspace=True)
    try:
        names = [name.strip() for name in next(rows, [])]
        gpus = [at for at, name in enumerate(names) if name.lower() in (*_LABELS, "gpu")]
        seen: dict[tuple[str, ...], int] = {}
        for cells in filter(None, rows):
            gpu = tuple(cells[at] for at in gpus if at < len(cells))
            seen[gpu] = seen.get(gpu, -1) + 1
            yield rows.line_num + skipped, seen[gpu], (names, cells)
    except csv.Error as error:
        raise InvalidInput(f"line {rows.line_num}: {error}. Correct the file.") from None


def _of_dmon(text: str) -> Iterator[tuple[int, int, tuple[list[str], list[str]]]]:
    """The same of the output of ``dcgmi dmon`` and ``nvidia-smi dmon``."""
    names: list[str] = []
    seen: dict[str, int] = {}
    for line, words in enumerate(map(str.split, text.splitlines()), start=1):
        if not words or (words[0].lower() in ("id", "c:id") and len(words) == 1):
            continue
        if words[0].startswith("#"):
            header = [word for word in [words[0].lstrip("#"), *words[1:]] if word]
            if {"entity", "gpu"} & {word.lower() for word in header}:  # else the line of units
                names = header
            continue
        if names[:1] and names[0].lower() == "entity":  # "GPU 0", or "GPU-I 3" of a MIG instance
            label = "gpu" if words[0] == "GPU" else "GPU_I_ID"
            heading, cells = [label, *names[1:]], words[1:]
        else:
            heading, cells = names, words
        entity = f"{heading[:1]}{cells[:1]}"
        seen[entity] = seen.get(entity, -1) + 1
        yield line, seen[entity], (heading, cells)


def _column(heading: str, step_metric: str | None) -> _Column:
    name, labels = heading, dict[str, str]()
    if match := _SELECTOR.fullmatch(heading):
        pairs = _LABEL.findall(match["labels"])
        labels = {key: re.sub(r"\\(.)", r"\1", text) for key, text in pairs}
        name = match["name"] or labels.get("__name__", "")
        labels.pop("__name__", None)
    plain = _UNIT_IN_HEADING.sub("", name)
    if step_metric is not None and plain == step_metric:
        return _Column(plain, "step_s", 1.0, labels)
    if field := _COLUMNS.get(plain.lower()):
        return _Column(plain, *field, labels)
    return _Column(_LABELS.get(plain.lower(), plain))


def _check_columns(columns: Sequence[_Column], path: Path) -> None:
    names = [column.name.lower() for column in columns]
    long = _VALUE in names and any(name in names for name in _METRIC)
    if not long and not any(column.quantity for column in columns):
        got = shortened(",".join(column.name for column in columns) or "nothing")
        raise InvalidInput(f"{path}: no column is a number of a GPU: {got}. {_EXPECTED}")


_Row = tuple[float | None, list[tuple[Quantity, Labels, float]]]


def _values(columns: Sequence[_Column], cells: Sequence[str], step_metric: str | None) -> _Row:
    """The time of a row, and its numbers with their labels."""
    if len(cells) != len(columns):
        raise InvalidInput(f"{len(cells)} fields for {len(columns)} columns")
    labels, times, values = dict[str, str](), list[str](), list[tuple[_Column, str]]()
    metric = value = ""
    for column, cell in zip(columns, map(str.strip, cells), strict=True):
        name = column.name.lower()
        if column.quantity is not None:
            values.append((column, cell))
        elif name in _TIMES:
            times.append(cell)
        elif name in _METRIC:
            metric = cell
        elif name == _VALUE:
            value = cell
        else:
            labels[column.name] = cell
    if metric and (column := _column(metric, step_metric)).quantity is not None:
        values.append((column, value))
    read: list[tuple[Quantity, Labels, float]] = [
        (column.quantity, {**labels, **(column.labels or {})}, number)
        for column, cell in values
        if column.quantity is not None and (number := _number(column, cell)) is not None
    ]
    return (epoch_s(" ".join(times)) if times else None), read


def _number(column: _Column, cell: str) -> float | None:
    if cell.strip("[]").lower() in _NONE or cell.startswith("["):  # [Not Supported]
        return None
    match = _CELL.fullmatch(cell)
    try:
        value = float(match[1]) if match else inf
    except ValueError:
        value = inf
    if match is None or not isfinite(value):
        raise InvalidInput(f"{column.name}: expected a number, got {shortened(cell)}")
    assert column.quantity is not None
    factor = 0.01 if match[2] == "%" else column.factor * _FACTORS.get(match[2], 1.0)
    return in_range(column.quantity, value * factor)


def epoch_s(text: str) -> float:
    """Return a time of day: a number of seconds or milliseconds, or ISO 8601, in local time."""
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            number = float(text)
            return number / 1000 if number > _LAST_EPOCH_S else number
        return datetime.fromisoformat(text.replace("/", "-")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"expected a time such as 2026-05-01 12:00:00, got {shortened(text)}"
        ) from None
