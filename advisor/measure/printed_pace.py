"""Programs that only print their pace: examples a second, or the seconds of a step."""

import json
import os
import re
from collections import deque
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from statistics import fmean
from threading import Lock, Thread
from time import monotonic, sleep, time
from typing import Any, Literal, NamedTuple

import numpy as np

from advisor.errors import InvalidInput
from advisor.measure.process import plain
from advisor.measure.script import StartedScript
from advisor.measure.tenant import ENDING_S, Answer, Ended, Tenant, TenantSetup
from advisor.workload.spec import Script

_Unit = Literal["rate", "s", "ms"]
_OPTIONS: dict[_Unit, str] = {
    "rate": "--throughput REGEX",
    "s": "--seconds-per-step REGEX",
    "ms": "--seconds-per-step REGEX with (?P<ms>...) as its group",
}
_CALLED: dict[_Unit, str] = {"rate": "a rate", "s": "a time in seconds", "ms": "a time in ms"}
# The text around a number that names its unit: "5 it/s", "12ms/step", "seconds: 3.1".
_RATE_AFTER = re.compile(rb"\s*[a-z]+\s*(?:/|per )\s*s(?:ec(?:ond)?)?\b", re.IGNORECASE)
_TIME_AFTER = re.compile(rb"\s*(m?)s(?:ec(?:ond)?s?)?(?![a-z])", re.IGNORECASE)
_TIME_BEFORE = re.compile(
    rb"(?<![/\w])(?<!per )(?:\w*time(?:_(m?)s)?|seconds?|secs?|took)\W{0,3}$", re.IGNORECASE
)

# Seconds of a step that no program takes.
_FASTEST_S = 1e-9
# Characters of a line that a message shows on each side of a number.
_SHOWN = 15


class _Figure(NamedTuple):
    unit: _Unit
    value: float
    step_s: float
    around: bytes
    named: _Unit | None  # by the text around it


class PrintedPace:
    """The steps of a program, counted from its printed pace; a figure is of the time before it.

    Attributes:
        figures: How many it printed.
        at_s: When the last one came, by the clock of the reader; None before the first.
        step_s: Seconds of a step by the last one.
        steps: Steps done between the first figure and the last.
    """

    def __init__(self, script: Script, batch: int) -> None:
        self._batch = batch
        self._patterns: list[tuple[_Unit, re.Pattern[bytes]]] = []
        if script.throughput is not None:
            self._patterns.append(("rate", re.compile(script.throughput.encode())))
        if script.seconds_per_step is not None:
            pattern = re.compile(script.seconds_per_step.encode())
            self._patterns.append(("ms" if "ms" in pattern.groupindex else "s", pattern))
        self._unfinished = b""
        # More than a window of a measurement holds; and as many as are compared with their times.
        self._moments = deque[tuple[float, float]](maxlen=2**16)
        self._judged = deque[tuple[float, _Figure]](maxlen=50)
        self.figures, self.steps, self.step_s = 0, 0.0, 0.0
        self.at_s: float | None = None

    def read(self, printed: bytes, now_s: float) -> None:
        """Note the figures in lines that have ended, also those that a progress bar writes over."""
        *lines, rest = re.split(rb"[\r\n]", self._unfinished + printed)
        self._unfinished = rest[-65_536:]
        figures = [each for line in lines if (each := self._figure(plain(line)))]
        if not figures:
            return
        if self.at_s is not None:
            seconds = now_s - self.at_s
            self.steps += seconds * fmean(1 / each.step_s for each in figures)
            self._judged.append((seconds / len(figures), figures[-1]))
        self.at_s, self.step_s = now_s, figures[-1].step_s
        self.figures += len(figures)
        self._moments.append((now_s, self.steps))

    def _figure(self, line: bytes) -> _Figure | None:
        for unit, pattern in self._patterns:
            if (match := pattern.search(line)) is not None:
                with suppress(ValueError, ZeroDivisionError):
                    value = float(match[1])
                    step_s = self._step_s(unit, value)
                    if _FASTEST_S < step_s < float("inf"):
                        first, end = match.span(1)
                        named = _unit_around(line[:first], line[end:])
                        around = line[max(0, first - _SHOWN) : end + _SHOWN]
                        return _Figure(unit, value, step_s, around, named)
        return None

    def _step_s(self, unit: _Unit, value: float) -> float:
        return {"rate": self._batch / value, "s": value, "ms": 1e-3 * value}[unit]

    def ends_between(self, start_s: float, stop_s: float) -> list[float]:
        """Return the moments at which steps ended; one at least, by the pace around."""
        moments, done = np.array(tuple(self._moments)).T
        first, last = np.interp([start_s, stop_s], moments, done)
        steps = np.arange(1.0, max(1.0, last - first) + 1.0)
        ends = np.interp(first + steps, done, moments, right=float(moments[-1]))
        return list(np.maximum(ends, start_s + 1e-9).tolist())

    def check(self) -> None:
        """Check that the figures are of the unit that the user gave, as far as can be seen.

        The text around them may name another, or they may come more often than a step can end.
        """
        if not self._judged:
            return
        last = self._judged[-1][1]
        if last.named not in (None, last.unit):
            text = last.around.decode(errors="replace").strip()
            raise InvalidInput(
                f"{_OPTIONS[last.unit]} finds {last.value:g} in {text!r}, which is "
                f"{_CALLED[last.named]}. Use {_OPTIONS[last.named]}."
            )
        if len(self._judged) >= 8 and len(self._patterns) == 1:  # fewer show no pattern
            self._check_often(last)

    def _check_often(self, last: _Figure) -> None:
        line_s = np.array([seconds for seconds, _ in self._judged])
        # Progress bars print twice a step at times; then nine in ten figures come within a step.
        often_s = max(float(np.percentile(line_s, 90)), float(line_s.mean()))
        line = np.log(np.maximum(line_s, _FASTEST_S))
        steps = {
            unit: np.log([self._step_s(unit, figure.value) for _, figure in self._judged])
            for unit in _OPTIONS
        }
        claimed_s = float(np.exp(np.median(steps[last.unit])))
        off = {unit: abs(float(np.median(step) - np.median(line))) for unit, step in steps.items()}
        near = min((unit for unit in off if unit != last.unit), key=lambda unit: off[unit])
        # Near medians are of one quantity if their ratio varies less than their product, which is
        # constant for the rate of a program that prints every so many steps.
        changes_alike = (steps[near] - line).std() < 0.9 * (steps[near] + line).std()
        another = last.unit == "rate" and off[near] <= 0.1 and changes_alike
        # A step that takes so many times as long as a figure needs to come is not what was printed.
        if claimed_s <= 1.5 * often_s and not another:
            return
        remedy = f"It fits {_CALLED[near]}: use {_OPTIONS[near]}."
        if off[near] > 0.7:  # no other unit fits either
            remedy = "Choose a pattern that finds the pace of a step, and check --batch-size."
        raise InvalidInput(
            f"{_OPTIONS[last.unit]} finds {last.value:g}, so a step would take "
            f"{1000.0 * claimed_s:,.3g} ms, but such a number is printed every "
            f"{1000.0 * often_s:,.3g} ms. {remedy}"
        )


def _unit_around(before: bytes, after: bytes) -> _Unit | None:
    """The unit of a number that the text around it names; None if it names none."""
    if _RATE_AFTER.match(after):
        return "rate"
    if match := _TIME_AFTER.match(after) or _TIME_BEFORE.search(before):
        return "ms" if match[1] else "s"
    return None


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
        return self._end_that(self.waits_for(timeout_s, timeout_s))

    def waits_for(self, waited_s: float, timeout_s: float) -> str:
        script, line = self.setup.script, self.running.error_line()
        return (
            f"printed {self._pace.figures} numbers that match "
            f"{script.throughput or script.seconds_per_step!r} within {waited_s:.0f} of "
            f"{timeout_s:.0f} s, and {_FIRST_FIGURES} are needed; it printed last: "
            f"{line or 'nothing'}"
        )

    def _end_that(self, why: str) -> Ended:
        self.end_by(monotonic())
        return self.end("failed", f"{self.named} {why}")

    def _ran(self, *, start_at: float, stop_at: float, until: float, **_options: object) -> Answer:
        """Its steps between two moments, once it has printed the figure that covers the end."""
        sleep(max(0.0, stop_at - time()))
        while (self._pace.at_s or 0.0) < stop_at:
            if wait([self.running.exited], 0):
                return self.end_with(self.running.how_it_ended())
            if monotonic() > until:
                silent_s = time() - (self._pace.at_s or 0.0)
                return self._end_that(f"printed no pace for {silent_s:.0f} s")
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
