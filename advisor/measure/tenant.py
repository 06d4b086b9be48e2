"""A program that is measured, seen from the process that starts it: requests sent, answers read.

Every program is a command with a hook in it. If it dies or runs out of memory, nothing is raised:
it has `ended`, and answers `Ended` to every further request.
"""

import json
import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.measure.hook_folder import hook_variables
from advisor.measure.script import StartedScript
from advisor.workload.spec import Script, Workload

LOAD_S = 300.0
"""Seconds that a program may take no step: a big model on a busy GPU, imports from a slow disk."""

# How long a tenant's queued work may take after the moment at which it stops training.
GRACE_S = 120.0

SAY_S = 20.0
"""Seconds between two lines on what is waited for."""

ENDING_S = 5.0
"""More seconds than a process that has hung up, or whose command has ended, takes to end."""

Outcome = Literal["out-of-memory", "died"]


@dataclass(frozen=True, slots=True)
class Ended:
    """The early end of a tenant."""

    outcome: Outcome
    detail: str


Answer = dict[str, Any] | Ended


def living(answer: Answer, remedy: str = "") -> dict[str, Any]:
    """Return `answer` if its tenant still runs; else raise AdvisorError, ending with `remedy`."""
    if isinstance(answer, Ended):
        raise AdvisorError(f"{answer.outcome}: {answer.detail}{remedy}")
    return answer


def error_of(code: int, message: str) -> AdvisorError:
    """Return the error of another process, by its exit code."""
    kinds = {kind.exit_code: kind for kind in (InvalidInput, GpuUnavailable)}
    return kinds.get(code, AdvisorError)(message)


@dataclass(frozen=True, slots=True)
class TenantSetup:
    """The command of a tenant, and its device.

    Attributes:
        device: The kind of device, as torch names it.
        environment: Set before CUDA is initialised; the caller's MPS variables are dropped.
        script: Its command.
        batch: Examples of one of its steps, if it prints its pace.
        ours: Whether the command is the advisor's own, and needs no mirror of its folder.
        line: What a command of the zoo reads once it has imported torch.
    """

    device: Literal["cuda", "cpu"]
    environment: Mapping[str, str]
    script: Script
    batch: int = 1
    ours: bool = False
    line: str | None = None


def setup_of(
    workload: Workload, device: Literal["cuda", "cpu"], environment: Mapping[str, str]
) -> TenantSetup:
    """Return the setup of a tenant that trains `workload`: its script, or a command of the zoo."""
    if workload.script is not None:
        return TenantSetup(device, environment, workload.script, workload.batch)
    fields = {name: value for name, value in asdict(workload).items() if name != "script"}
    line = json.dumps({**fields, "environment": dict(environment)})
    return replace(zoo_setup(device), line=line)


def zoo_setup(device: Literal["cuda", "cpu"]) -> TenantSetup:
    """Return the setup of a command of the zoo that waits for what to train."""
    script = _own("advisor.zoo", "--device", device, "-")
    return TenantSetup(device, {}, script, ours=True, line="")


def server_of(
    verbs: str, device: Literal["cuda", "cpu"], environment: Mapping[str, str]
) -> TenantSetup:
    """Return the setup of a program of ours that answers `verbs`, ``"module:NAME"``."""
    return TenantSetup(device, environment, _own("advisor.measure", "serve", verbs), ours=True)


# A tenant has one thread of its own for mathematics, as most programs on a GPU need.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _own(module: str, *words: str) -> Script:
    return Script(
        command=(sys.executable, "-m", module, *words), folder="/", environment=_ONE_THREAD
    )


class Tenant(ABC):
    """One tenant, from the first request until it is stopped or ends by itself.

    Attributes:
        pid: Its process; 0 before it has been started.
        versions: ``torch``, ``cuda`` and ``timm``, each a version or None; empty if it ended
            before it sent them, or is not a Python.
        ended: None while it lives.
    """

    def __init__(self, setup: TenantSetup, folder: Path) -> None:
        self.setup = setup
        self.pid = 0
        self.versions: dict[str, str | None] = {}
        self.ended: Ended | None = None
        self.folder = Path(mkdtemp(prefix="s", dir=folder))
        self.named = setup.script.file or setup.script.command[0]
        self._listener = socket.socket(socket.AF_UNIX)
        self._started: StartedScript | None = None

    @abstractmethod
    def send(self, verb: str, **arguments: Any) -> None:
        """Send a request without waiting; `receive` returns the answer."""

    @abstractmethod
    def receive(self, timeout_s: float) -> Answer:
        """Return its answer, or how it ended; end it if it does not answer in time.

        Raises:
            InvalidInput: It refused the user's request.
        """

    def ask(self, verb: str, timeout_s: float = LOAD_S, **arguments: Any) -> Answer:
        """Send a request and wait for the answer."""
        self.send(verb, **arguments)
        return self.receive(timeout_s)

    def let_end(self) -> None:
        """Let it end, once it has answered that it is ``over``.

        Raises:
            AdvisorError: It ends with an error.
        """
        wait([self.running.exited], ENDING_S)
        if self.running.exit_code not in (None, 0):
            raise AdvisorError(f"{self.named} {self.running.how_it_ended()}")

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C would, once."""
        if self._started is not None:
            self._started.interrupt()

    def end_by(self, deadline: float) -> None:
        """Wait until `deadline` (monotonic seconds) for it to end, then end it by force."""
        self._listener.close()
        if self._started is not None:
            self._started.end_by(deadline)
            self._started = None

    @property
    def running(self) -> StartedScript:
        """Its processes."""
        if self._started is None:
            raise AdvisorError(f"{self.named} was not started")
        return self._started

    def start(
        self, settings: Mapping[str, object], added: Mapping[str, str], *, piped: bool
    ) -> None:
        """Start it with a hook that connects to this tenant."""
        address = str(self.folder / "socket")
        self._listener.bind(address)
        self._listener.listen()
        environment = {**os.environ, **self.setup.script.environment}
        hook = hook_variables(self.folder / "hook", {"address": address, **settings}, environment)
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.setup.device == "cpu" else {}
        temporary = {"TMPDIR": str(self.folder)} if self.setup.ours else {}
        self._started = StartedScript(
            self.setup.script, self.folder,
            {**hidden, **self.setup.environment, **temporary, **added, **hook},
            mirrored=not self.setup.ours, piped=piped, writable=self.setup.line is not None,
        )  # fmt: skip
        self.pid = self._started.pid

    def accept(self) -> tuple[Connection, dict[str, Any]] | None:
        """Accept one of its processes that connects: its process and versions; None if it ends."""
        connection = Connection(self._listener.accept()[0].detach())
        try:
            return connection, json.loads(connection.recv_bytes())
        except (EOFError, OSError):  # its end will be seen
            connection.close()
            return None

    def parsed(self, message: Any) -> Answer | None:
        """Return the answer in its message; None if there is none."""
        match message:
            case ["done", dict() as value]:
                return value
            case ["refused", int() as code, str() as text]:
                raise error_of(code, text)
            case ["ended", "out-of-memory" | "died" as outcome, str() as detail]:
                return self.end(outcome, detail)
            case _:
                return None

    def end(self, outcome: Outcome, detail: str) -> Ended:
        """Note how it ended."""
        self.ended = Ended(outcome, detail)
        return self.ended
