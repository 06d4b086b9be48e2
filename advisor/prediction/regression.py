"""The regression on what replay misses, and how wrong it is for families it never saw.

The only importer of scikit-learn; what it finds leaves here as plain numbers.
"""

from collections.abc import Sequence

import numpy as np

from advisor.prediction.features import FEATURES
from advisor.prediction.model import Correction
from advisor.prediction.observation import Rows, Shared
from advisor.prediction.pace import corrected
from advisor.prediction.script import Floats

_PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


def fit_correction(rows: Rows, runs: Sequence[Shared]) -> Correction:
    """Ridge on the log of measured over replayed; errors from families it did not see."""
    errors = {penalty: _unseen_errors(rows, runs, penalty) for penalty in _PENALTIES}
    penalty = min(errors, key=lambda each: float(np.abs(errors[each][0]).mean()))
    log_errors, log_slowdowns = errors[penalty]
    base, slope = _spread(np.abs(log_errors), log_slowdowns)
    scaled = log_errors / (base + slope * np.maximum(0, log_slowdowns))
    mean, scale, coefficients, intercept = _ridge(rows.x, _target(rows), penalty)
    return Correction(
        features=FEATURES,
        mean=tuple(map(float, mean)),
        scale=tuple(map(float, scale)),
        coefficients=tuple(map(float, coefficients)),
        intercept=intercept,
        low=min(0.0, float(np.quantile(scaled, 0.05))),
        high=max(0.0, float(np.quantile(scaled, 0.95))),
        spread_base=base,
        spread_slope=slope,
        degrees=tuple(sorted({len(shared.profiles) for shared in runs})),
    )


def _target(rows: Rows) -> Floats:
    return np.asarray(np.log(rows.measured_s / rows.replayed_s))


def _ridge(x: Floats, y: Floats, penalty: float) -> tuple[Floats, Floats, Floats, float]:
    """Mean, scale and coefficients, shape (features,), and the intercept."""
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    ridge = Ridge(alpha=penalty).fit(scaler.transform(x), y)
    return scaler.mean_, scaler.scale_, ridge.coef_, float(ridge.intercept_)


def _unseen_errors(rows: Rows, runs: Sequence[Shared], penalty: float) -> tuple[Floats, Floats]:
    """Log errors and predicted log slowdowns of each family's jobs, fitted on runs without it."""
    y = _target(rows)
    families = np.array(rows.family)
    holds = np.array([[name in shared.families for shared in runs]
                      for name in sorted(set(rows.family))])  # fmt: skip
    errors, slowdowns = np.zeros(len(y)), np.zeros(len(y))
    for family, runs_with in zip(sorted(set(rows.family)), holds, strict=True):
        scored, known = families == family, ~runs_with[rows.of_run.astype(int)]
        fallback = known if known.sum() > len(FEATURES) else ~scored
        mean, scale, coefficients, intercept = _ridge(rows.x[fallback], y[fallback], penalty)
        log_correction = (rows.x[scored] - mean) / scale @ coefficients + intercept
        alone_s = rows.alone_s[scored]
        middle = corrected(rows.replayed_s[scored], log_correction, alone_s)
        errors[scored] = np.log(rows.measured_s[scored] / middle)
        slowdowns[scored] = np.log(middle / alone_s)
    return errors, slowdowns


def _spread(absolute: Floats, log_slowdowns: Floats) -> tuple[float, float]:
    """Base and slope of a line through the absolute errors, neither below a floor."""
    columns = np.column_stack([np.ones_like(absolute), np.maximum(0, log_slowdowns)])
    (base, slope), *_ = np.linalg.lstsq(columns, absolute, rcond=None)
    slope = max(0.0, float(slope))
    base = float(absolute.mean() - slope * columns[:, 1].mean()) if base < 0.01 else float(base)
    return max(0.01, base), slope
