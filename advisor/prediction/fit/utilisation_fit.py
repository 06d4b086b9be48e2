"""Fits the utilisation model, for mixes without kernel traces, to runs whose traces are ignored."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.prediction.fit.doubt_fit import NO_BOUNDS, bounds_of
from advisor.prediction.fit.observation import Bools, ObservedRun, Rows, telling_of
from advisor.prediction.fit.regression import of_runs_with
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.residual import corrected
from advisor.prediction.trace import Floats
from advisor.prediction.utilisation_model import (
    COLUMNS,
    UtilisationModel,
    capacity_steps,
    columns,
    drawn,
    seen_by_driver,
)

# Strength of the ridge, in rows. Ten times as much moves errors by about a point.
_RIDGE = 3.0

_OF_OWN_LIMIT = ("log_capacity_slowdown", "log_limit", "log_busy_over_limit")


def fit_utilisation(runs: Sequence[ObservedRun]) -> UtilisationModel | None:
    """Correction of the capacity model in one mode; None if no job of `runs` shows sharing.

    Its interval is that of errors on families left out, by the rule of `doubt_fit.bounds_of`, on
    hosts of any speed.
    """
    everyone = _rows(runs)
    if everyone is None:
        return None
    rows = everyone.chosen(telling_of(everyone, runs))
    raw = _rows([replace(each, profiles=each.as_measured) for each in runs])
    assert raw is not None, "on any host the same jobs run"
    errors = _errors_on_unseen(rows, runs, raw)
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
    bare = [tuple(map(seen_by_driver, shared.profiles)) for shared in runs]
    steps = [capacity_steps(each, s.sharing) for each, s in zip(bare, runs, strict=True)]
    known = [(index, runs[index], bare[index], np.array(s))
             for index, s in enumerate(steps)
             if s is not None and runs[index].telling.any()]  # fmt: skip
    if not known:
        return None
    return Rows(
        of_run=np.array([index for index, shared, _, _ in known for _ in shared.profiles]),
        profiles=tuple(each for _, shared, _, _ in known for each in shared.profiles),
        x=np.concatenate([columns(each, s.sharing, s.gpu, by) for _, s, each, by in known]),
        replayed_s=np.concatenate([by_capacity for _, _, _, by_capacity in known]),
        measured_s=np.concatenate([shared.measured_s for _, shared, _, _ in known]),
    )


def _errors_on_unseen(rows: Rows, runs: Sequence[ObservedRun], asked: Rows) -> Floats:
    """Log of measured over predicted step of each of `asked`, by `rows` without its family."""
    log_errors, families = np.zeros(len(asked.family)), np.array(asked.family)
    for family in np.unique(families):
        kept = np.ones(len(rows.family), dtype=bool)
        kept[of_runs_with(str(family), rows, runs)] = False
        own = asked.chosen(families == family)
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
    found = lsq_linear(root, np.linalg.solve(root.T, away.T @ y), (least, most), method="bvls")
    return np.asarray(found.x)
