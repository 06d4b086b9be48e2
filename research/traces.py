"""Reads public traces of GPU clusters as their owners publish them.

* Microsoft Philly (github.com/msr-fiddle/philly-traces): ``cluster_job_log``, and next to it
  ``cluster_gpu_util`` with the utilisation of each GPU by the minute.
* SenseTime Helios (github.com/S-Lab-System-Group/HeliosData): ``cluster_log.csv``.
* Alibaba PAI (github.com/alibaba/clusterdata, cluster-trace-gpu-v2020): ``pai_job_table.csv`` and
  ``pai_task_table.csv``, and next to them ``pai_sensor_table.csv`` with utilisation and memory.
  They have no line of headings.

A job is kept by its run time, also one that failed or was killed.
"""

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Literal, Self, TextIO

from advisor.errors import InvalidInput, counted
from advisor.files import units
from advisor.files.reading import is_file, is_folder, reason_of
from advisor.files.units import MOST_EPOCH_S

_EPOCH = datetime(1970, 1, 1)  # traces have local times without a zone
_MIB_PER_GIB = 1024.0
_PER_CENT = 100.0
_MOST_NAMED = 3  # of malformed rows
_LEAST_RUN_S = 1e-3
_MOST_CLOCK_S = 1e11  # the year 5138
_MOST_GPUS = 1e6  # of a job


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace, as it ran.

    Attributes:
        submitted_s: On the clock of the trace.
        run_s: Seconds for which it held its GPUs; 0: not recorded.
        gpus: GPUs that it held; 0: none; a part of a GPU counts as one.
        utilization: Mean utilisation of these GPUs, 0..1; None: not recorded.
        memory_mib: Most memory that it used on one of them; None: not recorded.
    """

    name: str
    submitted_s: float
    run_s: float
    gpus: int
    utilization: float | None = None
    memory_mib: float | None = None

    def draw(self, of: Literal["job", "profile"]) -> float:
        """Return a number in 0..1 that depends on the job's name alone."""
        digest = blake2b(f"{of} {self.name}".encode(), digest_size=6).digest()
        return int.from_bytes(digest) / 2**48


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a trace: jobs submitted in a time window, and the share of them that is kept.

    Attributes:
        start: A date of the trace, or a time after its first job; None: its first job.
        until: The same, excluded; None: its last job.
        share: Of the jobs, drawn by their names.
    """

    start: str | None = None
    until: str | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidInput(f"--keep is a share above 0 and at most 1, got {self.share:g}")

    def of(self, jobs: Sequence[TraceJob]) -> list[TraceJob]:
        """Return the jobs of this part.

        Raises:
            InvalidInput: There is none.
        """
        first_s, last_s = _ends([each.submitted_s for each in jobs])
        start_s = first_s if self.start is None else _moment("--start", self.start, first_s)
        until_s = last_s + 1 if self.until is None else _moment("--end", self.until, first_s)
        window = [each for each in jobs if start_s <= each.submitted_s < until_s]
        chosen = [each for each in window if self.share == 1 or each.draw("job") < self.share]
        if not chosen:
            raise InvalidInput(
                f"the chosen part of the trace has no job: {counted(len(window), 'job')} arrive "
                f"from --start to --end. Its jobs arrive within {(last_s - first_s) / 86400:.4g} "
                f"days from {_date(first_s)} on. Choose another window, or a larger --keep."
            )
        return chosen


def _ends(submitted_s: Sequence[float]) -> tuple[float, float]:
    if not submitted_s:
        raise InvalidInput("the trace has no job with a time of submission. Check the file.")
    return min(submitted_s), max(submitted_s)


def _moment(option: str, word: str, first_s: float) -> float:
    """Seconds on the trace's clock: of a date, or of a time after its first job."""
    if word[4:5] == "-":
        try:
            return _clock_s(word)
        except ValueError as error:
            raise InvalidInput(f"{option}: {error}. Write 2017-10-07, or a time as 60d.") from None
    return first_s + units.seconds(word)


def _clock_s(text: str) -> float:
    return (datetime.fromisoformat(text).replace(tzinfo=None) - _EPOCH).total_seconds()


def _date(clock_s: float) -> str:
    return f"{_EPOCH + timedelta(seconds=clock_s):%Y-%m-%d}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a part of a trace that held a GPU for a time, in the order of submission.

    Attributes:
        left_out: Reasons for which jobs and rows are left out, with their numbers.
    """

    jobs: tuple[TraceJob, ...]
    left_out: tuple[str, ...]


_UNREADABLE = AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError


class _Malformed:
    """Rows that cannot be read: their number, and where the first of them are.

    ``with malformed.at(place):`` counts the row at that place if it cannot be read in the block,
    and goes on. A class of its own, because a trace has millions of rows.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []
        self._place: tuple[str, int] = ("", 0)

    def at(self, place: tuple[str, int]) -> Self:
        self._place = place
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, _UNREADABLE):
            return False
        self.count += 1
        if len(self.first) < _MOST_NAMED:
            file, line = self._place
            self.first.append(f"{file}:{line}")
        return True


_Choose = Callable[[Sequence[TraceJob]], list[TraceJob]]


def read_trace(path: Path, form: str, part: Part) -> Trace:
    """Return the jobs in a part of a trace; `path` is its folder, or the file with its jobs.

    Raises:
        InvalidInput: A file is missing or has another form, or the part has no job with a GPU.
    """
    malformed = _Malformed()

    def choose(jobs: Sequence[TraceJob]) -> list[TraceJob]:
        if not jobs and malformed.count:
            raise InvalidInput(
                f"{path}: none of its {malformed.count:,} rows has the form of a {form} trace, "
                f"as {malformed.first[0]}. Check the format."
            )
        return part.of(jobs)

    jobs = _READERS[form](path, choose, malformed)
    reasons: Counter[str] = Counter()
    sound = []
    for job in sorted(jobs, key=lambda each: each.submitted_s):
        if job.gpus <= 0:
            reasons["without a GPU"] += 1
        elif not _LEAST_RUN_S <= job.run_s <= MOST_EPOCH_S:
            reasons["without a plausible run time"] += 1
        else:
            sound.append(job)
    left_out = [f"{counted(number, 'job')} {reason}" for reason, number in reasons.items()]
    if malformed.count:
        named = ", ".join(malformed.first) + (", ..." if malformed.count > _MOST_NAMED else "")
        left_out.append(f"{counted(malformed.count, 'malformed row')} ({named})")
    if not sound:
        raise InvalidInput(f"{path}: no job is left: {'; '.join(left_out)}. Choose another part.")
    return Trace(tuple(sound), tuple(left_out))


def _file(path: Path, name: str) -> Path:
    """The file of a trace: `path` itself, or the file called `name` in the folder `path`."""
    if is_file(path):
        return path
    if is_file(file := path / name):
        return file
    inner = sorted(path.glob(f"*/{name}")) if is_folder(path) else []
    remedy = (
        f"Name one of {', '.join(str(each.parent) for each in inner[:4])}"
        if inner
        else ("Unpack the trace, and name its folder")
    )
    raise InvalidInput(f"{name} not found in {path}. {remedy}.")


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The lines of a file; what is no text becomes a mark of its own, and a malformed row."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            yield lines
    except (OSError, csv.Error) as error:
        why = reason_of(error) if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"{path}: {why}. Check the path.") from None


# ------------------------------------------------------------------------------ Microsoft Philly


def _philly(path: Path, choose: _Choose, malformed: _Malformed) -> list[TraceJob]:
    log = _file(path, "cluster_job_log")
    with _opened(log) as lines:
        try:
            entries = json.load(lines)
        except (RecursionError, ValueError) as error:
            raise InvalidInput(f"{log}: not valid JSON: {error}. Check the format.") from None
    if not isinstance(entries, list):
        raise InvalidInput(f"{log}: it is not a list of jobs. Check the format.")
    jobs: list[TraceJob] = []
    attempts: dict[str, list[_Attempt]] = {}
    for number, entry in enumerate(entries, start=1):
        with malformed.at(("entry", number)):
            tries = [_Attempt.of(each) for each in entry["attempts"]]
            # Without an end of the last one, the job still ran when the trace was made.
            run_s = sum(each.run_s for each in tries) if tries and tries[-1].end else 0.0
            gpus = max((each.gpus for each in tries), default=0)
            name = str(entry["jobid"])
            jobs.append(TraceJob(name, _clock_s(entry["submitted_time"]), run_s, gpus))
            attempts[name] = tries
    chosen, usage = choose(jobs), log.parent / "cluster_gpu_util"
    if not is_file(usage):
        return chosen
    means = _utilization(usage, {each.name: attempts[each.name] for each in chosen})
    return [replace(each, utilization=means.get(each.name)) for each in chosen]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One start of a Philly job: from and until when it ran, and its GPUs on each machine."""

    start: str
    end: str
    machines: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "_Attempt":
        start, end = (
            "" if entry[name] in (None, "", "None") else str(entry[name])
            for name in ("start_time", "end_time")
        )
        machines = {
            each["ip"]: [int(gpu.removeprefix("gpu")) for gpu in each["gpus"]]
            for each in entry["detail"]
        }
        return cls(start, end, machines)

    @property
    def gpus(self) -> int:
        return sum(map(len, self.machines.values()))

    @property
    def run_s(self) -> float:
        return _clock_s(self.end) - _clock_s(self.start) if self.start and self.end else 0.0

    @property
    def days(self) -> Iterator[str]:
        """The dates on which it ran."""
        first, last = datetime.fromisoformat(self.start), datetime.fromisoformat(self.end)
        for day in range(first.toordinal(), last.toordinal() + 1):
            yield f"{datetime.fromordinal(day):%Y-%m-%d}"


def _utilization(path: Path, attempts: Mapping[str, Sequence[_Attempt]]) -> dict[str, float]:
    """Mean utilisation of the GPUs of each job, 0..1, from a table with a row for each minute.

    Times of both files have one clock and one form, so that they compare as text.
    """
    ran: dict[tuple[str, str], list[tuple[str, str, str, Sequence[int]]]] = defaultdict(list)
    for name, tries in attempts.items():
        for each in tries:
            for day in each.days if each.start and each.end else ():
                for machine, gpus in each.machines.items():
                    ran[machine, day].append((each.start, each.end, name, gpus))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    with _opened(path) as lines:
        for line in lines:
            time, _, rest = line.partition(",")
            machine, _, shares = rest.partition(",")
            for start, end, name, gpus in ran.get((machine, time[:10]), ()):
                if start <= time[:19] <= end:
                    values = shares.split(",")
                    for gpu in gpus:
                        if gpu < len(values) and (value := _number(values[gpu])) is not None:
                            sums[name][0] += value / _PER_CENT
                            sums[name][1] += 1
    return {name: min(1.0, total / count) for name, (total, count) in sums.items()}


def _number(text: str) -> float | None:
    """A number from 0; None: it is missing."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None


# ------------------------------------------------------------------------------- SenseTime Helios


def _helios(path: Path, choose: _Choose, malformed: _Malformed) -> list[TraceJob]:
    log = _file(path, "cluster_log.csv")
    jobs: list[TraceJob] = []
    columns = ("job_id", "gpu_num", "submit_time", "duration")
    for where, row in _rows(log, columns, ()):
        with malformed.at(where):
            name, gpus, submitted, run_s = row
            jobs.append(TraceJob(name, _clock_s(submitted), float(run_s or 0), int(float(gpus))))
    return choose(jobs)


def _rows(
    path: Path, columns: Sequence[str], in_order: Sequence[str]
) -> Iterator[tuple[tuple[str, int], list[str]]]:
    """The place of each row of a table, and its cells in these `columns`.

    A table without a line of headings has the columns `in_order`; a short row lacks cells.
    """
    with _opened(path) as lines:
        rows = csv.reader(lines)
        first = next(rows, [])
        headings = [cell.strip() for cell in first]
        if not {*columns} <= {*headings}:
            headings = list(in_order)
            if len(first) != len(headings):
                raise InvalidInput(
                    f"{path}: its columns are not {', '.join(columns)}, ...: got "
                    f"{','.join(first)[:100] or 'nothing'}. Check the format."
                )
            yield (path.name, 1), [first[headings.index(column)] for column in columns]
        places = [headings.index(column) for column in columns]
        for row in rows:
            if row:
                yield (path.name, rows.line_num), [row[at] for at in places if at < len(row)]


# -------------------------------------------------------------------------------------- Alibaba PAI

_OF_JOBS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_OF_TASKS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
_OF_SENSORS = (
    "job_name",
    "task_name",
    "worker_name",
    "inst_id",
    "machine",
    "gpu_name",
    "cpu_usage",
    "gpu_wrk_util",
    "avg_mem",
    "max_mem",
    "avg_gpu_wrk_mem",
    "max_gpu_wrk_mem",
    "read",
    "write",
    "read_count",
    "write_count",
)


@dataclass(slots=True)
class _Tasks:
    """The tasks of a PAI job: when they ran, and the GPUs of an instance of each, by name."""

    start_s: float = float("inf")
    end_s: float = 0.0
    gpus: float = 0.0
    of_instance: dict[str, float] = field(default_factory=dict)


def _pai(path: Path, choose: _Choose, malformed: _Malformed) -> list[TraceJob]:
    folder = path.parent if is_file(path) else path
    jobs: list[TraceJob] = []
    job_table, task_table = (_file(folder, f"pai_{name}_table.csv") for name in ("job", "task"))
    for where, row in _rows(job_table, ("job_name", "start_time"), _OF_JOBS):
        with malformed.at(where):
            if 0 <= (submitted_s := float(row[1])) <= _MOST_CLOCK_S:
                jobs.append(TraceJob(row[0], submitted_s, 0.0, 0))
            else:
                raise ValueError
    chosen = choose(jobs)
    tasks = {each.name: _Tasks() for each in chosen}
    columns = ("job_name", "task_name", "inst_num", "start_time", "end_time", "plan_gpu")
    for where, row in _rows(task_table, columns, _OF_TASKS):
        with malformed.at(where):
            if (of := tasks.get(row[0])) is not None and (share := _number(row[5])):
                of.of_instance[row[1]] = share / _PER_CENT
                of.gpus = min(_MOST_GPUS, of.gpus + share / _PER_CENT * (_number(row[2]) or 0.0))
                if (end_s := _number(row[4])) and (start_s := _number(row[3])) is not None:
                    of.start_s, of.end_s = min(of.start_s, start_s), max(of.end_s, end_s)
    shares, memory_mib = _sensors(folder / "pai_sensor_table.csv", tasks, malformed)
    return [
        TraceJob(
            each.name,
            each.submitted_s,
            max(0.0, of.end_s - of.start_s),
            ceil(of.gpus),
            shares.get(each.name),
            memory_mib.get(each.name),
        )
        for each in chosen
        for of in [tasks[each.name]]
    ]


def _sensors(
    path: Path, tasks: Mapping[str, _Tasks], malformed: _Malformed
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean utilisation and largest memory of a whole GPU of each job; none without the table.

    The sensors of an instance add up all its GPUs; 50 is half of one.
    """
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    memory_mib: dict[str, float] = {}
    columns = ("job_name", "task_name", "gpu_wrk_util", "max_gpu_wrk_mem")
    for where, row in _rows(path, columns, _OF_SENSORS) if is_file(path) else ():
        with malformed.at(where):
            name, gpus = row[0], tasks[row[0]].of_instance.get(row[1]) if row[0] in tasks else None
            if gpus is None:
                continue
            whole = max(1.0, gpus)
            if (used := _number(row[2])) is not None:
                sums[name][0] += used / _PER_CENT
                sums[name][1] += whole
            if (most_gib := _number(row[3])) is not None:
                mib = most_gib * _MIB_PER_GIB / whole
                memory_mib[name] = max(mib, memory_mib.get(name, 0.0))
    return {name: min(1.0, total / gpus) for name, (total, gpus) in sums.items()}, memory_mib


_READERS: Mapping[str, Callable[[Path, _Choose, _Malformed], list[TraceJob]]] = {
    "philly": _philly,
    "helios": _helios,
    "pai": _pai,
}

FORMATS = tuple(_READERS)
