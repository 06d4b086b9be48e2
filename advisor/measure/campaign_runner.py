"""A runner: a process that measures tasks one at a time on one device, and its starting side.

An answer is ``("done", record)`` or ``("failed", exit code, message)``; after a failure that is not
the user's to correct (`InvalidInput`), a new runner should replace it.
"""

import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from threading import Lock
from time import monotonic
from typing import Any, Protocol

from advisor.errors import AdvisorError, InvalidInput, counted, is_or_are
from advisor.measure.device import Origin, find_device
from advisor.measure.draw import idle_twin
from advisor.measure.pace import Timing
from advisor.measure.process import INTERRUPTED, say, start_inner, sweep
from advisor.measure.profile import SoloRunSettings, profile_alone
from advisor.measure.profile_command import idle_power_w
from advisor.measure.run_list import Measurable
from advisor.measure.shared_run import FIRST_RUN_S, bench_on, records_in, run_summary
from advisor.measure.worker import error_of
from advisor.workload.profile import Profile, Window, median_step_s
from advisor.workload.reading import profile_files, read_json
from advisor.workload.run import Run
from advisor.workload.spec import Workload
from advisor.workload.writing import append_line, append_run, profile_text, write_whole

# A task of a runner: a mix or whole jobs to run, or a workload to profile.
Task = Measurable | Workload
Record = Run | Profile
Answer = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """The settings of a runner.

    Attributes:
        device: GPU index or UUID, or ``"cpu"``.
        cores: Host cores for it and its tenants alone.
        timing: How long to measure.
        probe: Whether profiles have an MPS probe.
        command: The user's command line.
    """

    device: str
    cores: tuple[int, ...]
    timing: Timing
    probe: bool
    command: str


def serve(argv: Sequence[str]) -> int:
    """Serve the connection of the descriptor ``argv[0]`` until it closes; return the exit code."""
    os.set_inheritable(int(argv[0]), False)
    connection = Connection(int(argv[0]))
    try:
        answer = _attempt(lambda: _serve(connection, connection.recv()))
        if answer[0] != "done":
            connection.send(answer)
    except EOFError:
        pass
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _serve(connection: Connection, settings: RunnerSettings) -> None:
    device = find_device(settings.device)
    os.sched_setaffinity(0, settings.cores)
    with bench_on(device, settings.cores, settings.timing, settings.command) as bench:
        session = bench.session
        alone = SoloRunSettings(
            session=session,
            origin=Origin(session.device, settings.command, len(bench.cores)),
            host_cores=bench.cores,
            cores=bench.allowed,
            probe=settings.probe,
            idle_power_w=idle_power_w(session.device),
        )

        def record_of(task: Task) -> Record:
            if isinstance(task, Measurable):
                return bench.measure(task)
            return profile_alone(task, alone)

        connection.send(("done", device.key))
        while (task := connection.recv()) is not None:
            connection.send(_attempt(partial(record_of, task)))


def _attempt(work: Callable[[], object]) -> Answer:
    try:
        return ("done", work())
    except AdvisorError as error:
        return ("failed", error.exit_code, str(error))


# Claiming a GPU that a run has just released takes seconds.
_START_S = 120.0

# Longer than the timeouts that a measurement has for all its tenants.
_LONGEST_TASK_S = 1800.0

_TEARDOWN_S = 60.0


class Runner(Protocol):
    """Measures on one device, on this host or another.

    Attributes:
        name: Of the device, for files and messages.
    """

    name: str

    def start(self) -> None:
        """Start, or start again after it was lost.

        Raises:
            AdvisorError: It does not start.
        """

    def measured(self, task: Task) -> Record:
        """Measure `task`.

        Raises:
            InvalidInput: No runner can measure it.
            AdvisorError: This runner cannot go on, and must be started again.
        """

    def stop(self) -> None:
        """End it and all that it started; may be called at any time."""


class LocalRunner:
    """A runner in a process of its own, on this host.

    It and all that it started die when this process does.
    """

    def __init__(self, name: str, settings: RunnerSettings) -> None:
        self.name = name
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline = -1

    def start(self) -> None:
        """See `Runner`."""
        result_of(self.begun())

    def begun(self) -> Answer:
        """Start the process; its first answer."""
        ours, its = Pipe()
        self._process, self._lifeline = start_inner(
            "advisor.measure.campaign_runner:serve", [str(its.fileno())], keep=[its.fileno()]
        )
        its.close()  # or its death would not close the pipe
        self._connection = ours
        return self.answer(self._settings, _START_S)

    def measured(self, task: Task) -> Record:
        """See `Runner`."""
        record: Record = result_of(self.answer(task))
        return record

    def answer(self, task: Task | RunnerSettings, timeout_s: float = _LONGEST_TASK_S) -> Answer:
        """The answer of the process to `task`; ``"failed"`` if there is none."""
        if self._connection is None:
            return ("failed", AdvisorError.exit_code, "it was ended")
        try:
            self._connection.send(task)
            if not self._connection.poll(timeout_s):
                return ("failed", AdvisorError.exit_code, f"no answer within {timeout_s:.0f} s")
            answer: Answer = self._connection.recv()
        except (EOFError, OSError):
            reason = "it closed its connection"
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(10) if self._process else 0
                killed = code < 0 and f"it was killed by {signal.Signals(-code).name}"
                reason = killed or f"it ended with exit status {code}"
            return ("failed", AdvisorError.exit_code, reason)
        return answer

    def stop(self) -> None:
        """See `Runner`: interrupts the process, and kills it if that fails."""
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self._lifeline)
        try:
            process.wait(_TEARDOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._connection is not None:
            self._connection.close()
        sweep()  # if it was killed, its folder and its MPS daemon are left


def result_of(answer: Answer) -> Any:
    """Return the result in a runner's answer, or raise the error in it."""
    if answer[0] == "done":
        return answer[1]
    raise error_of(*answer[1:])


def start_all(runners: Sequence[Runner]) -> None:
    """Start all at once; raise the error of one that does not start."""
    with ThreadPoolExecutor(len(runners)) as pool:
        list(pool.map(lambda runner: runner.start(), runners))


def stop_all(runners: Sequence[Runner]) -> None:
    """Stop all at once."""
    with ThreadPoolExecutor(max(1, len(runners))) as pool:
        list(pool.map(lambda runner: runner.stop(), runners))


# A solo run that differs from its profile by more than this share does not repeat it.
STEADY_WITHIN = 0.05


@dataclass(frozen=True, slots=True)
class _RunPace:
    """The run that a run should repeat, and each tenant's workload and seconds a step."""

    like: str | None
    solo: bool
    steps_s: tuple[tuple[str, float], ...]


class Steadiness:
    """Collects runs and profiles as read from their files, and compares them.

    Args:
        profiles: Folders of profiles; of two with one name, the first folder's counts.

    Attributes:
        refused: Why a file of these folders is not a profile, by its workload's name.
    """

    def __init__(self, profiles: Iterable[Path]) -> None:
        self._alone_s: dict[str, float] = {}
        self._paces: dict[str, _RunPace] = {}
        self.refused: dict[str, str] = {}
        for folder in reversed(list(profiles)):
            for path in profile_files(folder):
                try:
                    self.learn(path)
                except InvalidInput as error:
                    self.refused[path.stem] = str(error)

    @property
    def profiled(self) -> frozenset[str]:
        """Workloads of which there is a profile."""
        return frozenset(self._alone_s)

    def learn(self, path: Path) -> None:
        """Add the profile in the file `path`.

        Raises:
            InvalidInput: It is not a profile.
        """
        remedy = "Measure it again, or move it out of this folder."
        measured = read_json(path, remedy)
        try:
            self._alone_s[path.stem] = _step_s(measured)
        except (InvalidInput, TypeError, KeyError):
            raise InvalidInput(f"{path}: not a profile. {remedy}") from None
        self.refused.pop(path.stem, None)

    def note(self, record: Mapping[str, Any]) -> None:
        """Add a run; one with a tenant that ended early is ignored.

        Raises:
            InvalidInput: It is not a run.
        """
        try:
            tenants = record.get("tenants") or ()
            if not tenants or any(tenant["outcome"] != "ok" for tenant in tenants):
                return
            purpose = record.get("purpose")
            twin = idle_twin(record["id"]) if purpose == "control" else None
            steps_s = tuple((each["workload"]["name"], _step_s(each)) for each in tenants)
            like = record.get("repeats") or (twin if twin != record["id"] else None)
            self._paces[record["id"]] = _RunPace(like, purpose == "solo", steps_s)
        except (AttributeError, TypeError, KeyError):
            raise InvalidInput(
                f"run {record['id']} is incomplete. Correct its file, or choose another --out."
            ) from None

    def short(self) -> str:
        """The number of solo runs that repeat their profiles, for a line of progress."""
        apart = [each for solos in self._solos().values() for each in solos]
        steady = sum(each <= STEADY_WITHIN for each in apart)
        return f"{steady}/{counted(len(apart), 'solo run')} within {STEADY_WITHIN:.0%}"

    def summary(self) -> str:
        """All comparisons, a line each."""
        solos = self._solos()
        steady = sum(median(each) <= STEADY_WITHIN for each in solos.values())
        lines = [
            f"{self.short()} of the profile; so {is_or_are(steady)} {steady}/"
            f"{counted(len(solos), 'workload')}"
        ]
        for kind, control in (("repeats", False), ("busy against idle neighbours", True)):
            if apart := self._twins(control):
                lines.append(
                    f"{kind}: median difference {median(apart):.1%} of "
                    f"{counted(len(apart), 'step')}"
                )
        return "\n".join(lines)

    def _solos(self) -> dict[str, list[float]]:
        """Differences of each workload's solo runs from its profile, as shares."""
        apart = defaultdict(list)
        for pace in tuple(self._paces.values()):
            for name, step_s in pace.steps_s:
                if pace.solo and name in self._alone_s:
                    apart[name].append(abs(step_s / self._alone_s[name] - 1))
        return apart

    def _twins(self, control: bool) -> list[float]:
        """Differences of steps between runs and the runs that they repeat, as shares."""
        pairs = [
            (pace, self._paces[pace.like])
            for name, pace in self._paces.items()
            if pace.like in self._paces and (idle_twin(name) == pace.like) is control
        ]
        return [
            abs(mine_s / its_s - 1)
            for pace, other in pairs
            for (_, mine_s), (_, its_s) in zip(pace.steps_s, other.steps_s, strict=True)
        ]


def _step_s(measured: Mapping[str, Any]) -> float:
    return median_step_s(tuple(Window(**window) for window in measured["windows"]))


class Ledger:
    """The records in a campaign's folder; `add` and `fail` may be called from any thread.

    Args:
        out: The folder: every ``*.jsonl`` in it holds runs.
        name: Of the campaign; the prefix of the files that it writes.
        profiles: Folder of new profiles.
        steadiness: Receives every run.

    Attributes:
        done: Ids of the runs in the folder.
        homes: The runner that did the busy control, by the id of its idle twin.
    """

    def __init__(self, out: Path, name: str, profiles: Path, steadiness: Steadiness) -> None:
        self._out = out
        self._name = name
        self._profiles = profiles
        self._steadiness = steadiness
        self._lock = Lock()
        self.done: set[str] = set()
        self.homes: dict[str, str] = {}
        for path in sorted(out.glob("*.jsonl")):
            for record in records_in(path):
                self.done.add(record["id"])
                steadiness.note(record)
                if record.get("purpose") == "control":
                    self.homes[idle_twin(record["id"])] = path.stem.removeprefix(f"{name}-")

    def add(self, record: Record, runner: str) -> None:
        """Write `record`, which `runner` measured, to its file."""
        with self._lock:
            if isinstance(record, Run):
                append_run(self._out / f"{self._name}-{runner}.jsonl", record)
                self._steadiness.note(asdict(record))
            else:
                path = self._profiles / f"{record.name}.json"
                write_whole(path, profile_text(record))
                self._steadiness.learn(path)

    def fail(self, task: Task, why: str) -> None:
        """Write to the log that `task` was given up, and why."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock:
            log = self._out / f"{self._name}-failed.log"
            append_line(log, f"{moment} {task_name(task)}: {why}\n")


def task_name(task: Task) -> str:
    """The name of `task` in messages."""
    return f"profile of {task.name}" if isinstance(task, Workload) else task.id


class CampaignProgress:
    """Counts what is done and failed; every method may be called from any thread.

    Args:
        total: Number of records to measure.
        runners: Number of runners.
        deadline_s: No task is begun that would end later than this after the start; None: no
            deadline.
        steadiness: Its short summary ends each line.
    """

    def __init__(
        self, total: int, runners: int, deadline_s: float | None, steadiness: Steadiness
    ) -> None:
        self._total = total
        self._runners = runners
        self._deadline_s = deadline_s
        self._steadiness = steadiness
        self._began = monotonic()
        self._spent_s = 0.0
        self._lock = Lock()
        self.done = 0
        self.failed = 0

    def too_late(self) -> bool:
        """Whether one more would pass the deadline."""
        with self._lock:
            next_s = self._spent_s / self.done if self.done else FIRST_RUN_S
        passed_s = monotonic() - self._began
        return self._deadline_s is not None and passed_s + next_s > self._deadline_s

    def report_done(self, record: Record, runner: str, seconds: float) -> None:
        """Print that `runner` measured `record` in `seconds`."""
        with self._lock:
            self.done += 1
            self._spent_s += seconds
            summary = (
                f"profile of {record.name}," if isinstance(record, Profile) else run_summary(record)
            )
            a_minute = 60 * self.done / (monotonic() - self._began)
            left = self._total - self.done - self.failed
            say(
                f"{self.done + self.failed}/{self._total} {summary} {seconds:.1f} s on {runner}; "
                f"{a_minute:.1f} records a minute, about {left / a_minute:.1f} min left; "
                f"{self.failed} failed; {self._steadiness.short()}"
            )

    def give_up(self, name: str, why: str) -> None:
        """Print that the task called `name` was given up."""
        with self._lock:
            self.failed += 1
            say(f"{self.done + self.failed}/{self._total} {name} failed: {why}")

    def summary(self) -> str:
        """Count the records, in one line."""
        passed_s = monotonic() - self._began
        return (
            f"{self.done} records in {passed_s:.0f} s by {self._runners} runners, "
            f"{60 * self.done / passed_s:.1f} a minute; {self.failed} failed"
        )
