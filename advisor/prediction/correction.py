"""The correction of replayed steps under MPS: a regression that learnt from measured runs."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.prediction.trace import Floats
from advisor.workload.reading import MOST_LOG, check_scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Covariance of two jobs in their mixes: a squared exponential of their distance.

    Attributes:
        length: Length scale, in columns of scale 1.
        signal: Variance of replay's log error.
        noise: Variance of it from one run to the next.
    """

    length: float
    signal: float
    noise: float

    def __post_init__(self) -> None:
        if min(self.length, self.signal, self.noise) <= 0:
            raise InvalidInput("a kernel's length, signal and noise are above 0")

    def likeness(self, rows: NDArray[Any], points: NDArray[Any]) -> NDArray[Any]:
        """Return the covariance of each row with each point, shape (rows, points)."""
        squares = (rows**2).sum(axis=1)[:, None] + (points**2).sum(axis=1)[None, :]
        squares -= 2 * rows @ points.T
        np.maximum(0.0, squares, out=squares)
        squares *= -0.5 / self.length**2
        return np.asarray(self.signal * np.exp(squares, out=squares))


# The least error on families left out, of lengths from 5 to 10 and signals from 0.015 to 0.12; it
# is flat around there. `advisor fit --tune` searches again.
KERNEL = Kernel(length=7.0, signal=0.02, noise=0.005)


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Log of measured over replayed steps in one mode: the mean of a Gaussian process.

    Far from every job that it was fitted to it is 0, so replay is not corrected.

    Attributes:
        columns: Those of `advisor.prediction.features.COLUMNS`.
        scale: Standard deviation of each column.
        points: The jobs fitted to, in columns of mean 0 and scale 1, shape (points, columns).
        weights: Weight of each point.
    """

    columns: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    points: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    kernel: Kernel

    def __post_init__(self) -> None:
        widths = {len(self.mean), len(self.scale), *map(len, self.points)}
        if widths != {len(self.columns)} or len(self.weights) != len(self.points):
            raise InvalidInput("the model's columns are not as long as its list of columns")
        mean, _, points, weights = self._arrays
        most = max(float(np.abs(each).max()) for each in (mean, points, weights))
        check_scaled("a model's columns", self.scale, most)

    def log_correction(self, rows: Floats) -> Floats:
        """Predict log(measured / replayed), shape (jobs,), for rows of shape (jobs, columns)."""
        mean, scale, points, weights = self._arrays
        near = self.kernel.likeness((rows - mean) / scale, points)
        return np.clip(near @ weights, -MOST_LOG, MOST_LOG)

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        scales = np.array(self.mean), np.array(self.scale)
        return *scales, np.array(self.points), np.array(self.weights)


def corrected(replayed_s: Floats, log_correction: Floats, alone_s: Floats) -> Floats:
    """Return replayed steps times their correction; no job gets faster by sharing."""
    return np.asarray(np.maximum(replayed_s * np.exp(log_correction), alone_s))
