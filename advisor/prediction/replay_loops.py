"""The compiled loops of replay as functions of arrays.

`starts`, `kernels`, `paces` and `log` as in `engine`; each returns the seconds of a step of each
tenant, shape (tenants,), infinite where it makes no progress.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.engine_layout import (
    DEMAND,
    DURATION,
    DUST,
    HOST_START,
    LAUNCH,
    LEFT,
    LOOPS,
    NEVER,
    RATE,
    SINCE,
)
from advisor.prediction.trace import Floats

_Indices = NDArray[np.int64]
_DTYPES = {"F": np.dtype(np.float64), "I": np.dtype(np.int64), "U": np.dtype(np.uint64)}


def mps(
    starts: _Indices,
    kernels: Floats,
    paces: Floats,
    ceded: float,
    horizon_s: float,
    max_events: int,
    log: Floats,
) -> Floats:
    """Seconds of a step when kernels run side by side.

    Blocks start in the order in which their kernels became ready, where slots for them are free;
    of these a kernel leaves the share `ceded` to those after it. In the last `DRAIN` seconds of a
    kernel all its blocks have started. Kernels that are on the SMs together share what these do.
    """
    at, state = _begin(starts, kernels)
    current = np.zeros((5, len(at)))
    current[:RATE], current[SINCE] = kernels[DEMAND : DEMAND + RATE, at], NEVER
    return _steps_s(
        "mps", starts, kernels, paces, log, max_events, horizon_s, at, state, ceded,
        _queues(len(at)), current,
    )  # fmt: skip


def naive(
    starts: _Indices,
    kernels: Floats,
    paces: Floats,
    slicing: tuple[float, float, float],
    horizon_s: float,
    max_events: int,
    log: Floats,
) -> Floats:
    """Seconds of a step when one tenant owns the GPU at a time.

    `slicing` holds the seconds of a slice, of the wait for an idle owner, and of a change.
    """
    at, state = _begin(starts, kernels)
    return _steps_s(
        "naive", starts, kernels, paces, log, max_events, horizon_s, at, state, *slicing
    )


def _begin(starts: _Indices, kernels: Floats) -> tuple[_Indices, Floats]:
    """Let tenants start at different points of their steps, as real ones do."""
    tenants = len(starts) - 1
    at = starts[:-1] + np.diff(starts) * np.arange(tenants) // tenants
    state = np.zeros((4, tenants))
    state[LEFT], state[HOST_START] = kernels[DURATION, at], -kernels[LAUNCH, at]
    return at, state


def _queues(tenants: int) -> NDArray[np.uint64]:
    """Nobody runs, all sleep."""
    return np.stack([np.zeros(tenants, np.uint64), np.arange(tenants, dtype=np.uint64)])


def _steps_s(  # noqa: PLR0913, PLR0917 - as the compiled loop takes them
    loop: str,
    starts: _Indices,
    kernels: Floats,
    paces: Floats,
    log: Floats,
    max_events: int,
    horizon_s: float,
    at: _Indices,
    state: Floats,
    *rest: Any,
) -> Floats:
    from advisor.prediction.engine_file import loops

    done = np.zeros((2, len(at)))
    given = (
        starts, kernels, paces, len(at), kernels.shape[1], log, len(log), max_events, horizon_s,
        at, state, done, *rest,
    )  # fmt: skip
    arguments = [_argument(*each) for each in zip(LOOPS[loop], given, strict=True)]
    elapsed_s = loops()[loop](*arguments)
    return np.asarray(elapsed_s / np.maximum(done[1] - done[0], DUST))


def _argument(kind: str, given: Any) -> Any:
    """A number as it is, an array as its address."""
    if kind not in _DTYPES:
        return given
    assert given.dtype == _DTYPES[kind], "compiled for another type"
    assert given.flags.c_contiguous, "compiled for another layout"
    return given.ctypes.data
