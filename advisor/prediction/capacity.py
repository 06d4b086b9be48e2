"""Predicts a mix without kernel traces: the capacity model, corrected from nvidia-smi's numbers.

**The capacity model.** The smallest K >= 1 with ``sum_i g_i / max(h_i, K g_i) <= C``; each job's
step is then ``max(h_i, K g_i)``, where h is its host path and g its GPU path. The constants were
fitted on an H200 to 14 training workloads alone and in shares of 2, 3 and 7.

Its busy share of the GPU is the utilisation. The correction is linear in a few columns, each known
for every GPU that has a driver.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import mul
from typing import assert_never

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import Partition, limit_shares, limited_sms
from advisor.prediction.cache import once_a_profile
from advisor.prediction.intervals import Intervals
from advisor.prediction.prediction import Interval, all_known, spanning
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Sharing
from advisor.workload.profile import Counters, Profile

COLUMNS = (
    "log_capacity_slowdown",  # slowdown by the capacity model
    "log_degree",
    "busy",  # utilisation alone
    "mates_busy",  # the others', summed
    "log_limit",
    "mates_log_limit",  # mean of the others'
    "log_busy_over_limit",  # 0 if the limit leaves more than that
    "log_step_ms",  # long steps have long kernels, which make short ones wait
    "mates_log_step_ms",
    "power",  # over the GPU's limit: shows how full the SMs are
    "mates_power",
)

# Power alone over the limit, by the share of time in which a job keeps the GPU busy: nine in ten of
# 162 profiles of an H200 and an H100 are within 0.17 of it. An average over all jobs would take one
# that hardly uses the GPU for one that fills its SMs: of jobs whose power is not known, steps under
# MPS were 71 and 79 % off, and are 34 and 24 %.
_USUAL_POWER, _USUAL_POWER_BUSY = 0.05, 0.65

# Columns are clipped at this many of their standard deviations: a linear fit is not valid far from
# its data.
_FURTHEST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationModel:
    """Residual of the capacity model in one mode, and intervals of the remaining error.

    Attributes:
        constant: Log of measured over the capacity model's step, if all columns are average.
        mean: Mean of each of `COLUMNS`; empty: the capacity model is not corrected.
        scale: Standard deviation of each column.
        weights: Addition to the log for one standard deviation of each column.
    """

    intervals: Intervals
    constant: float = 0.0
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        widths = {len(self.mean), len(self.scale), len(self.weights)}
        if widths not in ({0}, {len(COLUMNS)}):
            raise InvalidInput("answers without a trace were fitted to other columns than these")
        if min(self.scale, default=1.0) <= 0:
            raise InvalidInput("the scales of a model's columns are above 0")

    def log_correction(self, x: Floats) -> Floats:
        """Return log(measured / capacity model's step), shape (jobs,); x: (jobs, columns)."""
        if not self.weights:
            return np.zeros(len(x))
        away = (x - np.array(self.mean)) / np.array(self.scale)
        return np.asarray(self.constant + drawn(away) @ np.array(self.weights))


def drawn(away: Floats) -> Floats:
    """Return standardised columns clipped, with the average for unknown values."""
    return np.nan_to_num(np.clip(away, -_FURTHEST, _FURTHEST), nan=0.0)


def seen_by_driver(profile: Profile) -> Profile:
    """Return `profile` as nvidia-smi alone shows it: step, utilisation, power and memory.

    GRACT stands for the driver's utilisation, as both are shares of time in which any kernel ran;
    the GPU path is that share of a step. Without counters the GPU path is unchanged.
    """
    gpu_s, counters = profile.gpu_s, profile.counters
    if counters is not None:
        gract, moving = counters.gract, counters.memory_utilization
        gpu_s = gract * profile.step_s
        counters = Counters(source="nvml", gract=gract, memory_utilization=moving)
    return replace(profile, host_s=None, gpu_s=gpu_s, counters=counters, mps=None, trace=None)


# Shares of a step for which a job may keep the GPU busy, if its profile lacks that.
_ANY_BUSY = (0.05, 0.5, 1.0)


def any_busy(profiles: Sequence[Profile]) -> list[list[Profile]]:
    """Return `profiles` once for each share of `_ANY_BUSY`, which stands in where they lack one."""
    return [
        [each if each.gpu_s is not None else replace(each, gpu_s=busy * each.step_s)
         for each in profiles]
        for busy in _ANY_BUSY
    ]  # fmt: skip


def columns(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, capacity_s: Floats
) -> Floats:
    """Compute a row for each of two jobs or more, with `COLUMNS`, shape (jobs, columns).

    `profiles` are from `seen_by_driver`, all with a GPU path; `capacity_s` by the capacity model.
    """
    jobs, step_s = len(profiles), np.array([each.step_s for each in profiles])
    busy = np.array([each.busy_share for each in profiles])
    limits = np.array(limit_shares(sharing.limits, gpu.sms) or [1.0] * jobs)
    usual = _USUAL_POWER + _USUAL_POWER_BUSY * busy
    measured = [power_share(each, gpu) for each in profiles]
    power = np.array([u if own is None else own for u, own in zip(usual, measured, strict=True)])
    log_limit, log_step_ms = np.log(limits), np.log(1e3 * step_s)
    by_name = {
        "log_capacity_slowdown": np.log(capacity_s / step_s),
        "log_degree": np.full(jobs, np.log(jobs)),
        "busy": busy,
        "mates_busy": busy.sum() - busy,
        "log_limit": log_limit,
        "mates_log_limit": (log_limit.sum() - log_limit) / (jobs - 1),
        "log_busy_over_limit": np.log(np.maximum(1.0, busy / limits)),
        "log_step_ms": log_step_ms,
        "mates_log_step_ms": (log_step_ms.sum() - log_step_ms) / (jobs - 1),
        "power": power,
        "mates_power": power.sum() - power,
    }
    return np.column_stack([by_name[name] for name in COLUMNS])


def power_share(profile: Profile, gpu: Gpu) -> float | None:
    """Return power alone over the GPU's limit; None if one of both is not known."""
    if profile.power_w is None or gpu.power_limit_w is None:
        return None
    return profile.power_w / gpu.power_limit_w


NAIVE_CAPACITY = 0.80
MPS_CAPACITY = 0.85


def capacity_steps(profiles: Sequence[Profile], sharing: Sharing) -> tuple[float, ...] | None:
    """Predict seconds of a step, shape (jobs,); None if a profile lacks what the model needs.

    Under MPS with limits a job's GPU path is stretched by its limit first. MIG, phases and queues
    are not covered.
    """
    gpu_s = all_known(profile.gpu_s for profile in profiles)
    if gpu_s is None:
        return None
    parts = [limit / 100 for limit in sharing.limits] or [1.0] * len(profiles)
    sms = [_sm_share(profile) for profile in profiles]
    match sharing.mode:
        case "serial":
            return tuple(profile.step_s for profile in profiles)
        case "naive":
            capacity = NAIVE_CAPACITY
        case "mps" | "mps-limits":
            # SM activity while busy over all jobs, weighted by their GPU time; never 0.
            activity = sum(map(mul, gpu_s, sms)) / max(sum(gpu_s), 1e-12)
            capacity = MPS_CAPACITY / max(0.05, activity)
        case "mig" | "hybrid" | "phases" | "queue":
            return None
        case _:
            assert_never(sharing.mode)
    busy_s = [g * max(1.0, sm / part) for g, sm, part in zip(gpu_s, sms, parts, strict=True)]
    free_s = [max(each.step_s, busy) for each, busy in zip(profiles, busy_s, strict=True)]
    return contended(free_s, busy_s, capacity)


@once_a_profile
def _sm_share(profile: Profile) -> float:
    """Return SM activity while the GPU is busy, 0..1; 1 without a counter."""
    counters = profile.counters
    if counters is None or counters.sm_active is None or not profile.busy_share:
        return 1.0
    return min(1.0, counters.sm_active / profile.busy_share)


def contended(
    free_s: Sequence[float], busy_s: Sequence[float], capacity: float
) -> tuple[float, ...]:
    """Predict seconds of a step of each job when all share a resource of limited capacity.

    `free_s` are steps without contention, in which the resource is busy for `busy_s`; `capacity` is
    the share of time in which it can be busy.
    """
    loads = [busy / max(free, busy) for free, busy in zip(free_s, busy_s, strict=True)]
    if sum(loads) <= capacity:
        return tuple(map(max, free_s, busy_s))
    # Jobs that use the resource all the time add 1 / stretch each, the others add their busy share.
    bound = [free / busy if busy else inf for free, busy in zip(free_s, busy_s, strict=True)]
    order = sorted(range(len(loads)), key=bound.__getitem__)
    for stretched in range(1, len(order) + 1):
        others = sum(loads[at] for at in order[stretched:])
        stretch = stretched / (capacity - others) if others < capacity else inf
        if stretched == len(order) or stretch <= bound[order[stretched]]:
            break
    return tuple(max(free, stretch * busy) for free, busy in zip(free_s, busy_s, strict=True))


_Real = Floats | float

# The law of how steps slow on a part of a GPU, under an MPS limit or on a MIG instance. Of a step
# alone on the whole GPU, a share W is work that takes k times as long on the part; the rest, most
# of it the host's, hides that. The step takes (1 + W^p (k^p - 1))^(1/p) times as long: the slower
# of both sets the pace (p large), or they add up (p = 1). The constants were fitted to four models
# on MIG slices and under MPS limits of an A100 (MISO's artifact, SoCC '22), two on slices of an
# A100 (MIGPerf), and the MPS probes of the profiles of an H200 and an H100.
_SHARPNESS = 1.75  # p
# The power by which work speeds up with more bandwidth than its share of SMs, up to so many times
# that; still more buys nothing, as under an MPS limit, which takes SMs only.
_BY_BANDWIDTH, _SURPLUS = 0.37, 1.87

# Of the law itself, as if sensitivity to the log odds were at least this on small parts. The
# smallest round number with which 85 to 95 % of left-out models are inside on slices of every size.
_OWN_DOUBT = 0.25


def _work_slowdown(sm_share: _Real, bandwidth_share: _Real) -> Floats:
    """Return k of parts with those shares, in (0, 1], in their shape."""
    richer = np.minimum(bandwidth_share / sm_share, _SURPLUS)
    return np.asarray(np.maximum(1.0, 1 / sm_share * richer**-_BY_BANDWIDTH))


def _slowed(log_odds: _Real, k: Floats) -> Floats:
    """Return ``W^p (k^p - 1)``; `log_odds` are those of W."""
    share = 1 / (1 + np.exp(-np.asarray(log_odds)))
    return np.asarray(share**_SHARPNESS * (k**_SHARPNESS - 1))


def _log_slowdown(log_odds: _Real, k: Floats) -> Floats:
    """Return the log of a step over the step alone, at least 0."""
    return np.log1p(_slowed(log_odds, k)) / _SHARPNESS


def _law_doubt(log_odds: _Real, k: Floats) -> Floats:
    """Return how far off `_log_slowdown` may be, where the log odds may be off by 1."""
    slowed = _slowed(log_odds, k)
    by_odds = slowed / (1 + slowed) / (1 + np.exp(log_odds))
    return np.asarray(np.hypot(by_odds, _OWN_DOUBT * (1 - k**-2)))


# Below half a per cent, nvidia-smi shows 0.
_LEAST_SMS = 0.005


@dataclass(frozen=True, slots=True)
class WorkSign:
    """Relation of a number of a job alone to W, the share of its step that is work.

    On an A100 nvidia-smi's memory utilisation shows W best, then the steps under MPS limits, then
    power. GPU utilisation is the worst: a kernel on a tenth of the SMs keeps that at 100 % too.

    Attributes:
        constant: Log odds of W where the sign is 1.
        slope: Addition for a unit of its log.
        doubt: Bound of the error of the log odds in nine of ten cases, of models left out, on parts
            with less bandwidth.
        doubt_of_limits: The same on parts with all of the bandwidth.
    """

    constant: float
    slope: float
    doubt: float
    doubt_of_limits: float

    def log_odds(self, shown: float) -> float:
        return float(self.constant + self.slope * np.log(max(shown, _LEAST_SMS)))


BY_MEMORY = WorkSign(1.14, 0.83, doubt=0.37, doubt_of_limits=0.88)
BY_POWER = WorkSign(2.35, 2.92, doubt=2.0, doubt_of_limits=0.87)
BY_UTILISATION = WorkSign(1.32, 3.35, doubt=1.82, doubt_of_limits=1.16)
# The log odds are chosen among these, so that the law goes through the steps under limits.
_ODDS = np.linspace(-5, 5, 201)
BY_LIMITS = WorkSign(0.0, 0.0, doubt=1.77, doubt_of_limits=0.23)


def slowdown_on(profile: Profile, partition: Partition) -> Interval:
    """Predict how many times as long a step takes alone on a part of the GPU.

    The interval is widest where the profile lacks how much the job keeps the GPU busy.
    """
    if (work := _work(profile, partition.gpu)) is None:
        return spanning([slowdown_on(each, partition) for (each,) in any_busy([profile])])
    odds, sign = work
    k = _work_slowdown(partition.sm_share, partition.bandwidth_share)
    middle = float(np.exp(_log_slowdown(odds, k)))
    doubt = sign.doubt if partition.bandwidth_share < 1 else sign.doubt_of_limits
    end = doubt * float(_law_doubt(odds, k))
    return Interval(max(1.0, middle * np.exp(-end)), middle, middle * np.exp(end))


def busy_slowdown(profile: Profile, partition: Partition) -> float:
    """Predict how many times as long the GPU is busy in a step: at most all of the step.

    While it is busy, work fills a part of the SMs, and slows by what the partition lacks of that.
    """
    busy, work = profile.busy_share, _work(profile, partition.gpu)
    if not busy or work is None:
        return slowdown_on(profile, partition).p50
    filled = min(1.0, 1 / (1 + np.exp(-work[0])) / busy)
    k = float(_work_slowdown(partition.sm_share, partition.bandwidth_share))
    return float(min(max(1.0, filled * k), slowdown_on(profile, partition).p50 / busy))


def slices_follow_memory(gpu: Gpu) -> bool:
    """Return whether a job's memory utilisation shows what a slice of `gpu` costs it.

    That was seen on an A100 alone; later GPUs have twice its bandwidth for as much work.
    """
    return gpu.architecture == "Ampere"


def _work(profile: Profile, gpu: Gpu) -> tuple[float, WorkSign] | None:
    """Return log odds of W by the best sign there is, and that sign; None without a sign."""
    counters, power = profile.counters, power_share(profile, gpu)
    shown = None if counters is None else counters.memory_utilization
    if shown is not None and slices_follow_memory(gpu):
        return BY_MEMORY.log_odds(shown), BY_MEMORY
    if profile.mps is not None and profile.mps.limited:
        return _work_by_limits(profile, gpu), BY_LIMITS
    if power is not None:
        return BY_POWER.log_odds(power), BY_POWER
    if profile.busy_share is None:
        return None
    return BY_UTILISATION.log_odds(profile.busy_share), BY_UTILISATION


@once_a_profile
def _work_by_limits(profile: Profile, gpu: Gpu) -> float:
    """Return log odds of W with which the law comes nearest to the steps of the MPS probe."""
    assert profile.mps is not None
    off = np.zeros_like(_ODDS)
    for run in profile.mps.limited:
        share = (run.sms or limited_sms(run.limit_pct, gpu.sms)) / gpu.sms
        measured = np.log(run.step_s / profile.mps.unlimited.step_s)
        off += (_log_slowdown(_ODDS, _work_slowdown(share, 1.0)) - measured) ** 2
    return float(_ODDS[int(np.argmin(off))])
