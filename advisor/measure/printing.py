"""A program that only prints its pace: it runs from the first request on, and is read."""

import json
import os
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, sleep, time
from typing import Any

from advisor.measure.explain_end import explain_end
from advisor.measure.printed_pace import PrintedPace
from advisor.measure.process import say
from advisor.measure.script import StartedScript
from advisor.measure.tenant import ENDING_S, SAY_S, Answer, Ended, Tenant, TenantSetup

# Figures of its pace before it counts as under way: the first contains its start.
_FIRST_FIGURES = 3

_WATCH_S = 0.05
_CHUNK_BYTES = 2**16


class PrintingTenant(Tenant):
    """A program that runs from the request to load on, whether or not others are ready.

    It answers ``run`` from what it printed. Other requests, which need no step, go to
    the threads in those of its processes that run Python and import torch: the answer is the first
    that holds anything.
    """

    def __init__(self, setup: TenantSetup, folder: Path) -> None:
        super().__init__(setup, folder)
        self._inside: list[Connection] = []
        self._began_cpu_s = 0.0
        self._pace, self._reading = PrintedPace(setup.script, setup.batch), Lock()
        self._request: tuple[str, dict[str, Any]] = ("", {})

    def send(self, verb: str, **arguments: Any) -> None:
        self._request = (verb, arguments)
        if self.ended is not None:
            return
        if self._started is None:
            # Unbuffered, so that a figure is seen when it is printed.
            self.start({"aside": True}, {"PYTHONUNBUFFERED": "1"}, piped=True)
            Thread(target=self._read, args=(self.running,), daemon=True).start()
        self._began_cpu_s = self.running.cpu_s()

    def _read(self, started: StartedScript) -> None:
        """Note each figure of its pace, until its output ends."""
        assert started.output is not None
        with suppress(OSError, ValueError), started.log.open("ab", buffering=0) as log:
            while chunk := os.read(started.output.fileno(), _CHUNK_BYTES):
                log.write(chunk)
                with self._reading:
                    self._pace.read(chunk, time())

    def receive(self, timeout_s: float) -> Answer:
        if self.ended is not None:
            return self.ended
        verb, arguments = self._request
        match verb:
            case "load":
                return self._under_way(timeout_s)
            case "check_host":
                return {"check_s": None}
            case "run":
                until = monotonic() + timeout_s
                return self._ran(arguments["start_at"], arguments["stop_at"], until)
            case _:
                return self._answered_inside(verb, arguments, monotonic() + timeout_s)

    def _under_way(self, timeout_s: float) -> Answer:
        began = monotonic()
        say_at = began + SAY_S
        while self._pace.figures < _FIRST_FIGURES and monotonic() < began + timeout_s:
            if wait([self.running.exited], _WATCH_S):
                sleep(_WATCH_S)  # for its last lines
                break
            if monotonic() >= say_at:
                say(f"  {self._printed_within(monotonic() - began)}")
                say_at += SAY_S
        if self._pace.figures >= _FIRST_FIGURES:
            step_s = self._pace.step_s
            return {"sms": None, "warm_step_s": step_s, "memory": self._memory()}
        if (ended := self._gone()) is not None:
            return ended
        why = self._printed_within(timeout_s)
        self.end_by(monotonic())
        return self.end("died", why)

    def _printed_within(self, seconds: float) -> str:
        """A sentence on its printed pace and its last line."""
        script, line = self.setup.script, self.running.error_line()
        return (
            f"{self.named} printed {self._pace.figures} figures that match "
            f"{script.throughput or script.seconds_per_step!r} within {seconds:.0f} s, and "
            f"{_FIRST_FIGURES} are needed; it printed last: {line or 'nothing'}"
        )

    def _ran(self, start_at: float, stop_at: float, until: float) -> Answer:
        """Its steps between two moments, once it has printed the figure that covers the end."""
        sleep(max(0.0, stop_at - time()))
        while (self._pace.at_s or 0.0) < stop_at:
            if (ended := self._gone()) is not None:
                return ended
            if monotonic() > until:
                silent_s = time() - (self._pace.at_s or 0.0)
                self.end_by(monotonic())
                silence = f"printed no figure of its pace for {silent_s:.0f} s"
                return self.end("died", f"{self.named} {silence}")
            sleep(_WATCH_S)
        with self._reading:
            self._pace.check()
            completed_at = self._pace.ends_between(start_at, stop_at)
        return {
            "completed_at": completed_at, "checks": [], "between": [], "memory": self._memory(),
            "cpu_s": self.running.cpu_s() - self._began_cpu_s,
        }  # fmt: skip

    def _answered_inside(self, verb: str, arguments: dict[str, Any], until: float) -> Answer:
        """The first answer of its processes; empty if none has one in time."""
        while wait([self._listener], 0):
            if (accepted := self.accept()) is not None:
                self._inside.append(accepted[0])
        request = json.dumps({"verb": verb, "arguments": arguments}).encode()
        for connection in self._inside:
            message = None
            try:
                connection.send_bytes(request)
                if connection in wait([connection, self.running.exited], until - monotonic()):
                    message = json.loads(connection.recv_bytes())
            except (OSError, EOFError):  # that process is ending, and the program perhaps with it
                wait([self.running.exited], ENDING_S)
            if answer := self.parsed(message):
                return answer
        return self._gone() or {}

    def _gone(self) -> Ended | None:
        """Its end, if it has ended."""
        if not wait([self.running.exited], 0):
            return None
        how = f"{self.named} {self.running.how_it_ended()}"
        if (why := explain_end(self.setup.script, self.running.last_output())) is not None:
            how = f"{how}. {why}"
        return self.end("out-of-memory" if self.running.out_of_memory else "died", how)

    def _memory(self) -> dict[str, float | None]:
        """Its resident memory on a CPU; on a GPU only the driver has a figure."""
        held = self.running.resident_mib() if self.setup.device == "cpu" else None
        return {"allocated_mib": held, "reserved_mib": held}

    def end_by(self, deadline: float) -> None:
        while self._inside:
            self._inside.pop().close()
        super().end_by(deadline)
