"""Fits the regression of replay's residuals, and its error for families it was not fitted on.

The results of scikit-learn and optuna are returned as plain numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.fit.observation import Bools, ObservedRun, Rows
from advisor.prediction.mix_features import FEATURES
from advisor.prediction.model_file import Correction, Kernel, ResidualBounds
from advisor.prediction.parallel import fitting_in_one_thread
from advisor.prediction.residual import corrected
from advisor.prediction.trace import Floats

if TYPE_CHECKING:
    import optuna

# The kernels that are tried. Only signal over noise matters, so the noise is one: errors are scaled
# by spreads afterwards.
_GRID = {"length": (7.0, 9.0, 12.0), "signal": (0.015, 0.03, 0.06, 0.12)}
_NOISE = 0.005
_SEED = 2028

# A class of jobs with fewer rows than this takes the quantiles of all.
_FEWEST_ROWS = 20


def fit_correction(rows: Rows, runs: Sequence[ObservedRun]) -> Correction:
    """The Gaussian process with the least error on families left out.

    Its interval comes from its errors on those, so it is valid for new families that differ from
    the known ones as these do from each other.
    """
    with fitting_in_one_thread():
        blocks = tuple(blocks_of(rows, runs))
        kernel = _tuned(rows, blocks)
        log_errors, spreads = _unseen(rows, blocks, kernel)
        fitted = _process(rows.x, _target(rows), kernel)
    share = log_errors / spreads
    return replace(
        fitted,
        gpu_bound=bounds_of(share, rows.family, rows.gpu_bound),
        host_bound=bounds_of(share, rows.family, ~rows.gpu_bound),
    )


def bounds_of(share: Floats, families: Sequence[str], chosen: Bools) -> ResidualBounds:
    """The 90 % interval of log errors over spreads; errors of GPU-bound jobs have shorter tails.

    Each family weighs the same, however many rows it has: a new job is of a family drawn from all
    (Dunn, Wasserman and Ramdas 2023, pooling groups). The level is 90 % as it stands. Their factor
    1 + 1/families, which guards against the worst distribution of families, would make it 95 %
    with the families at hand: wider than 90 % of what evaluation leaves out needs.
    """
    kept = chosen if chosen.sum() >= _FEWEST_ROWS else np.ones(len(share), dtype=bool)
    _, family, sizes = np.unique(np.array(families)[kept], return_inverse=True, return_counts=True)
    order = np.argsort(share[kept])
    weights = (1 / sizes)[family][order] / len(sizes)
    low, high = np.interp((0.05, 0.95), np.cumsum(weights) - weights / 2, share[kept][order])
    return ResidualBounds(low=min(0.0, float(low)), high=max(0.0, float(high)))


def _target(rows: Rows) -> Floats:
    return np.asarray(np.log(rows.measured_s / rows.replayed_s))


def _tuned(rows: Rows, blocks: "Sequence[_Block]") -> Kernel:
    """The kernel of the grid with the least mean error on families left out."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.GridSampler(_GRID, seed=_SEED))
    study.optimize(partial(_trial, rows, blocks))
    return Kernel(**study.best_params, noise=_NOISE)


def _trial(rows: Rows, blocks: "Sequence[_Block]", trial: "optuna.Trial") -> float:
    tried = {name: trial.suggest_categorical(name, values) for name, values in _GRID.items()}
    log_errors, _ = _unseen(rows, blocks, Kernel(**tried, noise=_NOISE))
    return float(np.abs(log_errors).mean())


def _process(x: Floats, y: Floats, kernel: Kernel) -> Correction:
    """A Gaussian process through `y`, shape (points,), at `x`, shape (points, features)."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    points = _rounded(scaler.transform(x))
    likeness = ConstantKernel(kernel.signal) * RBF(kernel.length) + WhiteKernel(kernel.noise)
    process = GaussianProcessRegressor(likeness, optimizer=None, alpha=0.0).fit(points, y)
    return Correction(
        features=FEATURES,
        mean=tuple(map(float, scaler.mean_)),
        scale=tuple(map(float, scaler.scale_)),
        points=tuple(tuple(map(float, point)) for point in points),
        weights=tuple(map(float, process.alpha_)),
        kernel=kernel,
        gpu_bound=ResidualBounds(low=0.0, high=0.0),
        host_bound=ResidualBounds(low=0.0, high=0.0),
    )


def _rounded(points: Floats) -> Floats:
    """To four decimals, which is far finer than any length scale: the model's file stays small."""
    return np.asarray(np.round(points, 4))


# Rows that are left out together, and those of them that are scored then.
_Block = tuple[NDArray[np.intp], Bools]


def blocks_of(rows: Rows, runs: Sequence[ObservedRun]) -> Iterator[_Block]:
    """For each family the rows of all runs that have it, and which of these are its own."""
    families, of_run = np.array(rows.family), rows.of_run.astype(int)
    for family in sorted(set(rows.family)):
        with_it = np.array([family in shared.families for shared in runs])[of_run]
        own = families == family
        # A family in every run can only be held out by itself.
        left_out = np.flatnonzero(own if with_it.all() else with_it)
        yield left_out, own[left_out]


def errors_on_unseen(rows: Rows, runs: Sequence[ObservedRun], kernel: Kernel) -> Floats:
    """Log of measured over predicted step of each row, had its family not been seen; (rows,)."""
    with fitting_in_one_thread():
        return _unseen(rows, tuple(blocks_of(rows, runs)), kernel)[0]


def _unseen(rows: Rows, blocks: Sequence[_Block], kernel: Kernel) -> tuple[Floats, Floats]:
    """Log errors and spreads of each family's jobs, fitted on the runs without that family.

    In closed form: with A the inverse of the covariance of all rows and B those left out, the
    errors of B are ``inv(A_BB) (A y)_B`` with covariance ``inv(A_BB)`` (Rasmussen and Williams
    2006, section 5.4.2, for one row; here for blocks). Columns are scaled by all rows.
    """
    y = _target(rows)
    scaled = (rows.x - rows.x.mean(axis=0)) / np.maximum(rows.x.std(axis=0), 1e-12)
    inverse = _inverse(kernel.likeness(scaled, scaled) + kernel.noise * np.eye(len(y)))
    pulled = inverse @ y
    log_errors, spreads = np.zeros(len(y)), np.ones(len(y))
    for left_out, own in blocks:
        covariance = _inverse(inverse[np.ix_(left_out, left_out)])
        missed = (covariance @ pulled[left_out])[own]
        scored = left_out[own]
        middle = corrected(rows.replayed_s[scored], y[scored] - missed, rows.alone_s[scored])
        log_errors[scored] = np.log(rows.measured_s[scored] / middle)
        spreads[scored] = np.sqrt(np.diagonal(covariance)[own])
    return log_errors, spreads


def _inverse(covariance: Floats) -> Floats:
    """Of a positive definite matrix, in less than half the time that any matrix takes."""
    from scipy.linalg.lapack import dpotrf, dpotri

    factor, _ = dpotrf(covariance, lower=True)
    lower, _ = dpotri(factor, lower=True)
    below = np.tril(lower, -1)
    return np.asarray(below + below.T + np.diag(np.diagonal(lower)))
