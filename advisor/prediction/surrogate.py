"""The surrogate model: a smooth function fitted to the predictor's answers, fast for many mixes.

It is used for searching, whose results are predicted again by replay and correction, and between
two replayed limits, see `advisor.prediction.mig_instances`. A job's mates enter as sums, means and
maxima, so their order is irrelevant and copies of a job get one answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.prediction.cache import once_a_mix, one_thread
from advisor.prediction.features import counter
from advisor.prediction.replay import Physics
from advisor.prediction.trace import Floats, ReplayTrace, limit_exponent, replay_trace, sm_pace
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.profile import Profile
from advisor.workload.reading import MOST_LOG, check_scaled

# Limits at which a job's features are computed, per cent, growing, the last one 100. Between two of
# them features are interpolated.
LIMIT_GRID = (5, 10, 14, 20, 28, 36, 43, 57, 71, 86, 100)

LIMITED = (
    "log_alone",  # slowdown by the limit, nobody else there
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
# Of the jobs beside it, its mates, at their limits; see `mates_columns`.
MATES = (
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
    "log_wait",  # for the mates' kernels in turn with its own, over its step
    "log_wait_wide",  # for those that leave no SM
    "log_wait_long",  # for what is left of the kernels that it finds running
)
_WIDE = 0.9


@dataclass(frozen=True, slots=True)
class Summaries:
    """Features of jobs for the surrogate model.

    Attributes:
        step_s: Alone, shape (jobs,).
        limited: `LIMITED` at each limit of `LIMIT_GRID`, shape (jobs, limits, columns).
        fixed: `FIXED`, shape (jobs, columns).
    """

    step_s: Floats
    limited: Floats
    fixed: Floats


def joined(parts: Sequence[Summaries]) -> Summaries:
    """Summaries of the jobs of all `parts`, one after another."""
    return Summaries(
        step_s=np.concatenate([each.step_s for each in parts]),
        limited=np.concatenate([each.limited for each in parts]),
        fixed=np.concatenate([each.fixed for each in parts]),
    )


@once_a_mix
def summaries(profiles: Sequence[Profile], gpu: Gpu, physics: Physics) -> Summaries | None:
    """The features of `profiles`; None if one has no kernel trace or no counters."""
    scripts = [replay_trace(each, gpu.sms, physics.packing) for each in profiles]
    pairs = [(profile, played) for profile, played in zip(profiles, scripts, strict=True)
             if played is not None and profile.counters is not None]  # fmt: skip
    if len(pairs) < len(scripts):
        return None
    return Summaries(
        step_s=np.array([each.step_s for each in profiles]),
        limited=np.array([_limited(*pair, gpu, physics) for pair in pairs]),
        fixed=np.array([fixed_of(*pair) for pair in pairs]),
    )


def _limited(profile: Profile, played: ReplayTrace, gpu: Gpu, physics: Physics) -> Floats:
    """`LIMITED` at each limit, shape (limits, columns)."""
    exponent = limit_exponent(profile, gpu, physics.bandwidth)
    rows = []
    for share in limit_shares(LIMIT_GRID, gpu.sms):
        seconds = played.duration_s / sm_pace(played.demand, share, exponent)
        busy_s = float(seconds.sum())
        alone_s = played.alone_s(profile.step_s, busy_s)
        sms_s = float((seconds * np.minimum(played.demand, share)).sum())
        rows.append((np.log(alone_s / profile.step_s), busy_s / alone_s, sms_s / alone_s))
    return np.array(rows)


def fixed_of(profile: Profile, played: ReplayTrace) -> Floats:
    seconds, busy_s = played.duration_s, max(float(played.duration_s.sum()), 1e-9)
    busy = profile.busy_share or 1.0
    under_mps = profile.mps.unlimited.step_s / profile.step_s if profile.mps else 1.0
    kernel_us = 1e6 * float((seconds * seconds).sum()) / busy_s
    return np.array([
        counter(profile, "dram_active") / busy,
        counter(profile, "sm_occupancy") / busy,
        played.host_s / profile.step_s,
        float(seconds[played.demand >= _WIDE].sum()) / busy_s,
        np.log(kernel_us + 1),
        np.log(len(seconds)),
        np.log(1e3 * profile.step_s),
        np.log(under_mps),
    ])  # fmt: skip


_FOUND = {
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

# By column and mode.
LENGTHS = {column: dict(zip(SHARED_MODES, found, strict=True)) for column, found in _FOUND.items()}


def mates_columns(fixed: Floats, limited: Floats, there: NDArray[np.bool_]) -> Floats:
    """`MATES` of each job, shape (mixes, places, columns)."""
    of = dict(zip((*FIXED, *LIMITED), np.moveaxis(np.concatenate([fixed, limited], 2), 2, 0),
                  strict=True))  # fmt: skip
    busy, long = np.where(there, of["busy"], 0.0), np.where(there, of["log_kernel_us"], 0.0)
    mates = np.maximum(_others(there.astype(np.float64)), 1)
    busy_mates = _others(busy)
    return np.stack([
        np.broadcast_to(np.log(np.maximum(1, there.sum(axis=1, keepdims=True))), there.shape),
        busy_mates,
        _others(np.where(there, of["sms"], 0.0)),
        _others(busy * of["dram"]),
        _others(busy * of["occupancy"]),
        _others(busy * of["wide"]),
        _others(busy * long) / np.maximum(busy_mates, 1e-9),
        _others(np.where(there, of["log_step_ms"], 0.0)) / mates,
        _most_of_others(busy),
        _most_of_others(long),
        *_waits(of, busy),
    ], axis=2)  # fmt: skip


def _waits(of: Mapping[str, Floats], busy: Floats) -> list[Floats]:
    """Log of one and the time that a job's kernels wait in a step, over the step."""
    step_us, kernels = 1e3 * np.exp(of["log_step_ms"]), np.exp(of["log_kernels"])
    turn_us = busy * busy * step_us / kernels
    wide = of["sms"] / np.maximum(of["busy"], 1e-9)
    waits = turn_us, turn_us * wide, busy * np.exp(of["log_kernel_us"])
    return [np.log1p(_others(each) * kernels / step_us) for each in waits]


def _others(values: Floats) -> Floats:
    """Sum over all other places."""
    return np.asarray(values.sum(axis=1, keepdims=True) - values)


def _most_of_others(values: Floats) -> Floats:
    """Maximum over all other places of what is at least 0; 0 if there are none."""
    if values.shape[1] == 1:
        return np.zeros_like(values)
    second, most = np.moveaxis(np.partition(values, -2, axis=1)[:, -2:], 1, 0)
    return np.asarray(np.where(values == most[:, None], second[:, None], most[:, None]))


COLUMNS = (*FIXED, *MATES, *LIMITED)

# Mixes computed together, so that their arrays stay in the processor's cache.
_AT_ONCE = 256

_Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class MixBatch:
    """Mixes of some jobs, one mix a row; rows with fewer jobs have empty places.

    Attributes:
        jobs: Which job is in a place, shape (mixes, places); -1 if it is empty.
        limits: Its MPS limit in per cent, shape (mixes, places); 100 if there is none.
    """

    jobs: _Indices
    limits: Floats

    def rows(self, chosen: slice) -> "MixBatch":
        """The mixes at `chosen`."""
        return MixBatch(self.jobs[chosen], self.limits[chosen])


@dataclass(frozen=True, kw_only=True)
class Surrogate:
    """The log of a job's slowdown: a weighted sum of its likenesses to jobs in some mixes.

    It is the mean of a Gaussian process over a subset of the rows that it was fitted to (Rasmussen
    and Williams 2006, section 8.3.1).

    Attributes:
        columns: Their names.
        scale: By how much two rows differ in each column that are 1 apart, shape (columns,).
        points: The rows that others are compared with, in `scale`, shape (points, columns).
        weights: Of each point, shape (points,).
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
        """Log slowdown of jobs in mixes, at each limit of their own; shape (rows, limits).

        Args:
            others: All columns but `LIMITED`, shape (rows, columns).
            limited: `LIMITED` of each job at each limit, shape (jobs, limits, columns).
            of: The job of each row, shape (rows,).
        """
        scale, points, weights = self._arrays
        known, order = others.shape[1], np.argsort(of, kind="stable")
        alike = likeness(others[order] / scale[:known], points[:, :known])
        found = np.empty((len(of), limited.shape[1]))
        jobs, firsts = np.unique(of[order], return_index=True)
        for job, rows in zip(jobs, np.split(np.arange(len(of)), firsts)[1:], strict=True):
            own = likeness(limited[job] / scale[known:], points[:, known:])
            found[order[rows]] = alike[rows[0] : rows[-1] + 1] @ (own * weights).T
        return np.clip(found + self.middle, -MOST_LOG, MOST_LOG)

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        return np.array(self.scale), np.array(self.points), np.array(self.weights)


def likeness(rows: Floats, points: Floats) -> Floats:
    """1 / (1 + d^2 / 2) of each row and each point that lie d apart, shape (rows, points).

    A rational quadratic kernel (Rasmussen and Williams 2006, equation 4.19): quicker than an
    exponential, and as good here. All columns are alike by `LIMITED` times by the others.
    """
    of_rows = 1 + (rows * rows).sum(axis=1, keepdims=True) / 2
    of_points = (points * points).sum(axis=1, keepdims=True) / 2
    # One product of matrices makes it all: 1 + d^2 / 2 is the sum of these less that of products.
    left = np.hstack([rows, of_rows, np.ones_like(of_rows)])
    apart = left @ np.hstack([-points, np.ones_like(of_points), of_points]).T
    return np.asarray(np.reciprocal(apart, out=apart))


@dataclass(frozen=True, kw_only=True)
class SurrogateModel:
    """A surrogate for each mode with fitted runs.

    Attributes:
        surrogates: By mode, of `advisor.sharing.SHARED_MODES`.
    """

    surrogates: dict[Mode, Surrogate]

    def steps(self, jobs: Summaries, crowds: MixBatch, mode: Mode) -> Floats:
        """Seconds of a step of each job, shape (mixes, places); NaN where a place is empty.

        No job is faster than alone, and none slows when its limit is raised and its mates keep
        theirs.

        Raises:
            KeyError: There is no surrogate of `mode`.
        """
        surrogate = self.surrogates[mode]
        limited = mode == "mps-limits"
        with one_thread():
            parts = [_slowdowns(surrogate, jobs, part, limited) for part in _parts(crowds)]
        there = crowds.jobs >= 0
        steps = np.full(there.shape, np.nan)
        steps[there] = np.exp(np.concatenate([[], *parts])) * jobs.step_s[crowds.jobs[there]]
        return steps


def columns(jobs: Summaries, crowds: MixBatch) -> Floats:
    """The columns of a surrogate for each job, shape (mixes, places, columns)."""
    limited = _at_limits(jobs, crowds)
    others = _unlimited_columns(jobs, crowds, limited)
    return np.concatenate([others, limited], axis=2)


def _parts(crowds: MixBatch) -> Iterator[MixBatch]:
    for start in range(0, len(crowds.jobs), _AT_ONCE):
        yield crowds.rows(slice(start, start + _AT_ONCE))


def _slowdowns(surrogate: Surrogate, jobs: Summaries, crowds: MixBatch, limited: bool) -> Floats:
    """Log slowdown of each job that is there, shape (jobs there,).

    What a limit costs a job by itself is a column of its own, and needs no likeness to others.
    """
    at_limits, there = _at_limits(jobs, crowds), crowds.jobs >= 0
    mates = np.broadcast_to(there.sum(axis=1, keepdims=True) - 1, there.shape)[there]
    alone = at_limits[there][:, LIMITED.index("log_alone")]
    others = _unlimited_columns(jobs, crowds, at_limits)[there]
    grid = jobs.limited if limited else jobs.limited[:, -1:]
    curves = _falling(surrogate.slowdowns(others, grid, crowds.jobs[there]))
    if not limited:
        return np.where(mates, np.maximum(curves[:, 0], 0.0), alone)
    below, part = _places(crowds.limits[there])
    low, high = (np.take_along_axis(curves, at[:, None], 1)[:, 0] for at in (below, below + 1))
    return np.where(mates, np.maximum(low + part * (high - low), 0.0), alone)


def _falling(curves: Floats) -> Floats:
    """The mean of the running minimum and the maximum of the rest, both of which only fall."""
    least = np.minimum.accumulate(curves, axis=1)
    most = np.maximum.accumulate(curves[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((least + most) / 2)


def _at_limits(jobs: Summaries, crowds: MixBatch) -> Floats:
    """`LIMITED` of each job at its limit, shape (mixes, places, columns)."""
    below, part = _places(crowds.limits)
    low, high = (jobs.limited[crowds.jobs, at] for at in (below, below + 1))
    return np.asarray(low + part[..., None] * (high - low))


def _places(limits: Floats) -> tuple[_Indices, Floats]:
    """The limits of the grid just below, and how far above them, 0..1."""
    grid = np.array(LIMIT_GRID, dtype=np.float64)
    at = np.interp(limits, grid, np.arange(len(grid)))
    below = np.minimum(at.astype(np.intp), len(grid) - 2)
    return below, at - below


def _unlimited_columns(jobs: Summaries, crowds: MixBatch, limited: Floats) -> Floats:
    """`FIXED` and `MATES` of each job, the columns that do not depend on its own limit."""
    fixed = jobs.fixed[crowds.jobs]
    return np.concatenate([fixed, mates_columns(fixed, limited, crowds.jobs >= 0)], axis=2)
