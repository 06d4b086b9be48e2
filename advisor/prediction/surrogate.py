"""The surrogate model: a smooth function fitted to the predictor's answers, fast for many mixes.

It is used for searching, whose results are predicted again by replay and correction, and between
two replayed limits, see `advisor.prediction.own_limit`. A job's mates enter as sums, means and
maxima, so their order is irrelevant and copies of a job get one answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.prediction.parallel import one_thread
from advisor.prediction.surrogate_features import (
    FIXED,
    LIMIT_GRID,
    LIMITED,
    MATES,
    Summaries,
    mates_columns,
)
from advisor.prediction.trace import Floats
from advisor.sharing import Mode
from advisor.workload.plausible import MOST_LOG, check_scaled

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
