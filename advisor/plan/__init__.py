"""The search for which jobs share which GPU, how, and in what order.

`ranking.recommended` ranks plans: all ways to share one GPU by `one_gpu`, or the best that `fleet`
finds for many jobs or several GPUs. Both use the tables of all sets of `candidate_space.Space`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

START_S = 10.0
"""Seconds in which the process of a trial starts, and imports torch and CUDA: 9 to 11 in a study on
an H200."""

START_ERROR = 1.5
"""Factor by which a start may take longer, or shorter, on other hosts and disks: a choice."""

ObjectiveName = Literal["makespan", "throughput", "mean-completion", "energy", "deadlines"]
"""Goals of a plan; `advisor.plan.objectives` has a class for each."""

Layouts = Literal["plain", "any"]
"""MIG layouts that plans may have: see `advisor.plan.rules.Conditions`."""

MOST_GPUS = 128
"""The largest number of GPUs for which jobs are planned."""


_WATCH: ContextVar[Callable[[], None] | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Callable[[], None]) -> Iterator[None]:
    """Call `watch` at each step of the searches in this block and thread; its errors end them."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def step() -> None:
    """Count a step of a search: some milliseconds of work or less."""
    if (watch := _WATCH.get()) is not None:
        watch()
