"""A run of a plan as its folder shows it: the paces of its jobs, power, and records for `fit`."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from math import exp, inf
from pathlib import Path
from signal import Signals
from statistics import fmean
from time import monotonic
from typing import Literal, Protocol, TypeVar

import numpy as np

from advisor.errors import AdvisorError
from advisor.files.reading import read_bytes
from advisor.files.records import parse_record
from advisor.measure.device import Meter, Origin, memory_record
from advisor.measure.inside import lacks_memory
from advisor.measure.printed_pace import PrintedPace
from advisor.measure.process import error_line, processes_of, tail
from advisor.measure.script import ReportedProgress, read_progress
from advisor.prediction.prediction import Interval
from advisor.sharing import parse_sharing
from advisor.sharing.groups import restricted, sets_in_turn, together, with_a_queue
from advisor.simulation.turns import last_end_s
from advisor.workload.profile import Memory, Window
from advisor.workload.run import DocumentedJob, PlanDocument, Run, StepRange, Tenant, planned_steps
from advisor.workload.spec import Workload

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class RunFile:
    """The file ``run.json`` about a run; ``steps`` and ``cores`` are None without such a limit."""

    schema: Literal[1]
    gpu: str
    device: str
    since: str
    steps: int | None
    cores: str | None
    grace_s: float


def read_about(folder: Path) -> RunFile:
    """Return what a run's folder has about its start.

    Raises:
        InvalidInput: Its file cannot be read.
    """
    return _parse(RunFile, folder / "run.json")


def _parse(kind: type[_Record], path: Path) -> _Record:
    remedy = f"Remove {path.parent} when none of its jobs runs."
    return parse_record(kind, read_bytes(path), str(path), remedy)


@dataclass(slots=True)
class Events:
    """The events of a run so far, by job; times are of the monotonic clock.

    The script writes them, a line each: ``script PID``, ``started N``, ``ended N STATUS`` and
    ``over STATUS``, and after each the seconds since the machine started. ``asked N`` is added when
    job N is asked to end; 0 stands for all jobs.

    Attributes:
        stopped: Jobs that the user stopped; 0 stands for all.
        over: The exit status of the script.
    """

    script: int | None = None
    started_s: dict[int, float] = field(default_factory=dict)
    ended: dict[int, tuple[int, float]] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    over: int | None = None

    @property
    def running(self) -> frozenset[int]:
        return frozenset(self.started_s.keys() - self.ended.keys())

    @property
    def changed_s(self) -> float:
        """The moment when a job started or ended last."""
        return max([*self.started_s.values(), *(at for _, at in self.ended.values())], default=0.0)


def events_in(folder: Path) -> Events:
    """Return the events of the run in `folder`; a line that cannot be read is left out."""
    events = Events()
    suspended_s = time.clock_gettime(time.CLOCK_BOOTTIME) - monotonic()
    text = ""
    with suppress(OSError):
        text = (folder / "events").read_text(errors="replace")
    for line in text.splitlines():
        words = line.split(" ")
        with suppress(ValueError, IndexError):
            match words[0]:
                case "script":
                    events.script = int(words[1])
                case "started":
                    events.started_s[int(words[1])] = float(words[2]) - suspended_s
                case "ended":
                    events.ended[int(words[1])] = (int(words[2]), float(words[3]) - suspended_s)
                case "asked":
                    events.stopped.add(int(words[1]))
                case "over":
                    events.over = int(words[1])
    return events


# A pace is measured over so many steps and seconds at least.
_FEWEST_STEPS, _SHORTEST_S = 6, 2.0
# Beyond so many samples, every second one goes.
_MOST_SAMPLES = 4096
# The pace that is shown is of so many seconds, and is compared with the first after so many.
_LATELY_S, _JUDGED_S = 30.0, 10.0
# After others came or went, and after the first step (compilation, allocator), a pace settles for
# so long before it is measured.
SETTLE_S = 3.0
# The windows of runs whose first predicts the others have 0.7 s and two steps at least.
_FIRST_S, _FIRST_STEPS = 1.0, 2
# Nine in ten of 10,825 jobs in runs of an H200 and an H100 go on within this of their first window:
# 5,737 GPU-bound and 5,088 host-bound ones.
_REACH_GPU_BOUND, _REACH_HOST_BOUND = 0.02, 0.085


def around_first(step_s: float, *, gpu_bound: bool = False) -> Interval:
    """Return the steps to expect of a job whose first second was measured."""
    reach = exp(_REACH_GPU_BOUND if gpu_bound else _REACH_HOST_BOUND)
    return Interval(step_s / reach, step_s, step_s * reach)


# A job without a step for so long, and for so many of its steps, hangs.
_SILENT_S, _SILENT_STEPS = 60.0, 20

STATES = ("waiting", "running", "done", "stopped", "out-of-memory", "failed")


class WatchedJob:
    """A job of a run: its state and pace at the last look; None: not available.

    Attributes:
        steps: Of the whole job; None if it decides itself when it ends.
        state: One of `STATES`.
        detail: Why it ended badly.
        last: Its last report.
        seen_at_s: When its count last grew, on the watcher's monotonic clock.
        held_mib: Its memory on the device, when it was last seen there.
        step_s: A step, lately.
        first_s: A step in its first second of steady steps while the jobs run that run now.
        expected: A step while the jobs run that run now: predicted, then by that first second.
        drifted: Whether the pace lately lies outside that of its first second.
        left_s: Until it has done all its steps.
        silent_s: Since its last step, if that is long.
    """

    def __init__(
        self,
        folder: Path,
        number: int,
        planned: DocumentedJob,
        workload: Workload,
        most_steps: int | None,
    ) -> None:
        self.number, self.planned, self.workload = number, planned, workload
        self.steps = planned_steps(planned, workload, most_steps)
        self.log = folder / f"job-{number}.log"
        self.state, self.detail, self.drifted = "waiting", "", False
        self.last: ReportedProgress | None = None
        self.expected: Interval | StepRange | None = None
        self.seen_at_s: float | None = None
        self.held_mib: float | None = None
        self.step_s: float | None = None
        self.first_s: float | None = None
        self.left_s: float | None = None
        self.silent_s: float | None = None
        self._progress = folder / f"job-{number}.progress"
        script = planned.script or workload.script
        self._pace: PrintedPace | None = None
        if script is not None and not script.by_steps:
            self._pace = PrintedPace(script, workload.batch)
        self._read_bytes = 0
        self._at_s: list[float] = []
        self._steps: list[int] = []
        self._steady_s: float | None = None

    @property
    def done(self) -> int | None:
        """Steps that it has done."""
        return None if self.last is None else self.last.steps

    def look(self, events: Events, now_s: float) -> None:
        """Note its state and its report; a count that goes back is another process's."""
        self.state, self.detail = self._state(events)
        if self.number not in events.started_s:
            return
        progress = None
        if (pace := self._pace) is None:
            progress = read_progress(self._progress)
        else:
            with suppress(OSError), self.log.open("rb") as log:
                log.seek(self._read_bytes)
                printed = log.read()
                self._read_bytes += len(printed)
                pace.read(printed, now_s)
            if pace.at_s is not None and pace.steps:  # from the second figure on
                progress = ReportedProgress(int(pace.steps), pace.at_s)
        if progress is None:
            return
        grew = self.last is None or progress.steps > self.last.steps
        self.last = progress
        if not grew or (self._at_s and progress.at <= self._at_s[-1]):
            return
        self.seen_at_s = now_s
        self._at_s.append(progress.at)
        self._steps.append(progress.steps)
        if len(self._at_s) > _MOST_SAMPLES:
            self._at_s, self._steps = self._at_s[::2], self._steps[::2]

    def measure_first(self, steady_s: float) -> None:
        """Note its pace in the first second from `steady_s` on; later ones are not looked at."""
        if steady_s != self._steady_s:
            self._steady_s, self.first_s = steady_s, None
        if self.first_s is None:
            first = bisect_left(self._at_s, steady_s)
            end = bisect_left(self._at_s, steady_s + _FIRST_S, first + 1)
            for at in range(end, len(self._at_s)):
                seconds = self._at_s[at] - self._at_s[first]
                steps = self._steps[at] - self._steps[first]
                if seconds >= _FIRST_S and steps >= _FIRST_STEPS:
                    self.first_s = seconds / steps
                    return

    def judge(self, events: Events, now_s: float, *, as_planned: bool) -> None:
        """Compare its pace with the expected one, planned if `as_planned`; note the time left."""
        self.step_s = self.expected = self.left_s = self.silent_s = None
        self.drifted = False
        if self.state != "running":
            return
        lately_s = max(now_s - _LATELY_S, events.changed_s, self._steady_s or 0.0)
        self.step_s = self.mean_step_s(lately_s)
        self.expected = self.planned.step_s if as_planned else None
        if self.first_s is not None:
            self.expected = around_first(self.first_s)
            if self.step_s and now_s - lately_s > _JUDGED_S:
                self.drifted = not self.expected.p05 <= self.step_s <= self.expected.p95
        step_s = self.step_s or (self.expected.p50 if self.expected else None)
        if step_s and self.steps is not None and self.steps >= (self.done or 0):
            self.left_s = (self.steps - (self.done or 0)) * step_s
        silent_s = 0.0 if self.seen_at_s is None else now_s - self.seen_at_s
        if silent_s > max(_SILENT_S, _SILENT_STEPS * (self.step_s or 0.0)):
            self.silent_s = silent_s

    @property
    def work_left_s(self) -> float | None:
        """Seconds that it still runs, as planned while it waits; None: unknown."""
        if self.state != "waiting":
            return self.left_s if self.state == "running" else 0.0
        if self.steps is None or self.planned.step_s is None:
            return None
        return self.steps * self.planned.step_s.p50

    def _state(self, events: Events) -> tuple[str, str]:
        if self.number not in events.ended:
            return ("running" if self.number in events.started_s else "waiting"), ""
        if (status := events.ended[self.number][0]) == 0:
            return "done", ""
        if events.stopped & {0, self.number}:
            return "stopped", ""
        printed = tail(self.log)
        if lacks_memory(printed):
            return "out-of-memory", error_line(printed)
        how = f"exit status {status}"
        if status > 128:
            with suppress(ValueError):
                how = f"killed by {Signals(status - 128).name}"
        return "failed", ": ".join(filter(None, [how, error_line(printed)]))

    def mean_step_s(self, since_s: float) -> float | None:
        """Return the mean seconds of a step since a moment; None if too few were seen."""
        first = bisect_left(self._at_s, since_s)
        if len(self._at_s) - first < 2:
            return None
        steps = self._steps[-1] - self._steps[first]
        seconds = self._at_s[-1] - self._at_s[first]
        return seconds / steps if steps >= _FEWEST_STEPS and seconds >= _SHORTEST_S else None

    def windows(self, bounds_s: Sequence[float]) -> tuple[Window, ...]:
        """Return the steps between each two moments of its span; empty if one has none."""
        steps = np.diff(np.interp(bounds_s, self._at_s, self._steps))
        seconds = np.diff(bounds_s)
        return tuple(map(Window, seconds.tolist(), steps.tolist())) if (steps > 0).all() else ()

    @property
    def memory(self) -> Memory | None:
        """Its memory as it reports it, and as its device does."""
        reported = {"allocated_mib": None, "reserved_mib": None}
        if self.last is not None and self.last.memory is not None:
            reported = asdict(self.last.memory)
        return memory_record(reported, self.held_mib)

    @property
    def span_s(self) -> tuple[float, float]:
        """The moments of its first and last count; an empty span before those."""
        return (self._at_s[0], self._at_s[-1]) if self._at_s else (inf, -inf)

    def __str__(self) -> str:
        words = [self.state + (f" ({self.detail})" if self.detail else "")]
        if self.done is not None:
            planned = self.steps is not None and self.done <= self.steps  # epochs may be unknown
            of_all = f" of {self.steps:,}" if planned else ""
            words.append(f"{self.done:,}{of_all} steps")
        if self.step_s is not None:
            words.append(f"{1e3 * self.step_s:,.1f} ms a step")
        if (step_s := self.expected) is not None:
            source = "predicted" if self.first_s is None else "at first"
            ends = f"{1e3 * step_s.p05:,.1f}-{1e3 * step_s.p95:,.1f}"
            beyond = ", outside" if self.drifted else ""
            words.append(f"{source} {1e3 * step_s.p50:,.1f} ms ({ends}){beyond}")
        memory = None if self.last is None else self.last.memory
        reserved_mib = None if memory is None else memory.reserved_mib
        memory_mib = reserved_mib if self.held_mib is None else self.held_mib
        if memory_mib is not None and self.state == "running":
            words.append(f"{memory_mib:,.0f} MiB")
        if self.left_s is not None:
            words.append(f"{timedelta(seconds=round(self.left_s))} left")
        return f"  {self.number} {self.workload.name}: {', '.join(words)}"


class Shown(Protocol):
    """A run to show: its lines as text, and the states of its jobs."""

    @property
    def states(self) -> tuple[str, ...]: ...


# Of a record; a shorter one is too uncertain, and more windows add nothing.
_SHORTEST_RECORD_S, _WINDOWS = 6.0, 6


class WatchedRun:
    """The run in a folder, and its jobs as they were at the last look.

    Args:
        folder: Of the run.
        meter: Of its device; None: power and memory are not read.

    Attributes:
        about: From its file ``run.json``.
        jobs: In the order of the plan.
        now_w: Power of the device at the last look; None: no job ran, or it is not metered.

    Raises:
        InvalidInput: Its files cannot be read.
    """

    def __init__(self, folder: Path, meter: Meter | None = None) -> None:
        self.folder, self.about = folder, read_about(folder)
        self.events = Events()
        document = _parse(PlanDocument, folder / "plan.json")
        (self._plan,) = document.plans
        self.jobs = [
            WatchedJob(folder, number, planned, document.workload_of(planned), self.about.steps)
            for number, planned in zip(self._plan.numbers, self._plan.jobs, strict=True)
        ]
        self._by_number = {job.number: job for job in self.jobs}
        self._sharing = parse_sharing(self._plan.sharing)
        self._groups = [
            frozenset(self._plan.numbers[at] for at in run[:at_once])
            for run, at_once in sets_in_turn(self._sharing, len(self.jobs))
        ]
        self._meter = meter
        self._looked_s = 0.0
        self.now_w: float | None = None
        self._power_w: dict[frozenset[int], list[float]] = {}
        self._clocks_mhz: tuple[int | None, int | None] = (None, None)

    def look(self) -> None:
        """Note the run as it is now."""
        self.events = events_in(self.folder)
        running, self._looked_s = self.events.running, monotonic()
        for job in self.jobs:
            job.look(self.events, self._looked_s)
        counting = [job for job in self.jobs if job.number in running and job.done is not None]
        begins_s = [job.span_s[0] for job in counting]
        steady_s = max([self.events.changed_s, *begins_s]) + SETTLE_S
        for job in counting:
            job.measure_first(steady_s)
        # Of a queue, the plan predicts the mean over each job's run.
        as_planned = running in self._groups and not with_a_queue(self._sharing, len(self.jobs))
        for job in self.jobs:
            job.judge(self.events, self._looked_s, as_planned=as_planned)
        self.now_w = None
        if self._meter is not None and running:
            with suppress(AdvisorError):  # a driver that fails for a moment ends nothing
                held_mib = self._meter.memory_mib()
                ours = held_mib.keys() & set(processes_of("ADVISOR_RUN", str(self.folder)))
                for number in running if ours else ():
                    if pids := ours & set(processes_of("ADVISOR_JOB", str(number))):
                        own_mib = sum(held_mib[pid] for pid in pids)
                        self._by_number[number].held_mib = own_mib
                self.now_w = self._meter.power_w()
                steady = counting and self._looked_s > steady_s
                if self.now_w is not None and running in self._groups and steady:
                    self._power_w.setdefault(running, []).append(self.now_w)
                    self._clocks_mhz = self._meter.clocks_mhz()

    @property
    def states(self) -> tuple[str, ...]:
        """State of each job, as `WatchedJob.state`."""
        return tuple(job.state for job in self.jobs)

    @property
    def left_s(self) -> float | None:
        """Seconds until the last job ends if all keep their paces; None: unknown.

        Jobs that wait have the steps of the plan, and start in its order.
        """
        left_s = [job.work_left_s for job in self.jobs]
        if None in left_s:
            return None
        return last_end_s(self._sharing, [each or 0.0 for each in left_s])

    def __str__(self) -> str:
        return "\n".join([self.head, *map(str, self.jobs)])

    @property
    def head(self) -> str:
        """Its first line: its name, how its jobs share, and how long it has run."""
        seconds = self._looked_s - min(self.events.started_s.values(), default=self._looked_s)
        power = "" if self.now_w is None else f", {self.now_w:.0f} W"
        left = f", {timedelta(seconds=round(self.left_s))} left" if self.left_s else ""
        return f"{self.folder.name}: {self._plan.sharing}, {seconds:.0f} s{power}{left}"

    def silent(self, patience_s: float) -> list[int]:
        """Return the jobs that run and did steps, and none for `patience_s`."""
        seen = ((number, self._by_number[number].seen_at_s) for number in self.events.running)
        return [number for number, at in seen if at is not None and monotonic() - at > patience_s]

    def records(self, origin: Origin, allowed: Sequence[int]) -> Iterator[Run]:
        """Return a record of each group in which every job counted its steps long enough.

        A group's windows lie where all of its jobs ran (of a queue, those that start first) at a
        settled pace. `allowed` are the host cores that the jobs could have.

        Raises:
            InvalidInput: The measured values cannot be true.
        """
        for at, group in enumerate(self._groups, start=1):
            positions = [at for at, job in enumerate(self.jobs) if job.number in group]
            jobs = [self.jobs[at] for at in positions]
            spans = [job.span_s for job in jobs]
            began_s = max(first for first, _ in spans) + SETTLE_S
            ended_s = min(last for _, last in spans)
            if ended_s - began_s < _SHORTEST_RECORD_S:
                continue
            bounds_s = np.linspace(began_s, ended_s, _WINDOWS + 1).tolist()
            windows = [job.windows(bounds_s) for job in jobs]
            if not all(windows):
                continue
            sharing = restricted(self._sharing, positions)
            shared = len(jobs) > 1 and together(sharing) is not None
            name = str(sharing) if shared or "mig" in str(sharing) else "naive"
            power_w = self._power_w.get(group)
            versions = next(filter(None, (job.last.versions for job in jobs if job.last)), {})
            yield Run(
                id=f"run-{self.folder.name}" + (f"-group{at}" if len(self._groups) > 1 else ""),
                gpu=origin.device.key,
                sharing=name,
                purpose="validation",
                repeats=None,
                tenants=tuple(
                    Tenant(
                        workload=job.workload,
                        outcome="ok",
                        detail=None,
                        windows=seen,
                        memory=job.memory,
                        cores=tuple(allowed),
                        sms=None,
                    )
                    for job, seen in zip(jobs, windows, strict=True)
                ),
                mps_clients=len(jobs) if name.startswith("mps") else 0,
                power_w=fmean(power_w) if power_w else None,
                counters=None,
                provenance=origin.provenance(versions, self._clocks_mhz),
            )
