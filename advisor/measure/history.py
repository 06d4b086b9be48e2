"""Reads what monitoring recorded of GPUs: samples from a table in a file, or from Prometheus.

A `Series` is one counter of one GPU. Files are those of nvidia-smi, ``dcgmi dmon`` and Grafana.
"""

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPException
from io import StringIO
from itertools import product
from math import ceil, isfinite
from pathlib import Path
from time import monotonic, time
from typing import Any, Literal, get_args
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from advisor.errors import AdvisorError, InvalidInput, shortened
from advisor.files.reading import MOST_BYTES, parse_json, read_bytes
from advisor.files.units import DAY_S
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
        raise InvalidInput(f"{path}: no numbers of a GPU found. {_EXPECTED}")
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
    numbers: list[tuple[Quantity, Labels, float]] = []
    for column, cell in values:
        no_value = cell.strip("[]").lower() in _NONE or cell.startswith("[")  # [Not Supported]
        if column.field is None or no_value:
            continue
        match = _CELL.fullmatch(cell)
        if match is None or not isfinite(number := float(match[1])):
            raise InvalidInput(f"{column.name}: expected a number, got {shortened(cell)}")
        quantity, factor = column.field
        factor = 0.01 if match[2] == "%" else factor * _FACTORS.get(match[2], 1.0)
        if (in_range := _in_range((quantity, factor), number)) is not None:
            numbers.append((quantity, column.labels, in_range))
    return (epoch_s(" ".join(times)) if times else None), labels, numbers


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


TOKEN = "ADVISOR_PROMETHEUS_TOKEN"
MOST_POINTS = 11_000
"""Most points of a series in one answer; Prometheus refuses more."""

_INTERVAL_S = 30.0  # at which dcgm-exporter reads its counters by default

# Until the server answers, and until the last byte of an answer.
_ANSWER_S, _WHOLE_S = 30.0, 120.0
_PIECE = 2**16
_METRIC_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_REMEDY = "Pass the address of Prometheus itself, e.g. http://prometheus:9090."


class _NoRedirects(HTTPRedirectHandler):
    """A redirect may lead to another host, which would get the token."""

    def redirect_request(self, req: Request, *_: Any, **__: Any) -> None:
        """Follow none, so that the answer is an `HTTPError` with the other address."""


def is_metric(name: str) -> bool:
    """Return whether Prometheus can have a metric, or a label, of that `name`."""
    return _METRIC_NAME.fullmatch(name) is not None


def _server(address: str) -> str:
    """The host and port of an `address`, which must be an HTTP server's, without a password."""
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = None
    if not valid or parts.query or parts.fragment:
        raise InvalidInput(
            f"expected an address such as http://prometheus:9090, got {shortened(address)}"
        )
    if parts.username is not None:
        raise InvalidInput(
            f"the address contains a user or password, which others may read. Set {TOKEN} instead."
        )
    return parts.netloc


def recorded_series(
    address: str,
    start_s: float | None,
    end_s: float | None,
    interval_s: float | None,
    where: Labels,
    step_metric: str | None,
) -> tuple[list[Series], float]:
    """Return the series of GPUs that have the labels `where`, and those of `step_metric`.

    Also return the seconds between samples. The range is the last day, unless it is passed.

    Raises:
        AdvisorError: The server does not answer, or refuses.
        InvalidInput: It is no address, or the range has no samples or too many; or the answer is
            not Prometheus's, or too large.
    """
    end_s = time() if end_s is None else end_s
    start_s = end_s - DAY_S if start_s is None else start_s
    if start_s >= end_s:
        raise InvalidInput("--start is not before --end. Correct one of them.")
    least_s = (end_s - start_s) / (MOST_POINTS - 1)
    interval_s = interval_s or max(_INTERVAL_S, float(ceil(least_s)))
    if interval_s < least_s:
        raise InvalidInput(
            f"--interval {interval_s:g} makes more than {MOST_POINTS:,} samples of this range, "
            f"which Prometheus refuses. Use {least_s:.0f} s or more, or a shorter range."
        )
    server, selectors = _server(address), list(_selectors(where))
    queries = {
        " or ".join(metric + selector for selector in selectors): field
        for metric, field in DCGM_FIELDS.items()
    }
    if step_metric is not None:
        queries[step_metric] = "step_s", 1.0  # an application has other labels than the exporter
    history: list[Series] = []
    for query, field in queries.items():
        words = {"query": query, "start": start_s, "end": end_s, "step": interval_s}
        url = f"{address.rstrip('/')}/api/v1/query_range?{urlencode(words)}"
        answer = parse_json(_get(url, server), f"the answer of {server}", _REMEDY)
        try:
            for row in answer["data"]["result"]:
                labels = {str(name): str(value) for name, value in dict(row["metric"]).items()}
                points = [
                    (float(at_s), number)
                    for at_s, value in row["values"]
                    if (number := _in_range(field, float(value))) is not None
                ]
                history += [Series(field[0], labels, points)] if points else []
        except (LookupError, TypeError, ValueError):
            raise InvalidInput(f"{server}: the answer is not from Prometheus. {_REMEDY}") from None
    return history, interval_s


def _selectors(where: Mapping[str, str]) -> Iterator[str]:
    """Yield selectors of the series for which `has_labels` is true of `where`."""
    choices = (
        [{renamed(name): value}, {renamed(name): "", name: value}] for name, value in where.items()
    )
    for choice in product(*choices):
        labels = {name: value for part in choice for name, value in part.items()}
        pairs = (f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in labels.items())
        yield f"{{{','.join(pairs)}}}" if labels else ""


def _get(url: str, server: str) -> bytes:
    request = Request(url, headers={"Accept": "application/json"})
    if token := os.environ.get(TOKEN):
        request.add_header("Authorization", f"Bearer {token}")
    content, until_s = bytearray(), monotonic() + _WHOLE_S
    narrow = "Choose a shorter range, a longer --interval, or fewer jobs by --match."
    try:
        with build_opener(_NoRedirects).open(request, timeout=_ANSWER_S) as response:
            while piece := response.read1(_PIECE):
                content += piece
                if len(content) > MOST_BYTES:
                    most = f"more than {MOST_BYTES // 2**20} MiB"
                    raise InvalidInput(f"{server}: its answer has {most}. {narrow}")
                if monotonic() > until_s:
                    raise AdvisorError(
                        f"{server}: its answer takes more than {_WHOLE_S:g} s. {narrow}"
                    )
    except HTTPError as error:
        with error:
            raise AdvisorError(f"{server}: {_refusal(error)}") from None
    except TimeoutError:
        problem = f"no answer in {_ANSWER_S:g} s. Check the address, or choose a shorter range"
        raise AdvisorError(f"{server}: {problem}.") from None
    except (HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        problem = f"{words}. Check the address, and that Prometheus runs there"
        raise AdvisorError(f"{server}: {problem}.") from None
    return bytes(content)


def _refusal(error: HTTPError) -> str:
    """Return why a server refused a query, and what to do."""
    if error.code in (401, 403):
        return f"HTTP {error.code}: access refused. Set {TOKEN} to a token that the server accepts."
    if 300 <= error.code < 400:
        other = shortened(error.headers.get("Location", "another address").partition("?")[0])
        return (
            f"HTTP {error.code}: the server redirects to {other}. Pass the address that answers "
            "itself."
        )
    try:
        reason = str(parse_json(error.read(_PIECE), "")["error"])
    except (InvalidInput, OSError, HTTPException, KeyError, TypeError):
        reason = str(error.reason)
    return f"HTTP {error.code}: {shortened(reason)}. Check the address and the options."
