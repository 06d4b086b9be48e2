"""Predicts a mix without kernel traces: the capacity model, corrected from nvidia-smi's numbers.

**The capacity model.** The smallest K >= 1 with ``sum_i g_i / max(h_i, K g_i) <= C``; each job's
step is then ``max(h_i, K g_i)``, where h is its host path and g its GPU path. The constants were
fitted on an H200 to 14 training workloads alone and in shares of 2, 3 and 7.

Its busy share of the GPU is the utilisation. The correction is linear in a few columns, each known
for every GPU that has a driver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import Partition, limit_shares, limited_sms, whole_gpu
from advisor.prediction.cache import once_a_profile
from advisor.prediction.intervals import Intervals
from advisor.prediction.prediction import Interval, all_known, spanning
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mode, Mps, Sharing
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
        """Return log(measured / capacity model's step), shape (..., jobs); x: (..., columns)."""
        if not self.weights:
            return np.zeros(x.shape[:-1])
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
    limits = np.array(limit_shares(sharing.limits, gpu.sms) or [1.0] * len(profiles))
    return _columns(_numbers(profiles, gpu), limits, capacity_s, np.ones(len(profiles), dtype=bool))


class _Numbers(NamedTuple):
    """Numbers of jobs alone that the driver shows, each shape (..., jobs)."""

    step_s: Floats
    gpu_s: Floats
    sms: Floats
    power: Floats

    @property
    def busy(self) -> Floats:
        return self.gpu_s / self.step_s


def _numbers(profiles: Sequence[Profile], gpu: Gpu) -> _Numbers:
    step_s = np.array([each.step_s for each in profiles])
    gpu_s = np.array([each.gpu_s for each in profiles])
    usual = _USUAL_POWER + _USUAL_POWER_BUSY * gpu_s / step_s
    measured = [power_share(each, gpu) for each in profiles]
    power = [u if own is None else own for u, own in zip(usual, measured, strict=True)]
    return _Numbers(step_s, gpu_s, np.array(list(map(_sm_share, profiles))), np.array(power))


def _columns(
    jobs: _Numbers, limits: Floats, capacity_s: Floats, present: NDArray[np.bool_]
) -> Floats:
    """The columns of the jobs that are `present` in each of some mixes, shape (..., columns)."""

    def total(values: Floats) -> Floats:
        return np.asarray(np.where(present, values, 0.0).sum(axis=-1, keepdims=True))

    def others(values: Floats) -> Floats:
        return total(values) - values

    degree = np.maximum(total(np.ones(present.shape)), 1)
    co_located, busy = np.maximum(degree - 1, 1), jobs.busy
    log_limit, log_step_ms = np.log(limits), np.log(1e3 * jobs.step_s)
    by_name = {
        "log_capacity_slowdown": np.log(capacity_s / jobs.step_s),
        "log_degree": np.log(degree),
        "busy": busy,
        "mates_busy": others(busy),
        "log_limit": log_limit,
        "mates_log_limit": others(log_limit) / co_located,
        "log_busy_over_limit": np.log(np.maximum(1.0, busy / limits)),
        "log_step_ms": log_step_ms,
        "mates_log_step_ms": others(log_step_ms) / co_located,
        "power": jobs.power,
        "mates_power": others(jobs.power),
    }
    return np.stack(np.broadcast_arrays(*(by_name[name] for name in COLUMNS)), axis=-1)


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
    gpu_path_s, step_s = np.array(gpu_s), np.array([each.step_s for each in profiles])
    sms = np.array(list(map(_sm_share, profiles)))
    match sharing.mode:
        case "serial":
            return tuple(step_s.tolist())
        case "naive" | "mps" | "mps-limits" as mode:
            limits = np.array(sharing.limits or 100.0)
            steps_s = _capacity_steps(step_s, gpu_path_s, sms, limits, under_mps=mode != "naive")
            return tuple(steps_s.tolist())
        case "mig" | "hybrid" | "phases" | "queue":
            return None
        case _:
            assert_never(sharing.mode)


def _capacity_steps(
    step_s: Floats, gpu_s: Floats, sms: Floats, limits: Floats, *, under_mps: bool
) -> Floats:
    """Seconds of a step of the jobs of mixes, all in shape (..., jobs); no job: a GPU path of 0."""
    capacity = np.full(step_s.shape[:-1], NAIVE_CAPACITY)
    if under_mps:
        # SM activity while busy over all jobs, weighted by their GPU time; never 0.
        activity = (gpu_s * sms).sum(axis=-1) / np.maximum(gpu_s.sum(axis=-1), 1e-12)
        capacity = MPS_CAPACITY / np.maximum(0.05, activity)
    busy_s = gpu_s * np.maximum(1.0, sms / (limits / 100))
    return contended(np.maximum(step_s, busy_s), busy_s, capacity)


@once_a_profile
def _sm_share(profile: Profile) -> float:
    """Return SM activity while the GPU is busy, 0..1; 1 without a counter."""
    counters = profile.counters
    if counters is None or counters.sm_active is None or not profile.busy_share:
        return 1.0
    return min(1.0, counters.sm_active / profile.busy_share)


# Limits of which the geometric mean is above this share are answered as partly without limits, so
# that the last of a limit changes little: at limits of 50 to 100 %, 0.3 points nearer to an H200's
# runs and an H100's than by the model of limits alone.
_HARDLY_LIMITED = 0.5


def weight_of_limits(limits: Sequence[float]) -> float:
    """Return the weight of the model of limits, the rest being that of MPS without any."""
    shares = np.array(limits) / 100
    return min(1.0, (1 - float(np.exp(np.log(shares).mean()))) / (1 - _HARDLY_LIMITED))


def steps_of_sets(
    profiles: Sequence[Profile], sets: NDArray[np.intp], sharing: Concurrent, gpu: Gpu,
    models: Mapping[Mode, UtilisationModel], limit: float | None = None,
) -> Floats:  # fmt: skip
    """Estimate medians of seconds of a step in many mixes at once, shape (mixes, places).

    `sets` has the index of the profile in each place, -1 for none, whose step is NaN; all jobs of a
    mix have the same `limit`, in per cent.
    """
    bare = [seen_by_driver(each) for each in profiles]
    shown = any_busy(bare) if any(each.gpu_s is None for each in bare) else [bare]
    answers = [_steps_of_sets(_numbers(each, gpu), sets, sharing, gpu, models, limit)
               for each in shown]  # fmt: skip
    steps_s = np.asarray(np.median(answers, axis=0))
    if limit is None:
        return steps_s
    weight, part = weight_of_limits([limit]), whole_gpu(gpu).limited(limit)
    free_s = steps_of_sets(profiles, sets, Mps(), gpu, models)
    least_s = np.array([slowdown_on(each, part).p50 * each.step_s for each in profiles])
    return np.asarray(np.maximum(free_s ** (1 - weight) * steps_s**weight, least_s[sets]))


def _steps_of_sets(
    jobs: _Numbers, sets: NDArray[np.intp], sharing: Concurrent, gpu: Gpu,
    models: Mapping[Mode, UtilisationModel], limit: float | None,
) -> Floats:  # fmt: skip
    present = sets >= 0
    jobs = _Numbers(*(np.where(present, each[sets], 1.0) for each in jobs))
    jobs = jobs._replace(gpu_s=np.where(present, jobs.gpu_s, 0.0))
    per_cent = np.full(sets.shape, limit or 100.0)
    steps_s = _capacity_steps(
        jobs.step_s, jobs.gpu_s, jobs.sms, per_cent, under_mps=sharing.under_mps
    )
    if plain := models.get(sharing.mode if limit is None else "mps-limits"):
        shares = np.full(sets.shape, limit_shares([limit or 100.0], gpu.sms)[0])
        corrections = np.exp(plain.log_correction(_columns(jobs, shares, steps_s, present)))
        alone = present.sum(axis=-1, keepdims=True) == 1
        steps_s = np.where(alone, jobs.step_s, steps_s * corrections)
    return np.where(present, np.maximum(steps_s, jobs.step_s), np.nan)


def contended(free_s: Floats, busy_s: Floats, capacity: Floats | float) -> Floats:
    """Predict seconds of a step of each job, (..., jobs), if all share a resource.

    `free_s` are steps without contention, in which the resource is busy for `busy_s`; `capacity` is
    the share of time in which it can be busy, shape (...,).
    """
    free_s, most = np.maximum(free_s, busy_s), np.asarray(capacity)[..., None]
    loads = busy_s / free_s
    # Jobs that use the resource all the time add 1 / stretch each, the others add their busy share.
    bound = np.divide(free_s, busy_s, out=np.full(free_s.shape, inf), where=busy_s > 0)
    order = np.argsort(bound, axis=-1, kind="stable")
    total = loads.sum(axis=-1, keepdims=True)
    room = most - total + np.take_along_axis(loads, order, axis=-1).cumsum(axis=-1)
    stretched = np.arange(1, 1 + order.shape[-1])
    stretch = np.divide(stretched, room, out=np.full(free_s.shape, inf), where=room > 0)
    following = np.take_along_axis(bound, order, axis=-1)[..., 1:]
    enough = np.concatenate(
        [stretch[..., :-1] <= following, np.ones((*free_s.shape[:-1], 1), dtype=bool)], axis=-1
    )
    least = np.take_along_axis(stretch, enough.argmax(axis=-1)[..., None], axis=-1)
    return np.asarray(np.where(total <= most, free_s, np.maximum(free_s, least * busy_s)))


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
