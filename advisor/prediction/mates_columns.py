"""What the surrogate model knows of the jobs that run with each: its `MATES`."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.surrogate_features import FIXED, LIMITED
from advisor.prediction.trace import Floats


def mates_columns(fixed: Floats, limited: Floats, there: NDArray[np.bool_]) -> Floats:
    """`MATES` of each job, shape (mixes, places, columns)."""
    of = dict(zip((*FIXED, *LIMITED), np.moveaxis(np.concatenate([fixed, limited], 2), 2, 0),
                  strict=True))  # fmt: skip
    busy, long = np.where(there, of["busy"], 0.0), np.where(there, of["log_kernel_us"], 0.0)
    mates = np.maximum(_others(there.astype(np.float64)), 1)
    busy_mates = _others(busy)
    return np.stack([
        np.broadcast_to(np.log(np.maximum(1, there.sum(axis=1, keepdims=True))), there.shape),
        busy_mates,
        _others(np.where(there, of["sms"], 0.0)),
        _others(busy * of["dram"]),
        _others(busy * of["occupancy"]),
        _others(busy * of["wide"]),
        _others(busy * long) / np.maximum(busy_mates, 1e-9),
        _others(np.where(there, of["log_step_ms"], 0.0)) / mates,
        _most_of_others(busy),
        _most_of_others(long),
        *_waits(of, busy),
    ], axis=2)  # fmt: skip


def _waits(of: Mapping[str, Floats], busy: Floats) -> list[Floats]:
    """Log of one and the time that a job's kernels wait in a step, over the step."""
    step_us, kernels = 1e3 * np.exp(of["log_step_ms"]), np.exp(of["log_kernels"])
    turn_us = busy * busy * step_us / kernels
    wide = of["sms"] / np.maximum(of["busy"], 1e-9)
    waits = turn_us, turn_us * wide, busy * np.exp(of["log_kernel_us"])
    return [np.log1p(_others(each) * kernels / step_us) for each in waits]


def _others(values: Floats) -> Floats:
    """Sum over all other places."""
    return np.asarray(values.sum(axis=1, keepdims=True) - values)


def _most_of_others(values: Floats) -> Floats:
    """Maximum over all other places of what is at least 0; 0 if there are none."""
    if values.shape[1] == 1:
        return np.zeros_like(values)
    second, most = np.moveaxis(np.partition(values, -2, axis=1)[:, -2:], 1, 0)
    return np.asarray(np.where(values == most[:, None], second[:, None], most[:, None]))
