"""Fits the regression of replay's residuals, and its error for families left out.

The results of scikit-learn and optuna are returned as plain numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from advisor.learn.observations import Bools, ObservedRun, Rows
from advisor.prediction.cache import fitting_in_one_thread
from advisor.prediction.capacity import ResidualBounds, is_gpu_bound
from advisor.prediction.correction import MOST, Correction, Doubt, Kernel
from advisor.prediction.features import FEATURES
from advisor.prediction.mix_steps import corrected
from advisor.prediction.trace import Floats
from advisor.workload.profile import Profile

if TYPE_CHECKING:
    import optuna

    pass


# A class of jobs with fewer rows than this takes the quantiles of all.
_FEWEST_ROWS = 20

# What an interval should hold, and the levels of quantiles that are tried for it.
_LEVEL = 0.9
_LEVELS = np.round(np.arange(0.84, 0.975, 0.01), 2)

NO_BOUNDS = ResidualBounds(low=0.0, high=0.0)
NO_DOUBT = Doubt(host_sigma=0.0, gpu_bound=NO_BOUNDS, host_bound=NO_BOUNDS)


def doubt_of(
    log_errors: Floats,
    profiles: Sequence[Profile],
    steps_s: Floats,
    spread: Floats,
    host_sigma: float,
) -> Doubt:
    """The doubt that errors on unseen families show.

    Args:
        log_errors: Of measured over predicted steps, shape (jobs,).
        profiles: Profile of each job.
        steps_s: Predicted step of each job, shape (jobs,).
        spread: Standard deviation of each prediction by the model itself, shape (jobs,).
        host_sigma: As of `Doubt`.
    """
    plain = replace(NO_DOUBT, host_sigma=host_sigma)
    share = log_errors / plain.scale(profiles, steps_s, spread)
    families = [each.workload.family for each in profiles]
    gpu_bound = np.array([is_gpu_bound(each) for each in profiles])
    return replace(
        plain,
        gpu_bound=bounds_of(share, families, gpu_bound),
        host_bound=bounds_of(share, families, ~gpu_bound),
    )


def bounds_of(share: Floats, families: Sequence[str], chosen: Bools) -> ResidualBounds:
    """The 90 % interval of log errors over spreads; errors of GPU-bound jobs have shorter tails.

    Each family weighs the same, however many rows it has: a new job is of a family drawn from all
    (Dunn, Wasserman and Ramdas 2023, pooling groups). Several quantile levels are tried; the one is
    taken at which bounds from the other families come closest to holding 90 % of the rows of each
    family left out.
    """
    kept = chosen if chosen.sum() >= _FEWEST_ROWS else np.ones(len(share), dtype=bool)
    share, family = share[kept], np.array(families)[kept]
    low, high = _quantiles(share, family)[:, _held(share, family)]
    return ResidualBounds(
        low=max(-MOST, min(0.0, float(low))), high=min(MOST, max(0.0, float(high)))
    )


def _held(share: Floats, family: NDArray[np.str_]) -> int:
    """Index in `_LEVELS` of the level that comes closest to 90 % of families left out."""
    inside = np.zeros(len(_LEVELS))
    for each in np.unique(family):
        own = family == each
        if own.all():
            return int(np.argmin(np.abs(_LEVELS - _LEVEL)))
        low, high = _quantiles(share[~own], family[~own])
        rows = share[own][:, None]
        inside += ((np.minimum(low, 0) <= rows) & (rows <= np.maximum(high, 0))).sum(axis=0)
    return int(np.argmin(np.abs(inside / len(share) - _LEVEL)))


def _quantiles(share: Floats, family: NDArray[np.str_]) -> Floats:
    """Lower and upper bounds at each of `_LEVELS`, each family weighing the same, (2, levels)."""
    _, which, sizes = np.unique(family, return_inverse=True, return_counts=True)
    order = np.argsort(share)
    weights = (1 / sizes)[which][order] / len(sizes)
    tails = np.array([(1 - _LEVELS) / 2, (1 + _LEVELS) / 2])
    return np.asarray(np.interp(tails, np.cumsum(weights) - weights / 2, share[order]))


# The kernels that are tried. Only signal over noise matters, so the noise is one: errors are scaled
# by spreads afterwards.
_GRID = {"length": (7.0, 9.0, 12.0), "signal": (0.004, 0.015, 0.03, 0.06)}
_NOISE = 0.005
_SEED = 2028


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """All jobs of some runs, whose errors show how uncertain the correction is.

    Attributes:
        raw: Rows from profiles as measured.
        on_known_cores: Rows from profiles converted to the cores that jobs had; none if no run
            recorded these.
        host_sigma: As of `Doubt`, for `raw` and for `on_known_cores`.
    """

    raw: Rows
    on_known_cores: Rows
    host_sigma: tuple[float, float]


def fit_correction(rows: Rows, runs: Sequence[ObservedRun], elsewhere: Elsewhere) -> Correction:
    """The Gaussian process with the least error on families left out.

    Its intervals come from these errors, so they are valid for new families that differ from the
    known ones as these differ from each other.

    Args:
        rows: Jobs whose steps show the effect of sharing.
        runs: The runs of these jobs.
        elsewhere: All jobs of those of the runs that show how uncertain it is.
    """
    with fitting_in_one_thread():
        kernel = _tuned(rows, tuple(blocks_of(rows, runs)))
        solved = _Solved(rows, runs, kernel)
        fitted = _process(rows.x, _target(rows), kernel)
        doubt = solved.doubt(elsewhere.raw, elsewhere.host_sigma[0])
        known = elsewhere.on_known_cores
        on_known = solved.doubt(known, elsewhere.host_sigma[1]) if known.profiles else doubt
    return replace(fitted, doubt=doubt, doubt_on_known_cores=on_known)


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
    """A Gaussian process fitted to `y`, shape (points,), at `x`, shape (points, features)."""
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
        doubt=NO_DOUBT,
        doubt_on_known_cores=NO_DOUBT,
    )


def _rounded(points: Floats) -> Floats:
    """`points` with four decimals, far finer than any length scale, to keep the file small."""
    return np.asarray(np.round(points, 4))


# Rows that are left out together, and those of them that are scored then.
_Block = tuple[NDArray[np.intp], Bools]


def blocks_of(rows: Rows, runs: Sequence[ObservedRun]) -> Iterator[_Block]:
    """For each family: the rows of all runs that contain it, and its own rows among them."""
    families = np.array(rows.family)
    for family in sorted(set(rows.family)):
        left_out = of_runs_with(family, rows, runs)
        yield left_out, families[left_out] == family


def of_runs_with(family: str, rows: Rows, runs: Sequence[ObservedRun]) -> NDArray[np.intp]:
    """Rows of all runs that contain `family`; if every run does, only its own rows."""
    with_it = np.array([family in shared.families for shared in runs])[rows.of_run]
    return np.flatnonzero(np.array(rows.family) == family if with_it.all() else with_it)


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


class _Solved:
    """The regression of `rows`, for predicting any job without the runs of its family.

    In closed form, as in `_unseen`: the weights without the rows B left out are those of all minus
    ``A_.B inv(A_BB) (A y)_B``, and the explained covariance changes likewise.
    """

    def __init__(self, rows: Rows, runs: Sequence[ObservedRun], kernel: Kernel) -> None:
        self._rows, self._runs, self._kernel = rows, runs, kernel
        self._mean, self._scale = rows.x.mean(axis=0), np.maximum(rows.x.std(axis=0), 1e-12)
        self._points = (rows.x - self._mean) / self._scale
        covariance = kernel.likeness(self._points, self._points)
        self._inverse = _inverse(covariance + kernel.noise * np.eye(len(covariance)))
        self._pulled = self._inverse @ _target(rows)

    def doubt(self, asked: Rows, host_sigma: float) -> Doubt:
        """The doubt shown by the errors on `asked`, each predicted without its family."""
        middle, spread = np.zeros(len(asked.profiles)), np.ones(len(asked.profiles))
        families = np.array(asked.family)
        for family in np.unique(families):
            own = families == family
            log_correction, spread[own] = self._without(str(family), asked.x[own])
            middle[own] = corrected(asked.replayed_s[own], log_correction, asked.alone_s[own])
        log_errors = np.log(asked.measured_s / middle)
        return doubt_of(log_errors, asked.profiles, middle, spread, host_sigma)

    def _without(self, family: str, x: Floats) -> tuple[Floats, Floats]:
        """Log correction and spread at `x`, shape (jobs, features), had `family` not been seen."""
        left_out = of_runs_with(family, self._rows, self._runs)
        block = _inverse(self._inverse[np.ix_(left_out, left_out)])
        near = self._kernel.likeness((x - self._mean) / self._scale, self._points)
        seen = near @ self._inverse
        hidden = seen[:, left_out]
        log_correction = near @ self._pulled - hidden @ (block @ self._pulled[left_out])
        explained = (seen * near).sum(axis=1) - ((hidden @ block) * hidden).sum(axis=1)
        most = self._kernel.signal + self._kernel.noise
        return log_correction, np.sqrt(np.maximum(most - explained, self._kernel.noise))


def _inverse(covariance: Floats) -> Floats:
    """Inverse of a positive definite matrix, in less than half the time of a general one."""
    if not len(covariance):
        return covariance
    from scipy.linalg.lapack import dpotrf, dpotri

    factor, _ = dpotrf(covariance, lower=True)
    lower, _ = dpotri(factor, lower=True)
    below = np.tril(lower, -1)
    return np.asarray(below + below.T + np.diag(np.diagonal(lower)))
