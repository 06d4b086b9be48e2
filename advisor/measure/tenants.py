"""Programs that are measured, seen from the process that starts them: requests sent, answers read.

    with tenants_on(setups, folder) as tenants:
        answers = ask_all(tenants, "load", [{}] * len(tenants))

Every program is a command with a hook in it, or one that prints its pace
(`advisor.measure.printing`). If it dies or runs out of memory, nothing is raised: it has `ended`,
and answers `Ended` to every further request.
"""

import json
import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic
from typing import Any, Literal

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.measure.inside.hook import VARIABLE
from advisor.measure.process import say
from advisor.measure.script import StartedScript
from advisor.workload.spec import Script, Workload

LOAD_S = 300.0
"""Seconds that a program may take no step: a big model on a busy GPU, imports from a slow disk."""

# How long a tenant's queued work may take after the moment at which it stops training.
GRACE_S = 120.0

# How long tenants have to end after they were asked to stop.
_POLITE_S = 3.0

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
    """

    device: Literal["cuda", "cpu"]
    environment: Mapping[str, str]
    script: Script
    batch: int = 1
    ours: bool = False


def setup_of(
    workload: Workload, device: Literal["cuda", "cpu"], environment: Mapping[str, str]
) -> TenantSetup:
    """Return the setup of a tenant that trains `workload`: its script, or a command of the zoo."""
    if workload.script is not None:
        return TenantSetup(device, environment, workload.script, workload.batch)
    fields = {name: value for name, value in asdict(workload).items() if name != "script"}
    script = _own("advisor.zoo", "--device", device, json.dumps(fields))
    return TenantSetup(device, environment, script, ours=True)


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


@contextmanager
def tenants_on(setups: Sequence[TenantSetup], folder: Path) -> Iterator[tuple["Tenant", ...]]:
    """Make tenants, one for each of `setups`, ready for requests; end all when the block ends.

    The first request starts them. Their temporary files go to `folder`, a short path.
    """
    from advisor.measure.printing import PrintingTenant

    tenants: list[Tenant] = []
    try:
        for setup in setups:
            kind = SteppingTenant if setup.script.by_steps else PrintingTenant
            tenants.append(kind(setup, folder))
        yield tuple(tenants)
    finally:
        for tenant in tenants:
            tenant.interrupt()
        deadline = monotonic() + _POLITE_S
        for tenant in tenants:
            tenant.end_by(deadline)


def ask_all(
    tenants: Sequence["Tenant"],
    verb: str,
    arguments: Sequence[Mapping[str, Any]],
    timeout_s: float = LOAD_S,
) -> tuple[Answer, ...]:
    """Send every tenant a request at once, then wait for all answers, in the tenants' order."""
    for tenant, named in zip(tenants, arguments, strict=True):
        tenant.send(verb, **named)
    deadline = monotonic() + timeout_s
    return tuple(tenant.receive(max(0.0, deadline - monotonic())) for tenant in tenants)


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
        environment = self.setup.script.environment
        pythonpath = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        hook = hook_variables(self.folder / "hook", {"address": address, **settings}, pythonpath)
        temporary = {"TMPDIR": str(self.folder)} if self.setup.ours else {}
        self._started = StartedScript(
            self.setup.script, self.folder, mirrored=not self.setup.ours, piped=piped,
            environment={**self.setup.environment, **temporary, **added, **hook},
            hidden={"CUDA_VISIBLE_DEVICES": ""} if self.setup.device == "cpu" else {},
        )  # fmt: skip
        self.pid = self._started.pid

    def accept(self) -> Connection:
        """Take the connection of one of its processes that waits for that."""
        return Connection(self._listener.accept()[0].detach())

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


_INSIDE = Path(__file__).resolve().parent / "inside"


def hook_variables(
    folder: Path, settings: Mapping[str, object], pythonpath: str | None
) -> dict[str, str]:
    """Make the `folder` of a program's hook; return the variables by which it attaches to torch.

    `settings` are as for `advisor.measure.inside.hook.VARIABLE`; `pythonpath` is the program's own.
    """
    folder.mkdir(exist_ok=True)
    targets = {
        "sitecustomize.py": _INSIDE / "sitecustomize.py", "advisor_inside": _INSIDE,
        "advisor": _INSIDE.parents[1],  # for `advisor.step()`, and for our own commands
    }  # fmt: skip
    for name, target in targets.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    paths = ":".join(filter(None, [str(folder), pythonpath]))
    return {VARIABLE: json.dumps(settings), "PYTHONPATH": paths}


_NOT_BY_STEPS = "give the pattern of the pace that it prints: --throughput REGEX"
_NO_STEPS = (
    f"Steps are found where an optimizer of torch steps. If it has none, call advisor.step() once "
    f"a step, or {_NOT_BY_STEPS}"
)
_NO_TORCH = (
    f"No Python of it imported torch where that can be seen: python -I and -E, sudo and containers "
    f"hide it. If it does not use torch, {_NOT_BY_STEPS}"
)
_NOT_SEEN = f"Start it by another Python or torch, or {_NOT_BY_STEPS}"
_TOO_SHORT = "Let it train for longer: a measurement takes about half a minute of steps"

# How often we look whether the hook could be set, and say what is waited for.
_LOOK_S, _SAY_S = 1.0, 20.0


class SteppingTenant(Tenant):
    """A program whose steps a hook in its process finds; it connects with its first step."""

    def __init__(self, setup: TenantSetup, folder: Path) -> None:
        super().__init__(setup, folder)
        self._hook = self.folder / "hook"
        self._connection: Connection | None = None
        self._unsent: bytes | None = None

    def send(self, verb: str, **arguments: Any) -> None:
        if self.ended is not None:
            return
        if self._started is None:
            self.start({"folder": "" if self.setup.ours else str(self.folder)}, {}, piped=False)
        message = json.dumps({"verb": verb, "arguments": arguments}).encode()
        if self._connection is None:
            self._unsent = message
        else:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._connection.send_bytes(message)

    def receive(self, timeout_s: float) -> Answer:
        if self.ended is not None:
            return self.ended
        began = monotonic()
        say_at = began + _SAY_S
        while True:
            sources: list[Any] = [self._listener, self.running.exited]
            if self._connection is not None:
                sources.append(self._connection)
            left_s = began + timeout_s - monotonic()
            ready = wait(sources, min(_LOOK_S, max(0.0, left_s)))
            if not ready:
                if left_s <= 0 or self._hook_failed:
                    return self._late(timeout_s)
                if monotonic() >= say_at:
                    say(f"  {self._waited_for(monotonic() - began, timeout_s)}")
                    say_at += _SAY_S
            elif self._listener in ready:
                self._connect()
            else:
                return self._answer()

    def _connect(self) -> None:
        connection = self.accept()
        try:
            hello = json.loads(connection.recv_bytes())
        except (EOFError, OSError):  # it has just ended, and its end will be seen
            connection.close()
            return
        if self._connection is not None:
            connection.close()
            raise InvalidInput(
                f"{self.named} trains in several processes ({self.pid}, {hello['pid']}), and "
                f"advisor measures one, on one GPU. Start a single rank, e.g. --nproc_per_node 1."
            )
        self._connection, self.pid = connection, hello["pid"]
        self.versions = hello.get("versions", {})
        if self._unsent is not None:
            connection.send_bytes(self._unsent)

    def _answer(self) -> Answer:
        """Its answer, or how it ended."""
        message = None
        if self._connection is not None:
            with suppress(EOFError, OSError):
                message = json.loads(self._connection.recv_bytes())
        answer = self.parsed(message)
        if answer is None:
            return self._died()
        if not isinstance(answer, Ended) and "versions" in answer:
            self.versions = answer["versions"]
            if answer["device"] != self.setup.device:
                raise InvalidInput(
                    f"{self.named} trains on the {'CPU' if answer['device'] == 'cpu' else 'GPU'}, "
                    f"and was to be measured on the other. Move its model to the device, or give "
                    f"another --device."
                )
        return answer

    def _died(self) -> Ended:
        how, succeeded = self.running.how_it_ended(), self.running.succeeded
        if self.running.out_of_memory:
            return self.end("out-of-memory", self.running.error_line())
        if self.setup.ours:
            code, line = self.running.exit_code, self.running.error_line()
            if self._connection is None and code in (2, 4):  # `advisor.errors` has these
                raise error_of(code, line.removeprefix("error: "))
            return self.end("died", how)
        if self._connection is None:
            remedy = f". {self._no_steps}" if succeeded or self._hook_failed else ""
            return self.end("died", f"{self.named} trained no step and {how}{remedy}")
        return self.end("died", f"{self.named} {how}{f'. {_TOO_SHORT}' if succeeded else ''}")

    def _late(self, timeout_s: float) -> Ended:
        line = self.running.error_line()
        self.end_by(monotonic())
        if self.setup.ours:
            why = f"gave no answer within {timeout_s:.0f} s and was ended{line and '; ' + line}"
        elif self._hook_failed:
            why = f"cannot be seen to step. {self._no_steps}"
        elif self._connection is None:
            printed = f"; it printed: {line}" if line else ""
            why = f"took no step within {timeout_s:.0f} s{printed}. {self._no_steps}"
        else:
            why = f"took no step for {timeout_s:.0f} s and was ended"
        return self.end("died", f"{self.named} {why}")

    def _waited_for(self, waited_s: float, timeout_s: float) -> str:
        """What is waited for, and what was seen."""
        line = self.running.error_line()
        printed = f"; it printed last: {line}" if line else ""
        if self._connection is not None:
            why = "no step"
        elif (self._hook / "attached").exists():
            why = "torch is imported, and no optimizer has stepped yet"
        else:
            why = "no Python of it has imported torch yet"
        return f"{self.named}: {why} after {waited_s:.0f} s of {timeout_s:.0f}{printed}"

    @property
    def _hook_failed(self) -> bool:
        """True if the hook could not be set in a Python of the program, nor in another."""
        return self._connection is None and (self._hook / "error").is_file()

    @property
    def _no_steps(self) -> str:
        """Why no step may have been seen."""
        if self._hook_failed:
            return f"The hook could not be set: {(self._hook / 'error').read_text()}. {_NOT_SEEN}"
        return _NO_STEPS if (self._hook / "attached").exists() else _NO_TORCH

    def interrupt(self) -> None:
        if self._connection is not None:
            self._connection.close()  # its hook, while it waits, takes this for Ctrl-C, too
        super().interrupt()

    def end_by(self, deadline: float) -> None:
        self.interrupt()
        super().end_by(deadline)
