"""One GPU from the start: jobs group after group, what changes take; and many sets at once."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.prediction import LEVELS, Level
from advisor.prediction.trace import Floats
from advisor.sharing import Group, Hybrid, Sharing
from advisor.sharing.groups import groups, lines_of
from advisor.simulation import START_CPU_ERROR, START_CPU_S
from advisor.simulation.events import (
    DONE,
    History,
    JobQueue,
    JobStart,
    Pace,
    PlacedJob,
    PlacedJobs,
    Stretch,
    Task,
    run,
)
from advisor.simulation.queues import GpuCapacity, InOrder
from advisor.workload.job import Job


def start_cpu_s(start_s: float, level: Level, cpu_s: float = START_CPU_S) -> float:
    """Return the CPU seconds of a process that takes `start_s` to start, alone on a core."""
    return min(start_s, cpu_s * START_CPU_ERROR ** (LEVELS.index(level) - 1))


def task_of(job: Job, level: Level = "p50", arrival_s: float = 0.0, cores: float = inf) -> Task:
    """Return the work of `job`, whose length is known, on a host with so many cores."""
    return Task(
        job.work_steps or 0.0,
        arrival_s,
        start_steps=job.start_s / job.alone_step_s,
        start_cores_s=job.gpus * start_cpu_s(job.start_s, level) / cores,
    )


def from_the_start(sharing: Sharing, tasks: Sequence[Task], pace: Pace) -> History:
    """Simulate one GPU, whose memory holds all jobs that run at once.

    Each group starts when the one before has ended and the GPU is set up for it; during that pause
    no job runs.
    """
    in_order = groups(sharing, len(tasks))
    stretches = _of_group(in_order[0], tasks, pace, 0.0)
    for before, group in pairwise(in_order):
        begins_s = stretches[-1].end_s + repartition_s(before, group)
        stretches += _of_group(group, tasks, pace, begins_s)
    starts_s = {seat.job: each.start_s for each in reversed(stretches) for seat in each.seats}
    ends_s = {seat.job: each.end_s for each in stretches for seat in each.seats}
    jobs = range(len(tasks))
    return History(
        tuple(stretches), tuple(starts_s[job] for job in jobs), tuple(ends_s[job] for job in jobs)
    )


def _of_group(
    group: Group | Hybrid, tasks: Sequence[Task], pace: Pace, begins_s: float
) -> list[Stretch]:
    positions = [number - 1 for number in sorted(group.jobs)]

    def of_all(seats: PlacedJobs) -> PlacedJobs:
        return tuple(PlacedJob(positions[seat.job], positions[seat.job]) for seat in seats)

    queue: JobQueue
    if isinstance(group, Hybrid):
        queue = _Lines([deque(positions.index(job - 1) for job in line) for line in _lines(group)])
    else:
        ranks = [group.jobs.index(position + 1) for position in positions]
        queue = InOrder(GpuCapacity((0,) * group.at_once), ranks)
    own = [tasks[job] for job in positions]
    history = run(own, lambda seats: pace(of_all(seats)), queue)
    return [
        Stretch(0, begins_s + each.start_s, begins_s + each.end_s, of_all(each.seats), each.speeds)
        for each in history.stretches
    ]


@dataclass(slots=True)
class _Lines:
    """The jobs of each line one after another; the place of a job is the number of its line."""

    lines: Sequence[deque[int]]

    def add(self, job: int) -> None:
        """All jobs wait from the start."""

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        taken = {seat.place for seat in gpus[0]}
        free = (at for at, line in enumerate(self.lines) if line and at not in taken)
        place = next(free, None)
        return None if place is None else JobStart(self.lines[place].popleft(), 0, place)


def line_s(seconds: Iterable[float], at_once: int) -> float:
    """Return when the last of jobs ends that take so long, start in order and run so many at once.

    Each of them takes as long whatever runs with it.
    """
    ends_s = [0.0] * at_once
    for each in seconds:
        heapreplace(ends_s, ends_s[0] + each)
    return max(ends_s)


def last_end_s(sharing: Sharing, seconds: Sequence[float]) -> float:
    """Return when the last job ends if each takes so long, whatever runs with it."""
    return sum(
        max(
            line_s([seconds[job - 1] for job in line], at_once) for line, at_once in lines_of(group)
        )
        for group in groups(sharing, len(seconds))
    )


def set_spans(sharing: Sharing, slowdowns: Sequence[float]) -> list[float]:
    """Return how long each of `sets_in_turn` takes, by `slowdowns`, if all jobs take 1 alone."""
    spans = []
    for group in groups(sharing, len(slowdowns)):
        if isinstance(group, Hybrid):
            lines = [[slowdowns[job - 1] for job in line] for line in _lines(group)]
            if group.at_once < len(group.jobs):  # no job moves to an instance whose line has ended
                spans.append(max(map(sum, lines)))
            else:
                spans.append(len(lines) / sum(1 / each for (each,) in lines))
            continue
        for members in group.running_together:
            slow = [slowdowns[job - 1] for job in members]
            waits = group.at_once < len(members) and group.sharing.mode != "serial"
            rate = sum(1 / each for each in slow)
            spans.append(line_s(slow, group.at_once) if waits else len(slow) / rate)
    return spans


def _lines(hybrid: Hybrid) -> list[tuple[int, ...]]:
    """Numbers of the jobs of each line on its instances; other jobs are each by themselves."""
    parts = hybrid.partitions
    return [line for part in parts for line in ([part.jobs] if part.at_once else zip(part.jobs))]


# Seconds to make and to destroy a MIG instance: an A30 took 0.13 to 0.16 and 0.10 to 0.11 (FAR's
# README).
_MAKE_S, _DESTROY_S = 0.16, 0.11
# Assumed: MIG mode on or off, without a reset, as Hopper does it.
MIG_MODE_S = 5.0
# An MPS daemon up or down: the median of 11 times on an H200 (profiles/REPORT.md, whole jobs).
_MPS_DAEMON_S = 0.16


def repartition_s(before: Group | Hybrid, after: Group | Hybrid) -> float:
    """Compute the seconds without jobs that setting up the GPU takes between two groups.

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
