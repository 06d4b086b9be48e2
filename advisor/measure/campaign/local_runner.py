"""A runner as whoever started it sees it: a process that is handed tasks, one at a time."""

import os
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.measure.campaign.runner import Answer, Duty, Record, Task
from advisor.measure.process.supervisor import started_inner, sweep

# Claiming a GPU that a run has just left takes seconds.
_START_S = 120.0

# Beyond the patience that a measurement has with all its tenants.
_LONGEST_TASK_S = 1800.0

_TEARDOWN_S = 60.0


class Runner(Protocol):
    """What measures on one device, wherever that is.

    Attributes:
        name: Of the device, for files and messages.
    """

    name: str

    def start(self) -> None:
        """Begin, or begin again after it was lost.

        Raises:
            AdvisorError: It cannot.
        """

    def measured(self, task: Task) -> Record:
        """The record of `task`.

        Raises:
            InvalidInput: Nobody can do it.
            AdvisorError: This runner cannot go on, and must be started anew.
        """

    def stop(self) -> None:
        """End it and all it began; may be called at any time."""


class LocalRunner:
    """A runner in a process of its own, on this host.

    It dies, and all it started with it, when this process does.

    Args:
        name: Of its device.
        duty: What it is for.
    """

    def __init__(self, name: str, duty: Duty) -> None:
        self.name = name
        self._duty = duty
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline = -1

    def start(self) -> None:
        """As `Runner` has it."""
        understood(self.begun())

    def begun(self) -> Answer:
        """Start the process; how it answers."""
        ours, its = Pipe()
        self._process, self._lifeline = started_inner(
            "advisor.measure.campaign.runner:serve", [str(its.fileno())], keep=[its.fileno()]
        )
        its.close()  # or its death would not close the pipe
        self._connection = ours
        return self.answer(self._duty, _START_S)

    def measured(self, task: Task) -> Record:
        """As `Runner` has it."""
        record: Record = understood(self.answer(task))
        return record

    def answer(self, task: Task | Duty, patience_s: float = _LONGEST_TASK_S) -> Answer:
        """What the process answers to `task`; as broken where it does not."""
        if self._connection is None:
            return ("broken", AdvisorError.exit_code, "it was ended")
        try:
            self._connection.send(task)
            if not self._connection.poll(patience_s):
                return ("broken", AdvisorError.exit_code, f"no answer within {patience_s:.0f} s")
            answer: Answer = self._connection.recv()
        except (EOFError, OSError):
            return ("broken", AdvisorError.exit_code, self._how_it_died())
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
        """As `Runner` has it: interrupt the process, and kill it where it does not listen."""
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
        sweep()  # where it was killed, its folder and its MPS daemon are left


def understood(answer: Answer) -> Any:
    """What a runner's answer holds.

    Raises:
        InvalidInput: It refused what the user asked for.
        GpuUnavailable: It has no GPU to measure on.
        AdvisorError: It cannot go on.
    """
    if answer[0] == "done":
        return answer[1]
    if answer[0] == "refused":
        raise InvalidInput(answer[1])
    raise (GpuUnavailable if answer[1] == GpuUnavailable.exit_code else AdvisorError)(answer[2])


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
