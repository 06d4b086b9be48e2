"""Programs whose steps a hook finds, and all tenants of a measurement together.

with tenants_on(setups, folder) as tenants:
answers = ask_all(tenants, "load", [{}] * len(tenants))
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

from advisor.errors import InvalidInput
from advisor.measure.explain_end import explain_end
from advisor.measure.hook_folder import why_unseen
from advisor.measure.printing import PrintingTenant
from advisor.measure.process import say
from advisor.measure.tenant import (
    ENDING_S,
    LOAD_S,
    SAY_S,
    Answer,
    Ended,
    Tenant,
    TenantSetup,
    error_of,
)

# How long tenants have to end after they were asked to stop.
_POLITE_S = 3.0


@contextmanager
def tenants_on(
    setups: Sequence[TenantSetup], folder: Path,
    take: Callable[[TenantSetup], Tenant] | None = None,
) -> Iterator[tuple[Tenant, ...]]:  # fmt: skip
    """Make tenants, one for each of `setups`, ready for requests; end all when the block ends.

    The first request starts them, but those of the zoo that `take` has started already. Their
    temporary files go to `folder`, a short path.
    """
    tenants: list[Tenant] = []
    try:
        for setup in setups:
            if setup.line is not None and take is not None:
                tenants.append(take(setup))
            else:
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
    tenants: Sequence[Tenant],
    verb: str,
    arguments: Sequence[Mapping[str, Any]],
    timeout_s: float = LOAD_S,
) -> tuple[Answer, ...]:
    """Send every tenant a request at once, then wait for all answers, in the tenants' order."""
    for tenant, named in zip(tenants, arguments, strict=True):
        tenant.send(verb, **named)
    deadline = monotonic() + timeout_s
    return tuple(tenant.receive(max(0.0, deadline - monotonic())) for tenant in tenants)


_NOT_BY_STEPS = "give the pattern of the pace that it prints: --throughput REGEX"
_NO_STEPS = (
    f"Steps are found where an optimizer of torch steps, or else where a backward pass ends. If it "
    f"has neither, call advisor.step() once a step, or {_NOT_BY_STEPS}"
)
_NO_TORCH = (
    f"No Python of it imported torch where that can be seen: sudo and containers hide it. If it "
    f"does not use torch, {_NOT_BY_STEPS}"
)
_NOT_SEEN = f"Start it by another Python or torch, or {_NOT_BY_STEPS}"
_GOES_ON = "Its command goes on: give the command of the training alone"
_TOO_SHORT = "Let it train for longer: a measurement takes about half a minute of steps"

# How often we look whether the hook could be set.
_LOOK_S = 1.0


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
            self.start_stepping()
        if self._connection is None and self._unsent is None and self.setup.line:
            self.running.write_line(self.setup.line)
        message = json.dumps({"verb": verb, "arguments": arguments}).encode()
        if self._connection is None:
            self._unsent = message
        else:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._connection.send_bytes(message)

    def start_stepping(self) -> None:
        """Start it; it takes its first step on its own, and waits then for requests."""
        self.start({"folder": "" if self.setup.ours else str(self.folder)}, {}, piped=False)

    def receive(self, timeout_s: float) -> Answer:
        if self.ended is not None:
            return self.ended
        began = monotonic()
        say_at = began + SAY_S
        while True:
            sources: list[Any] = [self._listener, self.running.exited]
            if self._connection is not None:
                sources.append(self._connection)
            left_s = began + timeout_s - monotonic()
            ready = wait(sources, min(_LOOK_S, max(0.0, left_s)))
            if not ready:
                if left_s <= 0 or self._cannot_be_seen:
                    return self._late(timeout_s)
                if monotonic() >= say_at:
                    say(f"  {self._waited_for(monotonic() - began, timeout_s)}")
                    say_at += SAY_S
            elif self._listener in ready:
                self._connect()
            else:
                return self._answer()

    def _connect(self) -> None:
        if (accepted := self.accept()) is None:
            return
        connection, hello = accepted
        if self._connection is not None:
            connection.close()
            remedy = self._explained or "Start a single rank, e.g. --nproc_per_node 1"
            raise InvalidInput(
                f"{self.named} trains in several processes ({self.pid}, {hello['pid']}), and "
                f"advisor measures one, on one GPU. {remedy}."
            )
        self._connection, self.pid = connection, hello["pid"]
        self.versions = hello["versions"]
        if self._unsent is not None:
            connection.send_bytes(self._unsent)

    def _answer(self) -> Answer:
        """Its answer, or how it ended."""
        message = None
        if self._connection is not None and self._connection.poll(ENDING_S):
            with suppress(EOFError, OSError):
                message = json.loads(self._connection.recv_bytes())
        answer = self.parsed(message)
        if answer is None:
            return self._died()
        device = self.setup.device if isinstance(answer, Ended) else answer.get("device")
        if device not in (None, self.setup.device):
            raise InvalidInput(
                f"{self.named} trains on the {'CPU' if device == 'cpu' else 'GPU'}, and was to be "
                f"measured on the other. Move its model to the device, or give another --device."
            )
        return answer

    def _died(self) -> Ended:
        how, succeeded = self.running.how_it_ended(), self.running.exit_code == 0
        if self.running.out_of_memory:
            return self.end("out-of-memory", self.running.error_line())
        if self.setup.ours:
            code, line = self.running.exit_code, self.running.error_line()
            if self._connection is None and code in (2, 4):  # `advisor.errors` has these
                raise error_of(code, line.removeprefix("error: "))
            return self.end("died", how)
        if self._connection is None:
            remedy = self._no_steps if succeeded or self._cannot_be_seen else None
            how = f"trained no step and {how}"
        elif self.running.exit_code is None:
            remedy, how = _GOES_ON, "ended its training"
        else:
            remedy = _TOO_SHORT if succeeded else None
        remedy = self._explained or remedy
        return self.end("died", f"{self.named} {how}{f'. {remedy}' if remedy else ''}")

    def _late(self, timeout_s: float) -> Ended:
        line, explained, seen = self.running.error_line(), self._explained, self._seen
        unseen, no_steps = self._cannot_be_seen, self._no_steps
        self.end_by(monotonic())
        printed = f"; it printed last: {line}" if line else ""
        if self.setup.ours:
            why = f"gave no answer within {timeout_s:.0f} s and was ended{printed}"
        elif unseen:
            why = f"cannot be seen to step. {no_steps}"
        elif self._connection is None:
            why = f"took no step within {timeout_s:.0f} s: {seen}{printed}. {explained or no_steps}"
        else:
            why = f"took no step for {timeout_s:.0f} s and was ended{printed}"
        return self.end("died", f"{self.named} {why}")

    def _waited_for(self, waited_s: float, timeout_s: float) -> str:
        """A sentence on the missing step, and its reason."""
        line = self.running.error_line()
        printed = f"; it printed last: {line}" if line else ""
        waited = f"no step after {waited_s:.0f} s of {timeout_s:.0f}"
        return f"{self.named}: {waited}: {self._seen}{printed}"

    @property
    def _seen(self) -> str:
        """The part of its start that was seen."""
        if self._connection is not None:
            return f"its process {self.pid} trains, and is in a long step or in something else"
        if (self.folder / "passes").exists():
            return "it runs backward passes, and its optimizer has not stepped yet"
        if (self._hook / "attached").exists():
            return f"torch is imported, and nothing trains yet{self._unseen_too}"
        return "no Python of it has imported torch yet"

    @property
    def _unseen_too(self) -> str:
        why = why_unseen(self.running.processes(), self._hook)
        return "" if why is None else f"; {why}"

    @property
    def _cannot_be_seen(self) -> str | None:
        """Why the hook is in no Python of the program, if that can be known by now."""
        if self.setup.ours or self._connection is not None:
            return None
        if (self._hook / "error").is_file():
            error = (self._hook / "error").read_text()
            return f"The hook could not be set: {error}. {_NOT_SEEN}"
        if (self._hook / "attached").exists():
            return None
        return why_unseen(self.running.processes(), self._hook)

    @property
    def _explained(self) -> str | None:
        """Why it may not train, by its command and what it printed."""
        return explain_end(self.setup.script, self.running.last_output())

    @property
    def _no_steps(self) -> str:
        """Why no step may have been seen."""
        attached = (self._hook / "attached").exists()
        return self._cannot_be_seen or (_NO_STEPS if attached else _NO_TORCH)

    def let_end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        super().let_end()

    def interrupt(self) -> None:
        if self._connection is not None:
            self._connection.close()  # its hook, while it waits, takes this for Ctrl-C, too
        super().interrupt()

    def end_by(self, deadline: float) -> None:
        self.interrupt()
        super().end_by(deadline)
