"""Fits the regressions of steps, a mode at a time, and their intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.learn.observations import Bools, ObservedRun, Rows, rows_of
from advisor.prediction.capacity import (
    COLUMNS,
    UtilisationModel,
    capacity_steps,
    columns,
    drawn,
    seen_by_driver,
)
from advisor.prediction.correction import Correction, Kernel, corrected
from advisor.prediction.host import is_gpu_bound
from advisor.prediction.intervals import (
    GPU_BOUND_AT,
    HOST_BOUND_AT,
    Ends,
    Intervals,
    host_distance,
    scale_by_others,
)
from advisor.prediction.trace import Floats
from advisor.sharing import Mode
from advisor.workload.profile import Profile

# A group of jobs with fewer rows than this takes the quantiles of all.
_FEWEST_ROWS = 20

# What lies outside an interval on either side.
_TAIL = 0.05

# Growth of naive's intervals for GPU-bound jobs, see `scale_by_others`; tried: 5, 10, 20, 40, 60.
_NAIVE_BY_OTHERS = 20.0


def fit_intervals(jobs: Rows, middle_s: Floats, mode: Mode) -> Intervals:
    """Return the intervals that held nine tenths of `jobs`, predicted without their families.

    Each row counts once, so the intervals hold for jobs drawn like these (split conformal
    prediction: Papadopoulos et al. 2002).
    """
    logs, growth = np.log(jobs.measured_s / middle_s), _NAIVE_BY_OTHERS if mode == "naive" else 0.0
    distance, scale = np.empty(len(logs)), np.empty(len(logs))
    for rows in jobs.by_run():
        profiles, steps_s = [jobs.profiles[row] for row in rows], middle_s[rows]
        distance[rows] = host_distance(profiles, steps_s)
        scale[rows] = scale_by_others(profiles, steps_s, distance[rows], growth)
    gpu_bound = np.array([is_gpu_bound(each) for each in jobs.profiles], dtype=bool)
    # Alone a host-bound job is at its host's path, and one that fills the GPU may be near it.
    at = (GPU_BOUND_AT, HOST_BOUND_AT) if mode != "serial" else (HOST_BOUND_AT, GPU_BOUND_AT)
    return Intervals(
        gpu_bound=_ends(logs / scale, distance, gpu_bound, at[0]),
        host_bound=_ends(logs, distance, ~gpu_bound, at[1]),
        by_others=growth,
    )


def _ends(logs: Floats, distance: Floats, chosen: Bools, at: tuple[float, ...]) -> Ends:
    """Quantiles of the logs of `chosen` rows near each distance of `at`.

    A longer step never ends earlier: the ends fall at most as fast as the distance grows.
    """
    if chosen.sum() < _FEWEST_ROWS:
        chosen = np.ones(len(logs), dtype=bool)
    nearest = np.abs(np.minimum(distance, at[-1])[:, None] - np.array(at)).argmin(axis=1)
    low, high = [], []
    for place in range(len(at)):
        near = chosen & (nearest == place)
        kept = logs[near if near.sum() >= _FEWEST_ROWS else chosen]
        tail = max(0.0, _TAIL - (1 - _TAIL) / len(kept))  # one more row may come
        low.append(min(0.0, float(np.quantile(kept, tail))))
        high.append(max(0.0, float(np.quantile(kept, 1 - tail))))
        if place:
            farther = at[place] - at[place - 1]
            low[-1], high[-1] = max(low[-1], low[-2] - farther), max(high[-1], high[-2] - farther)
    return Ends(at=at, low=tuple(low), high=tuple(high))


class FittedCorrection:
    """A correction, and what it would say had it not seen a family."""

    def __init__(
        self, rows: Rows, runs: Sequence[ObservedRun], columns: tuple[str, ...], kernel: Kernel
    ) -> None:
        """Fit a Gaussian process to `rows`, of which copies of a job in a run count once."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
        from sklearn.preprocessing import StandardScaler

        merged, logs = _merged(rows)
        scaler = StandardScaler().fit(merged.x)
        # Four decimals are far finer than any length scale, and keep the file small.
        self._points = np.round(scaler.transform(merged.x), 4)
        likeness = ConstantKernel(kernel.signal) * RBF(kernel.length) + WhiteKernel(kernel.noise)
        process = GaussianProcessRegressor(likeness, optimizer=None, alpha=0.0)
        process.fit(self._points, logs)
        self._rows, self._runs, self._process, self._scaler = merged, runs, process, scaler
        self.correction = Correction(
            columns=columns,
            mean=tuple(map(float, scaler.mean_)),
            scale=tuple(map(float, scaler.scale_)),
            points=tuple(tuple(map(float, point)) for point in self._points),
            weights=tuple(map(float, process.alpha_)),
            kernel=kernel,
        )

    def steps_left_out(self, jobs: Rows) -> Floats:
        """Return corrected steps of `jobs`, each without the runs that contain its family.

        In closed form: the weights w without some points B are ``w - A_.B inv(A_BB) w_B``, where A
        is the inverse of the covariance (Rasmussen and Williams 2006, section 5.4.2, for blocks).
        """
        from scipy.linalg import cho_solve

        inverse = cho_solve((self._process.L_, True), np.eye(len(self._points)))
        weights, logs = self._process.alpha_, np.zeros(len(jobs.family))
        near = self.correction.kernel.likeness(self._scaler.transform(jobs.x), self._points)
        families = np.array(jobs.family)
        for family in np.unique(families):
            hidden, own = _with_family(str(family), self._rows, self._runs), families == family
            block = np.linalg.solve(inverse[np.ix_(hidden, hidden)], weights[hidden])
            without = weights - inverse[:, hidden] @ block
            logs[own] = near[own] @ without
        return corrected(jobs.replayed_s, logs, jobs.alone_s)


def _merged(rows: Rows) -> tuple[Rows, Floats]:
    """Return one row for copies of a job in a run, and its mean log of measured over replayed."""
    kinds = [(at, profile.name, tuple(x)) for at, profile, x in
             zip(rows.of_run, rows.profiles, rows.x, strict=True)]  # fmt: skip
    place = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
    kind = np.array([place[each] for each in kinds])
    logs = np.bincount(kind, np.log(rows.measured_s / rows.replayed_s)) / np.bincount(kind)
    firsts = np.zeros(len(kinds), dtype=bool)
    firsts[np.unique(kind, return_index=True)[1]] = True
    return rows.chosen(firsts), logs


def _with_family(family: str, rows: Rows, runs: Sequence[ObservedRun]) -> NDArray[np.intp]:
    """Return the rows of all runs that contain `family`; if every run does, only its own rows."""
    with_it = np.array([family in shared.families for shared in runs])[rows.of_run]
    return np.flatnonzero(np.array(rows.family) == family if with_it.all() else with_it)


# Strength of the ridge, in rows. Ten times as much moves errors by about a point.
_RIDGE = 3.0

_OF_OWN_LIMIT = ("log_capacity_slowdown", "log_limit", "log_busy_over_limit")
_NO_WIDTH = Ends(at=(0.0,), low=(0.0,), high=(0.0,))


def fit_utilisation(runs: Sequence[ObservedRun], mode: Mode) -> UtilisationModel | None:
    """Fit the capacity model's correction in one mode; None if no job of `runs` shows sharing."""
    every = _bare_rows(runs, [shared.profiles for shared in runs])
    if every is None:
        return None
    rows = every.that_tell(runs)
    raw = _bare_rows(runs, [shared.as_measured for shared in runs])
    assert raw is not None, "on any host the same jobs run"
    middle_s = np.zeros(len(raw.family))
    for family, own in _by_family(raw):
        kept = np.ones(len(rows.family), dtype=bool)
        kept[_with_family(family, rows, runs)] = False
        logs = _ridge(rows, kept).log_correction(raw.x[own])
        middle_s[own] = corrected(raw.replayed_s[own], logs, raw.alone_s[own])
    fitted = _ridge(rows, np.ones(len(rows.family), dtype=bool))
    return replace(fitted, intervals=fit_intervals(raw, middle_s, mode))


def _by_family(rows: Rows) -> Iterator[tuple[str, Bools]]:
    families = np.array(rows.family)
    for family in np.unique(families):
        yield str(family), families == family


def _bare_rows(runs: Sequence[ObservedRun], profiles: Sequence[tuple[Profile, ...]]) -> Rows | None:
    """All jobs of runs in which at least one shows the effect of sharing, as nvidia-smi sees them.

    The capacity model's steps take the place of replayed ones.
    """
    predicted = []
    for index, (shared, jobs) in enumerate(zip(runs, profiles, strict=True)):
        bare = tuple(map(seen_by_driver, jobs))
        steps = capacity_steps(bare, shared.sharing)
        if steps is not None and shared.telling.any():
            steps_s = np.array(steps)
            x = columns(bare, shared.sharing, shared.gpu, steps_s)
            predicted.append((index, bare, x, steps_s))
    return rows_of(runs, predicted) if predicted else None


def _ridge(rows: Rows, kept: Bools) -> UtilisationModel:
    """Ridge regression of the rows `kept`; without any, the capacity model unchanged."""
    nothing = UtilisationModel(intervals=Intervals(gpu_bound=_NO_WIDTH, host_bound=_NO_WIDTH))
    if not kept.any():
        return nothing
    x, y = rows.x[kept], np.log(rows.measured_s[kept] / rows.replayed_s[kept])
    count = np.maximum(np.isfinite(x).sum(axis=0), 1)
    mean = np.nansum(x, axis=0) / count
    scale = np.sqrt(np.nansum((x - mean) ** 2, axis=0) / count)
    scale[scale < 1e-12] = 1.0
    away, constant = drawn((x - mean) / scale), float(y.mean())
    weights = _weights(away, y - constant, scale)
    return replace(
        nothing,
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
