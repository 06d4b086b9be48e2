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
from advisor.hardware.partition import limit_shares, whole_gpu
from advisor.prediction.cache import once_a_profile
from advisor.prediction.intervals import Intervals
from advisor.prediction.parts import any_busy, power_share, slowdown_on
from advisor.prediction.prediction import all_known
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
