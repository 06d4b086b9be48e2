"""Simulates jobs that are all there from the start: at once, in turn, or in phases with pauses.

`array_stretches` does so for thousands of sets of jobs in arrays; the jobs of each set start at
once on a GPU of their own.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.trace import Floats
from advisor.sharing import Group, Hybrid, Sharing
from advisor.sharing.traversal import groups
from advisor.timeline.event_loop import (
    DONE,
    History,
    JobStart,
    Pace,
    PlacedJob,
    PlacedJobs,
    Stretch,
    Task,
    run,
)


def from_the_start(sharing: Sharing, work_steps: Sequence[float], pace: Pace) -> History:
    """Simulates one GPU, whose memory holds all jobs that run at once.

    Each group starts when the one before has ended and the GPU is set up for it; during that pause
    no job runs.

    Args:
        sharing: How all jobs share; job n is in place n.
        work_steps: Steps of each job, above 0, shape (jobs,).
        pace: Paces of jobs that run at once.
    """
    first, *_ = in_order = groups(sharing, len(work_steps))
    stretches = _of_group(first, work_steps, pace, 0.0)
    for before, group in pairwise(in_order):
        begins_s = stretches[-1].end_s + repartition_s(before, group)
        stretches += _of_group(group, work_steps, pace, begins_s)
    starts_s = {seat.job: each.start_s for each in reversed(stretches) for seat in each.seats}
    ends_s = {seat.job: each.end_s for each in stretches for seat in each.seats}
    jobs = range(len(work_steps))
    return History(
        tuple(stretches), tuple(starts_s[job] for job in jobs), tuple(ends_s[job] for job in jobs)
    )


def _of_group(
    group: Group | Hybrid, work_steps: Sequence[float], pace: Pace, begins_s: float
) -> list[Stretch]:
    positions = [number - 1 for number in sorted(group.jobs)]

    def of_all(seats: PlacedJobs) -> PlacedJobs:
        return tuple(PlacedJob(positions[seat.job], positions[seat.job]) for seat in seats)

    tasks = [Task(work_steps[job]) for job in positions]
    queue = _InLine(max(map(len, group.running_together)))
    history = run(tasks, lambda seats: pace(of_all(seats)), queue)
    return [
        Stretch(0, begins_s + each.start_s, begins_s + each.end_s, of_all(each.seats), each.speeds)
        for each in history.stretches
    ]


@dataclass(slots=True)
class _InLine:
    """Jobs in order, at most `places` at once; memory holds all that run at once."""

    places: int
    _waiting: deque[int] = field(default_factory=deque)

    def add(self, job: int) -> None:
        self._waiting.append(job)

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        if not self._waiting or len(gpus[0]) == self.places:
            return None
        job = self._waiting.popleft()
        return JobStart(job, gpu=0, place=job)


# Seconds to make and to destroy a MIG instance: an A30 took 0.13 to 0.16 and 0.10 to 0.11, as the
# README of FAR reports.
_MAKE_S, _DESTROY_S = 0.16, 0.11
# Assumed: MIG mode on or off, without a reset, as Hopper does it.
MIG_MODE_S = 5.0
# An MPS daemon up or down: the median of 11 times on an H200 (profiles/REPORT.md, whole jobs).
_MPS_DAEMON_S = 0.16


def repartition_s(before: Group | Hybrid, after: Group | Hybrid) -> float:
    """Seconds without jobs between the groups `before` and `after`, to set up the GPU.

    Instances and MPS daemons that both groups need stay. Starting jobs is not counted: it takes
    equally long in every plan.
    """
    old, new = Counter(before.instances), Counter(after.instances)
    seconds = (new - old).total() * _MAKE_S + (old - new).total() * _DESTROY_S
    seconds += MIG_MODE_S * (bool(old) != bool(new))
    up, down = _daemons(after) - _daemons(before), _daemons(before) - _daemons(after)
    return seconds + _MPS_DAEMON_S * (up + down).total()


def _daemons(group: Group | Hybrid) -> Counter[str]:
    """The places with an MPS daemon."""
    return Counter(
        f"{part.instance} {number}"
        for memory in group.memories
        for number, part in enumerate(memory)
        if part.sharing.under_mps
    )


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
        seconds: Seconds until the next job of each set ends, shape (sets,).
    """

    sets: Indices
    running: Bools
    seconds: Floats


def array_stretches(work_steps: Floats, steps_s: StepsOfRunning) -> Iterator[ArrayStretch]:
    """All stretches; at the end of each, at least one job of every set in it ends.

    Args:
        work_steps: Steps that each job has to do, shape (sets, jobs); 0 where there is no job.
        steps_s: Predicts the steps of the jobs that run; called once for each stretch.
    """
    left = work_steps.copy()
    while (at := np.flatnonzero((left > 0).any(axis=1))).size:
        running = left[at] > 0
        steps = steps_s(at, running)
        seconds = np.where(running, left[at] * steps, np.inf).min(axis=1)
        yield ArrayStretch(at, running, seconds)
        remains = left[at] - seconds[:, None] / steps
        left[at] = np.where(running & (remains > DONE * work_steps[at]), remains, 0.0)


def array_ends_s(work_steps: Floats, steps_s: StepsOfRunning) -> Floats:
    """Seconds until each job ends, shape (sets, jobs); 0 where there is no job."""
    ends_s = np.zeros(work_steps.shape)
    for each in array_stretches(work_steps, steps_s):
        ends_s[each.sets] += np.where(each.running, each.seconds[:, None], 0.0)
    return ends_s
