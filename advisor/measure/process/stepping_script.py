"""A script of the user's as a tenant: it trains by itself, and its hook answers between steps."""

import json
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

from advisor.errors import InvalidInput
from advisor.measure.process.hook_folder import hooked
from advisor.measure.process.started_script import ScriptTenant, StartedScript
from advisor.measure.process.tenant_handle import Answer, Ended
from advisor.measure.process.worker import TenantSetup, Verb
from advisor.workload.spec import Script

_NOT_BY_STEPS = "say how it prints its pace: --throughput REGEX"
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

# So often it is looked for word that the hook could not be set.
_LOOK_S = 1.0


class SteppingScript(ScriptTenant):
    """A script whose steps a hook in its process finds.

    It connects with its first step.
    """

    def __init__(
        self,
        setup: TenantSetup,
        script: Script,
        folder: Path,
        verbs: Callable[[], Mapping[str, Verb]],
    ) -> None:
        """As `ScriptTenant`; `verbs` is importable, and returns the requests its hook answers."""
        super().__init__(setup, script, folder)
        self._verbs = f"{verbs.__module__}:{verbs.__qualname__}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._connection: Connection | None = None
        self._unsent: bytes | None = None

    def send(self, verb: str, **arguments: Any) -> None:
        if verb == "stop":
            self._interrupt()
        if self.ended is not None or verb == "stop":
            return
        if self._started is None:
            self._start()
            arguments.pop("workload")
        message = json.dumps({"verb": verb, "arguments": arguments}).encode()
        if self._connection is None:
            self._unsent = message
            return
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send_bytes(message)

    def _start(self) -> None:
        address = str(self._folder / "socket")
        self._listener.bind(address)
        self._listener.listen()
        settings = {
            "address": address,
            "verbs": self._verbs,
            "folder": str(self._folder),
        }
        own = self._script.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        added = hooked(self._folder / "hook", settings, own)
        self._started = StartedScript(self._script, self.setup, self._folder, added)
        self.pid = self._started.pid

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
            elif (answer := self._answer()) is not None:
                return answer

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        connection = Connection(accepted.detach())
        try:
            pid = json.loads(connection.recv_bytes())["pid"]
        except (EOFError, OSError):  # it ended meanwhile, and its end will be seen
            connection.close()
            return
        if self._connection is not None:
            connection.close()
            raise InvalidInput(
                f"{self._named} trains in several processes ({self.pid}, {pid}), and what is "
                f"measured is one, on one GPU. Start a single rank, e.g. --nproc_per_node 1."
            )
        self._connection, self.pid = connection, pid
        if self._unsent is not None:
            connection.send_bytes(self._unsent)

    def _answer(self) -> Answer | None:
        """What its hook sent, or how it ended; None: what ended was not what trains."""
        sent = None
        if self._connection is not None:
            with suppress(EOFError, OSError):
                sent = json.loads(self._connection.recv_bytes())
        answer = self._parsed(sent)
        if answer is None:
            return self._died()
        if not isinstance(answer, Ended) and "versions" in answer:
            self.versions = answer["versions"]
            self._refuse_elsewhere(answer["device"])
        return answer

    def _refuse_elsewhere(self, device: str) -> None:
        if device != self.setup.device:
            raise InvalidInput(
                f"{self._named} trains on the {'CPU' if device == 'cpu' else 'GPU'}, and was to be "
                f"measured on the other. Move its model to the device, or give another --device."
            )

    def _died(self) -> Ended:
        how = self._running.how_it_ended()
        if self._running.out_of_memory:
            return self._end("out-of-memory", self._running.telling_line())
        if self._connection is None:
            blamed = self._running.succeeded or self._hook_failed
            remedy = f". {self._no_steps}" if blamed else ""
            return self._end("died", f"{self._named} trained no step and {how}{remedy}")
        remedy = f". {_TOO_SHORT}" if self._running.succeeded else ""
        return self._end("died", f"{self._named} {how}{remedy}")

    def _late(self, timeout_s: float) -> Ended:
        line = self._running.telling_line()
        self.end_by(monotonic())
        if self._hook_failed:
            why = f"cannot be seen to step. {self._no_steps}"
        elif self._connection is None:
            said = f"; it said: {line}" if line else ""
            why = f"took no step within {timeout_s:.0f} s{said}. {self._no_steps}"
        else:
            why = f"took no step for {timeout_s:.0f} s and was ended"
        return self._end("died", f"{self._named} {why}")

    @property
    def _hook_error(self) -> Path:
        """Where the hook writes why it could not be set."""
        return self._folder / "hook" / "error"

    @property
    def _hook_failed(self) -> bool:
        """Whether the hook could not be set in a Python of the script, nor in another."""
        return self._connection is None and self._hook_error.is_file()

    @property
    def _no_steps(self) -> str:
        """Why none may have been found."""
        if self._hook_failed:
            return f"The hook could not be set: {self._hook_error.read_text()}. {_NOT_SEEN}"
        return _NO_STEPS if (self._folder / "hook" / "attached").exists() else _NO_TORCH

    @property
    def _named(self) -> str:
        return self._script.file or self._script.command[0]

    def _interrupt(self) -> None:
        if self._connection is not None:
            self._connection.close()  # which its hook takes for Ctrl-C too, while it waits
        if self._started is not None:
            self._started.interrupt()

    def end_by(self, deadline: float) -> None:
        self._interrupt()
        self._listener.close()
        super().end_by(deadline)
