"""Predicts a mix without kernel traces: the capacity model, corrected from numbers of jobs alone.

The correction is a Gaussian process, fitted to profiles cut down to what DCGM and limits show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares, whole_gpu
from advisor.prediction.cache import cached_by_profiles, one_thread
from advisor.prediction.correction import Correction, Intervals
from advisor.prediction.parts import any_busy, power_share, slowdown_on, work_by_limits
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mode
from advisor.workload.profile import Profile

Bools = NDArray[np.bool_]
Places = NDArray[np.intp]

COLUMNS = (
    "log_capacity_slowdown",  # slowdown by the capacity model
    "log_degree",
    "log_limit",
    "others_log_limit",  # their mean
    "log_busy_over_limit",  # 0 if the limit leaves more than that
    "others_busy_log_limit",  # sum, each by its busy share
    "log_step_ms",  # long steps have long kernels, which make short ones wait
    "others_log_step_ms",
    "longest_log_step_ms",  # of the others
    "most_power",  # of the others
    "most_sm_active",
    "work",  # log odds of the share of the step that fewer SMs slow, from steps under limits
    "others_work",
    *(
        f"{whose}{name}"
        for name in ("busy", "power", "sm_active", "sm_occupancy", "tensor_active", "dram_active")
        for whose in ("", "others_")
    ),  # the others' are sums
)

# Power alone over the limit, by the share of time in which a job keeps the GPU busy: nine in ten of
# 162 profiles of an H200 and an H100 are within 0.17 of it. An average over all jobs would take one
# that hardly uses the GPU for one that fills its SMs.
_USUAL_POWER, _USUAL_POWER_BUSY = 0.05, 0.65

# Columns are clipped at this many of their standard deviations: a fit is not valid far from its
# data.
_FURTHEST = 3.0

ESTIMATED = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "work")
"""Numbers that are estimated from the busy share, power and step where a profile lacks them."""

Known = Literal["utilisation", "power", "counters", "limits", "counters and limits"]
"""The numbers that are known of every job of a mix, beyond its step and its memory."""


class Numbers(NamedTuple):
    """Numbers of jobs alone, each shape (..., jobs); NaN: unknown."""

    step_s: Floats
    busy: Floats
    power: Floats  # over the GPU's limit: shows how full the SMs are
    sm_active: Floats
    sm_occupancy: Floats
    tensor_active: Floats
    dram_active: Floats
    work: Floats

    @property
    def shown(self) -> Floats:
        """The numbers from which missing ones are estimated, shape (4, ..., jobs)."""
        ones = np.ones(self.busy.shape)
        return np.stack([ones, self.busy, self.power, np.log(1e3 * self.step_s)])

    def with_usual_power(self) -> "Numbers":
        usual = _USUAL_POWER + _USUAL_POWER_BUSY * self.busy
        return self._replace(power=np.where(np.isnan(self.power), usual, self.power))

    def of(self, mixes: Places) -> "Numbers":
        """Return the jobs of `mixes`, shape (mixes, places); in an empty place a job of nothing."""
        nothing = (1.0, *[0.0] * (len(self) - 1))
        return Numbers(
            *(
                np.where(mixes >= 0, values[mixes], none)
                for values, none in zip(self, nothing, strict=True)
            )
        )


def numbers(profiles: Sequence[Profile], gpu: Gpu) -> Numbers:
    """Return the numbers of `profiles`, which all have a GPU path."""
    return Numbers(*np.array([_numbers(each, gpu) for each in profiles], dtype=np.float64).T)


@cached_by_profiles
def _numbers(profile: Profile, gpu: Gpu) -> tuple[float | None, ...]:
    counters, busy = profile.counters, profile.busy_share
    work = work_by_limits(profile, gpu) if profile.mps and profile.mps.limited else None
    if counters is None:
        return profile.step_s, busy, power_share(profile, gpu), *[None] * 4, work
    return (
        profile.step_s,
        busy,
        power_share(profile, gpu),
        counters.sm_active,
        counters.sm_occupancy,
        counters.tensor_active,
        counters.dram_active,
        work,
    )


def what_is_known(jobs: Numbers) -> Known:
    """Return what is known of each of `jobs`."""
    power, counters, limits = (
        not np.isnan(each).any() for each in (jobs.power, jobs.sm_active, jobs.work)
    )
    if counters and limits:
        return "counters and limits"
    return "counters" if counters else "limits" if limits else "power" if power else "utilisation"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityModel:
    """Residual of the capacity model, and intervals of the remaining error.

    Attributes:
        corrections: Of time-slicing (``"naive"``), and of MPS with limits or without (``"mps"``).
        estimates: For each of `ESTIMATED`, the weights of `Numbers.shown`.
        intervals: By mode, and by what is known of the jobs.
    """

    corrections: dict[Mode, Correction]
    estimates: dict[str, tuple[float, ...]]
    intervals: dict[Mode, dict[Known, Intervals]]

    def __post_init__(self) -> None:
        if any(each.columns != COLUMNS for each in self.corrections.values()) or (
            {*self.estimates} != {*ESTIMATED} or {*map(len, self.estimates.values())} != {4}
        ):
            raise InvalidInput("answers without a trace were fitted to other columns than these")

    def log_correction(self, x: Floats, *, under_mps: bool) -> Floats:
        """Return log(measured / capacity model's step), shape (jobs,); x: (jobs, columns)."""
        correction = self.corrections.get("mps" if under_mps else "naive")
        if correction is None:
            return np.zeros(len(x))
        with one_thread():
            return correction.log_correction(drawn(x, correction.mean, correction.scale))


def filled(jobs: Numbers, estimates: Mapping[str, Sequence[float]]) -> Numbers:
    """Return `jobs` with estimates of what is unknown: `estimates` weigh what is shown."""
    jobs = jobs.with_usual_power()
    for name, weights in estimates.items():
        guess = np.tensordot(weights, jobs.shown, axes=1)
        if name != "work":
            guess = np.clip(guess, 0.0, 1.0)
        own = getattr(jobs, name)
        jobs = jobs._replace(**{name: np.where(np.isnan(own), guess, own)})
    return jobs


def drawn(x: Floats, mean: Sequence[float], scale: Sequence[float]) -> Floats:
    """Return columns no further from their mean than `_FURTHEST` times their scale."""
    middle, end = np.array(mean), _FURTHEST * np.array(scale)
    return np.clip(x, middle - end, middle + end)


def without_trace(profile: Profile) -> Profile:
    """Return `profile` without its kernel trace; the host path counts as long as the step.

    GRACT stands for the driver's utilisation, as both are shares of time in which any kernel ran;
    the GPU path is that share of a step. Without counters the GPU path is unchanged.
    """
    gpu_s = profile.gpu_s if profile.counters is None else profile.counters.gract * profile.step_s
    return replace(profile, host_s=profile.step_s, gpu_s=gpu_s, trace=None)


def own_first(mixes: Places, shares: Floats) -> tuple[Places, Floats]:
    """Return a mix for each job of `mixes`, with that job in the first place, and their limits."""
    rows, places = np.nonzero(mixes >= 0)
    order = np.tile(np.arange(mixes.shape[1]), (len(rows), 1))
    order[np.arange(len(rows)), places], order[:, 0] = 0, places
    return np.take_along_axis(mixes[rows], order, 1), np.take_along_axis(shares[rows], order, 1)


def columns(jobs: Numbers, shares: Floats, present: Bools, *, under_mps: bool) -> Floats:
    """Compute `COLUMNS` of the job in the first place of each mix, shape (mixes, columns).

    Nothing of `jobs` is unknown; `shares` are those of the SMs that limits leave. All are in shape
    (mixes, places).
    """
    others = present.copy()
    others[:, 0] = False

    def total(values: Floats) -> Floats:
        return np.asarray(np.where(others, values, 0.0).sum(axis=1))

    def most(values: Floats) -> Floats:
        return np.asarray(np.where(others, values, -inf).max(axis=1))

    log_step_ms, log_limit = np.log(1e3 * jobs.step_s), np.log(shares)
    count = np.maximum(others.sum(axis=1), 1)
    by_name = {
        "log_capacity_slowdown": np.log(
            first_steps(jobs, shares, under_mps=under_mps) / jobs.step_s[:, 0]
        ),
        "log_degree": np.log(1 + count),
        "log_limit": log_limit[:, 0],
        "others_log_limit": total(log_limit) / count,
        "log_busy_over_limit": np.log(np.maximum(1.0, jobs.busy / shares))[:, 0],
        "others_busy_log_limit": total(log_limit * jobs.busy),
        "log_step_ms": log_step_ms[:, 0],
        "others_log_step_ms": total(log_step_ms) / count,
        "longest_log_step_ms": most(log_step_ms),
        "most_power": most(jobs.power),
        "most_sm_active": most(jobs.sm_active),
        "work": jobs.work[:, 0],
        "others_work": total(jobs.work) / count,
    }
    for name in COLUMNS:
        if name not in by_name:
            summed = name.startswith("others_")
            values = getattr(jobs, name.removeprefix("others_"))
            by_name[name] = total(values) if summed else values[:, 0]
    return np.stack([by_name[name] for name in COLUMNS], axis=1)


def first_steps(jobs: Numbers, shares: Floats, *, under_mps: bool) -> Floats:
    """Return the seconds of a step of the first job of each mix, by the capacity model."""
    sms = np.minimum(1.0, jobs.sm_active / np.maximum(jobs.busy, 1e-12))
    return capacity_steps(
        jobs.step_s, jobs.busy * jobs.step_s, sms, 100 * shares, under_mps=under_mps
    )[:, 0]


NAIVE_CAPACITY = 0.80
MPS_CAPACITY = 0.85


def capacity_steps(
    step_s: Floats, gpu_s: Floats, sms: Floats, limits: Floats, *, under_mps: bool
) -> Floats:
    """Predict seconds of a step of the jobs of mixes, uncorrected, all in shape (..., jobs).

    Under MPS a limit in per cent stretches the GPU path. An empty place has a GPU path of 0.
    """
    capacity = np.full(step_s.shape[:-1], NAIVE_CAPACITY)
    if under_mps:
        # SM activity while busy over all jobs, weighted by their GPU time; never 0.
        activity = (gpu_s * sms).sum(axis=-1) / np.maximum(gpu_s.sum(axis=-1), 1e-12)
        capacity = MPS_CAPACITY / np.maximum(0.05, activity)
    busy_s = gpu_s * np.maximum(1.0, sms / (limits / 100))
    return contended(np.maximum(step_s, busy_s), busy_s, capacity)


# A kernel that is launched while another process has its time slice waits for it: a job takes this
# much longer if the others keep the GPU busy all the time.
_WAIT = 0.15

# Shares of the SMs at which a job's step under a limit of its own is computed; a higher limit never
# slows it.
_SHARES = np.array((0.02, 0.05, 0.1, 0.14, 0.2, 0.28, 0.43, 0.57, 0.75, 1.0))

# Mixes that are computed at once, which bounds the memory that it takes.
_AT_ONCE = 2000


def steps_of_sets(
    profiles: Sequence[Profile],
    sets: Places,
    sharing: Concurrent,
    gpu: Gpu,
    model: CapacityModel | None,
    limits: Floats | float = 100.0,
) -> Floats:
    """Predict medians of seconds of a step in many mixes at once, shape (mixes, places).

    `sets` has the index of the profile in each place, -1 for none, whose step is NaN; `limits` are
    those of the jobs, in per cent, as one number or in the same shape. None under limits is shorter
    than the job's alone there.
    """
    bare = [without_trace(each) for each in profiles]
    shown = any_busy(bare) if any(each.gpu_s is None for each in bare) else [bare]
    limits = np.broadcast_to(limits, sets.shape)
    tried = np.unique(limits).tolist()
    shares = np.array(limit_shares(tried, gpu.sms))[np.searchsorted(tried, limits)]
    steps_s = np.median(
        [
            _medians(numbers(each, gpu), sets, shares, model, under_mps=sharing.under_mps)
            for each in shown
        ],
        axis=0,
    )
    for limit in tried:
        if limit < 100:
            part = whole_gpu(gpu).limited(limit)
            least_s = np.array([slowdown_on(each, part).p50 * each.step_s for each in bare])
            steps_s = np.where(limits == limit, np.maximum(steps_s, least_s[sets]), steps_s)
    return np.where(sets >= 0, steps_s, np.nan)


def _medians(
    jobs: Numbers, sets: Places, shares: Floats, model: CapacityModel | None, *, under_mps: bool
) -> Floats:
    """The same without regard to steps alone under limits."""
    mixes, shares = own_first(sets, shares)
    if not len(mixes):
        return np.full(sets.shape, np.nan)
    different, which = np.unique(np.hstack([mixes, shares]), axis=0, return_inverse=True)
    mixes, shares = np.hsplit(different, 2)
    parts = range(0, len(mixes), _AT_ONCE)
    steps_s = [
        _limited(
            jobs,
            mixes[at : at + _AT_ONCE].astype(np.intp),
            shares[at : at + _AT_ONCE],
            model,
            under_mps=under_mps,
        )
        for at in parts
    ]
    answers = np.full(sets.shape, np.nan)
    answers[sets >= 0] = np.concatenate(steps_s)[which.ravel()]
    return answers


def _limited(
    jobs: Numbers, mixes: Places, shares: Floats, model: CapacityModel | None, *, under_mps: bool
) -> Floats:
    """Steps of the first job of each mix under its limit: no shorter than under any higher one."""
    if (shares[:, 0] == 1).all():
        return _free(jobs, mixes, shares, model, under_mps=under_mps)
    tried, every = len(_SHARES), np.repeat(shares, len(_SHARES), axis=0)
    every[:, 0] = np.tile(_SHARES, len(mixes))
    steps_s = _free(jobs, np.repeat(mixes, tried, axis=0), every, model, under_mps=under_mps)
    logs = np.log(steps_s).reshape(len(mixes), tried)
    logs = np.maximum.accumulate(logs[:, ::-1], axis=1)[:, ::-1]
    place = np.interp(np.log(shares[:, 0]), np.log(_SHARES), np.arange(tried))
    below = np.minimum(place.astype(np.intp), tried - 2)
    low, high = (np.take_along_axis(logs, at[:, None], axis=1)[:, 0] for at in (below, below + 1))
    return np.asarray(np.exp(low + (place - below) * (high - low)))


def _free(
    jobs: Numbers, mixes: Places, shares: Floats, model: CapacityModel | None, *, under_mps: bool
) -> Floats:
    """Steps of the first job of each mix, no shorter than alone on the whole GPU."""
    present = mixes >= 0
    if model is None:
        steps_s = first_steps(jobs.of(mixes), shares, under_mps=under_mps)
    else:
        own = filled(jobs, model.estimates).of(mixes)
        x = columns(own, shares, present, under_mps=under_mps)
        steps_s = first_steps(own, shares, under_mps=under_mps)
        steps_s = steps_s * np.exp(model.log_correction(x, under_mps=under_mps))
    mix = jobs.of(mixes)
    waits = 0.0 if under_mps else _WAIT * np.minimum(1.0, mix.busy[:, 1:].sum(axis=1))
    alone = present.sum(axis=1) == 1
    return np.where(alone, mix.step_s[:, 0], np.maximum(steps_s, mix.step_s[:, 0] * (1 + waits)))


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
