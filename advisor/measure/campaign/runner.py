"""A runner: a process that measures tasks one at a time on one device, and its starting side.

An answer is ``("done", record)`` or ``("failed", exit code, message)``; after a failure that is not
the user's to correct (`InvalidInput`), the runner should be replaced by a new one.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import device_at_hand
from advisor.measure.process.provenance import Origin
from advisor.measure.process.run_locks import sweep
from advisor.measure.process.supervisor import INTERRUPTED, started_inner
from advisor.measure.process.tenant_handle import error_of
from advisor.measure.process.windows import Timing
from advisor.measure.shared.bench import Bench, bench_on
from advisor.measure.shared.planned_run import Measurable
from advisor.measure.solo.profile_command import idle_power_w
from advisor.measure.solo.solo_run import SoloRunSettings, profile_alone
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.spec import Workload

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
    """Serve the connection whose descriptor is ``argv[0]`` until it closes; the exit code."""
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
    device = device_at_hand(settings.device)
    os.sched_setaffinity(0, settings.cores)
    with bench_on(device, settings.cores, settings.timing, settings.command) as bench:
        alone = _alone_on(bench, settings)
        connection.send(("done", device.key))
        while (task := connection.recv()) is not None:
            connection.send(_attempt(lambda task=task: _measured(task, bench, alone)))  # type: ignore[misc]


def _alone_on(bench: Bench, settings: RunnerSettings) -> SoloRunSettings:
    session = bench.settings.session
    return SoloRunSettings(
        session=session,
        origin=Origin(session.device, settings.command, len(bench.settings.cores)),
        host_cores=bench.settings.cores,
        cores=bench.allowed,
        probe=settings.probe,
        idle_power_w=idle_power_w(session.device),
    )


def _measured(task: Task, bench: Bench, alone: SoloRunSettings) -> Record:
    if isinstance(task, Measurable):
        return bench.measure(task)
    return profile_alone(task, alone)


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
        """The record of `task`.

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
        self._process, self._lifeline = started_inner(
            "advisor.measure.campaign.runner:serve", [str(its.fileno())], keep=[its.fileno()]
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
            return ("failed", AdvisorError.exit_code, self._how_it_died())
        return answer

    def _how_it_died(self) -> str:
        process = self._process
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(10) if process else 0
            if code < 0:
                return f"it was killed by {signal.Signals(-code).name}"
            return f"it ended with exit status {code}"
        return "it closed its connection"

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
    """The result in a runner's answer.

    Raises:
        InvalidInput: It refused the task.
        GpuUnavailable: It has no GPU to measure on.
        AdvisorError: It cannot go on.
    """
    if answer[0] == "done":
        return answer[1]
    _, code, message = answer
    raise error_of(code, message)


def start_all(runners: Sequence[Runner]) -> None:
    """Start all at once.

    Raises:
        AdvisorError: One does not start.
    """
    with ThreadPoolExecutor(len(runners)) as pool:
        list(pool.map(lambda runner: runner.start(), runners))


def stop_all(runners: Sequence[Runner]) -> None:
    """Stop all at once."""
    with ThreadPoolExecutor(max(1, len(runners))) as pool:
        list(pool.map(lambda runner: runner.stop(), runners))
