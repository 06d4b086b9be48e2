"""Tenants as whoever started them sees them: processes that are told things and answer.

    with tenants_on(seats, folder) as tenants:
        answers = ask_all(tenants, "load", [{"workload": each} for each in workloads])

A tenant that dies or runs out of memory does not raise: it has `ended`, and so answers `Ended`
to whatever else it is told.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.process.tenant_verbs import training_verbs
from advisor.measure.process.worker import TenantSetup, Verb, serve

# A big model on a busy GPU; the first tenant also waits for the imports.
_LOAD_S = 300.0

# Beyond the moment at which a tenant was told to stop: what it had queued must still be done.
GRACE_S = 120.0

# One that trains for longer does not hear that it should stop.
_POLITE_S = 3.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a tenant ended before it was told to."""

    outcome: Literal["out-of-memory", "died"]
    detail: str


Answer = dict[str, Any] | Ended


class TenantProcess:
    """One process, alive until it is stopped or ends by itself.

    Attributes:
        seat: Where it runs.
        pid: Its process.
        versions: ``torch``, ``cuda`` and ``timm``, each a version or None; empty if it ended
            before it could say.
        ended: None while it lives.
    """

    def __init__(self, seat: TenantSetup, verbs: Callable[[], Mapping[str, Verb]]) -> None:
        ours, its = _context().Pipe()
        self.seat = seat
        self.ended: Ended | None = None
        self._connection: Connection = ours
        self._process: ForkServerProcess = _context().Process(target=serve, args=(its, seat, verbs))
        self._process.start()
        its.close()  # or its death would not close the pipe
        self.pid: int = self._process.pid or 0
        self.versions: dict[str, str | None] = {}

    def greet(self) -> None:
        """Wait until it sits; every tenant is greeted once, before it is told anything."""
        greeting = self.receive(_LOAD_S)
        self.versions = {} if isinstance(greeting, Ended) else greeting

    def send(self, verb: str, **arguments: Any) -> None:
        """Tell it something, without waiting; `receive` has the answer."""
        if self.ended is None:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._connection.send((verb, arguments))

    def receive(self, timeout_s: float) -> Answer:
        """Its answer, or how it ended; one that keeps silent is killed.

        Raises:
            InvalidInput: It refused what the user asked for.
        """
        if self.ended is not None:
            return self.ended
        if not wait([self._connection, self._process.sentinel], timeout_s):
            self._process.kill()
            return self._end("died", f"gave no answer within {timeout_s:.0f} s and was killed")
        try:
            answer = self._connection.recv() if self._connection.poll() else None
        except (EOFError, ConnectionResetError):
            answer = None
        return self._understood(answer)

    def ask(self, verb: str, timeout_s: float = _LOAD_S, **arguments: Any) -> Answer:
        """Tell it something and wait for the answer."""
        self.send(verb, **arguments)
        return self.receive(timeout_s)

    def _understood(self, answer: tuple[Any, ...] | None) -> Answer:
        match answer:
            case ("done", dict() as value):
                return value
            case ("refused", int() as code, str() as message):
                raise (InvalidInput if code == InvalidInput.exit_code else AdvisorError)(message)
            case ("ended", outcome, str() as detail):
                return self._end(outcome, detail)
            case _:
                return self._end("died", self._how_it_died())

    def _end(self, outcome: Literal["out-of-memory", "died"], detail: str) -> Ended:
        self.ended = Ended(outcome, detail)
        return self.ended

    def _how_it_died(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"ended with exit status {code}"

    def say_stop(self) -> None:
        """Ask it to end."""
        self.send("stop")

    def end_by(self, deadline: float) -> None:
        """See that it has ended: by itself until `deadline` (monotonic seconds), then by force."""
        self._process.join(max(0.0, deadline - monotonic()))
        for force in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                force()
                self._process.join(2)
        self._connection.close()


@contextmanager
def tenants_on(
    seats: Sequence[TenantSetup],
    folder: Path,
    verbs: Callable[[], Mapping[str, Verb]] = training_verbs,
) -> Iterator[tuple[TenantProcess, ...]]:
    """Fresh tenants, one a seat, greeted; all gone when the block ends.

    Args:
        seats: Where they sit.
        folder: Where they and the fork server keep temporary files.
        verbs: An importable function that gives what they can be told.
    """
    tenants: list[TenantProcess] = []
    try:
        warm_up(folder)
        for seat in seats:
            tenants.append(TenantProcess(seat, verbs))  # noqa: PERF401 - those begun must be ended
        for tenant in tenants:
            tenant.greet()
        yield tuple(tenants)
    finally:
        end_all(tenants)


def ask_all(
    tenants: Sequence[TenantProcess],
    verb: str,
    arguments: Sequence[Mapping[str, Any]],
    timeout_s: float = _LOAD_S,
) -> tuple[Answer, ...]:
    """Tell every tenant something at once, then wait for all answers, in the tenants' order."""
    for tenant, each in zip(tenants, arguments, strict=True):
        tenant.send(verb, **each)
    deadline = monotonic() + timeout_s
    return tuple(tenant.receive(max(0.0, deadline - monotonic())) for tenant in tenants)


def end_all(tenants: Sequence[TenantProcess]) -> None:
    """End tenants: all are asked first, and those that do not listen are forced."""
    for tenant in tenants:
        tenant.say_stop()
    deadline = monotonic() + _POLITE_S
    for tenant in tenants:
        tenant.end_by(deadline)


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["advisor.measure.process.fork_server"])
    return context


def warm_up(folder: Path) -> None:
    """Start the fork server where it does not run; its imports go on beside what the caller does.

    Args:
        folder: Where this process, the server and all tenants keep temporary files from now on,
            a socket of the server's among them; to be removed when all tenants have ended.
    """
    _context()
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
