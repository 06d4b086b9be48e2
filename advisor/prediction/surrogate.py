"""The surrogate model: a smooth function fitted to the predictor's answers, fast for many mixes.

Co-located jobs enter as sums, means and maxima, so their order is irrelevant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.files.units import MOST_LOG, check_scaled
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.prediction.cache import cached_by_profiles, one_thread
from advisor.prediction.correction import dram_active, of_others
from advisor.prediction.prediction import all_known
from advisor.prediction.replay import Physics
from advisor.prediction.trace import Floats, ReplayTrace, limit_exponent, replay_trace, sm_pace
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.profile import Profile

# Limits at which a job's features are computed, per cent, growing, the last one 100. Between two of
# them features are interpolated.
LIMIT_GRID = (5, 10, 14, 20, 28, 36, 43, 57, 71, 86, 100)

LIMITED = (
    "log_alone",  # slowdown by the limit, with no other job
    "busy",  # share of that step in which the GPU works for the job
    "sms",  # share of the GPU's SMs in use over that step
)
FIXED = (
    "dram",  # DRAM activity while the GPU works for the job
    "occupancy",  # while the GPU works for the job
    "host",  # host path over step
    "wide",  # share of the kernels' time in kernels that fill nine tenths of the GPU
    "log_kernel_us",  # of the kernel that runs at a random busy moment
    "log_kernels",  # in a step
    "log_step_ms",
    "log_alone_under_mps",  # what being an MPS client costs or gains alone
)
# Of the co-located jobs, at their limits. The names are those in the model file.
OTHERS = (
    "log_degree",
    "mates_busy",
    "mates_sms",
    "mates_dram",
    "mates_occupancy",
    "mates_wide",
    "mates_log_kernel_us",
    "mates_log_step_ms",
    "busiest_mate",
    "longest_mate_log_kernel_us",
    "log_wait",  # for the others' kernels in turn with its own, over its step
    "log_wait_wide",  # for those that leave no SM
    "log_wait_long",  # for what is left of the kernels that it finds running
)
_WIDE = 0.9


class Summaries(NamedTuple):
    """Features of jobs: steps alone, `LIMITED` at each limit of `LIMIT_GRID`, and `FIXED`.

    Shapes are (jobs,), (jobs, limits, columns) and (jobs, columns).
    """

    step_s: Floats
    limited: Floats
    fixed: Floats


def joined(parts: Sequence[Summaries]) -> Summaries:
    """Join the summaries of the jobs of all `parts`, one after another."""
    return Summaries(*map(np.concatenate, zip(*parts, strict=True)))


@cached_by_profiles
def summaries(
    profiles: Sequence[Profile], gpu: Gpu, physics: Physics, limits: Sequence[int] = LIMIT_GRID
) -> Summaries | None:
    """Return the features of `profiles`; None if one has no kernel trace.

    Features at limits below `limits`, the last of `LIMIT_GRID`, are those of the least of these.
    """
    scripts = all_known(replay_trace(each, gpu.sms, physics.packing) for each in profiles)
    if scripts is None:
        return None
    pairs = list(zip(profiles, scripts, strict=True))
    return Summaries(
        step_s=np.array([each.step_s for each in profiles]),
        limited=np.array([_limited(*pair, gpu, physics, limits) for pair in pairs]),
        fixed=np.array([_fixed(*pair, gpu) for pair in pairs]),
    )


def _limited(
    profile: Profile, played: ReplayTrace, gpu: Gpu, physics: Physics, limits: Sequence[int]
) -> Floats:
    """Compute `LIMITED` at each limit, shape (limits, columns)."""
    exponent = limit_exponent(profile, gpu, physics.bandwidth)
    rows = []
    for share in limit_shares(limits, gpu.sms):
        seconds = played.duration_s / sm_pace(played.demand, share, exponent)
        busy_s = float(seconds.sum())
        alone_s = played.alone_s(profile.step_s, busy_s)
        sms_s = float((seconds * np.minimum(played.demand, share)).sum())
        round_s = alone_s * played.steps
        rows.append((np.log(alone_s / profile.step_s), busy_s / round_s, sms_s / round_s))
    return np.array([rows[0]] * (len(LIMIT_GRID) - len(rows)) + rows)


# While the GPU works for the job, in the median of the profiles of an H200.
_USUAL_OCCUPANCY = 0.3


def _fixed(profile: Profile, played: ReplayTrace, gpu: Gpu) -> Floats:
    """Compute `FIXED` of a job, shape (columns,)."""
    seconds, busy_s = played.duration_s, max(float(played.duration_s.sum()), 1e-9)
    busy, occupancy = profile.busy_share or 1.0, getattr(profile.counters, "sm_occupancy", None)
    under_mps = profile.mps.unlimited.step_s / profile.step_s if profile.mps else 1.0
    kernel_us = 1e6 * float((seconds * seconds).sum()) / busy_s
    return np.array(
        [
            dram_active(profile, gpu),
            _USUAL_OCCUPANCY if occupancy is None else occupancy / busy,
            played.host_s / (profile.step_s * played.steps),
            float(seconds[played.demand >= _WIDE].sum()) / busy_s,
            np.log(kernel_us + 1),
            np.log(len(seconds) / played.steps),
            np.log(1e3 * profile.step_s),
            np.log(under_mps),
        ]
    )


# Length scales that fitting chose: of each column by mode.
_FITTED = {
    "dram": (100, 35, 67),
    "occupancy": (28, 47, 17),
    "host": (9.1, 11, 100),
    "wide": (4.4, 48, 11),
    "log_kernel_us": (22, 9.2, 14),
    "log_kernels": (26, 100, 9.7),
    "log_step_ms": (100, 100, 9.6),
    "log_alone_under_mps": (100, 100, 30),
    "log_degree": (1.7, 4.8, 20),
    "mates_busy": (24, 100, 100),
    "mates_sms": (10, 13, 2.6),
    "mates_dram": (29, 100, 33),
    "mates_occupancy": (100, 67, 40),
    "mates_wide": (38, 3.7, 14),
    "mates_log_kernel_us": (87, 100, 23),
    "mates_log_step_ms": (14, 61, 70),
    "busiest_mate": (5.7, 100, 100),
    "longest_mate_log_kernel_us": (100, 100, 84),
    "log_wait": (100, 4.5, 7.9),
    "log_wait_wide": (100, 3, 2.5),
    "log_wait_long": (100, 49, 64),
    "log_alone": (6, 6, 4.6),
    "busy": (1.5, 2, 19),
    "sms": (75, 4, 4.7),
}

LENGTHS = {column: dict(zip(SHARED_MODES, row, strict=True)) for column, row in _FITTED.items()}


def _columns_of_others(fixed: Floats, limited: Floats, present: NDArray[np.bool_]) -> Floats:
    """Compute `OTHERS` of each job, shape (mixes, places, columns)."""
    of = dict(
        zip((*FIXED, *LIMITED), np.moveaxis(np.concatenate([fixed, limited], 2), 2, 0), strict=True)
    )
    busy, long = np.where(present, of["busy"], 0.0), np.where(present, of["log_kernel_us"], 0.0)
    count, others_busy = np.maximum(of_others(present.astype(np.float64)), 1), of_others(busy)
    # Log of one and the time that a job's kernels wait in a step, over the step.
    step_us, kernels = 1e3 * np.exp(of["log_step_ms"]), np.exp(of["log_kernels"])
    turn_us = busy * busy * step_us / kernels
    wide = of["sms"] / np.maximum(of["busy"], 1e-9)
    waits = turn_us, turn_us * wide, busy * np.exp(of["log_kernel_us"])
    return np.stack(
        [
            np.broadcast_to(
                np.log(np.maximum(1, present.sum(axis=1, keepdims=True))), present.shape
            ),
            others_busy,
            of_others(np.where(present, of["sms"], 0.0)),
            of_others(busy * of["dram"]),
            of_others(busy * of["occupancy"]),
            of_others(busy * of["wide"]),
            of_others(busy * long) / np.maximum(others_busy, 1e-9),
            of_others(np.where(present, of["log_step_ms"], 0.0)) / count,
            _most_of_others(busy),
            _most_of_others(long),
            *(np.log1p(of_others(each) * kernels / step_us) for each in waits),
        ],
        axis=2,
    )


def _most_of_others(values: Floats) -> Floats:
    """Return the maximum over all other places of values of at least 0; 0 if there are none."""
    if values.shape[1] == 1:
        return np.zeros_like(values)
    second, most = np.moveaxis(np.partition(values, -2, axis=1)[:, -2:], 1, 0)
    return np.asarray(np.where(values == most[:, None], second[:, None], most[:, None]))


COLUMNS = (*FIXED, *OTHERS, *LIMITED)

# Mixes computed together, so that their arrays stay in the processor's cache.
_AT_ONCE = 256

_Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class MixBatch:
    """Mixes of some jobs, one mix a row, with a job in each place and its MPS limit.

    `jobs` are -1 where a place is empty; limits are in per cent, 100 for none. Shapes are (mixes,
    places).
    """

    jobs: _Indices
    limits: Floats


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """Log of a job's slowdown: a weighted sum of its likenesses to jobs in some mixes.

    It is the mean of a Gaussian process over a subset of the rows that it was fitted to (Rasmussen
    and Williams 2006, section 8.3.1).

    Attributes:
        scale: Difference in each column of two rows that are 1 apart.
        points: The rows that others are compared with, in `scale`, shape (points, columns).
        weights: Weight of each point.
        middle: Log slowdown far from all points.
    """

    columns: tuple[str, ...]
    scale: tuple[float, ...]
    points: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    middle: float

    def __post_init__(self) -> None:
        if self.columns != COLUMNS:
            raise InvalidInput("the search was fitted to other columns than this advisor computes")
        if {len(self.scale), *map(len, self.points)} != {len(COLUMNS)}:
            raise InvalidInput("the points of the search are not as long as its list of columns")
        if len(self.weights) != len(self.points):
            raise InvalidInput("the search has one weight for each point")
        _, points, weights = self._arrays
        most = max(float(np.abs(points).max()), float(np.abs(weights).max()))
        check_scaled("the columns of the search", self.scale, most)

    def slowdowns(self, others: Floats, limited: Floats, of: _Indices) -> Floats:
        """Return log slowdowns of jobs in mixes, at each limit of their own, shape (rows, limits).

        `others` are all columns but `LIMITED`, which are in `limited`, of shape (jobs, limits,
        columns), and `of` the job of each row.
        """
        scale, points, weights = self._arrays
        width, order = others.shape[1], np.argsort(of, kind="stable")
        likenesses = likeness(others[order] / scale[:width], points[:, :width])
        logs = np.empty((len(of), limited.shape[1]))
        jobs, firsts = np.unique(of[order], return_index=True)
        for job, rows in zip(jobs, np.split(np.arange(len(of)), firsts)[1:], strict=True):
            own = likeness(limited[job] / scale[width:], points[:, width:])
            logs[order[rows]] = likenesses[rows[0] : rows[-1] + 1] @ (own * weights).T
        return np.clip(logs + self.middle, -MOST_LOG, MOST_LOG)

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        return np.array(self.scale), np.array(self.points), np.array(self.weights)


def likeness(rows: Floats, points: Floats) -> Floats:
    """Return 1 / (1 + d^2 / 2) of each row and each point that lie d apart, shape (rows, points).

    A rational quadratic kernel (Rasmussen and Williams 2006, equation 4.19): quicker than an
    exponential, and as good here. The likeness of all columns is that by `LIMITED` times the rest.
    """
    of_rows = 1 + (rows * rows).sum(axis=1, keepdims=True) / 2
    of_points = (points * points).sum(axis=1, keepdims=True) / 2
    # One product of matrices: 1 + d^2 / 2 is the sum of these less that of products.
    left = np.hstack([rows, of_rows, np.ones_like(of_rows)])
    apart = left @ np.hstack([-points, np.ones_like(of_points), of_points]).T
    return np.asarray(np.reciprocal(apart, out=apart))


@dataclass(frozen=True, kw_only=True)
class SurrogateModel:
    """Surrogates by the modes of `advisor.sharing.SHARED_MODES` that have fitted runs."""

    surrogates: dict[Mode, Surrogate]

    def steps(self, jobs: Summaries, mixes: MixBatch, mode: Mode) -> Floats:
        """Return seconds of a step, shape (mixes, places); NaN where a place is empty.

        No job is faster than alone, and none slows when its limit is raised and the others keep
        theirs.
        """
        surrogate, limited, logs = self.surrogates[mode], mode == "mps-limits", [np.empty(0)]
        with one_thread():
            for start in range(0, len(mixes.jobs), _AT_ONCE):
                rows = slice(start, start + _AT_ONCE)
                part = MixBatch(mixes.jobs[rows], mixes.limits[rows])
                logs.append(_slowdowns(surrogate, jobs, part, limited))
        present = mixes.jobs >= 0
        steps = np.full(present.shape, np.nan)
        steps[present] = np.exp(np.concatenate(logs)) * jobs.step_s[mixes.jobs[present]]
        return steps


def columns(jobs: Summaries, mixes: MixBatch) -> Floats:
    """Compute the columns of a surrogate for each job, shape (mixes, places, columns)."""
    below, part = _places(mixes.limits)
    low, high = (jobs.limited[mixes.jobs, at] for at in (below, below + 1))
    limited, fixed = low + part[..., None] * (high - low), jobs.fixed[mixes.jobs]
    others = _columns_of_others(fixed, limited, mixes.jobs >= 0)
    return np.concatenate([fixed, others, limited], axis=2)


def _slowdowns(surrogate: Surrogate, jobs: Summaries, mixes: MixBatch, limited: bool) -> Floats:
    """Return the log slowdown of the job in each place that is not empty, shape (jobs,)."""
    unlimited, at_limits = np.split(columns(jobs, mixes), [-len(LIMITED)], axis=2)
    present = mixes.jobs >= 0
    others = np.broadcast_to(present.sum(axis=1, keepdims=True) - 1, present.shape)[present]
    alone = at_limits[present][:, LIMITED.index("log_alone")]
    grid = jobs.limited if limited else jobs.limited[:, -1:]
    curves = surrogate.slowdowns(unlimited[present], grid, mixes.jobs[present])
    # The mean of the running minimum and the maximum of the rest, both of which only fall.
    least = np.minimum.accumulate(curves, axis=1)
    most = np.maximum.accumulate(curves[:, ::-1], axis=1)[:, ::-1]
    curves = (least + most) / 2
    if not limited:
        return np.where(others, np.maximum(curves[:, 0], 0.0), alone)
    below, part = _places(mixes.limits[present])
    low, high = (np.take_along_axis(curves, at[:, None], 1)[:, 0] for at in (below, below + 1))
    return np.where(others, np.maximum(low + part * (high - low), 0.0), alone)


def _places(limits: Floats) -> tuple[_Indices, Floats]:
    """Return the place of the limit of the grid just below, and the part to the next, 0..1."""
    at = np.interp(limits, LIMIT_GRID, np.arange(len(LIMIT_GRID)))
    below = np.minimum(at.astype(np.intp), len(LIMIT_GRID) - 2)
    return below, at - below
