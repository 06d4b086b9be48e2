"""A program that only prints its pace: it runs from the first request on, and is read."""

import json
import os
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, sleep, time
from typing import Any

from advisor.measure.printed_pace import PrintedPace
from advisor.measure.script import StartedScript
from advisor.measure.tenant import ENDING_S, Answer, Ended, Tenant, TenantSetup

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
        self._began_cpu_s = 0.0
        self._pace, self._reading = PrintedPace(setup.script, setup.batch), Lock()
        self._verb, self._arguments = "", dict[str, Any]()

    def send(self, verb: str, **arguments: Any) -> None:
        self._verb, self._arguments = verb, arguments
        if self.ended is not None:
            return
        if self.pid == 0:
            self.start()
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
        match self._verb:
            case "load":
                return self._under_way(timeout_s)
            case "check_host":
                return {"check_s": None}
            case "run":
                return self._ran(**self._arguments, until=monotonic() + timeout_s)
            case _:
                return self._answered_inside(monotonic() + timeout_s)

    def _under_way(self, timeout_s: float) -> Answer:
        for left_s in self.patience(timeout_s):
            if exited := wait([self.running.exited], min(_WATCH_S, left_s)):
                sleep(_WATCH_S)  # for its last lines
            if self._pace.figures >= _FIRST_FIGURES:
                step_s = self._pace.step_s
                return {"sms": None, "warm_step_s": step_s, "memory": self._memory()}
            if exited:
                return self.end_with(self.running.how_it_ended())
        return self._silent(self.waits_for(timeout_s, timeout_s))

    def waits_for(self, waited_s: float, timeout_s: float) -> str:
        script, line = self.setup.script, self.running.error_line()
        return (
            f"printed {self._pace.figures} figures that match "
            f"{script.throughput or script.seconds_per_step!r} within {waited_s:.0f} of "
            f"{timeout_s:.0f} s, and {_FIRST_FIGURES} are needed; it printed last: "
            f"{line or 'nothing'}"
        )

    def _silent(self, why: str) -> Ended:
        self.end_by(monotonic())
        return self.end("died", f"{self.named} {why}")

    def _ran(self, *, start_at: float, stop_at: float, until: float, **_options: object) -> Answer:
        """Its steps between two moments, once it has printed the figure that covers the end."""
        sleep(max(0.0, stop_at - time()))
        while (self._pace.at_s or 0.0) < stop_at:
            if wait([self.running.exited], 0):
                return self.end_with(self.running.how_it_ended())
            if monotonic() > until:
                silent_s = time() - (self._pace.at_s or 0.0)
                return self._silent(f"printed no figure of its pace for {silent_s:.0f} s")
            sleep(_WATCH_S)
        with self._reading:
            self._pace.check()
            completed_at = self._pace.ends_between(start_at, stop_at)
        return {
            "completed_at": completed_at,
            "checks": [],
            "between": [],
            "memory": self._memory(),
            "cpu_s": self.running.cpu_s() - self._began_cpu_s,
        }

    def _answered_inside(self, until: float) -> Answer:
        """The first answer of its processes; empty if none has one in time."""
        while wait([self.listener], 0):
            self.accept()
        request = json.dumps({"verb": self._verb, "arguments": self._arguments}).encode()
        for connection in self.connections:
            message = None
            try:
                connection.send_bytes(request)
                if connection in wait([connection, self.running.exited], until - monotonic()):
                    message = json.loads(connection.recv_bytes())
            except (OSError, EOFError):  # that process is ending, and the program perhaps with it
                wait([self.running.exited], ENDING_S)
            if answer := self.parsed(message):
                return answer
        return self.end_with(self.running.how_it_ended()) if wait([self.running.exited], 0) else {}

    def _memory(self) -> dict[str, float | None]:
        """Its resident memory on a CPU; on a GPU only the driver has a figure."""
        held = self.running.resident_mib() if self.setup.device == "cpu" else None
        return {"allocated_mib": held, "reserved_mib": held}
