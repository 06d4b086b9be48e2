"""The timeline of one job: training, validation and checkpoints, epoch by epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from advisor.timeline.outcome import Usage
from advisor.workload.job import Job

Kind = Literal["training", "validation", "checkpoint"]

# Shares of an epoch below this are rounding.
_DUST = 1e-9


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of one job's time.

    Attributes:
        epoch: From 1.
    """

    kind: Kind
    epoch: int
    start_s: float
    end_s: float


def parts(number: int, job: Job, usage: Sequence[Usage]) -> Iterator[Part]:
    """The parts of `job` in order; validation and checkpoints slow down with others as steps do.

    Args:
        number: Of the job in `usage`.
        job: Of known length.
        usage: All in which it runs, in order.
    """
    clock = _Clock(number, usage)
    for kind, epoch, steps in _work(job):
        start_s, end_s = clock.after(steps)
        yield Part(kind, epoch, start_s, end_s)


def _work(job: Job) -> Iterator[tuple[Kind, int, float]]:
    """Steps of each part; all parts of a fractional last epoch are scaled."""
    step_s = job.profile.step_s
    pieces: tuple[tuple[Kind, float], ...] = (
        ("training", job.profile.workload.steps_per_epoch or 0.0),
        ("validation", job.validation_s / step_s),
        ("checkpoint", job.checkpoint_s / step_s),
    )
    for epoch in count(1):
        share = min(1.0, job.epochs - (epoch - 1))
        if share < _DUST:
            return
        for kind, steps in pieces:
            if steps:
                yield kind, epoch, share * steps


class _Clock:
    """Converts a job's steps to times."""

    def __init__(self, number: int, usage: Sequence[Usage]) -> None:
        self._pace = [
            (each.start_s, each.end_s, each.speeds[each.jobs.index(number)]) for each in usage
        ]
        self._at, self._now_s = 0, self._pace[0][0]

    def after(self, steps: float) -> tuple[float, float]:
        """When the next `steps` begin and end."""
        begins_s = self._now_s
        while True:
            _, end_s, speed = self._pace[self._at]
            done_s = self._now_s + steps / speed
            if done_s <= end_s or self._at == len(self._pace) - 1:
                self._now_s = min(done_s, end_s)
                return begins_s, self._now_s
            steps -= (end_s - self._now_s) * speed
            self._at += 1
            self._now_s = self._pace[self._at][0]
