"""The pace that a program prints: examples a second, or the seconds of a step."""

import re
from collections import deque
from contextlib import suppress
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np

from advisor.errors import InvalidInput
from advisor.measure.process import plain
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
        """Check the pace against how often it is printed."""
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
            f"{1e3 * claimed_s:,.3g} ms, and such a figure comes every {1e3 * often_s:,.3g} ms. "
            f"{remedy}"
        )


def _unit_around(before: bytes, after: bytes) -> _Unit | None:
    """The unit of a number that the text around it names; None if it names none."""
    if _RATE_AFTER.match(after):
        return "rate"
    if match := _TIME_AFTER.match(after) or _TIME_BEFORE.search(before):
        return "ms" if match[1] else "s"
    return None
