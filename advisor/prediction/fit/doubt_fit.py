"""Fits how uncertain predictions for unseen families are: the bounds of 90 % intervals."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.correction import MOST, Doubt
from advisor.prediction.fit.observation import Bools
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.residual_bounds import ResidualBounds
from advisor.prediction.trace import Floats
from advisor.workload.profile import Profile

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
