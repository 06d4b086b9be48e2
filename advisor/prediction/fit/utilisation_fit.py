"""Fits the utilisation model, for mixes without kernel traces, to runs whose traces are ignored."""

from collections.abc import Sequence

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.observation import Bools, ObservedRun, Rows
from advisor.prediction.fit.regression import blocks_of, bounds_of
from advisor.prediction.model_file import is_gpu_bound
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


def fit_utilisation(rows: Rows, runs: Sequence[ObservedRun]) -> UtilisationModel:
    """What the capacity model misses in one mode.

    Its interval is that of errors on families left out, by the rule of `regression.bounds_of`.

    Args:
        rows: By `utilisation_rows`, some or all of them.
        runs: As they were given to it.
    """
    everything = np.ones(len(rows.family), dtype=bool)
    bounds = bounds_of(_errors_on_unseen(rows, runs), rows.family, everything)
    return _ridge(rows, everything, bounds.low, bounds.high)


def utilisation_rows(runs: Sequence[ObservedRun], gpu: Gpu) -> Rows | None:
    """The jobs of `runs` that show sharing, as nvidia-smi sees them; None if there are none.

    The capacity model's steps take the place of replayed ones.
    """
    bare = [tuple(map(seen_by_driver, shared.profiles)) for shared in runs]
    steps = [capacity_steps(each, s.sharing) for each, s in zip(bare, runs, strict=True)]
    known = [(index, runs[index], bare[index], np.array(s))
             for index, s in enumerate(steps)
             if s is not None and runs[index].telling.any()]  # fmt: skip
    if not known:
        return None
    rows = Rows(
        of_run=np.array([index for index, shared, _, _ in known for _ in shared.profiles]),
        family=tuple(family for _, shared, _, _ in known for family in shared.families),
        x=np.concatenate([columns(each, s.sharing, gpu, by) for _, s, each, by in known]),
        alone_s=np.concatenate([shared.alone_s for _, shared, _, _ in known]),
        replayed_s=np.concatenate([by_capacity for _, _, _, by_capacity in known]),
        measured_s=np.concatenate([shared.measured_s for _, shared, _, _ in known]),
        gpu_bound=np.array([is_gpu_bound(p) for _, s, _, _ in known for p in s.profiles]),
    )
    return rows.chosen(np.concatenate([shared.telling for _, shared, _, _ in known]))


def _errors_on_unseen(rows: Rows, runs: Sequence[ObservedRun]) -> Floats:
    """Log of measured over predicted step of each row, had its family not been seen; (rows,)."""
    log_errors = np.zeros(len(rows.family))
    for left_out, own in blocks_of(rows, runs):
        kept = np.ones(len(rows.family), dtype=bool)
        kept[left_out] = False
        scored = left_out[own]
        log_correction = _ridge(rows, kept).log_correction(rows.x[scored])
        middle = corrected(rows.replayed_s[scored], log_correction, rows.alone_s[scored])
        log_errors[scored] = np.log(rows.measured_s[scored] / middle)
    return log_errors


def _ridge(rows: Rows, kept: Bools, low: float = 0.0, high: float = 0.0) -> UtilisationModel:
    """The straight line through the rows `kept`; without any, the capacity model as it is."""
    if not kept.any():
        return UtilisationModel(low=low, high=high)
    x, y = rows.x[kept], np.log(rows.measured_s[kept] / rows.replayed_s[kept])
    count = np.maximum(np.isfinite(x).sum(axis=0), 1)
    mean = np.nansum(x, axis=0) / count
    scale = np.sqrt(np.nansum((x - mean) ** 2, axis=0) / count)
    scale[scale < 1e-12] = 1.0
    away, constant = drawn((x - mean) / scale), float(y.mean())
    weights = _weights(away, y - constant, scale)
    return UtilisationModel(
        low=low,
        high=high,
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
