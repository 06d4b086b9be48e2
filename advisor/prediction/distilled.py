"""A small network that has learnt the predictor's answers: thousands of mixes at once.

It is for searching, and what it finds is predicted anew, by replay and correction; and for what
lies between two limits that were replayed, see `advisor.prediction.own_limit`. A job's mates enter
as sums, means and maxima, so their order says nothing and copies of a job get one answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.prediction.one_thread import one_thread
from advisor.prediction.script import Floats
from advisor.prediction.summary import FIXED, LIMIT_GRID, LIMITED, Summaries
from advisor.workload.spec import STRICT

# Of the mates of a job, at their limits; see `_mates`.
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
COLUMNS = (*FIXED, *MATES, *LIMITED)

# Mixes looked at together: what they need stays in the processor's cache.
_AT_ONCE = 256

_Singles = NDArray[np.float32]
_Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Crowds:
    """Mixes of some of the jobs, one a row; rows with fewer jobs have empty places.

    Attributes:
        jobs: Which job is in a place, shape (mixes, places); -1 where it is empty.
        limits: Its MPS limit in per cent, likewise; 100 where there is none.
    """

    jobs: _Indices
    limits: Floats

    def rows(self, chosen: slice) -> "Crowds":
        """Some of the mixes."""
        return Crowds(self.jobs[chosen], self.limits[chosen])


@dataclass(frozen=True, kw_only=True)
class Net:
    """A network with relu units, from `COLUMNS` to the log of a job's slowdown.

    Attributes:
        columns: Their names.
        mean: Of each column, shape (columns,).
        scale: Standard deviation of each column, shape (columns,).
        weights: Of each layer, shape (inputs, units).
        biases: Of each layer, shape (units,); the last layer has one unit.
    """

    __pydantic_config__ = STRICT

    columns: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[tuple[tuple[float, ...], ...], ...]
    biases: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if self.columns != COLUMNS:
            raise InvalidInput("the search was fitted to other columns than this advisor computes")
        widths = [len(self.columns), *map(len, self.biases)]
        shapes = [(len(layer), *{len(row) for row in layer}) for layer in self.weights]
        if {len(self.mean), len(self.scale)} != {widths[0]} or shapes != list(pairwise(widths)):
            raise InvalidInput("the layers of the search do not fit each other")
        if widths[-1] != 1 or min(self.scale) <= 0:
            raise InvalidInput("the search has one answer, and its scales are above 0")

    @cached_property
    def layers(self) -> list[tuple[_Singles, _Singles]]:
        """Weights and biases of each layer, the first one for columns as they are."""
        pairs = [(np.array(w), np.array(b)) for w, b in zip(self.weights, self.biases, strict=True)]
        first, bias = pairs[0]
        first = first / np.array(self.scale)[:, None]
        pairs[0] = first, bias - np.array(self.mean) @ first
        return [(w.astype(np.float32), b.astype(np.float32)) for w, b in pairs]


@dataclass(frozen=True, kw_only=True)
class Distilled:
    """A network for each mode that runs taught.

    Attributes:
        nets: By mode: ``"naive"``, ``"mps"``, ``"mps-limits"``.
    """

    __pydantic_config__ = STRICT

    nets: dict[str, Net]

    def steps(self, jobs: Summaries, crowds: Crowds, mode: str) -> Floats:
        """Seconds of a step of each job, shape (mixes, places); NaN where a place is empty.

        No job is faster than alone under its limit, and none slows when its limit is raised and
        its mates keep theirs: of all limits up to its own, the answer is the fastest one's.

        Raises:
            KeyError: Nothing was learnt of `mode`.
        """
        layers = self.nets[mode].layers
        limited = mode == "mps-limits"
        with one_thread():
            parts = [_slowdowns(layers, jobs, part, limited) for part in _parts(crowds)]
        there = crowds.jobs >= 0
        steps = np.full(there.shape, np.nan)
        steps[there] = np.exp(np.concatenate([[], *parts])) * jobs.step_s[crowds.jobs[there]]
        return steps


def columns(jobs: Summaries, crowds: Crowds) -> Floats:
    """What a network sees of each job, shape (mixes, places, columns)."""
    limited = _at_limits(jobs, crowds)
    others = _unlimited_columns(jobs, crowds, limited)
    return np.concatenate([others, limited], axis=2)


def _parts(crowds: Crowds) -> Iterator[Crowds]:
    for start in range(0, len(crowds.jobs), _AT_ONCE):
        yield crowds.rows(slice(start, start + _AT_ONCE))


def _slowdowns(
    layers: list[tuple[_Singles, _Singles]], jobs: Summaries, crowds: Crowds, limited: bool
) -> Floats:
    """Log slowdown of each job that is there, shape (jobs there,)."""
    at_limits, there = _at_limits(jobs, crowds), crowds.jobs >= 0
    others = _unlimited_columns(jobs, crowds, at_limits)[there].astype(np.float32)
    (weights, bias), *rest = layers
    known = weights.shape[0] - len(LIMITED)
    grid = jobs.limited if limited else jobs.limited[:, -1:]
    own = grid.astype(np.float32) @ weights[known:]
    hidden = (others @ weights[:known] + bias)[:, None] + own[crowds.jobs[there]]
    hidden = hidden.reshape(-1, hidden.shape[-1])
    for weights, bias in rest:
        np.maximum(hidden, 0, out=hidden)
        hidden = hidden @ weights + bias
    # The limits grow along the row, so this is the best of all that are not above each.
    curves = hidden.reshape(len(others), grid.shape[1]).astype(np.float64)
    curves = np.minimum.accumulate(curves, axis=1)
    if not limited:
        return np.asarray(np.maximum(curves[:, 0], 0.0))
    below, part = _places(crowds.limits[there])
    low, high = (np.take_along_axis(curves, at[:, None], 1)[:, 0] for at in (below, below + 1))
    return np.asarray(np.maximum(low + part * (high - low), at_limits[there, 0]))


def _at_limits(jobs: Summaries, crowds: Crowds) -> Floats:
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


def _unlimited_columns(jobs: Summaries, crowds: Crowds, limited: Floats) -> Floats:
    """`FIXED` and `MATES` of each job: all that its own limit does not change."""
    fixed = jobs.fixed[crowds.jobs]
    return np.concatenate([fixed, _mates(fixed, limited, crowds.jobs >= 0)], axis=2)


def _mates(fixed: Floats, limited: Floats, there: NDArray[np.bool_]) -> Floats:
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
    """Maximum over all other places of what is at least 0; 0 where there are none."""
    if values.shape[1] == 1:
        return np.zeros_like(values)
    second, most = np.moveaxis(np.partition(values, -2, axis=1)[:, -2:], 1, 0)
    return np.asarray(np.where(values == most[:, None], second[:, None], most[:, None]))
