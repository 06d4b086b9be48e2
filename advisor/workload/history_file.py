"""Reads what ``nvidia-smi``, ``dcgmi dmon`` or Grafana wrote about GPUs over time.

A file is a table. Its columns are quantities of GPUs, labels, and perhaps a time; or each row has
one value with the name of its metric. ``dmon`` separates columns by spaces, and its header lines
begin with ``#``.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from math import inf, isfinite
from pathlib import Path

from advisor.errors import InvalidInput, shortened
from advisor.workload.arrivals import csv_text
from advisor.workload.history import DCGM_FIELDS, Labels, Quantity, Series, in_range
from advisor.workload.reading import read_bytes

# Columns of nvidia-smi --query-gpu, of dcgmi dmon and of nvidia-smi dmon, in lower case.
_COLUMNS: dict[str, tuple[Quantity, float]] = {
    **{name.lower(): field for name, field in DCGM_FIELDS.items()},
    "utilization.gpu": ("coarse_busy", 0.01),
    "utilization.memory": ("memory_busy", 0.01),
    "memory.used": ("memory_mib", 1.0),
    "power.draw": ("power_w", 1.0),
    "power.draw.instant": ("power_w", 1.0),
    "power.draw.average": ("power_w", 1.0),
    "gputl": ("coarse_busy", 0.01),
    "gract": ("busy", 1.0),
    "mcutl": ("memory_busy", 0.01),
    "smact": ("sm_active", 1.0),
    "smocc": ("sm_occupancy", 1.0),
    "tenso": ("tensor_active", 1.0),
    "drama": ("dram_active", 1.0),
    "fbusd": ("memory_mib", 1.0),
    "power": ("power_w", 1.0),
    "sm": ("coarse_busy", 0.01),
    "mem": ("memory_busy", 0.01),
    "fb": ("memory_mib", 1.0),
    "pwr": ("power_w", 1.0),
}
_LABELS = {"gpu": "gpu", "index": "gpu", "uuid": "UUID", "gpu_uuid": "UUID", "name": "modelName"}
_OF_GPU = ("gpu", "UUID", "modelName", "GPU_I_ID")
_ENTITY = ("entity", "entityid")  # by the version of dcgmi
_TIMES = ("time", "timestamp", "date")
_METRIC, _VALUE = {"__name__", "metric"}, "value"

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
    field: tuple[Quantity, float] | None
    labels: Labels


_Cells = tuple[int, list[str], list[str]]
"""The line of a row, the headings above it, and its cells."""


def read_history(path: Path, step_metric: str | None) -> tuple[list[Series], bool]:
    """Return the series in a file, and whether its samples have times.

    Raises:
        InvalidInput: The file is not such a table, or a cell cannot be read.
    """
    text, sign = csv_text(read_bytes(path), path)
    of_dmon = text.getvalue().lstrip().startswith("#")
    points: dict[tuple[Quantity, tuple[tuple[str, str], ...]], dict[float, float]] = {}
    samples = Counter[tuple[str | None, ...]]()  # by GPU
    timed, line = True, 1
    heading, columns = list[str](), list[_Column]()
    try:
        rows = _of_dmon(text) if of_dmon else _of_csv(text, sign)
        for line, names, cells in rows:  # noqa: B007 - the line is in errors
            if names != heading:
                heading, columns = names, _columns(names, step_metric)
            at_s, labels, values = _values(columns, cells, step_metric)
            timed = timed and at_s is not None
            gpu = tuple(map(labels.get, _OF_GPU))
            for column, number in values:
                assert column.field is not None
                key = column.field[0], tuple(sorted({**labels, **column.labels}.items()))
                points.setdefault(key, {})[samples[gpu] if at_s is None else at_s] = number
            samples[gpu] += 1
    except (csv.Error, InvalidInput) as error:
        reason = str(error).removesuffix(".")
        raise InvalidInput(f"{path}:{line}: {reason}. Correct the file.") from None
    if not points:
        raise InvalidInput(f"{path}: it has no numbers of a GPU. {_EXPECTED}")
    series = [
        Series(quantity, {"gpu": "0", **dict(labels)}, list(at.items()))
        for (quantity, labels), at in points.items()
    ]
    return series, timed


_EXPECTED = (
    "Expected columns such as utilization.gpu, memory.used and power.draw of nvidia-smi, those of "
    "`dcgmi dmon -e 203,204,252,155,1001,1002,1003,1004,1005`, or DCGM_FI_DEV_GPU_UTIL{...} of "
    "Grafana."
)


def _of_csv(text: StringIO, sign: str) -> Iterator[_Cells]:
    """The rows of a CSV table."""
    rows = csv.reader(text, delimiter=sign, skipinitialspace=True)
    names = next(rows, [""])
    if names[0].startswith("sep="):  # for Excel
        names = next(rows, [])
    names = [name.strip() for name in names]
    for cells in filter(None, rows):
        yield rows.line_num, names, cells


def _of_dmon(text: StringIO) -> Iterator[_Cells]:
    """The rows that ``dcgmi dmon`` or ``nvidia-smi dmon`` printed."""
    names = list[str]()
    for line, words in enumerate(map(str.split, text), start=1):
        if not words or (words[0].lower() in ("id", "c:id") and len(words) == 1):
            continue
        if words[0].startswith("#"):
            header = [word for word in [words[0].lstrip("#"), *words[1:]] if word]
            if {*_ENTITY, "gpu"} & {word.lower() for word in header}:  # else the line of units
                names = header
        elif names[:1] and names[0].lower() in _ENTITY:  # "GPU 0", or "GPU-I 3" on MIG
            label = "gpu" if words[0] == "GPU" else "GPU_I_ID"
            yield line, [label, *names[1:]], words[1:]
        else:
            yield line, names, words


def _columns(headings: Sequence[str], step_metric: str | None) -> list[_Column]:
    columns = [_column(heading, step_metric) for heading in headings]
    names = {column.name.lower() for column in columns}
    if not any(column.field for column in columns) and not (_VALUE in names and names & _METRIC):
        got = shortened(",".join(column.name for column in columns) or "nothing")
        raise InvalidInput(f"no column is a number of a GPU: {got}. {_EXPECTED}")
    return columns


def _column(heading: str, step_metric: str | None) -> _Column:
    name, labels = heading, dict[str, str]()
    if match := _SELECTOR.fullmatch(heading):
        pairs = _LABEL.findall(match["labels"])
        labels = {key: re.sub(r"\\(.)", r"\1", text) for key, text in pairs}
        name = match["name"] or labels.get("__name__", "")
        labels.pop("__name__", None)
    plain = _UNIT_IN_HEADING.sub("", name)
    if step_metric is not None and plain == step_metric:
        return _Column(plain, ("step_s", 1.0), labels)
    field = _COLUMNS.get(plain.lower())
    return _Column(plain if field else _LABELS.get(plain.lower(), plain), field, labels)


_Row = tuple[float | None, dict[str, str], list[tuple[_Column, float]]]


def _values(columns: Sequence[_Column], cells: Sequence[str], step_metric: str | None) -> _Row:
    """The time of a row, its labels, and its numbers."""
    if len(cells) != len(columns):
        raise InvalidInput(f"{len(cells)} fields for {len(columns)} columns")
    labels, times, values = dict[str, str](), list[str](), list[tuple[_Column, str]]()
    metric = value = ""
    for column, cell in zip(columns, map(str.strip, cells), strict=True):
        name = column.name.lower()
        if column.field is not None:
            values.append((column, cell))
        elif name in _TIMES:
            times.append(cell)
        elif name in _METRIC:
            metric = cell
        elif name == _VALUE:
            value = cell
        else:
            labels[column.name] = cell
    if metric and (column := _column(metric, step_metric)).field is not None:
        values.append((column, value))
    numbers = [
        (column, number) for column, cell in values if (number := _number(column, cell)) is not None
    ]
    return (epoch_s(" ".join(times)) if times else None), labels, numbers


def _number(column: _Column, cell: str) -> float | None:
    assert column.field is not None
    if cell.strip("[]").lower() in _NONE or cell.startswith("["):  # [Not Supported]
        return None
    match = _CELL.fullmatch(cell)
    try:
        value = float(match[1]) if match else inf
    except ValueError:
        value = inf
    if match is None or not isfinite(value):
        raise InvalidInput(f"{column.name}: expected a number, got {shortened(cell)}")
    quantity, factor = column.field
    factor = 0.01 if match[2] == "%" else factor * _FACTORS.get(match[2], 1.0)
    return in_range(quantity, value * factor)


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
