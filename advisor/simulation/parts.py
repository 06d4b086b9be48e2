"""The parts of a simulated job: its start, training, validation and checkpoints of each epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from advisor.simulation.simulate import Usage
from advisor.workload.job import Job

Kind = Literal["start", "training", "validation", "checkpoint"]

# Shares of an epoch below this are rounding.
_DUST = 1e-9


@dataclass(frozen=True, slots=True)
class JobStretch:
    """A part of one job: its start, or training, validation or a checkpoint of an epoch from 1."""

    kind: Kind
    epoch: int
    start_s: float
    end_s: float


def parts(number: int, job: Job, usage: Sequence[Usage]) -> Iterator[JobStretch]:
    """Return the parts of `job` in order; all slow down as training does."""
    paces = [(each.start_s, each.end_s, each.speeds[each.jobs.index(number)]) for each in usage]
    at, now_s = 0, paces[0][0]
    done = sum((end_s - start_s) * speed for start_s, end_s, speed in paces)
    for kind, epoch, steps in _work(job, done):
        start_s, left = now_s, steps
        while True:
            _, end_s, speed = paces[at]
            done_s = now_s + left / speed
            if done_s <= end_s or at == len(paces) - 1:
                now_s = min(done_s, end_s)
                break
            left -= (end_s - now_s) * speed
            at += 1
            now_s = paces[at][0]
        yield JobStretch(kind, epoch, start_s, now_s)


def _work(job: Job, done: float) -> Iterator[tuple[Kind, int, float]]:
    """Steps of each part; those of a fractional last epoch are scaled.

    The start takes what `done` steps exceed the work by, because it may wait for cores.
    """
    step_s, (validation_s, checkpoint_s) = job.alone_step_s, job.pauses_s
    pieces: tuple[tuple[Kind, float], ...] = (
        ("training", job.profile.workload.steps_per_epoch or 0.0),
        ("validation", validation_s / step_s),
        ("checkpoint", checkpoint_s / step_s),
    )
    if job.start_s:
        yield "start", 1, job.start_s / step_s + max(0.0, done - (job.work_steps or done))
    for epoch in count(1):
        share = min(1.0, job.epochs - (epoch - 1))
        if share < _DUST:
            return
        for kind, steps in pieces:
            if steps:
                yield kind, epoch, share * steps
