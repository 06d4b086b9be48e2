"""The correction of replayed steps under MPS, and the 90 % intervals of the error that is left.

The correction is a regression that learnt from measured runs. Intervals are quantiles of the errors
on model families left out (split conformal).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.files.units import MOST_LOG, check_number, check_scaled
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.host import is_gpu_bound, log_beyond_host
from advisor.prediction.prediction import Interval, interval_around
from advisor.prediction.replay import Physics, replay_mix
from advisor.prediction.trace import Floats, demand
from advisor.sharing import Concurrent, Mode, Mps
from advisor.workload.profile import PROBE_LIMITS_PCT, Profile

_KERNELS = (
    "over_one_wave",  # share of kernel time in grids of more blocks than fit on the GPU at once
    "log_waves",
    "sm_demand",  # share of the SMs that its kernels can use
    "sm_demand_spread",  # the same if each block had an SM to itself
    "wave_tail",  # share of the SMs that last waves leave free
    "log_mean_kernel_us",
    "log_kernels",
    "host_share",  # host path over step
    "sm_active",  # while the GPU works for the job
)
_IN_MIX = (
    "log_replayed_slowdown",  # slowdown by replay
    "log_degree",
    "busy_share",  # the job's GPU time over its step, alone
    "busy_at_pace",  # the same at its replayed pace
    "others_busy",  # the others' at their replayed pace, summed
    "busy_of_all",  # of all jobs, alone
    "log_kernel_us",  # long kernels make short ones wait
    "others_log_kernel_us",
    "dram",  # the job's DRAM activity while the GPU works for it
    "others_dram",  # the others' at their replayed pace, summed
)
_IN_LIMITED_MIX = (
    "log_alone_under_mps",  # what being an MPS client costs or gains alone
    "log_limit",
    "limits_over_one",  # how far the limits together exceed the GPU
    "log_alone_limited",  # slowdown alone under its limit
    "log_alone_limited_over_replayed",
    "headroom",  # how much less a limit slows it, alone, than its share of the SMs suggests
    "others_headroom",
)


def _with_others(*traits: str) -> tuple[str, ...]:
    return (*traits, *(f"others_{trait}" for trait in traits))


# Without limits the probe does not help: 6.3 % off with it and without. Where a profile lacks
# counters, those filled from its trace cost 0.1 points. Classes of kernels, and the slowdown under
# the tightest and the loosest limit of the probe, do not help scripts, programs and an H100 that
# the model did not see: 7.3 and 7.8 % off with them, 7.2 and 7.8 without.
COLUMNS: dict[Mode, tuple[str, ...]] = {
    "mps": (*_IN_MIX, *_with_others(*_KERNELS)),
    "mps-limits": (*_IN_MIX, *_IN_LIMITED_MIX, *_with_others(*_KERNELS)),
}

# Classes of kernels that multiply more than they move data.
_PRODUCTS = ("gemm", "attention", "recurrent", "conv")

# Packing with which a job's demand for SMs is a column, whatever replay's is.
_PACKING = 0.45


@cached_by_profiles
def _traits(profile: Profile, gpu: Gpu) -> dict[str, float]:
    """Return `_KERNELS` of a job that has a trace, and its share of kernel time that moves data."""
    trace = profile.trace
    assert trace is not None
    duration = np.asarray(trace.duration_us)
    weight = duration / max(float(duration.sum()), 1e-9)
    blocks = np.asarray(trace.blocks, dtype=np.float64)
    waves = blocks / (gpu.sms * np.maximum(1, np.asarray(trace.resident_blocks)))
    over_kernels = {
        "over_one_wave": waves > 1,
        "log_waves": np.log(np.maximum(waves, 0.05)),
        "sm_demand": demand(trace, gpu.sms, _PACKING),
        "sm_demand_spread": np.minimum(1, blocks / gpu.sms),
        "wave_tail": np.where(waves > 1, 1 - waves / np.maximum(1, np.ceil(waves)), 0.0),
        "moves_data": ~np.isin(trace.classes, _PRODUCTS)[list(trace.class_of)],
    }
    return {
        **{name: float((weight * values).sum()) for name, values in over_kernels.items()},
        "log_mean_kernel_us": float(np.log(duration.mean() + 1e-3)),
        "log_kernels": float(np.log(len(duration) / trace.steps)),
        "host_share": (profile.host_s or 0.0) / profile.step_s,
    }


def sm_active(profile: Profile, gpu: Gpu) -> float:
    """Return SM activity while the GPU works for the job, 0..1: by its counter or its kernels.

    The line explains 88 % of the variance over 162 profiles of an H200 and an H100.
    """
    measured = None if profile.counters is None else profile.counters.sm_active
    if measured is not None:
        return measured / (profile.busy_share or 1.0)
    return min(1.0, 0.10 + 0.83 * _traits(profile, gpu)["sm_demand"])


def dram_active(profile: Profile, gpu: Gpu) -> float:
    """Return DRAM activity while the GPU works for the job, 0..1: by its counter or its kernels.

    The line explains 59 % of the variance over families left out of the same profiles.
    """
    measured = None if profile.counters is None else profile.counters.dram_active
    if measured is not None:
        return measured / (profile.busy_share or 1.0)
    own = _traits(profile, gpu)
    active = -0.31 + 0.22 * own["sm_demand"] + 0.32 * own["moves_data"]
    return float(np.clip(active + 0.07 * own["log_mean_kernel_us"], 0.01, 1.0))


@cached_by_profiles
def _limit_curve(profile: Profile, gpu: Gpu, physics: Physics) -> tuple[Floats, Floats]:
    """Return the share of the SMs and the log slowdown alone of each limit and of none."""
    if profile.mps and profile.mps.limited:
        whole_s = profile.mps.unlimited.step_s
        points = sorted(
            (run.sms / gpu.sms if run.sms else run.limit_pct / 100, run.step_s / whole_s)
            for run in profile.mps.limited
        )
        shares, slowdowns = np.array(points).T
    else:  # replay takes the probe's place: predictions under limits are 0.7 points worse
        shares = np.array(limit_shares(PROBE_LIMITS_PCT, gpu.sms))
        steps_s = [replay_mix([profile], Mps((limit,)), gpu, physics) for limit in PROBE_LIMITS_PCT]
        replayed_s = np.array([step_s[0] for step_s in steps_s if step_s is not None])
        slowdowns = np.minimum.accumulate(replayed_s) / profile.step_s
    return np.append(shares, 1.0), np.append(np.log(slowdowns), 0.0)


@cached_by_profiles
def _alone(profile: Profile) -> tuple[float, float, float, float]:
    """Return step, busy share, logs of the kernel at a random moment in us, and of MPS's cost."""
    assert profile.trace is not None
    under_mps_s = profile.mps.unlimited.step_s if profile.mps else profile.step_s
    us = np.asarray(profile.trace.duration_us)
    kernel_us = float((us * us).sum() / max(us.sum(), 1e-9)) + 1.0
    return (
        profile.step_s,
        profile.busy_share or 1.0,
        float(np.log(kernel_us)),
        float(np.log(under_mps_s / profile.step_s)),
    )


def features(
    profiles: Sequence[Profile],
    sharing: Concurrent,
    gpu: Gpu,
    physics: Physics,
    replayed_s: Floats,
) -> Floats:
    """Compute a row for each job with the `COLUMNS` of the mode, shape (jobs, columns)."""
    step_s, busy, log_kernel_us, log_under_mps = np.array([_alone(each) for each in profiles]).T
    speed, degree = step_s / replayed_s, len(profiles)
    traits = [_traits(each, gpu) for each in profiles]
    own = {name: np.array([each[name] for each in traits]) for name in traits[0]}
    own["sm_active"] = np.array([sm_active(each, gpu) for each in profiles])
    dram = np.array([dram_active(each, gpu) for each in profiles])
    columns = {
        "log_replayed_slowdown": -np.log(speed),
        "log_degree": np.full(degree, np.log(degree)),
        "busy_share": busy,
        "busy_at_pace": busy * speed,
        "others_busy": of_others(busy * speed),
        "busy_of_all": np.full(degree, busy.sum()),
        "log_kernel_us": log_kernel_us,
        "others_log_kernel_us": _mean_of_others(log_kernel_us, busy * speed),
        "dram": dram,
        "others_dram": of_others(dram * busy * speed),
    }
    if sharing.limits:
        curves = [_limit_curve(each, gpu, physics) for each in profiles]
        shares = np.array(limit_shares(sharing.limits, gpu.sms))
        limited = np.array(
            [
                max(0.0, np.interp(np.log(share), np.log(at), logs))
                for share, (at, logs) in zip(shares, curves, strict=True)
            ]
        )
        columns |= {
            "log_alone_under_mps": log_under_mps,
            "log_limit": np.log(shares),
            "limits_over_one": np.full(degree, max(0.0, float(shares.sum()) - 1)),
            "log_alone_limited": limited,
            "log_alone_limited_over_replayed": limited + np.log(speed),
            "headroom": -np.log(shares) - limited,
            "others_headroom": _mean_of_others(-np.log(shares) - limited, busy * speed),
        }
    columns |= own
    columns |= {
        f"others_{name}": _mean_of_others(values, busy * speed) for name, values in own.items()
    }
    return np.column_stack([columns[name] for name in COLUMNS[sharing.mode]])


def of_others(values: Floats) -> Floats:
    """Sum over the other jobs, in the shape of `values`, (..., jobs)."""
    return np.asarray(values.sum(axis=-1, keepdims=True) - values)


def _mean_of_others(values: Floats, weights: Floats) -> Floats:
    """Average over the other jobs, weighted by `weights`; of a job alone, its own value."""
    if len(weights) == 1:
        return values
    return np.asarray(of_others(values * weights) / np.maximum(of_others(weights), 1e-9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Covariance of two jobs in their mixes: a squared exponential of their distance.

    Attributes:
        length: Length scale, in columns of scale 1.
        signal: Variance of replay's log error.
        noise: Variance of the log error from one run to the next.
    """

    length: float
    signal: float
    noise: float

    def __post_init__(self) -> None:
        if min(self.length, self.signal, self.noise) <= 0:
            raise InvalidInput("expected a kernel with length, signal and noise above 0")

    def likeness(self, rows: NDArray[Any], points: NDArray[Any]) -> NDArray[Any]:
        """Return the covariance of each row with each point, shape (rows, points)."""
        squares = (rows**2).sum(axis=1)[:, None] + (points**2).sum(axis=1)[None, :]
        squares -= 2 * rows @ points.T
        np.maximum(0.0, squares, out=squares)
        squares *= -0.5 / self.length**2
        return np.asarray(self.signal * np.exp(squares, out=squares))


# The least error on families left out, of lengths from 5 to 10 and signals from 0.015 to 0.12; it
# is flat around there. `advisor fit --tune` searches again.
KERNEL = Kernel(length=7.0, signal=0.02, noise=0.005)


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Log of measured over replayed steps in one mode: the mean of a Gaussian process.

    Far from every job that it was fitted to it is 0, so replay is not corrected.

    Attributes:
        columns: Columns among `COLUMNS`.
        scale: Standard deviation of each column.
        points: The jobs fitted to, in columns of mean 0 and scale 1, shape (points, columns).
        weights: Weight of each point.
    """

    columns: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    points: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    kernel: Kernel

    def __post_init__(self) -> None:
        widths = {len(self.mean), len(self.scale), *map(len, self.points)}
        if widths != {len(self.columns)} or len(self.weights) != len(self.points):
            raise InvalidInput("the model has another number of coefficients than of columns")
        mean, _, points, weights = self._arrays
        most = max(float(np.abs(each).max()) for each in (mean, points, weights))
        check_scaled("a model's columns", self.scale, most)

    def log_correction(self, rows: Floats) -> Floats:
        """Predict log(measured / replayed), shape (jobs,), for rows of shape (jobs, columns)."""
        mean, scale, points, weights = self._arrays
        near = self.kernel.likeness((rows - mean) / scale, points)
        return np.clip(near @ weights, -MOST_LOG, MOST_LOG)

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        scales = np.array(self.mean), np.array(self.scale)
        return *scales, np.array(self.points), np.array(self.weights)


def corrected(replayed_s: Floats, log_correction: Floats, alone_s: Floats) -> Floats:
    """Return replayed steps times their correction; no job gets faster by sharing."""
    return np.asarray(np.maximum(replayed_s * np.exp(log_correction), alone_s))


# Logs of a step over its host's path at which quantiles are taken: a host-bound job's errors shrink
# with it, those of GPU-bound ones next to others do not change.
HOST_BOUND_AT = (0.0, 0.1, 0.3, 0.8)
GPU_BOUND_AT = (0.0,)

# A job is taken to follow its host until its step is this far beyond the host's path, in logs.
_FOLLOWS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """5 and 95 % quantiles of log(measured / predicted) at growing distances from the host path."""

    at: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.at) == len(self.low) == len(self.high) > 0 or sorted(self.at) != [*self.at]:
            raise InvalidInput("an interval has both ends at each of its growing distances")
        if max(self.low) > 0 or min(self.high) < 0:
            raise InvalidInput("the ends of an interval lie on both sides of its middle")
        check_number("an end of an interval", max(*self.high, -min(self.low)), MOST_LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Ends of the intervals of one mode.

    Attributes:
        gpu_bound: Ends for jobs that keep the GPU busy alone, divided by `scale_by_others`.
        host_bound: Ends for the other jobs.
        by_others: Growth of a GPU-bound job's interval by the hosts of the others.
    """

    gpu_bound: Ends
    host_bound: Ends
    by_others: float = 0.0

    def __post_init__(self) -> None:
        check_number("growth of an interval by the others", self.by_others, 1e3)

    def log_ends(self, profiles: Sequence[Profile], steps_s: Floats) -> tuple[Floats, Floats]:
        """Return logs of both ends over the predicted steps of jobs together, shapes (jobs,)."""
        distance = np.array(list(map(log_beyond_host, profiles, steps_s)))
        scale = scale_by_others(profiles, steps_s, distance, self.by_others)
        gpu_bound = np.array(list(map(_weight_of_gpu, profiles)))
        low, high = (
            gpu_bound * np.interp(distance, self.gpu_bound.at, of_gpu) * scale
            + (1 - gpu_bound) * np.interp(distance, self.host_bound.at, of_host)
            for of_gpu, of_host in (
                (self.gpu_bound.low, self.host_bound.low),
                (self.gpu_bound.high, self.host_bound.high),
            )
        )
        return with_moments(profiles, steps_s, low, high)

    def around(self, profile: Profile, step_s: float) -> Interval:
        """Return the interval of a job by itself around its predicted step."""
        low, high = self.log_ends([profile], np.array([step_s]))
        return interval_around(step_s, float(low[0]), float(high[0]))


# Shares of busy time between which a job without a trace counts as partly GPU-bound: nvidia-smi is
# not so exact that one per cent may decide.
_HARDLY, _SURELY = 0.85, 0.95


def _weight_of_gpu(profile: Profile) -> float:
    """Return the degree to which a job is GPU-bound, 0..1."""
    if profile.trace is not None:
        return float(is_gpu_bound(profile))
    return float(np.interp(profile.busy_share or 0.0, (_HARDLY, _SURELY), (0.0, 1.0)))


def with_moments(
    profiles: Sequence[Profile], steps_s: Floats, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """Return the ends `low` and `high`, wider by the moments in which jobs were measured alone.

    A job alone may be as fast or as slow as in any of these moments; a job that fills the GPU also
    together with others. Moments of a host-bound job are the host's, and count less the longer
    other jobs make it wait. Moments that agree do not narrow a range.
    """
    if not any(each.moments for each in profiles):
        return low, high
    follows = [_follows_moments(p, float(s)) for p, s in zip(profiles, steps_s, strict=True)]
    fastest, slowest = np.transpose([each.log_spread for each in profiles]) * follows
    return -np.hypot(low, fastest), np.hypot(high, slowest)


def _follows_moments(profile: Profile, step_s: float) -> float:
    if profile.is_estimate:  # of its moments, another GPU has the host's part
        beyond = log_beyond_host(profile, step_s)
    elif is_gpu_bound(profile):
        return 1.0
    else:
        beyond = log(step_s / profile.step_s)
    return min(1.0, max(0.0, 1 - beyond / _FOLLOWS))


def scale_by_others(
    profiles: Sequence[Profile], steps_s: Floats, distance: Floats, growth: float
) -> Floats:
    """Return the factor on the intervals of GPU-bound jobs, at least 1, shape (jobs,).

    Under time-slicing a job that fills the GPU has the time that the others leave. Host-bound jobs
    leave more or less time, in proportion to the share of the GPU that each of them uses.
    """
    if not growth:
        return np.ones(len(profiles))
    used = np.array([each.gpu_s or 0.0 for each in profiles]) / steps_s
    varied = (used * np.maximum(0.0, 1 - distance / _FOLLOWS)) ** 2
    return np.asarray(1 + growth * np.sqrt(np.maximum(0.0, varied.sum() - varied)))
