"""The pace of a job from the steps that it counts, and whether that is what was predicted."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from advisor.measure.process.printed_output import ended_lines
from advisor.measure.process.progress_file import ReportedProgress
from advisor.workload.measured import Window
from advisor.workload.plan_document import StepRange

# Fewer steps, or less time, say little of a pace.
_FEWEST_STEPS, _SHORTEST_S = 6, 2.0
# As many samples as tell a run of any length; beyond, every second one goes.
_MOST_SAMPLES = 4096
# After others came or went, a pace settles for so long before it is judged, and is judged by so
# much time at least.
SETTLE_S, JUDGED_S = 3.0, 10.0
# A job without a step for so long, and for so many of its steps, hangs.
_SILENT_S, _SILENT_STEPS = 60.0, 20
# Steps a second that no job takes.
_FASTEST = 1e9


@dataclass(slots=True)
class WatchedPace:
    """What one job counted, as far as it was watched.

    Attributes:
        last: What it said last; None before it said anything.
        seen_at_s: When its count last grew, on the watcher's monotonic clock.
    """

    last: ReportedProgress | None = None
    seen_at_s: float | None = None
    _at_s: list[float] = field(default_factory=list)
    _steps: list[int] = field(default_factory=list)

    def add(self, found: ReportedProgress | None, now_s: float) -> None:
        """Take down what the job says now; a count that goes back is another process's."""
        if found is None:
            return
        grew = self.last is None or found.steps > self.last.steps
        self.last = found
        if not grew or (self._at_s and found.at_s <= self._at_s[-1]):
            return
        self.seen_at_s = now_s
        self._at_s.append(found.at_s)
        self._steps.append(found.steps)
        if len(self._at_s) > _MOST_SAMPLES:
            self._at_s, self._steps = self._at_s[::2], self._steps[::2]

    @property
    def steps(self) -> int | None:
        return None if self.last is None else self.last.steps

    def step_s(self, since_s: float) -> float | None:
        """Mean seconds of a step since a moment; None where too little was seen."""
        first = bisect_left(self._at_s, since_s)
        if len(self._at_s) - first < 2:
            return None
        steps = self._steps[-1] - self._steps[first]
        seconds = self._at_s[-1] - self._at_s[first]
        return seconds / steps if steps >= _FEWEST_STEPS and seconds >= _SHORTEST_S else None

    def windows(self, bounds_s: Sequence[float]) -> tuple[Window, ...]:
        """Steps between each two of the moments; none where it did none or was not watched."""
        if len(self._at_s) < 2 or bounds_s[0] < self._at_s[0] or bounds_s[-1] > self._at_s[-1]:
            return ()
        done = np.interp(bounds_s, self._at_s, self._steps)
        found = [
            Window(float(end - begin), float(last - first))
            for (begin, end), (first, last) in zip(pairwise(bounds_s), pairwise(done), strict=True)
            if last > first
        ]
        return tuple(found) if len(found) == len(bounds_s) - 1 else ()

    @property
    def span_s(self) -> tuple[float, float] | None:
        """When it was first and last seen to count; None before it was twice."""
        return (self._at_s[0], self._at_s[-1]) if len(self._at_s) > 1 else None

    def silent_s(self, now_s: float, step_s: float | None) -> float | None:
        """For how long it has done no step, where that is long; None where it goes on."""
        if self.seen_at_s is None:
            return None
        silent_s = now_s - self.seen_at_s
        return silent_s if silent_s > max(_SILENT_S, _SILENT_STEPS * (step_s or 0.0)) else None


def outside(step_s: float | None, predicted: StepRange | None) -> bool:
    """Whether a measured step lies outside its predicted interval, where both are known."""
    if step_s is None or predicted is None:
        return False
    return not predicted.p05 <= step_s <= predicted.p95


class PrintedPace:
    """Steps of a job that only prints its pace, counted from its log.

    Args:
        throughput: Finds, as its one group, the examples a second until it was printed.
        batch: Examples of a step.
        log: What the job prints.
    """

    def __init__(self, throughput: str, batch: int, log: Path) -> None:
        self._pattern, self._batch, self._log = re.compile(throughput.encode()), batch, log
        self._read, self._line, self._steps = 0, b"", 0.0
        self._at_s: float | None = None

    def progress(self, now_s: float) -> ReportedProgress | None:
        """Return the steps until the last figure; None before the second one."""
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(self._read)
            printed = log.read()
            self._read += len(printed)
            lines, self._line = ended_lines(self._line + printed)
            for line in lines:
                if (found := self._pattern.search(line)) is not None:
                    with suppress(ValueError):
                        self._add(float(found[1]) / self._batch, now_s)
        if self._at_s is None or not self._steps:
            return None
        return ReportedProgress(int(self._steps), self._at_s)

    def _add(self, pace: float, now_s: float) -> None:
        if self._at_s is not None and 0 < pace < _FASTEST:
            self._steps += pace * (now_s - self._at_s)
        self._at_s = now_s
