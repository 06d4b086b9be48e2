"""The regression on what replay misses, and how wrong it is for families it never saw.

The only importer of scikit-learn; what it finds leaves here as plain numbers.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from advisor.prediction.features import FEATURES
from advisor.prediction.model import Correction
from advisor.prediction.observation import Rows, Shared
from advisor.prediction.pace import corrected
from advisor.prediction.script import Floats

# Where length and signal are looked for. The noise is that of two runs of one mix, which differ
# by some 7 % on hosts with virtual cores.
_LENGTHS = (3.0, 4.0, 6.0)
_SIGNALS = (0.01, 0.03)
_NOISE = 0.005


def fit_correction(rows: Rows, runs: Sequence[Shared]) -> Correction:
    """The Gaussian process that does best on families it has not seen.

    Its interval comes from its errors on those, so it holds for new families as far as they
    differ from the known ones as these do from each other.
    """
    from threadpoolctl import threadpool_limits

    # Hundreds of small systems: threads that wait for each other make them up to 50 times slower.
    with threadpool_limits(1):
        return _best(rows, runs)


def _best(rows: Rows, runs: Sequence[Shared]) -> Correction:
    tried = [_unseen(rows, runs, length, signal) for length, signal in product(_LENGTHS, _SIGNALS)]
    errors = [float(np.abs(log_errors).mean()) for log_errors, _ in tried]
    best = errors.index(min(errors))
    length, signal = list(product(_LENGTHS, _SIGNALS))[best]
    log_errors, spreads = tried[best]
    low, high = np.quantile(log_errors / spreads, (0.05, 0.95))
    fitted = _process(rows.x, _target(rows), length, signal)
    return replace(fitted, low=min(0.0, float(low)), high=max(0.0, float(high)))


def _target(rows: Rows) -> Floats:
    return np.asarray(np.log(rows.measured_s / rows.replayed_s))


def _process(x: Floats, y: Floats, length: float, signal: float) -> Correction:
    """A Gaussian process through `y`, shape (points,), at `x`, shape (points, features)."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    points = scaler.transform(x)
    kernel = ConstantKernel(signal) * RBF(length) + WhiteKernel(_NOISE)
    process = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(points, y)
    return Correction(
        features=FEATURES,
        mean=tuple(map(float, scaler.mean_)),
        scale=tuple(map(float, scaler.scale_)),
        points=tuple(tuple(map(float, point)) for point in points),
        weights=tuple(map(float, process.alpha_)),
        length=length,
        signal=signal,
        noise=_NOISE,
        low=0.0,
        high=0.0,
    )


def _unseen(
    rows: Rows, runs: Sequence[Shared], length: float, signal: float
) -> tuple[Floats, Floats]:
    """Log errors and spreads of each family's jobs, fitted on the runs without that family."""
    y, families, of_run = _target(rows), np.array(rows.family), rows.of_run.astype(int)
    errors, spreads = np.zeros(len(y)), np.ones(len(y))
    for family in sorted(set(rows.family)):
        with_it = np.array([family in shared.families for shared in runs])
        scored, known = families == family, ~with_it[of_run]
        if not known.any():  # a family in every run can only be held out by itself
            known = ~scored
        process = _process(rows.x[known], y[known], length, signal)
        log_correction = process.log_correction(rows.x[scored])
        middle = corrected(rows.replayed_s[scored], log_correction, rows.alone_s[scored])
        errors[scored] = np.log(rows.measured_s[scored] / middle)
        spreads[scored] = process.spread(rows.x[scored])
    return errors, spreads
