"""Fits the regressions of steps, a mode at a time, and their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.partition import limit_shares
from advisor.learn.observations import Bools, ObservedRun, Rows, View
from advisor.prediction.capacity import (
    COLUMNS,
    ESTIMATED,
    CapacityModel,
    Known,
    Numbers,
    columns,
    drawn,
    filled,
    first_steps,
    numbers,
    own_first,
    what_is_known,
    without_trace,
)
from advisor.prediction.correction import (
    GPU_BOUND_AT,
    HOST_BOUND_AT,
    Correction,
    Ends,
    Intervals,
    Kernel,
    corrected,
    scale_by_others,
)
from advisor.prediction.host import is_gpu_bound, log_beyond_host
from advisor.prediction.trace import Floats
from advisor.sharing import Mode

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
        distance[rows] = list(map(log_beyond_host, profiles, steps_s))
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
    """Quantiles of the logs of `chosen` rows near each distance of `at`."""
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
    return Ends(at=at, low=_not_earlier(at, low), high=_not_earlier(at, high))


def _not_earlier(at: tuple[float, ...], logs: Sequence[float] | Floats) -> tuple[float, ...]:
    """Let ends fall at most as fast as the distance grows: a longer step never ends earlier."""
    return tuple(map(float, np.maximum.accumulate(np.add(logs, at)) - at))


# For jobs and hosts that are not the zoo's. Its runs were mostly on slower hosts than its profiles,
# so the lower ends are too near: they reach at least this part as far as the upper ones.
_LOWER_OVER_UPPER = 0.4
# One host more may be slower than all before it: factor on the upper ends of host-bound jobs.
_SLOWER_HOSTS = 1.05
# Nearest ends of GPU-bound jobs under time slicing, and of host-bound ones under it and alone on a
# host that was checked, because a check shows only its own minute.
_NAIVE_GPU_BOUND, _NAIVE_CHECKED, _ALONE_CHECKED = 0.03, 0.09, 0.25


def for_other_hosts(fitted: Intervals, mode: Mode, *, checked: bool) -> Intervals:
    """Widen intervals `fitted` to the zoo so that they hold for other jobs on other hosts.

    They contain 91 % of 705 steps of scripts and public programs, on which the constants were
    chosen; those of the zoo contain 87 %. `checked`: the host is known.
    """
    if mode == "serial":  # alone, no host changes the pace of a GPU-bound job
        host_bound = _widened(fitted.host_bound, _ALONE_CHECKED * checked, 1.0)
        return replace(fitted, host_bound=host_bound)
    on_gpu, on_host = (_NAIVE_GPU_BOUND, _NAIVE_CHECKED * checked) if mode == "naive" else (0, 0)
    return replace(
        fitted,
        gpu_bound=_widened(fitted.gpu_bound, on_gpu, 1.0),
        host_bound=_widened(fitted.host_bound, on_host, _SLOWER_HOSTS),
    )


def _widened(ends: Ends, least: float, upwards: float) -> Ends:
    high = _not_earlier(ends.at, np.maximum(upwards * np.array(ends.high), least))
    low = np.minimum(ends.low, -np.maximum(_LOWER_OVER_UPPER * np.array(high), least))
    return Ends(at=ends.at, low=_not_earlier(ends.at, low), high=high)


class FittedCorrection:
    """A correction, and its predictions without the runs of a family."""

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
    kinds = [
        (at, profile.name, tuple(x))
        for at, profile, x in zip(rows.of_run, rows.profiles, rows.x, strict=True)
    ]
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


# Numbers that profiles are cut down to, as users have them: by nvidia-smi, with power, by DCGM, and
# with steps under limits.
_COUNTERS = ("sm_active", "sm_occupancy", "tensor_active", "dram_active")
_CUTS: tuple[tuple[str, ...], ...] = (
    (),
    ("power",),
    ("power", *_COUNTERS),
    ("power", "work"),
    ("power", *_COUNTERS, "work"),
)

# Covariance of jobs of bare numbers, by columns of scale 1: among lengths of 7 to 14 and signals of
# 0.5 to 30 the error on families left out moves by half a point.
_KERNEL = Kernel(length=10.0, signal=4.0, noise=0.05)
# The process is represented by so many of its jobs (subset of regressors: Rasmussen and Williams
# 2006, section 8.3.1); twice as many gain 0.3 points.
_POINTS = 400
_SEED = 1


def fit_utilisation(by_mode: Mapping[Mode, Sequence[ObservedRun]]) -> CapacityModel | None:
    """Fit the capacity model's correction to runs of each mode; None if no job shows sharing.

    MPS and MPS with limits have one correction: no limit is one of 100 %.
    """
    kinds: dict[Mode, tuple[Mode, ...]] = {"naive": ("naive",), "mps": ("mps", "mps-limits")}
    runs = {
        kind: [run for mode in modes for run in by_mode.get(mode, ()) if run.telling.any()]
        for kind, modes in kinds.items()
    }
    bare = {kind: _Bare(own, "profiles") for kind, own in runs.items() if own}
    if not bare:
        return None
    estimates = _estimates(_joined([each.numbers for each in bare.values()]))
    fits = {kind: _BareFit(jobs, estimates) for kind, jobs in bare.items()}
    return CapacityModel(
        corrections={kind: fit.correction for kind, fit in fits.items()},
        estimates=estimates,
        intervals={
            mode: fit.intervals(mode)
            for kind, fit in fits.items()
            for mode in kinds[kind]
            if by_mode.get(mode)
        },
    )


def _joined(numbers: Sequence[Numbers]) -> Numbers:
    return Numbers(*map(np.concatenate, zip(*numbers, strict=True)))


def _estimates(jobs: Numbers) -> dict[str, tuple[float, ...]]:
    """Return weights of `Numbers.shown` by least squares, for each of `ESTIMATED`."""
    jobs, weights = jobs.with_usual_power(), {}
    for name in ESTIMATED:
        own = getattr(jobs, name)
        seen = ~np.isnan(own)
        solved = np.linalg.lstsq(jobs.shown[:, seen].T, own[seen], rcond=None)[0]
        weights[name] = tuple(map(float, solved))
    return weights


class _Bare:
    """The jobs of some runs by their numbers alone."""

    def __init__(self, runs: Sequence[ObservedRun], view: View) -> None:
        self.runs = runs
        jobs = [tuple(map(without_trace, getattr(run, view))) for run in runs]
        self.profiles = tuple(chain.from_iterable(jobs))
        self.numbers = _joined([numbers(own, run.gpu) for own, run in zip(jobs, runs, strict=True)])
        sizes = np.array(list(map(len, jobs)))
        self._of_run = np.repeat(np.arange(len(runs)), sizes)
        places = np.arange(sizes.max())
        present = places < sizes[:, None]
        mixes = np.where(present, places + (np.cumsum(sizes) - sizes)[:, None], -1)
        shares = np.ones(mixes.shape)
        for row, run in enumerate(runs):
            if run.sharing.limits:
                shares[row, : sizes[row]] = limit_shares(run.sharing.limits, run.gpu.sms)
        self._mixes, self._shares = own_first(mixes, shares)
        self._measured_s = np.concatenate([run.measured_s for run in runs])

    def known(self, cut: tuple[str, ...]) -> Known:
        """Return what is known of jobs that were cut to that."""
        return what_is_known(self._cut(cut))

    def _cut(self, cut: tuple[str, ...]) -> Numbers:
        hidden = {"power", *ESTIMATED} - {*cut}
        return self.numbers._replace(
            **{name: np.full(len(self.profiles), np.nan) for name in hidden}
        )

    def rows(self, cut: tuple[str, ...], estimates: Mapping[str, tuple[float, ...]]) -> Rows:
        """Return the rows of all jobs, of profiles that were cut to those numbers."""
        under_mps = self.runs[0].sharing.under_mps
        jobs = filled(self._cut(cut), estimates).of(self._mixes)
        present = self._mixes >= 0
        return Rows(
            of_run=self._of_run,
            profiles=self.profiles,
            x=columns(jobs, self._shares, present, under_mps=under_mps),
            replayed_s=first_steps(jobs, self._shares, under_mps=under_mps),
            measured_s=self._measured_s,
        )


# Logs of the slowdown under MPS at which quantiles of the error are taken: of mixes that hardly
# slow a job less is unknown.
_SLOWED_AT = (0.0, 0.3, 0.7, 1.1, 1.6, 2.1)


def _bare_intervals(jobs: Rows, middle_s: Floats, mode: Mode) -> Intervals:
    if mode == "naive":
        return fit_intervals(jobs, middle_s, mode)
    logs, every = np.log(jobs.measured_s / middle_s), np.ones(len(middle_s), dtype=bool)
    distance = np.array(list(map(log_beyond_host, jobs.profiles, middle_s)))
    ends = _ends(logs, distance, every, _SLOWED_AT)
    return Intervals(gpu_bound=ends, host_bound=ends)


class _BareFit:
    """The correction of the capacity model, and its predictions without a family."""

    def __init__(self, jobs: _Bare, estimates: Mapping[str, tuple[float, ...]]) -> None:
        """Fit to `jobs`, cut in each of `_CUTS`; copies in a run count once."""
        self._runs, self._estimates = jobs.runs, estimates
        merged = [_merged(jobs.rows(cut, estimates).that_tell(jobs.runs)) for cut in _CUTS]
        self._x = np.concatenate([rows.x for rows, _ in merged])
        self._logs = np.concatenate([logs for _, logs in merged])
        self._merged = [rows for rows, _ in merged]
        self._mean, self._scale = self._x.mean(axis=0), self._x.std(axis=0)
        self._scale[self._scale < 1e-9] = 1.0
        away = self._away(self._x)
        chosen = np.random.default_rng(_SEED).permutation(len(away))[:_POINTS]
        # Four decimals are far finer than the length scale, and keep the file small.
        self._points = np.unique(np.round(away[chosen], 4), axis=0)
        self._near = _KERNEL.likeness(away, self._points)
        of_points = _KERNEL.likeness(self._points, self._points)
        of_points += 1e-6 * _KERNEL.signal * np.eye(len(self._points))
        # Each job stands there once for each cut.
        self._gram = self._near.T @ self._near + len(_CUTS) * _KERNEL.noise * of_points
        self._moment = self._near.T @ self._logs
        self.correction = Correction(
            columns=COLUMNS,
            mean=tuple(map(float, self._mean)),
            scale=tuple(map(float, self._scale)),
            points=tuple(tuple(map(float, point)) for point in self._points),
            weights=tuple(map(float, np.linalg.solve(self._gram, self._moment))),
            kernel=_KERNEL,
        )

    def _away(self, x: Floats) -> Floats:
        return np.asarray((drawn(x, self._mean, self._scale) - self._mean) / self._scale)

    @cached_property
    def _without(self) -> dict[str, Floats]:
        """Weights of the points without the runs that contain a family, by family."""
        families = [run.families for run in self._runs]
        of_run = np.concatenate([rows.of_run for rows in self._merged])
        own = np.concatenate([rows.family for rows in self._merged])
        weights = {}
        for family in {each for names in families for each in names}:
            hidden = np.array([family in names for names in families])[of_run]
            hidden = own == family if hidden.all() else hidden
            near, logs = self._near[hidden], self._logs[hidden]
            left = np.linalg.solve(self._gram - near.T @ near, self._moment - near.T @ logs)
            weights[family] = np.asarray(left)
        return weights

    def intervals(self, mode: Mode) -> dict[Known, Intervals]:
        """Return intervals by what is known: the errors of jobs predicted without their families.

        They hold measured steps of profiles from other hosts, as users have them.
        """
        runs = [run for run in self._runs if run.mode == mode]
        jobs = _Bare(runs, "as_measured")
        families = np.array([profile.workload.family for profile in jobs.profiles])
        by_known: dict[Known, Intervals] = {}
        for cut in _CUTS:
            rows = jobs.rows(cut, self._estimates)
            near, logs = _KERNEL.likeness(self._away(rows.x), self._points), np.zeros(len(families))
            for family in np.unique(families):
                logs[families == family] = near[families == family] @ self._without[family]
            middle_s = corrected(rows.replayed_s, logs, rows.alone_s)
            by_known.setdefault(jobs.known(cut), _bare_intervals(rows, middle_s, mode))
        return by_known
