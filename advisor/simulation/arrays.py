"""The event loop for many sets of jobs at once, each on a GPU of its own."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.trace import Floats
from advisor.simulation.events import DONE

Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

StepsOfRunning = Callable[[Indices, Bools], Floats]
"""Some of the sets, and which jobs of each run, shape (sets, jobs) -> seconds of a step of each
that runs, of the same shape."""


class ArrayStretch(NamedTuple):
    """A stretch of time in which no job of a set ends or starts, for many sets at once.

    Attributes:
        sets: Indices of the sets in which a job still runs, shape (sets,).
        running: Whether each job of these sets runs, shape (sets, jobs).
        waiting: Whether it waits until another ends, same shape.
        seconds: Seconds until the next job of each set ends, shape (sets,).
    """

    sets: Indices
    running: Bools
    waiting: Bools
    seconds: Floats


def array_stretches(
    work_steps: Floats, steps_s: StepsOfRunning, at_once: Indices | None = None
) -> Iterator[ArrayStretch]:
    """Simulate all sets; at the end of each stretch, at least one job of every set in it ends.

    The jobs of each set run on a GPU of their own.

    Args:
        work_steps: Steps that each job has to do, shape (sets, jobs); 0 where there is no job; if
            `at_once` is given, only after the jobs of a set.
        steps_s: Predicts the steps of the jobs that run; called once for each stretch.
        at_once: Most jobs that run at the same time, shape (sets,), in the order in which they
            start; None: all start at once.
    """
    left, jobs = work_steps.copy(), np.arange(work_steps.shape[1])
    started = np.full(len(left), len(jobs)) if at_once is None else at_once.copy()
    while (at := np.flatnonzero((left > 0).any(axis=1))).size:
        unended, may_run = left[at] > 0, jobs < started[at, None]
        running = unended & may_run
        steps = steps_s(at, running)
        seconds = np.where(running, left[at] * steps, np.inf).min(axis=1)
        yield ArrayStretch(at, running, unended & ~may_run, seconds)
        remains = left[at] - seconds[:, None] / steps
        ended = running & (remains <= DONE * work_steps[at])
        left[at] = np.where(running, np.where(ended, 0.0, remains), left[at])
        started[at] += ended.sum(axis=1)


def array_ends_s(
    work_steps: Floats, steps_s: StepsOfRunning, at_once: Indices | None = None
) -> Floats:
    """Compute seconds until each job ends, shape (sets, jobs); 0 where there is no job."""
    ends_s = np.zeros(work_steps.shape)
    for at, running, waiting, seconds in array_stretches(work_steps, steps_s, at_once):
        ends_s[at] += np.where(running | waiting, seconds[:, None], 0.0)
    return ends_s
