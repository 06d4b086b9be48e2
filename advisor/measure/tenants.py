"""Tenants as seen from the process that starts them: requests are sent, answers received.

    with tenants_on(setups, folder) as tenants:
        answers = ask_all(tenants, "load", [{"workload": each} for each in workloads])

A tenant is a process of ours, a script whose steps a hook finds, or a program that prints its pace.
If it dies or runs out of memory, it does not raise: it has `ended`, and answers `Ended` to every
further request.
"""

import json
import multiprocessing
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import mkdtemp
from threading import Thread
from time import monotonic, sleep, time
from typing import Any

import numpy as np

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.hook import hook_variables
from advisor.measure.process import ended_lines
from advisor.measure.script import StartedScript
from advisor.measure.worker import (
    LOAD_S,
    Answer,
    Ended,
    TenantHandle,
    TenantSetup,
    Verb,
    serve,
    training_verbs,
)
from advisor.workload.spec import Script

Verbs = Callable[[], Mapping[str, Verb]]
"""An importable function that returns the requests that a tenant answers."""

# How long a tenant's queued work may take after the moment at which it stops training.
GRACE_S = 120.0

# How long tenants have to end after they were asked to stop.
_POLITE_S = 3.0


@contextmanager
def tenants_on(
    setups: Sequence[TenantSetup], folder: Path, verbs: Verbs = training_verbs
) -> Iterator[tuple[TenantHandle, ...]]:
    """Start tenants, one for each of `setups`, ready for requests; end all when the block ends.

    Their temporary files and those of the fork server go to `folder`, a short path.
    """
    tenants: list[TenantHandle] = []
    try:
        if any(setup.script is None for setup in setups):
            warm_up(folder)
        for setup in setups:
            if (script := setup.script) is None:
                tenants.append(TenantProcess(setup, verbs))
            else:
                kind = SteppingScript if script.by_steps else WatchedScript
                tenants.append(kind(setup, script, folder, verbs))
        for tenant in tenants:
            if isinstance(tenant, TenantProcess):  # others start with the request to load
                versions = tenant.receive(LOAD_S)
                tenant.versions = {} if isinstance(versions, Ended) else versions
        yield tuple(tenants)
    finally:
        for tenant in tenants:
            tenant.send("stop")
        deadline = monotonic() + _POLITE_S
        for tenant in tenants:
            tenant.end_by(deadline)


def ask_all(
    tenants: Sequence[TenantHandle],
    verb: str,
    arguments: Sequence[Mapping[str, Any]],
    timeout_s: float = LOAD_S,
) -> tuple[Answer, ...]:
    """Send every tenant a request at once, then wait for all answers, in the tenants' order."""
    for tenant, named in zip(tenants, arguments, strict=True):
        tenant.send(verb, **named)
    deadline = monotonic() + timeout_s
    return tuple(tenant.receive(max(0.0, deadline - monotonic())) for tenant in tenants)


@cache
def _context() -> ForkServerContext:
    return multiprocessing.get_context("forkserver")


def warm_up(folder: Path) -> None:
    """Start the fork server if it does not run; it imports while the caller goes on.

    Args:
        folder: For temporary files of this process, the server and all tenants from now on, a
            socket of the server's among them; to be removed when all tenants have ended.
    """
    _context().set_forkserver_preload(["advisor.measure.fork_server"])
    # The default is a folder in /tmp that would stay if this process were killed.
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # type: ignore[attr-defined]
    inherited = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["TMPDIR"]
        if inherited is not None:
            os.environ["TMPDIR"] = inherited


class TenantProcess(TenantHandle):
    """A process of ours, that trains what the zoo builds; its first answer is its versions."""

    def __init__(self, setup: TenantSetup, verbs: Verbs) -> None:
        super().__init__(setup)
        self._connection, its = _context().Pipe()
        self._process = _context().Process(target=serve, args=(its, setup, verbs))
        self._process.start()
        its.close()  # or its death would not close the pipe
        self.pid = self._process.pid or 0

    def send(self, verb: str, **arguments: Any) -> None:
        if self.ended is None:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._connection.send((verb, arguments))

    def receive(self, timeout_s: float) -> Answer:
        if self.ended is not None:
            return self.ended
        if not wait([self._connection, self._process.sentinel], timeout_s):
            self._process.kill()
            return self._end("died", f"gave no answer within {timeout_s:.0f} s and was killed")
        message = None
        with suppress(EOFError, ConnectionResetError):
            message = self._connection.recv() if self._connection.poll() else None
        if (answer := self._parsed(message)) is not None:
            return answer
        self._process.join(5)
        code = self._process.exitcode
        how = f"ended with exit status {code}"
        if code is not None and code < 0:
            with suppress(ValueError):
                how = f"killed by {signal.Signals(-code).name}"
        return self._end("died", how)

    def end_by(self, deadline: float) -> None:
        self._process.join(max(0.0, deadline - monotonic()))
        for force in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                force()
                self._process.join(2)
        self._connection.close()


class ScriptTenant(TenantHandle):
    """A program of the user's, started by the request to load in a folder of its own.

    A hook or a thread in it answers the requests that `verbs` returns.
    """

    def __init__(self, setup: TenantSetup, script: Script, folder: Path, verbs: Verbs) -> None:
        super().__init__(setup)
        self._script = script
        self._program = script.command[0]
        self._folder = Path(mkdtemp(prefix="s", dir=folder))
        self._verbs = f"{verbs.__module__}:{verbs.__qualname__}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._started: StartedScript | None = None

    def _start(
        self, settings: Mapping[str, object], added: Mapping[str, str], *, piped: bool
    ) -> StartedScript:
        """Start it with a hook that connects to this tenant."""
        address = str(self._folder / "socket")
        self._listener.bind(address)
        self._listener.listen()
        settings = {"address": address, "verbs": self._verbs, **settings}
        own = self._script.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        added = {**added, **hook_variables(self._folder / "hook", settings, own)}
        self._started = StartedScript(self._script, self.setup, self._folder, added, piped=piped)
        self.pid = self._started.pid
        return self._started

    @property
    def _running(self) -> StartedScript:
        if self._started is None:
            raise AdvisorError(f"{self._program} was not started")
        return self._started

    def pin(self, cores: tuple[int, ...]) -> None:
        super().pin(cores)
        if self._started is not None:
            self._started.pin(cores)

    def end_by(self, deadline: float) -> None:
        self._listener.close()
        if self._started is not None:
            self._started.end_by(deadline)
            self._started = None


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

# How often we check whether the hook could not be set.
_LOOK_S = 1.0


class SteppingScript(ScriptTenant):
    """A script whose steps a hook in its process finds; it connects with its first step."""

    def __init__(self, setup: TenantSetup, script: Script, folder: Path, verbs: Verbs) -> None:
        super().__init__(setup, script, folder, verbs)
        self._hook = self._folder / "hook"
        self._named = script.file or self._program
        self._connection: Connection | None = None
        self._unsent: bytes | None = None

    def send(self, verb: str, **arguments: Any) -> None:
        if verb == "stop":
            self._interrupt()
        if self.ended is not None or verb == "stop":
            return
        if self._started is None:
            self._start({"folder": str(self._folder)}, {}, piped=False)
            arguments.pop("workload")
        message = json.dumps({"verb": verb, "arguments": arguments}).encode()
        if self._connection is None:
            self._unsent = message
        else:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._connection.send_bytes(message)

    def receive(self, timeout_s: float) -> Answer:
        if self.ended is not None:
            return self.ended
        until = monotonic() + timeout_s
        while True:
            sources: list[Any] = [self._listener, self._running.exited]
            if self._connection is not None:
                sources.append(self._connection)
            ready = wait(sources, min(_LOOK_S, max(0.0, until - monotonic())))
            if not ready:
                if monotonic() >= until or self._hook_failed:
                    return self._late(timeout_s)
            elif self._listener in ready:
                self._accept()
            else:
                return self._answer()

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        connection = Connection(accepted.detach())
        try:
            pid = json.loads(connection.recv_bytes())["pid"]
        except (EOFError, OSError):  # it has just ended, and its end will be seen
            connection.close()
            return
        if self._connection is not None:
            connection.close()
            raise InvalidInput(
                f"{self._named} trains in several processes ({self.pid}, {pid}), and advisor "
                f"measures one, on one GPU. Start a single rank, e.g. --nproc_per_node 1."
            )
        self._connection, self.pid = connection, pid
        if self._unsent is not None:
            connection.send_bytes(self._unsent)

    def _answer(self) -> Answer:
        """The answer of its hook, or how it ended."""
        message = None
        if self._connection is not None:
            with suppress(EOFError, OSError):
                message = json.loads(self._connection.recv_bytes())
        answer = self._parsed(message)
        if answer is None:
            return self._died()
        if not isinstance(answer, Ended) and "versions" in answer:
            self.versions = answer["versions"]
            if answer["device"] != self.setup.device:
                raise InvalidInput(
                    f"{self._named} trains on the {'CPU' if answer['device'] == 'cpu' else 'GPU'}, "
                    f"and was to be measured on the other. Move its model to the device, or give "
                    f"another --device."
                )
        return answer

    def _died(self) -> Ended:
        how, succeeded = self._running.how_it_ended(), self._running.succeeded
        if self._running.out_of_memory:
            return self._end("out-of-memory", self._running.error_line())
        if self._connection is None:
            remedy = f". {self._no_steps}" if succeeded or self._hook_failed else ""
            return self._end("died", f"{self._named} trained no step and {how}{remedy}")
        return self._end("died", f"{self._named} {how}{f'. {_TOO_SHORT}' if succeeded else ''}")

    def _late(self, timeout_s: float) -> Ended:
        line = self._running.error_line()
        self.end_by(monotonic())
        if self._hook_failed:
            why = f"cannot be seen to step. {self._no_steps}"
        elif self._connection is None:
            printed = f"; it printed: {line}" if line else ""
            why = f"took no step within {timeout_s:.0f} s{printed}. {self._no_steps}"
        else:
            why = f"took no step for {timeout_s:.0f} s and was ended"
        return self._end("died", f"{self._named} {why}")

    @property
    def _hook_failed(self) -> bool:
        """True if the hook could not be set in a Python of the script, nor in another."""
        return self._connection is None and (self._hook / "error").is_file()

    @property
    def _no_steps(self) -> str:
        """Why no step may have been seen."""
        if self._hook_failed:
            return f"The hook could not be set: {(self._hook / 'error').read_text()}. {_NOT_SEEN}"
        return _NO_STEPS if (self._hook / "attached").exists() else _NO_TORCH

    def _interrupt(self) -> None:
        if self._connection is not None:
            self._connection.close()  # its hook, while it waits, takes this for Ctrl-C, too
        if self._started is not None:
            self._started.interrupt()

    def end_by(self, deadline: float) -> None:
        self._interrupt()
        super().end_by(deadline)


# Figures of its pace before it counts as under way: the first contains its start.
_FIRST_FIGURES = 3

_WATCH_S = 0.05
_CHUNK_BYTES = 2**16

# A process that has hung up takes less to have ended.
_ENDING_S = 5.0


class WatchedScript(ScriptTenant):
    """A program that runs from the request to load on, whether or not others are ready.

    It answers ``run`` and ``train`` from what it printed. Other requests, which need no step, go to
    the threads in those of its processes that run Python and import torch: the answer is the first
    that holds anything.
    """

    def __init__(self, setup: TenantSetup, script: Script, folder: Path, verbs: Verbs) -> None:
        super().__init__(setup, script, folder, verbs)
        self._inside: list[Connection] = []
        self._began_at = 0.0
        self._began_cpu_s = 0.0
        self._batch = 1
        # When each figure came, seconds of the wall clock, and examples a second until then.
        self._figures: list[tuple[float, float]] = []
        self._request: tuple[str, dict[str, Any]] = ("", {})

    def send(self, verb: str, **arguments: Any) -> None:
        self._request = (verb, arguments)
        if verb == "stop" and self._started is not None:
            self._started.interrupt()
        if self.ended is not None or verb == "stop":
            return
        if self._started is None:
            self._batch = arguments["workload"].batch
            self._began_at = time()
            # Unbuffered, so that a figure is seen when it is printed.
            started = self._start({"aside": True}, {"PYTHONUNBUFFERED": "1"}, piped=True)
            Thread(target=self._read, args=(started,), daemon=True).start()
        self._began_cpu_s = self._running.cpu_s()

    def _read(self, started: StartedScript) -> None:
        """Keep each figure of its pace, until its output ends."""
        pattern = re.compile((self._script.throughput or "").encode())
        assert started.output is not None
        held = b""
        with suppress(OSError, ValueError), started.log.open("ab", buffering=0) as log:
            while chunk := os.read(started.output.fileno(), _CHUNK_BYTES):
                log.write(chunk)
                lines, held = ended_lines(held + chunk)
                for line in lines:
                    self._note(pattern.search(line))
        self._note(pattern.search(held))

    def _note(self, figure: "re.Match[bytes] | None") -> None:
        if figure is not None:
            with suppress(ValueError):
                self._figures.append((time(), max(1e-9, float(figure[1]))))

    def receive(self, timeout_s: float) -> Answer:
        if self.ended is not None:
            return self.ended
        verb, arguments = self._request
        match verb:
            case "load":
                return self._under_way(timeout_s)
            case "check_host":
                return {"check_s": None}
            case "run" | "train":
                until = monotonic() + timeout_s
                return self._ran(arguments["start_at"], arguments["stop_at"], until)
            case _:
                return self._answered_inside(verb, arguments, monotonic() + timeout_s)

    def _under_way(self, timeout_s: float) -> Answer:
        until = monotonic() + timeout_s
        while len(self._figures) < _FIRST_FIGURES and monotonic() < until:
            if wait([self._running.exited], _WATCH_S):
                sleep(_WATCH_S)  # for its last lines
                break
        if len(self._figures) >= _FIRST_FIGURES:
            step_s = self._batch / self._figures[-1][1]
            answer = {"pid": self.pid, "sms": None, "warm_step_s": step_s}
            return answer | {"memory": self._memory()}
        if (ended := self._gone()) is not None:
            return ended
        line = self._running.error_line()
        self.end_by(monotonic())
        return self._end(
            "died",
            f"{self._program} printed {len(self._figures)} figures that match "
            f"{self._script.throughput!r} within {timeout_s:.0f} s, and {_FIRST_FIGURES} are "
            f"needed; it printed last: {line}",
        )

    def _ran(self, start_at: float, stop_at: float, until: float) -> Answer:
        """Its steps between two moments, once it has printed the figure that covers the end."""
        sleep(max(0.0, stop_at - time()))
        while self._figures[-1][0] < stop_at:
            if (ended := self._gone()) is not None:
                return ended
            if monotonic() > until:
                silent_s = time() - self._figures[-1][0]
                self.end_by(monotonic())
                silence = f"printed no figure of its pace for {silent_s:.0f} s"
                return self._end("died", f"{self._program} {silence}")
            sleep(_WATCH_S)
        return {
            "completed_at": self._completed_at(start_at, stop_at),
            "cpu_s": self._running.cpu_s() - self._began_cpu_s,
            "memory": self._memory(),
        }

    def _completed_at(self, start_at: float, stop_at: float) -> list[float]:
        """Moments at which steps ended between two others, at the pace of the next figure."""
        figures = tuple(self._figures)  # the thread adds more
        moments = np.array([self._began_at, *(moment for moment, _ in figures)])
        rates = np.array([rate for _, rate in figures]) / self._batch
        done = np.concatenate([[0.0], np.cumsum(np.diff(moments) * rates)])
        first, last = np.interp([start_at, stop_at], moments, done)
        steps = np.arange(1.0, max(1.0, last - first) + 1.0)
        ends = np.interp(first + steps, done, moments, right=float(moments[-1]))
        return list(np.maximum(ends, start_at + 1e-9).tolist())

    def _answered_inside(self, verb: str, arguments: dict[str, Any], until: float) -> Answer:
        """The first answer of its processes; empty if none has one in time."""
        while wait([self._listener], 0):
            self._inside.append(Connection(self._listener.accept()[0].detach()))
        request = json.dumps({"verb": verb, "arguments": arguments}).encode()
        for connection in self._inside:
            message = None
            try:
                connection.send_bytes(request)
                if connection in wait([connection, self._running.exited], until - monotonic()):
                    message = json.loads(connection.recv_bytes())
            except (OSError, EOFError):  # that process is ending, and the program perhaps with it
                wait([self._running.exited], _ENDING_S)
            if answer := self._parsed(message):
                return answer
        return self._gone() or {}

    def _gone(self) -> Ended | None:
        """Its end, if it has ended."""
        if not wait([self._running.exited], 0):
            return None
        how = f"{self._program} {self._running.how_it_ended()}"
        return self._end("out-of-memory" if self._running.out_of_memory else "died", how)

    def _memory(self) -> dict[str, float | None]:
        """Its resident memory on a CPU; on a GPU only the driver has a figure."""
        held = self._running.resident_mib() if self.setup.device == "cpu" else None
        return {"allocated_mib": held, "reserved_mib": held}

    def end_by(self, deadline: float) -> None:
        while self._inside:
            self._inside.pop().close()
        super().end_by(deadline)
