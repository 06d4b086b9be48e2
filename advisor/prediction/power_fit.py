"""Fits the power of the whole GPU to shared runs of it."""

from collections.abc import Sequence

import numpy as np

from advisor.gpu.catalogue import Gpu
from advisor.prediction import activity
from advisor.prediction.observation import Shared


def fit_power(usable: Sequence[Shared], gpu: Gpu) -> tuple[float, float]:
    """Measured over predicted power above idle, and what relative error remains."""
    rows = [row for shared in usable if (row := _row(shared, gpu))]
    if not rows:
        return 1.0, 0.15
    idle, predicted, measured = np.array(rows).T
    gain = float(np.median((measured - idle) / np.maximum(predicted - idle, 1.0)))
    remaining = np.log(measured / (idle + gain * (predicted - idle)))
    return gain, max(0.02, float(np.sqrt(np.mean(remaining**2))))


def _row(shared: Shared, gpu: Gpu) -> tuple[float, float, float] | None:
    """Idle, predicted and measured power of a run; None where any is missing."""
    speeds = shared.alone_s / shared.measured_s
    predicted = activity.power_w(shared.profiles, list(speeds), gpu, gain=1.0)
    idle = max(each.idle_power_w or 0.0 for each in shared.profiles)
    measured = shared.run.power_w
    return None if predicted is None or measured is None else (idle, predicted, measured)
