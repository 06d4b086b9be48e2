"""Schedules the windows of a measurement, and counts the steps that tenants did in each."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import sleep, time

import numpy as np

from advisor.workload.measured import Window

# With fewer steps of the slowest tenant, where a window cuts a step affects its figure.
_FEWEST_STEPS = 6

# Training goes on this long after the last window, so that clock differences cut no window short.
_MARGIN_S = 0.05

_LONGEST_LEAD_S = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a measurement takes.

    Attributes:
        settle_s: Seconds that all tenants train together before anything counts.
        window_s: Least length of a window.
        windows: Number of windows.
        lead_s: Least seconds before the first window, in which launch queues fill.
        longest_s: Most seconds of all windows together.
    """

    settle_s: float = 0.7
    window_s: float = 1.0
    windows: int = 3
    lead_s: float = 0.2
    longest_s: float = 8.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Moments of one run.

    Attributes:
        start_at: When all tenants take their first step; seconds of the wall clock.
        bounds_s: Where windows begin and end, seconds after `start_at`, shape (windows + 1,).
    """

    start_at: float
    bounds_s: tuple[float, ...]

    @property
    def begin_at(self) -> float:
        """When the first window begins."""
        return self.start_at + self.bounds_s[0]

    @property
    def end_at(self) -> float:
        """When the last window ends."""
        return self.start_at + self.bounds_s[-1]

    @property
    def stop_at(self) -> float:
        """When tenants begin no further step."""
        return self.end_at + _MARGIN_S


def schedule(start_at: float, timing: Timing, slowest_step_s: float) -> Schedule:
    """When to measure, if all start at `start_at` and the slowest takes `slowest_step_s` a step."""
    least_s = timing.windows * timing.window_s
    length_s = max(least_s, min(_FEWEST_STEPS * slowest_step_s, timing.longest_s))
    first_s = min(max(timing.lead_s, slowest_step_s), _LONGEST_LEAD_S)
    bounds_s = np.linspace(first_s, first_s + length_s, timing.windows + 1)
    return Schedule(start_at, tuple(bounds_s.tolist()))


def sleep_until(moment: float) -> None:
    """Wait for a moment of the wall clock; returns at once if it is past."""
    sleep(max(0.0, moment - time()))


def step_s_of(start_at: float, completed_at: Sequence[float]) -> float:
    """Mean seconds of a step of a tenant that began at `start_at`."""
    return (completed_at[-1] - start_at) / len(completed_at)


def windows_of(plan: Schedule, completed_at: Sequence[float]) -> tuple[Window, ...]:
    """What one tenant did in each window; a step cut by a bound counts in part on both sides.

    Args:
        plan: When the windows were.
        completed_at: When each of its steps ended, never decreasing, shape (steps,).
    """
    ends_s = np.array([plan.start_at, *completed_at]) - plan.start_at
    done = np.interp(plan.bounds_s, ends_s, np.arange(len(ends_s)))
    lengths_s = np.diff(plan.bounds_s)
    return tuple(
        Window(float(seconds), float(steps))
        for seconds, steps in zip(lengths_s, np.diff(done), strict=True)
    )
