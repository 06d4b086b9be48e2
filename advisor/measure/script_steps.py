"""A program as a tenant whose steps nobody finds: it prints its pace, or is waited for to its end.

Where it is Python and imports torch, a thread in it answers what needs no step.
"""

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import numpy as np

from advisor.errors import InvalidInput
from advisor.measure.hook import hooked
from advisor.measure.process import ended_lines
from advisor.measure.script import ScriptTenant, StartedScript
from advisor.measure.worker import Answer, Ended, TenantSetup, Verb
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


# Figures of its pace before it counts as under way: the first tells of its start.
_FIRST_FIGURES = 3

_WATCH_S = 0.05
_CHUNK_BYTES = 2**16

# A process that has hung up takes less to have ended.
_ENDING_S = 5.0


class WatchedScript(ScriptTenant):
    """A program that runs from the request to load on, whoever else is ready.

    It answers ``run`` and ``train`` from what it printed. Other requests go to the threads in its
    processes: the answer is the first that holds anything.
    """

    def __init__(
        self,
        setup: TenantSetup,
        script: Script,
        folder: Path,
        verbs: Callable[[], Mapping[str, Verb]],
    ) -> None:
        """As `SteppingScript`."""
        super().__init__(setup, script, folder)
        self._verbs = f"{verbs.__module__}:{verbs.__qualname__}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._inside: list[Connection] = []
        self._began_at = 0.0
        self._began_cpu_s = 0.0
        self._batch = 1
        # When each figure came, seconds of the wall clock, and examples a second until then.
        self._figures: list[tuple[float, float]] = []
        self._asked: tuple[str, dict[str, Any]] = ("", {})

    def send(self, verb: str, **arguments: Any) -> None:
        self._asked = (verb, arguments)
        if verb == "stop" and self._started is not None:
            self._started.interrupt()
        if self.ended is not None or verb == "stop":
            return
        if self._started is None:
            self._batch = arguments["workload"].batch
            self._started = self._start()
        self._began_cpu_s = self._started.cpu_s()

    def _start(self) -> StartedScript:
        self._began_at = time()
        # A figure that is printed is seen at once.
        added = {"PYTHONUNBUFFERED": "1"} | self._hooked()
        started = StartedScript(self._script, self.setup, self._folder, added, piped=True)
        self.pid = started.pid
        threading.Thread(target=self._read, args=(started,), daemon=True).start()
        return started

    def _hooked(self) -> dict[str, str]:
        address = str(self._folder / "socket")
        self._listener.bind(address)
        self._listener.listen()
        settings = {"address": address, "verbs": self._verbs, "aside": True}
        own = self._script.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        return hooked(self._folder / "hook", settings, own)

    def _read(self, started: StartedScript) -> None:
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

    def _note(self, found: "re.Match[bytes] | None") -> None:
        """Keep the figure of its pace that a line holds, if it is one."""
        if found is not None:
            with suppress(ValueError):
                self._figures.append((time(), max(1e-9, float(found[1]))))

    def receive(self, timeout_s: float) -> Answer:
        if self.ended is not None:
            return self.ended
        verb, arguments = self._asked
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

    def _answered_inside(self, verb: str, arguments: dict[str, Any], until: float) -> Answer:
        """What its processes answer; empty where none has anything to say in time."""
        while wait([self._listener], 0):
            self._inside.append(Connection(self._listener.accept()[0].detach()))
        request = json.dumps({"verb": verb, "arguments": arguments}).encode()
        for connection in self._inside:
            answer = None
            try:
                connection.send_bytes(request)
                if connection in wait([connection, self._running.exited], until - monotonic()):
                    answer = json.loads(connection.recv_bytes())
            except (OSError, EOFError):  # that process is ending, and the program perhaps with it
                wait([self._running.exited], _ENDING_S)
            if found := self._parsed(answer):
                return found
        return self._gone() or {}

    def end_by(self, deadline: float) -> None:
        self._listener.close()
        for connection in self._inside:
            connection.close()
        self._inside = []
        super().end_by(deadline)

    def _under_way(self, timeout_s: float) -> Answer:
        if self._wait_for_figures(_FIRST_FIGURES, timeout_s):
            return {
                "pid": self.pid,
                "sms": None,
                "warm_step_s": self._batch / self._figures[-1][1],
                "memory": self._memory(),
            }
        if (ended := self._gone()) is not None:
            return ended
        line = self._running.telling_line()
        self.end_by(monotonic())
        return self._end(
            "died",
            f"{self._script.command[0]} printed {len(self._figures)} figures that "
            f"{self._script.throughput!r} finds within {timeout_s:.0f} s, and {_FIRST_FIGURES} are "
            f"needed; it said: {line}",
        )

    def _wait_for_figures(self, count: int, timeout_s: float) -> bool:
        until = monotonic() + timeout_s
        while len(self._figures) < count and monotonic() < until:
            if wait([self._running.exited], _WATCH_S):
                sleep(_WATCH_S)  # for its last lines
                break
        return len(self._figures) >= count

    def _ran(self, start_at: float, stop_at: float, until: float) -> Answer:
        """What it did between two moments, once it has printed the figure that tells of the end."""
        sleep(max(0.0, stop_at - time()))
        while self._figures[-1][0] < stop_at:
            if (ended := self._gone()) is not None:
                return ended
            if monotonic() > until:
                silent_s = time() - self._figures[-1][0]
                self.end_by(monotonic())
                said = f"printed no figure of its pace for {silent_s:.0f} s"
                return self._end("died", f"{self._script.command[0]} {said}")
            sleep(_WATCH_S)
        return {
            "completed_at": self._completed_at(start_at, stop_at),
            "cpu_s": self._running.cpu_s() - self._began_cpu_s,
            "memory": self._memory(),
        }

    def _completed_at(self, start_at: float, stop_at: float) -> list[float]:
        """When steps ended between two moments, at the pace of the figure that came next."""
        figures = tuple(self._figures)  # more come meanwhile
        moments = np.array([self._began_at, *(moment for moment, _ in figures)])
        rates = np.array([rate for _, rate in figures]) / self._batch
        done = np.concatenate([[0.0], np.cumsum(np.diff(moments) * rates)])
        first, last = np.interp([start_at, stop_at], moments, done)
        steps = np.arange(1.0, max(1.0, last - first) + 1.0)
        ends = np.interp(first + steps, done, moments, right=float(moments[-1]))
        return [float(each) for each in np.maximum(ends, start_at + 1e-9)]

    def _gone(self) -> Ended | None:
        """How it ended, if it has."""
        started = self._running
        if not wait([started.exited], 0):
            return None
        how = f"{self._script.command[0]} {started.how_it_ended()}"
        return self._end("out-of-memory" if started.out_of_memory else "died", how)

    def _memory(self) -> dict[str, float | None]:
        """What is known without asking it: nothing on a GPU, its resident memory on a CPU."""
        held = self._running.resident_mib() if self.setup.device == "cpu" else None
        return {"allocated_mib": held, "reserved_mib": held}
