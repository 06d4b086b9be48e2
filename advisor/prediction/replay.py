"""Replays the kernel traces of all tenants against each other, event by event.

**MPS.** Kernels of different tenants run side by side: in the order in which they became ready
their blocks start on SMs with room for them, up to their tenants' limits. A grid of several waves
makes later kernels wait until its last blocks have started, but for a few that start where blocks
of its own end. Kernels that are on the SMs together share, in proportion, what these do.
**Naive.** One tenant owns the whole GPU for a slice; passing it on costs time; an owner with
nothing to run soon yields, and so does one whose host waited for what it ran; copies between host
and GPU need no slice, and their owner is idle meanwhile. In both the hosts launch on, each at its
own pace.

`engine` and `time_slice_engine` are compiled, once for many processes (see `engine_file`);
`tests/prediction/slow_replay.py` says it plainly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from advisor.prediction import replay_loops
from advisor.prediction.engine_layout import NEVER
from advisor.prediction.kernel_pace import sm_pace
from advisor.prediction.trace import Floats, ReplayTrace
from advisor.workload.plausible import DAY_S, LEAST_STEP_S, check, check_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How to replay, and how long: until the first of two bounds is reached.

    Eight jobs of long steps need most of the events: with a quarter of them, in which some jobs do
    not even finish a step, predictions of 3 to 8 unseen jobs under MPS were 0.8 points worse, and
    with twice as many, no better.

    Attributes:
        steps: Steps of the slowest tenant, counted at its pace alone times the tenants.
        events: Kernel starts and ends, over all tenants.
    """

    steps: float = 4.0
    events: int = 80_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSlicing:
    """How the driver slices time between processes: no public source, fitted to measured runs.

    Kernels that only pass time show it on an H100.

    Attributes:
        slice_s: How long an owner keeps the GPU while others wait.
        patience_s: How long an owner with nothing to run keeps the GPU; longer where more passes
            between two kernels of its queue.
        switch_s: Seconds lost when the GPU is passed on, be its owner busy or not, and until its
            caches hold what the next one works on.
    """

    slice_s: float
    patience_s: float
    switch_s: float

    def __post_init__(self) -> None:
        check_number("slice_s", self.slice_s, DAY_S, LEAST_STEP_S)
        check(self, ("patience_s", "switch_s"))


def _columns(
    scripts: Sequence[ReplayTrace], limits: Sequence[float], exponents: Sequence[float]
) -> tuple[Any, Floats, Floats]:
    """Where each trace's kernels begin, the kernels end to end, and the traces' paces."""
    starts = np.cumsum([0, *(len(each.duration_s) for each in scripts)])
    kernels = [_rows(*each) for each in zip(scripts, limits, exponents, strict=True)]
    paces = np.array([[each.host_s, each.gap_s, each.lead_s] for each in scripts])
    return starts, np.concatenate(kernels, axis=1), np.ascontiguousarray(paces.T)


# A last wave that drains faster is no event of its own: a replay of seven jobs takes 1.1 times as
# long as without such events, not 1.25 times, and predicts jobs of families left out as well.
_BRIEF_S = 10e-6


# Copies of a job have the same, and so do most of the mixes of one question.
@lru_cache(maxsize=128)
def _rows(script: ReplayTrace, limit: float, exponent: float) -> Floats:
    """The rows of `engine`'s kernels on a share `limit` of the SMs, shape (7, kernels)."""
    pace = sm_pace(script.demand, limit, exponent)
    duration_s, waves = script.duration_s / pace, script.waves / limit
    wave_s = duration_s / np.ceil(np.maximum(waves, 1))
    drain_s = np.where((waves > 1) & (wave_s >= _BRIEF_S), wave_s, 0.0)
    return np.stack([
        script.launch_s, duration_s, np.minimum(script.demand, limit),
        limit * np.minimum(1, waves), drain_s, np.minimum(NEVER, script.waits_s),
        script.in_turns,
    ])  # fmt: skip


def _horizon_s(scripts: Sequence[ReplayTrace], effort: Effort) -> float:
    alone = [max(each.host_s, float(each.duration_s.sum())) for each in scripts]
    return effort.steps * max(alone) * len(scripts)


# Steps may be much shorter than slices: every tenant has the GPU at least this often.
_ROUNDS = 12
# Times the effort that MPS gets, which takes many times as long to replay: with as much, slices cut
# off at both ends leave steps of 2,313 jobs 0.1 points further from those measured.
_NAIVE_EFFORT = 5

# The log for a caller that does not need one.
UNLOGGED = np.zeros((0, 4))


def replay_mps(
    scripts: Sequence[ReplayTrace],
    limits: Sequence[float],
    exponents: Sequence[float],
    ceded: float,
    effort: Effort,
    *,
    log: Floats = UNLOGGED,
) -> Floats:
    """Seconds of a step of each tenant under MPS, shape (tenants,).

    Args:
        scripts: One for each tenant.
        limits: Share of the SMs that each tenant may use, (0, 1].
        exponents: As of `kernel_pace.limit_exponent`, of each tenant; 1 for kernels that only
            compute, less if bandwidth binds.
        ceded: Share of the GPU's block slots that a kernel leaves, while it starts blocks, to those
            that became ready after it, 0..1.
        effort: How long to replay.
        log: Filled, up to its length, with tenant, kernel of its trace, start and end of what
            runs, shape (rows, 4), in seconds.
    """
    columns, horizon_s = _columns(scripts, limits, exponents), _horizon_s(scripts, effort)
    return replay_loops.mps(*columns, ceded, horizon_s, effort.events, log)


def replay_naive(
    scripts: Sequence[ReplayTrace], slicing: TimeSlicing, effort: Effort, *, log: Floats = UNLOGGED
) -> Floats:
    """Seconds of a step of each tenant under time slicing, shape (tenants,); `log` as above."""
    whole, steps = [1.0] * len(scripts), _NAIVE_EFFORT * effort.steps
    turns_s = _ROUNDS * len(scripts) * (slicing.slice_s + slicing.switch_s)
    horizon_s = max(_horizon_s(scripts, replace(effort, steps=steps)), turns_s)
    return replay_loops.naive(
        *_columns(scripts, whole, whole), (slicing.slice_s, slicing.patience_s, slicing.switch_s),
        horizon_s, _NAIVE_EFFORT * effort.events, log,
    )  # fmt: skip
