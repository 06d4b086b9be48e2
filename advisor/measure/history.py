"""Reads what monitoring recorded of GPUs: a table of samples, from a file or from Prometheus.

A sample has a time, a GPU, a counter and its value; a `Series` is those of one counter of one GPU.
A file is a table of ``nvidia-smi``, ``dcgmi dmon`` or Grafana: columns are counters, labels, and
perhaps a time, or each row has one value with the name of its metric. ``dmon`` separates columns by
spaces, and its header lines begin with ``#``.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from advisor.errors import InvalidInput, shortened
from advisor.files.reading import DAY_S, read_bytes
from advisor.workload.arrivals import csv_text

Profiled = Literal["sm_active", "sm_occupancy", "tensor_active", "dram_active"]
Quantity = (
    Literal["gpu_utilization", "gract", "memory_utilization", "memory_mib", "power_w", "step_s"]
    | Profiled
)
Labels = Mapping[str, str]

PROFILED: tuple[Profiled, ...] = get_args(Profiled)

# Units: METRICS.md of NVIDIA/dcgm-exporter. The driver's utilisation is of its last sample period,
# that of the profiling module, ``gract``, of the whole time between two samples.
DCGM_FIELDS: Mapping[str, tuple[Quantity, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_utilization", 0.01),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gract", 1.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", 1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active", 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_utilization", 0.01),
    "DCGM_FI_DEV_FB_USED": ("memory_mib", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
}
# Columns of nvidia-smi --query-gpu, of dcgmi dmon and of nvidia-smi dmon, in lower case.
_COUNTERS: dict[str, tuple[Quantity, float]] = {
    **{name.lower(): field for name, field in DCGM_FIELDS.items()},
    **dict.fromkeys(("utilization.gpu", "gputl", "sm"), ("gpu_utilization", 0.01)),
    **dict.fromkeys(("utilization.memory", "mcutl", "mem"), ("memory_utilization", 0.01)),
    **dict.fromkeys(("memory.used", "fbusd", "fb"), ("memory_mib", 1.0)),
    **dict.fromkeys(("power.draw", "power.draw.instant", "power.draw.average"), ("power_w", 1.0)),
    **dict.fromkeys(("power", "pwr"), ("power_w", 1.0)),
    "gract": ("gract", 1.0),
    "smact": ("sm_active", 1.0),
    "smocc": ("sm_occupancy", 1.0),
    "tenso": ("tensor_active", 1.0),
    "drama": ("dram_active", 1.0),
}
_LABELS = {"gpu": "gpu", "index": "gpu", "uuid": "UUID", "gpu_uuid": "UUID", "name": "modelName"}
_OF_GPU = ("gpu", "UUID", "modelName", "GPU_I_ID")
HOSTS = ("Hostname", "instance")
"""Labels that name the host of a GPU, in the order of preference."""

_ENTITY = ("entity", "entityid")  # by the version of dcgmi
_TIMES = ("time", "timestamp", "date")
_METRIC, _VALUE = {"__name__", "metric"}, "value"

# DCGM writes values near 2^63 where it has none.
_MOST: Mapping[Quantity, float] = {"memory_mib": 2.0**24, "power_w": 1e4, "step_s": DAY_S}
_MOST_SHARE = 1.05  # of two clocks read a little apart

_SELECTOR = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)?\{(?P<labels>.*)\}", re.DOTALL)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_UNIT_IN_HEADING = re.compile(r"\s*\[[^\]]*\]$")
_CELL = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%|W|MiB|MB|GiB|GB|s|ms)?")
_FACTORS = {"GiB": 1024.0, "GB": 1024.0, "ms": 1e-3}
_NONE = {"", "-", "n/a", "nan", "null", "undefined"}
_LAST_EPOCH_S = 1e11  # larger numbers are milliseconds
_EXPECTED = (
    "Expected columns such as utilization.gpu, memory.used and power.draw of nvidia-smi, those of "
    "`dcgmi dmon -e 203,204,252,155,1001,1002,1003,1004,1005`, or DCGM_FI_DEV_GPU_UTIL{...} of "
    "Grafana."
)


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity of one GPU over time, or ``"step_s"`` of one job; points are (epoch_s, value).

    Shares are 0 to 1, sizes MiB. Points without a time of day have the number of their sample.
    """

    quantity: Quantity
    labels: Labels
    points: Sequence[tuple[float, float]]

    @property
    def gpu(self) -> str:
        """The GPU, or its MIG instance, among those of all hosts."""
        labels = self.labels
        host = next((labels[host] for host in HOSTS if host in labels), "")
        gpu = labels.get("UUID") or f"{host}/{labels.get('gpu', '')}"
        return f"{gpu}/{labels.get('GPU_I_ID', '')}"


def renamed(label: str) -> str:
    """Return the name under which Prometheus keeps a label that it sets itself for the exporter."""
    return f"exported_{label}"


def has_labels(labels: Labels, wanted: Labels) -> bool:
    """Return whether a series has the `wanted` labels: the job's, not those of the exporter."""
    return all(labels.get(renamed(name), labels.get(name)) == wanted[name] for name in wanted)


def series_of_answer(answer: Any, field: tuple[Quantity, float]) -> list[Series]:
    """Return the series in Prometheus's `answer` to a range query for one counter.

    Raises:
        LookupError, TypeError, ValueError: The answer is not Prometheus's.
    """
    history = []
    for row in answer["data"]["result"]:
        labels = {str(name): str(value) for name, value in dict(row["metric"]).items()}
        points = [
            (float(at_s), number)
            for at_s, value in row["values"]
            if (number := _in_range(field, float(value))) is not None
        ]
        history += [Series(field[0], labels, points)] if points else []
    return history


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
        for line, names, cells in _of_dmon(text) if of_dmon else _of_csv(text, sign):  # noqa: B007
            if names != heading:
                heading, columns = names, _columns(names, step_metric)
            at_s, labels, values = _values(columns, cells, step_metric)
            timed = timed and at_s is not None
            gpu = tuple(map(labels.get, _OF_GPU))
            for quantity, own, number in values:
                key = quantity, tuple(sorted({**labels, **own}.items()))
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


def _of_csv(text: StringIO, sign: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """The rows of a CSV table: their line, the headings above them, and their cells."""
    rows = csv.reader(text, delimiter=sign, skipinitialspace=True)
    names = next(rows, [""])
    if names[0].startswith("sep="):  # for Excel
        names = next(rows, [])
    names = [name.strip() for name in names]
    for cells in filter(None, rows):
        yield rows.line_num, names, cells


def _of_dmon(text: Iterable[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """The rows that ``dcgmi dmon`` or ``nvidia-smi dmon`` printed, as of `_of_csv`."""
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


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table: of a counter with its factor and labels, else of the label `name`."""

    name: str
    field: tuple[Quantity, float] | None
    labels: Labels


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
    field = _COUNTERS.get(plain.lower())
    return _Column(plain if field else _LABELS.get(plain.lower(), plain), field, labels)


_Row = tuple[float | None, dict[str, str], list[tuple[Quantity, Labels, float]]]


def _values(columns: Sequence[_Column], cells: Sequence[str], step_metric: str | None) -> _Row:
    """The time of a row, its labels, and its numbers, each with labels of its own."""
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
    if metric:
        values.append((_column(metric, step_metric), value))
    numbers = [
        (column.field[0], column.labels, number)
        for column, cell in values
        if column.field and (number := _number(column.name, column.field, cell)) is not None
    ]
    return (epoch_s(" ".join(times)) if times else None), labels, numbers


def _number(name: str, field: tuple[Quantity, float], cell: str) -> float | None:
    if cell.strip("[]").lower() in _NONE or cell.startswith("["):  # [Not Supported]
        return None
    match = _CELL.fullmatch(cell)
    if match is None or not isfinite(value := float(match[1])):
        raise InvalidInput(f"{name}: expected a number, got {shortened(cell)}")
    quantity, factor = field
    factor = 0.01 if match[2] == "%" else factor * _FACTORS.get(match[2], 1.0)
    return _in_range((quantity, factor), value)


def _in_range(field: tuple[Quantity, float], value: float) -> float | None:
    """The quantity of a counter's `value`; None if it cannot be, as DCGM writes for no value."""
    quantity, factor = field
    number = value * factor
    if not 0 <= number <= _MOST.get(quantity, _MOST_SHARE):
        return None
    return number if quantity in _MOST else min(1.0, number)


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
