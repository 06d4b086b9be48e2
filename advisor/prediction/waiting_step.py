"""The step of a job whose host waits for the GPU, as to read its loss or to hand it a batch.

Such a host does not run ahead: the GPU has nothing to do from the end of a wait until the host has
launched again, and the host nothing until what it launched is done. So a step takes longer than
either of them, and grows with both.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class WaitingStep(NamedTuple):
    """Kernels of a step, and how far the host is when it waits for them; seconds.

    Attributes:
        launch_s: When the host launches each, from the step's start, shape (kernels,).
        duration_s: How long each runs, shape (kernels,).
        waits_s: How far the host is while it waits for the end of each, from the step's start,
            shape (kernels,); infinite where it does not. At least one is finite.
        host_s: Seconds between the starts of two steps on a host that never waits.
        gap_s: Seconds that pass on the GPU between a kernel's end and the next one's start.
    """

    launch_s: Floats
    duration_s: Floats
    waits_s: Floats
    host_s: float
    gap_s: float

    def changed(self, *, host: float = 1.0, gpu: float = 1.0, gap: float = 1.0) -> "WaitingStep":
        """The same where host, kernels and gaps take so many times as long."""
        waits_s = self.waits_s.copy()
        waits_s[np.isfinite(waits_s)] *= host
        return WaitingStep(
            self.launch_s * host, self.duration_s * gpu, waits_s, self.host_s * host,
            self.gap_s * gap,
        )  # fmt: skip

    def taking(self, step_s: float) -> "WaitingStep":
        """The same at a pace such that a step takes `step_s`, by the least of these changes.

        The kernels as they are and the gaps if there is time for them; the host slower, or faster
        if there is not; kernels that take longer than a step as long as that.
        """
        from scipy.optimize import brentq

        busy_s = float(self.duration_s.sum())
        fitting = self.changed(gpu=min(1.0, step_s / busy_s))

        def at(effort: float) -> WaitingStep:
            """From no host and no gaps over both as they are to a slower host; never faster."""
            host = min(1.0, effort) + max(0.0, effort - 2)
            return fitting.changed(host=host, gap=min(1.0, max(0.0, effort - 1)))

        if at(0.0).seconds() >= step_s:  # but for the last digit, since nothing waits then
            return at(0.0)
        most = 3 + step_s / self.host_s
        return at(brentq(lambda effort: at(effort).seconds() - step_s, 0.0, most))

    def seconds(self) -> float:
        """Seconds of a step alone, from the end of its last wait to the same in the next step."""
        last = int(np.flatnonzero(np.isfinite(self.waits_s))[-1])
        launch_s, waits_s = (
            _from(last + 1, column, self.host_s) for column in (self.launch_s, self.waits_s)
        )
        duration_s = np.roll(self.duration_s, -last - 1)
        began_s = -float(self.waits_s[last])  # when the host began this step, if it never waited
        free_s = 0.0
        ends = [0, *(np.flatnonzero(np.isfinite(waits_s)) + 1)]
        for first, end in pairwise(ends):
            taken_s = duration_s[first:end] + self.gap_s
            before_s = np.cumsum(taken_s) - taken_s
            ready_s = began_s + launch_s[first:end] - before_s
            free_s = max(free_s, float(ready_s.max())) + float(taken_s.sum())
            began_s = max(began_s, free_s - self.gap_s - float(waits_s[end - 1]))
        return began_s + float(waits_s[-1])


def _from(first: int, column: Floats, host_s: float) -> Floats:
    """`column` from a kernel on; those before it belong to the next step."""
    return np.concatenate((column[first:], column[:first] + host_s))


def waits_for(launch_s: Floats, waits_s: Floats, host_s: float) -> Floats:
    """`WaitingStep.waits_s` of a host that waits at `waits_s`, shape (waits,), of each step.

    A wait before a step's first launch is for the last kernel of the step before. Of several for
    the same kernel the first one holds the host.
    """
    found = np.full(len(launch_s), np.inf)
    before = np.searchsorted(launch_s, waits_s, side="right") - 1
    np.minimum.at(found, before, np.where(before < 0, waits_s + host_s, waits_s))
    return found
