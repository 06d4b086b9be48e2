"""A program that is measured, seen from the process that starts it: requests sent, answers read.

A death or a lack of memory raises nothing while it is asked: the tenant answers `Ended` from then
on. Only who waits for its end, by `let_end`, is told by an error that it failed.
"""

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic
from typing import Any, Literal

import psutil

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput, require_extra
from advisor.measure.own_files import Exposed, Place, place_for
from advisor.measure.process import say
from advisor.measure.script import (
    StartedScript,
    explain_end,
    first_of_several,
    hook_variables,
    why_unseen,
)
from advisor.workload.spec import Script, Workload

LOAD_S = 300.0
"""Seconds that a program may take no step: a big model on a busy GPU, imports from a slow disk."""

GRACE_S = 120.0
"""Seconds that a tenant's queued work may take after the moment at which it stops training."""

# Between two lines on what is waited for, and between two looks whether the hook could be set.
_SAY_S, _LOOK_S = 20.0, 1.0

ENDING_S = 5.0
"""More seconds than a process that has hung up, or whose command has ended, takes to end."""

Outcome = Literal["out-of-memory", "failed"]


@dataclass(frozen=True, slots=True)
class Ended:
    """The early end of a tenant."""

    outcome: Outcome
    detail: str


Answer = dict[str, Any] | Ended


def living(answer: Answer, remedy: str = "") -> dict[str, Any]:
    """Return `answer` if its tenant still runs; else raise AdvisorError, ending with `remedy`."""
    if isinstance(answer, Ended):
        what = "out of memory: " if answer.outcome == "out-of-memory" else ""
        raise AdvisorError(f"{what}{answer.detail}{remedy}")
    return answer


def error_of(code: int, message: str) -> AdvisorError:
    """Return the error of another process, by its exit code."""
    kinds = {kind.exit_code: kind for kind in (InvalidInput, GpuUnavailable)}
    return kinds.get(code, AdvisorError)(message)


@dataclass(frozen=True, slots=True)
class TenantSetup:
    """The command of a tenant, and its device.

    Attributes:
        environment: Set before CUDA is initialised; the caller's MPS variables are dropped.
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
    timm = ["timm"] if workload.source == "timm" else []
    require_extra(f"measuring {workload.name}", "profile", "torch", *timm)
    fields = {name: value for name, value in asdict(workload).items() if name != "script"}
    line = json.dumps({**fields, "environment": dict(environment)})
    return replace(zoo_setup(device), environment=environment, line=line)


def zoo_setup(device: Literal["cuda", "cpu"]) -> TenantSetup:
    """Return the setup of a command of the zoo that waits for what to train."""
    return _own(device, {}, "advisor.zoo", "--device", device, "-", line="")


def server_of(
    verbs: str, device: Literal["cuda", "cpu"], environment: Mapping[str, str]
) -> TenantSetup:
    """Return the setup of a program of ours that answers `verbs`, ``"module:NAME"``."""
    require_extra("measuring this GPU", "profile", "torch")
    return _own(device, environment, "advisor.measure.process", "serve", verbs)


def _own(
    device: Literal["cuda", "cpu"],
    environment: Mapping[str, str],
    *words: str,
    line: str | None = None,
) -> TenantSetup:
    # One thread of its own for mathematics, as most programs on a GPU need.
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
    script = Script(command=(sys.executable, "-m", *words), folder="/", environment=threads)
    return TenantSetup(device, environment, script, ours=True, line=line)


_NOT_BY_STEPS = "pass the pattern of the pace that it prints: --throughput REGEX"
_NO_STEPS = (
    "advisor finds steps where an optimizer of torch steps, or else where a backward pass ends. "
    f"If the script has neither, call advisor.step() once a step, or {_NOT_BY_STEPS}"
)
_NO_TORCH = (
    "advisor saw no Python that imports torch: sudo, containers, schedulers and the background "
    f"hide it. Pass the command of the training. If it does not use torch, {_NOT_BY_STEPS}"
)
_NOT_SEEN = f"Start it by another Python or torch, or {_NOT_BY_STEPS}"
_GOES_ON = "Its command goes on. Pass the command of the training alone"
_TOO_SHORT = "Let it train for longer: a measurement takes about half a minute of steps"


class Tenant:
    """A program whose steps a hook in its process finds; it connects with its first step.

    Attributes:
        pid: Its process; 0 before it has been started.
        versions: ``python``, ``torch``, ``cuda`` and ``timm``, each a version or None; empty before
            it connected.
        ended: None while it lives.
        exposed: The files of the user's that it could change.
    """

    def __init__(self, setup: TenantSetup, folder: Path) -> None:
        self.setup = setup
        self.pid = 0
        self.versions: dict[str, str | None] = {}
        self.ended: Ended | None = None
        self.exposed: Exposed | None = None
        self.folder = Path(mkdtemp(prefix="s", dir=folder))
        self.named = setup.script.file or setup.script.command[0]
        self.listener = socket.socket(socket.AF_UNIX)
        self.connections: list[Connection] = []
        self._hook = self.folder / "hook"
        self._started: StartedScript | None = None
        self._request: bytes | None = None

    def send(self, verb: str, **arguments: Any) -> None:
        """Send a request without waiting; `receive` returns the answer. The first one starts it."""
        if self.ended is not None:
            return
        if self._started is None:
            self.start()
        if self._request is None and self.setup.line:
            self.running.write_line(self.setup.line)
        self._request = json.dumps({"verb": verb, "arguments": arguments}).encode()
        self._deliver()

    def _deliver(self) -> None:
        if self.connections and self._request is not None:
            with suppress(BrokenPipeError, ConnectionResetError):
                self.connections[0].send_bytes(self._request)

    def receive(self, timeout_s: float) -> Answer:
        """Return its answer, or how it ended; end it if it does not answer in time."""
        if self.ended is not None:
            return self.ended
        for left_s in self.patience(timeout_s):
            sources: list[Any] = [self.listener, self.running.exited, *self.connections]
            ready = wait(sources, min(_LOOK_S, left_s))
            if self.listener in ready:
                self._connect()
            elif ready:
                return self._answer()
            elif self._unseen:
                break
        why = self.waits_for(timeout_s, timeout_s)
        if self._unseen:
            why = f"takes no step that advisor can see. {self._unseen}"
        elif not (self.setup.ours or self.connections):
            why = f"{why}. {self._explained or self._no_steps}"
        self.end_by(monotonic())
        return self.end("failed", f"{self.named} {why}")

    def patience(self, timeout_s: float) -> Iterator[float]:
        """Yield the seconds that are left, 0 at last; now and then, say what is waited for."""
        began = monotonic()
        say_at = began + _SAY_S
        left_s = timeout_s
        yield left_s
        while left_s > 0:
            if monotonic() >= say_at:
                say(f"  {self.named} {self.waits_for(monotonic() - began, timeout_s)}")
                say_at += _SAY_S
            left_s = max(0.0, began + timeout_s - monotonic())
            yield left_s

    def ask(self, verb: str, timeout_s: float = LOAD_S, **arguments: Any) -> Answer:
        """Send a request and wait for the answer."""
        self.send(verb, **arguments)
        return self.receive(timeout_s)

    def _hang_up(self) -> None:
        """Close its connections: while its hook waits, it takes that for Ctrl-C."""
        while self.connections:
            self.connections.pop().close()

    def let_end(self) -> None:
        """Let it end, once it has answered that it is ``over``; raise its error, if it has one."""
        self._hang_up()
        wait([self.running.exited], ENDING_S)
        if self.running.exit_code not in (None, 0):
            raise AdvisorError(f"{self.named} {self.running.how_it_ended()}")

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C would, once."""
        self._hang_up()
        if self._started is not None:
            self._started.interrupt()

    def end_by(self, deadline: float) -> None:
        """Wait until `deadline` (monotonic seconds) for it to end, then end it by force."""
        self.interrupt()
        self.listener.close()
        if self._started is not None:
            self._started.end_by(deadline)
            self._started = None

    def first_of_several(self) -> str | None:
        """Return a sentence if it may train several times in turn, of which the first is seen."""
        parent: list[str] = []
        if self.pid != self.running.pid:
            with suppress(psutil.Error):
                starter = psutil.Process(self.pid).parent()
                parent = [] if starter is None else starter.cmdline()
        return first_of_several(self.setup.script, parent)

    @property
    def running(self) -> StartedScript:
        """Its processes."""
        if self._started is None:
            raise AdvisorError(f"{self.named} was not started")
        return self._started

    def start(self) -> None:
        """Start it; with its first step it waits for requests, unless it only prints its pace."""
        script, ours, printing = self.setup.script, self.setup.ours, not self.setup.script.by_steps
        address = str(self.folder / "socket")
        self.listener.bind(address)
        self.listener.listen()
        place = Place(self.folder) if ours else place_for(script, self.folder)
        self.exposed = place.exposed
        guarded = "" if ours or place.overlays else str(self.folder)
        settings = {"aside": True} if printing else {"folder": guarded}
        added = hook_variables(
            self._hook, {"address": address, **settings}, {**os.environ, **script.environment}
        )
        if ours:
            added["TMPDIR"] = str(self.folder)
        if printing:  # unbuffered, so that a figure is seen when it is printed
            added["PYTHONUNBUFFERED"] = "1"
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.setup.device == "cpu" else {}
        self._started = StartedScript(
            script,
            self.folder,
            {**hidden, **self.setup.environment, **added},
            place=place,
            piped=printing,
            writable=self.setup.line is not None,
        )
        self.pid = self._started.pid

    def accept(self) -> dict[str, Any] | None:
        """Connect to a process of it; return its pid and versions, or None if it has just ended."""
        connection = Connection(self.listener.accept()[0].detach())
        try:
            hello: dict[str, Any] = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            connection.close()
            return None
        self.connections.append(connection)
        return hello

    def _connect(self) -> None:
        if (hello := self.accept()) is None:
            return
        if len(self.connections) > 1 and not psutil.pid_exists(self.pid):
            return  # the next training, e.g. of another fold, after the measured one has ended
        if len(self.connections) > 1:
            remedy = self._explained or (
                "Start a single training, of one setting and one rank, e.g. --nproc_per_node 1"
            )
            raise InvalidInput(
                f"{self.named} trains in several processes ({self.pid}, {hello['pid']}), and "
                f"advisor measures one, on one GPU. {remedy}."
            )
        self.pid, self.versions = hello["pid"], hello["versions"]
        self._deliver()

    def _answer(self) -> Answer:
        message = None
        if self.connections and self.connections[0].poll(ENDING_S):
            with suppress(EOFError, OSError):
                message = json.loads(self.connections[0].recv_bytes())
        answer = self.parsed(message)
        if answer is None:
            return self._ended_by_itself()
        device = self.setup.device if isinstance(answer, Ended) else answer.get("device")
        if device not in (None, self.setup.device):
            raise InvalidInput(
                f"{self.named} trains on the {'CPU' if device == 'cpu' else 'GPU'}, and not on "
                "the device to measure. Move its model to that device, or pass another --device."
            )
        return answer

    def parsed(self, message: Any) -> Answer | None:
        """Return the answer in its message; None if there is none."""
        match message:
            case ["done", dict() as value]:
                return value
            case ["refused", int() as code, str() as text]:
                raise error_of(code, text)
            case ["ended", "out-of-memory" | "failed" as outcome, str() as detail]:
                return self.end(outcome, detail)
            case _:
                return None

    def end(self, outcome: Outcome, detail: str) -> Ended:
        """Note how it ended."""
        self.ended = Ended(outcome, detail)
        return self.ended

    def end_with(self, how: str, remedy: str | None = None) -> Ended:
        """Note how it ended by itself; its command and its output may have a better remedy."""
        if self.running.out_of_memory:
            return self.end("out-of-memory", self.running.error_line())
        remedy = self._explained or remedy
        return self.end("failed", f"{self.named} {how}{f'. {remedy}' if remedy else ''}")

    def _ended_by_itself(self) -> Ended:
        how, code, remedy = self.running.how_it_ended(), self.running.exit_code, None
        if self.setup.ours and not self.running.out_of_memory:
            if not self.connections and code in (2, 4):  # `advisor.errors` has these
                raise error_of(code, self.running.error_line().removeprefix("error: "))
            return self.end("failed", how)
        if not self.connections:
            how = f"ended without a training step: it {how}"
            remedy = self._no_steps if code == 0 or self._unseen else None
        elif code is None:
            how, remedy = "ended its training", _GOES_ON
        elif code == 0:
            remedy = _TOO_SHORT
        return self.end_with(how, remedy)

    def waits_for(self, waited_s: float, timeout_s: float) -> str:
        """Return the end of a sentence on the missing step, and its reason."""
        line, progress = self.running.error_line(), "no Python of it has imported torch yet"
        if self.connections:
            progress = f"its process {self.pid} trains, and is in a long step or in other work"
        elif (self.folder / "passes").exists():
            progress = "it runs backward passes, and its optimizer has not stepped yet"
        elif (self._hook / "attached").exists():
            unseen = why_unseen(self.running.processes(), self._hook)
            progress = (
                f"torch is imported, and no training has begun{f'; {unseen}' if unseen else ''}"
            )
        printed = f"; it printed last: {line}" if line else ""
        return f"took no step within {waited_s:.0f} of {timeout_s:.0f} s: {progress}{printed}"

    @property
    def _unseen(self) -> str | None:
        """Why the hook is in no Python of the program, if that is clear by now."""
        if self.setup.ours or self.connections:
            return None
        if (self._hook / "error").is_file():
            error = (self._hook / "error").read_text()
            return f"The hook could not be set: {error}. {_NOT_SEEN}"
        if (self._hook / "attached").exists():
            return None
        return why_unseen(self.running.processes(), self._hook)

    @property
    def _explained(self) -> str | None:
        return explain_end(self.setup.script, self.running.last_output())

    @property
    def _no_steps(self) -> str:
        attached = (self._hook / "attached").exists()
        return self._unseen or (_NO_STEPS if attached else _NO_TORCH)
