"""Features of a job for the surrogate model, a few at each limit; and of the jobs beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import limit_shares
from advisor.prediction.cache import once_a_mix
from advisor.prediction.job_features import counter
from advisor.prediction.kernel_pace import limit_exponent, sm_pace
from advisor.prediction.physics import Physics
from advisor.prediction.trace import Floats, ReplayTrace, replay_trace
from advisor.sharing import SHARED_MODES
from advisor.workload.profile import Profile

# Limits at which a job's features are computed, per cent, growing, the last one 100. Between two of
# them features are interpolated.
LIMIT_GRID = (5, 10, 14, 20, 28, 36, 43, 57, 71, 86, 100)

LIMITED = (
    "log_alone",  # slowdown by the limit, nobody else there
    "busy",  # share of that step in which the GPU works for the job
    "sms",  # share of the GPU's SMs in use over that step
)
FIXED = (
    "dram",  # DRAM activity while the GPU works for the job
    "occupancy",  # while the GPU works for the job
    "host",  # host path over step
    "wide",  # share of the kernels' time in kernels that fill nine tenths of the GPU
    "log_kernel_us",  # of the kernel that runs at a random busy moment
    "log_kernels",  # in a step
    "log_step_ms",
    "log_alone_under_mps",  # what being an MPS client costs or gains alone
)
# Of the jobs beside it, its mates, at their limits; see `mates_columns`.
MATES = (
    "log_degree",
    "mates_busy",
    "mates_sms",
    "mates_dram",
    "mates_occupancy",
    "mates_wide",
    "mates_log_kernel_us",
    "mates_log_step_ms",
    "busiest_mate",
    "longest_mate_log_kernel_us",
    "log_wait",  # for the mates' kernels in turn with its own, over its step
    "log_wait_wide",  # for those that leave no SM
    "log_wait_long",  # for what is left of the kernels that it finds running
)
_WIDE = 0.9


@dataclass(frozen=True, slots=True)
class Summaries:
    """Features of jobs for the surrogate model.

    Attributes:
        step_s: Alone, shape (jobs,).
        limited: `LIMITED` at each limit of `LIMIT_GRID`, shape (jobs, limits, columns).
        fixed: `FIXED`, shape (jobs, columns).
    """

    step_s: Floats
    limited: Floats
    fixed: Floats


def joined(parts: Sequence[Summaries]) -> Summaries:
    """Summaries of the jobs of all `parts`, one after another."""
    return Summaries(
        step_s=np.concatenate([each.step_s for each in parts]),
        limited=np.concatenate([each.limited for each in parts]),
        fixed=np.concatenate([each.fixed for each in parts]),
    )


@once_a_mix
def summaries(profiles: Sequence[Profile], gpu: Gpu, physics: Physics) -> Summaries | None:
    """The features of `profiles`; None if one has no kernel trace or no counters."""
    scripts = [replay_trace(each, gpu.sms, physics.packing) for each in profiles]
    pairs = [(profile, played) for profile, played in zip(profiles, scripts, strict=True)
             if played is not None and profile.counters is not None]  # fmt: skip
    if len(pairs) < len(scripts):
        return None
    return Summaries(
        step_s=np.array([each.step_s for each in profiles]),
        limited=np.array([_limited(*pair, gpu, physics) for pair in pairs]),
        fixed=np.array([fixed_of(*pair) for pair in pairs]),
    )


def _limited(profile: Profile, played: ReplayTrace, gpu: Gpu, physics: Physics) -> Floats:
    """`LIMITED` at each limit, shape (limits, columns)."""
    exponent = limit_exponent(profile, gpu, physics.bandwidth)
    rows = []
    for share in limit_shares(LIMIT_GRID, gpu.sms):
        seconds = played.duration_s / sm_pace(played.demand, share, exponent)
        busy_s = float(seconds.sum())
        alone_s = played.alone_s(profile.step_s, busy_s)
        sms_s = float((seconds * np.minimum(played.demand, share)).sum())
        rows.append((np.log(alone_s / profile.step_s), busy_s / alone_s, sms_s / alone_s))
    return np.array(rows)


def fixed_of(profile: Profile, played: ReplayTrace) -> Floats:
    seconds, busy_s = played.duration_s, max(float(played.duration_s.sum()), 1e-9)
    busy = profile.busy_share or 1.0
    under_mps = profile.mps.unlimited.step_s / profile.step_s if profile.mps else 1.0
    kernel_us = 1e6 * float((seconds * seconds).sum()) / busy_s
    return np.array([
        counter(profile, "dram_active") / busy,
        counter(profile, "sm_occupancy") / busy,
        played.host_s / profile.step_s,
        float(seconds[played.demand >= _WIDE].sum()) / busy_s,
        np.log(kernel_us + 1),
        np.log(len(seconds)),
        np.log(1e3 * profile.step_s),
        np.log(under_mps),
    ])  # fmt: skip


_FOUND = {
    "dram": (100, 35, 67),
    "occupancy": (28, 47, 17),
    "host": (9.1, 11, 100),
    "wide": (4.4, 48, 11),
    "log_kernel_us": (22, 9.2, 14),
    "log_kernels": (26, 100, 9.7),
    "log_step_ms": (100, 100, 9.6),
    "log_alone_under_mps": (100, 100, 30),
    "log_degree": (1.7, 4.8, 20),
    "mates_busy": (24, 100, 100),
    "mates_sms": (10, 13, 2.6),
    "mates_dram": (29, 100, 33),
    "mates_occupancy": (100, 67, 40),
    "mates_wide": (38, 3.7, 14),
    "mates_log_kernel_us": (87, 100, 23),
    "mates_log_step_ms": (14, 61, 70),
    "busiest_mate": (5.7, 100, 100),
    "longest_mate_log_kernel_us": (100, 100, 84),
    "log_wait": (100, 4.5, 7.9),
    "log_wait_wide": (100, 3, 2.5),
    "log_wait_long": (100, 49, 64),
    "log_alone": (6, 6, 4.6),
    "busy": (1.5, 2, 19),
    "sms": (75, 4, 4.7),
}

# By column and mode.
LENGTHS = {column: dict(zip(SHARED_MODES, found, strict=True)) for column, found in _FOUND.items()}


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
