"""Fits the regressions of replay's residuals and of the capacity model's, a mode at a time.

Their intervals are those of errors on families left out. The results of scikit-learn and optuna are
returned as plain numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from advisor.learn.observations import Bools, ObservedRun, Rows, rows_of
from advisor.prediction.cache import fitting_in_one_thread
from advisor.prediction.capacity import (
    COLUMNS,
    ResidualBounds,
    UtilisationModel,
    capacity_steps,
    columns,
    drawn,
    is_gpu_bound,
    seen_by_driver,
)
from advisor.prediction.correction import FEATURES, MOST, Correction, Doubt, Kernel
from advisor.prediction.mix_steps import corrected
from advisor.prediction.trace import Floats
from advisor.workload.profile import Profile

if TYPE_CHECKING:
    import optuna

# A class of jobs with fewer rows than this takes the quantiles of all.
_FEWEST_ROWS = 20

# What an interval should hold, and the levels of quantiles that are tried for it.
_LEVEL = 0.9
_LEVELS = np.round(np.arange(0.84, 0.975, 0.01), 2)

NO_BOUNDS = ResidualBounds(low=0.0, high=0.0)
NO_DOUBT = Doubt(host_sigma=0.0, gpu_bound=NO_BOUNDS, host_bound=NO_BOUNDS)


def doubt_of(
    log_errors: Floats, profiles: Sequence[Profile], steps_s: Floats, spread: Floats,
    host_sigma: float,
) -> Doubt:  # fmt: skip
    """Compute the doubt that errors on unseen families show.

    All arrays have the shape (jobs,): log errors of measured over predicted steps, predicted steps,
    and the standard deviation of each prediction by the model itself.
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
    """Compute the 90 % interval of log errors over spreads.

    Each family weighs the same, however many rows it has: a new job is of a family drawn from all
    (Dunn, Wasserman and Ramdas 2023, pooling groups). Several quantile levels are tried; the one is
    taken at which bounds from the other families come closest to holding 90 % of the rows of each
    family left out.
    """
    kept = chosen if chosen.sum() >= _FEWEST_ROWS else np.ones(len(share), dtype=bool)
    share, family = share[kept], np.array(families)[kept]
    low, high = _quantiles(share, family)[:, _best_level(share, family)]
    return ResidualBounds(
        low=max(-MOST, min(0.0, float(low))), high=min(MOST, max(0.0, float(high)))
    )


def _best_level(share: Floats, family: NDArray[np.str_]) -> int:
    """Index in `_LEVELS` of the level that comes closest to 90 % of families left out."""
    inside = np.zeros(len(_LEVELS))
    for left_out in np.unique(family):
        own = family == left_out
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


def fit_correction(
    rows: Rows, runs: Sequence[ObservedRun], raw: Rows, on_known_cores: Rows,
    host_sigmas: tuple[float, float],
) -> Correction:  # fmt: skip
    """Fit the Gaussian process with the least error on families left out.

    Its intervals come from these errors, so they are valid for new families that differ from the
    known ones as these differ from each other.

    The process is fitted to `rows`, the jobs of `runs` that show the effect of sharing. Errors on
    all jobs show how uncertain predictions are: from profiles as measured, `raw`, and converted to
    the cores that jobs had, `on_known_cores`, empty if no run recorded these. `host_sigmas` are
    those of `Doubt` for either.
    """
    families = {family for shared in runs for family in shared.families}
    left_out = {family: of_runs_with(family, rows, runs) for family in families}
    with fitting_in_one_thread():
        solved = _Solved(rows, left_out, _tune_kernel(rows, left_out))
        fitted = _process(rows.x, solved.target, solved.kernel)
        doubt, on_known = solved.doubt(raw, host_sigmas[0]), None
        if on_known_cores.profiles:
            on_known = solved.doubt(on_known_cores, host_sigmas[1])
    return replace(fitted, doubt=doubt, doubt_on_known_cores=on_known or doubt)


def _tune_kernel(rows: Rows, left_out: Mapping[str, NDArray[np.intp]]) -> Kernel:
    """The kernel of the grid with the least mean error on families left out."""
    import optuna

    def error(trial: "optuna.Trial") -> float:
        values = {name: trial.suggest_categorical(name, some) for name, some in _GRID.items()}
        return _Solved(rows, left_out, Kernel(**values, noise=_NOISE)).error()

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.GridSampler(_GRID, seed=_SEED))
    study.optimize(error)
    return Kernel(**study.best_params, noise=_NOISE)


def _process(x: Floats, y: Floats, kernel: Kernel) -> Correction:
    """A Gaussian process fitted to `y`, shape (points,), at `x`, shape (points, features)."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    # Four decimals are far finer than any length scale, and keep the file small.
    points = np.round(scaler.transform(x), 4)
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


def of_runs_with(family: str, rows: Rows, runs: Sequence[ObservedRun]) -> NDArray[np.intp]:
    """Return the rows of all runs that contain `family`; if every run does, only its own rows."""
    with_it = np.array([family in shared.families for shared in runs])[rows.of_run]
    return np.flatnonzero(np.array(rows.family) == family if with_it.all() else with_it)


class _Solved:
    """The regression of `rows`, for predicting any job without the runs of its family.

    In closed form, with A the inverse of the covariance of all rows and B those `left_out`
    (Rasmussen and Williams 2006, section 5.4.2, for one row; here for blocks). Columns are scaled
    by all rows.
    """

    def __init__(
        self, rows: Rows, left_out: Mapping[str, NDArray[np.intp]], kernel: Kernel
    ) -> None:
        self._rows, self._left_out, self.kernel = rows, left_out, kernel
        self.target: Floats = np.log(rows.measured_s / rows.replayed_s)
        self._mean, self._scale = rows.x.mean(axis=0), np.maximum(rows.x.std(axis=0), 1e-12)
        self._points = (rows.x - self._mean) / self._scale
        covariance = kernel.likeness(self._points, self._points)
        self._inverse = _inverse(covariance + kernel.noise * np.eye(len(covariance)))
        self._pulled = self._inverse @ self.target

    def error(self) -> float:
        """Return the mean absolute log error: the errors of B are ``inv(A_BB) (A y)_B``."""
        rows, families = self._rows, np.array(self._rows.family)
        log_errors = np.zeros(len(families))
        for family in set(rows.family):
            left_out = self._left_out[family]
            own = families[left_out] == family
            block = _inverse(self._inverse[np.ix_(left_out, left_out)])
            missed, scored = (block @ self._pulled[left_out])[own], left_out[own]
            log_correction = self.target[scored] - missed
            middle = corrected(rows.replayed_s[scored], log_correction, rows.alone_s[scored])
            log_errors[scored] = np.log(rows.measured_s[scored] / middle)
        return float(np.abs(log_errors).mean())

    def doubt(self, jobs: Rows, host_sigma: float) -> Doubt:
        """Compute the doubt shown by the errors on `jobs`, each predicted without its family."""
        middle, spread = np.zeros(len(jobs.profiles)), np.ones(len(jobs.profiles))
        families = np.array(jobs.family)
        for family in np.unique(families):
            own = families == family
            log_correction, spread[own] = self._without(str(family), jobs.x[own])
            middle[own] = corrected(jobs.replayed_s[own], log_correction, jobs.alone_s[own])
        log_errors = np.log(jobs.measured_s / middle)
        return doubt_of(log_errors, jobs.profiles, middle, spread, host_sigma)

    def _without(self, family: str, x: Floats) -> tuple[Floats, Floats]:
        """Log correction and spread at `x`, shape (jobs, features), had `family` not been seen.

        The weights without B are those of all minus ``A_.B inv(A_BB) (A y)_B``, and the explained
        covariance changes likewise.
        """
        left_out = self._left_out[family]
        block = _inverse(self._inverse[np.ix_(left_out, left_out)])
        near = self.kernel.likeness((x - self._mean) / self._scale, self._points)
        seen = near @ self._inverse
        hidden = seen[:, left_out]
        log_correction = near @ self._pulled - hidden @ (block @ self._pulled[left_out])
        explained = (seen * near).sum(axis=1) - ((hidden @ block) * hidden).sum(axis=1)
        most = self.kernel.signal + self.kernel.noise
        return log_correction, np.sqrt(np.maximum(most - explained, self.kernel.noise))


def _inverse(covariance: Floats) -> Floats:
    """Inverse of a positive definite matrix, in less than half the time of a general one."""
    if not len(covariance):
        return covariance
    from scipy.linalg.lapack import dpotrf, dpotri

    factor, _ = dpotrf(covariance, lower=True)
    lower, _ = dpotri(factor, lower=True)
    below = np.tril(lower, -1)
    return np.asarray(below + below.T + np.diag(np.diagonal(lower)))


# Strength of the ridge, in rows. Ten times as much moves errors by about a point.
_RIDGE = 3.0

_OF_OWN_LIMIT = ("log_capacity_slowdown", "log_limit", "log_busy_over_limit")


def fit_utilisation(runs: Sequence[ObservedRun]) -> UtilisationModel | None:
    """Fit the capacity model's correction in one mode; None if no job of `runs` shows sharing.

    Its interval is that of errors on families left out, by the rule of `bounds_of`, on hosts of any
    speed.
    """
    every = _rows(runs)
    if every is None:
        return None
    rows = every.that_tell(runs)
    raw = _rows([replace(each, profiles=each.as_measured) for each in runs])
    assert raw is not None, "on any host the same jobs run"
    errors = _ridge_errors(rows, runs, raw)
    gpu_bound = np.array([is_gpu_bound(seen_by_driver(each)) for each in raw.profiles])
    return replace(
        _ridge(rows, np.ones(len(rows.family), dtype=bool)),
        gpu_bound=bounds_of(errors, raw.family, gpu_bound),
        host_bound=bounds_of(errors, raw.family, ~gpu_bound),
    )


def _rows(runs: Sequence[ObservedRun]) -> Rows | None:
    """All jobs of runs in which at least one shows the effect of sharing, as nvidia-smi sees them.

    The capacity model's steps take the place of replayed ones.
    """
    predicted = []
    for index, shared in enumerate(runs):
        bare = tuple(map(seen_by_driver, shared.profiles))
        steps = capacity_steps(bare, shared.sharing)
        if steps is not None and shared.telling.any():
            steps_s = np.array(steps)
            x = columns(bare, shared.sharing, shared.gpu, steps_s)
            predicted.append((index, bare, x, steps_s))
    return rows_of(runs, predicted) if predicted else None


def _ridge_errors(rows: Rows, runs: Sequence[ObservedRun], jobs: Rows) -> Floats:
    """Log of measured over predicted step of each of `jobs`, by `rows` without its family."""
    log_errors, families = np.zeros(len(jobs.family)), np.array(jobs.family)
    for family in np.unique(families):
        kept = np.ones(len(rows.family), dtype=bool)
        kept[of_runs_with(str(family), rows, runs)] = False
        own = jobs.chosen(families == family)
        log_correction = _ridge(rows, kept).log_correction(own.x)
        middle = corrected(own.replayed_s, log_correction, own.alone_s)
        log_errors[families == family] = np.log(own.measured_s / middle)
    return log_errors


def _ridge(rows: Rows, kept: Bools) -> UtilisationModel:
    """Ridge regression of the rows `kept`; without any, the capacity model unchanged."""
    if not kept.any():
        return UtilisationModel(gpu_bound=NO_BOUNDS, host_bound=NO_BOUNDS)
    x, y = rows.x[kept], np.log(rows.measured_s[kept] / rows.replayed_s[kept])
    count = np.maximum(np.isfinite(x).sum(axis=0), 1)
    mean = np.nansum(x, axis=0) / count
    scale = np.sqrt(np.nansum((x - mean) ** 2, axis=0) / count)
    scale[scale < 1e-12] = 1.0
    away, constant = drawn((x - mean) / scale), float(y.mean())
    weights = _weights(away, y - constant, scale)
    return UtilisationModel(
        gpu_bound=NO_BOUNDS,
        host_bound=NO_BOUNDS,
        constant=constant,
        mean=tuple(map(float, mean)),
        scale=tuple(map(float, scale)),
        weights=tuple(map(float, weights)),
    )


def _weights(away: Floats, y: Floats, scale: Floats) -> Floats:
    """Weights of standardised columns such that a higher limit of its own never slows a job.

    The capacity model's step falls as a job's own limit rises. The corrected step falls too if the
    weights take back no more than that fall, and the other columns of the limit have the same sign.
    """
    from scipy.optimize import lsq_linear

    least, most = np.full(len(scale), -np.inf), np.full(len(scale), np.inf)
    crowded, limit, over = map(COLUMNS.index, _OF_OWN_LIMIT)
    least[crowded], most[limit], least[over] = -scale[crowded], 0.0, 0.0
    root = np.linalg.cholesky(away.T @ away + _RIDGE * np.eye(len(scale))).T
    solution = lsq_linear(root, np.linalg.solve(root.T, away.T @ y), (least, most), method="bvls")
    return np.asarray(solution.x)
