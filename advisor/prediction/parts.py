"""Predicts how a job alone slows on a part of a GPU: on a MIG slice, or under an MPS limit.

Without a kernel trace, a share W of a step is work that takes k times as long on the part, and the
rest hides that: the step takes ``(1 + W^p (k^p - 1))^(1/p)`` times as long.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, log

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import Partition, limited_sms
from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.prediction import Interval, interval_around, spanning
from advisor.prediction.trace import Floats
from advisor.workload.profile import Profile

_Real = Floats | float

# The constants were fitted to four models on MIG slices and under MPS limits of an A100 (MISO's
# artifact, SoCC '22), two on slices of an A100 (MIGPerf), and the MPS probes of the profiles of an
# H200 and an H100.
_SHARPNESS = 1.75  # p
# The power by which work speeds up with more bandwidth than its share of SMs, up to so many times
# that; still more buys nothing, as under an MPS limit, which takes SMs only.
_BY_BANDWIDTH, _SURPLUS = 0.37, 1.87

# Of the law itself, as if sensitivity to the log odds were at least this on small parts. The
# smallest round number with which 85 to 95 % of left-out models are inside on slices of every size.
_OWN_DOUBT = 0.25
# Nine in ten measured steps on slices are no longer than this times what all lost SMs, or all lost
# bandwidth, would make of them.
_BEYOND = 1.1


def _work_slowdown(sm_share: _Real, bandwidth_share: _Real) -> Floats:
    """Return k of parts with those shares, in (0, 1], in their shape."""
    richer = np.minimum(bandwidth_share / sm_share, _SURPLUS)
    return np.asarray(np.maximum(1.0, 1 / sm_share * richer**-_BY_BANDWIDTH))


def _slowed(log_odds: _Real, k: Floats) -> Floats:
    """Return ``W^p (k^p - 1)``; `log_odds` are those of W."""
    share = 1 / (1 + np.exp(-np.asarray(log_odds)))
    return np.asarray(share**_SHARPNESS * (k**_SHARPNESS - 1))


def _log_slowdown(slowed: Floats, alone: _Real = 1.0) -> Floats:
    """Return the log of a step over the step alone, which takes `alone` times as long as usual."""
    return np.asarray(np.log(alone**_SHARPNESS + slowed) / _SHARPNESS)


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
        slope: Addition for a unit of its log; of its log odds, where `of_odds`.
        doubt: Bound of the error of the log odds of W in nine of ten cases, of models left out.
    """

    constant: float
    slope: float
    doubt: float
    of_odds: bool = False

    def at(self, shown: float) -> tuple[float, float]:
        """Return log odds of W, and their doubt."""
        shown = max(shown, _LEAST_SMS)
        odds = shown / (1 - min(shown, 1 - _LEAST_SMS)) if self.of_odds else shown
        return self.constant + self.slope * log(odds), self.doubt


# What fills the memory all the time fills a slice's too: on slices the mean error of models left
# out is 4.5 % by its log odds, and 5.7 % by its log. A limit leaves the bandwidth.
# Each on parts with all of the bandwidth, and on slices, which have less.
_BY_MEMORY = WorkSign(0.48, 0.6, 0.65), WorkSign(0.94, 0.76, 0.35, of_odds=True)
_BY_POWER = WorkSign(2.35, 2.92, 0.87), WorkSign(2.84, 2.96, 0.65)
_BY_UTILISATION = WorkSign(1.32, 3.35, 1.16), WorkSign(1.25, 2.96, 1.25)
# The log odds by power are above those by memory by no more for 16 jobs of an A100. A job for which
# they are computes much on few data, so the rest of the difference counts.
_APART = 0.6
# The log odds are chosen among these, so that the law goes through the steps under limits.
_ODDS = np.linspace(-5, 5, 201)
_BY_LIMITS, _BY_LIMITS_ON_SLICES = 0.23, 0.8  # doubts


# Shares of a step for which a job may keep the GPU busy, if its profile lacks that.
_ANY_BUSY = (0.05, 0.5, 1.0)


def any_busy(profiles: Sequence[Profile]) -> list[list[Profile]]:
    """Return `profiles` once for each share of `_ANY_BUSY`, which stands in where they lack one."""
    return [
        [
            each if each.gpu_s is not None else replace(each, gpu_s=busy * each.step_s)
            for each in profiles
        ]
        for busy in _ANY_BUSY
    ]


AS_ALONE = Interval(1.0, 1.0, 1.0)


def slowdown_on(profile: Profile, partition: Partition, alone: Interval = AS_ALONE) -> Interval:
    """Predict how many times as long a step takes alone on a part of the GPU.

    `alone` is the range of the step alone on the whole GPU, over its median. A smaller part has
    higher ends, up to what its SMs and its bandwidth allow. The interval is widest where the
    profile lacks how much the job keeps the GPU busy.
    """
    shares = partition.sm_share, partition.bandwidth_share
    if (work := _work(profile, partition.gpu, on_slice=shares[1] < 1)) is None:
        return spanning([slowdown_on(each, partition, alone) for (each,) in any_busy([profile])])
    odds, doubt = work
    k = _work_slowdown(*shares)
    slowed, by_law = _slowed(odds, k), doubt * float(_law_doubt(odds, k))
    least, middle, most = (
        float(_log_slowdown(slowed, each)) for each in (alone.p05, 1.0, alone.p95)
    )
    down = hypot(middle - least, min(middle, by_law))
    up = hypot(most - middle, min(log(_BEYOND / min(shares)) - middle, by_law))
    return interval_around(exp(middle), -down, up)


def work_s(profile: Profile, partition: Partition) -> Interval:
    """Return seconds for which the work of a step fills a part of the GPU: W times k of a step.

    Jobs together on the part share its bandwidth too, and fill it for no more than all the time. So
    they gain what the first leaves idle, which is the less the smaller the part is.
    """
    if (work := _work(profile, partition.gpu, on_slice=True)) is None:
        return spanning([work_s(each, partition) for (each,) in any_busy([profile])])
    odds, doubt = work
    k_s = float(_work_slowdown(partition.sm_share, partition.bandwidth_share)) * profile.step_s
    return Interval(*(k_s / (1 + exp(-odds - away)) for away in (-doubt, 0.0, doubt)))


def busy_slowdown(profile: Profile, partition: Partition) -> float:
    """Predict how many times as long the GPU is busy in a step: at most all of the step.

    While it is busy, work fills a part of the SMs, and slows by what the partition lacks of that.
    """
    busy = profile.busy_share
    work = _work(profile, partition.gpu, on_slice=partition.bandwidth_share < 1)
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


def _work(profile: Profile, gpu: Gpu, *, on_slice: bool) -> tuple[float, float] | None:
    """Return log odds of W by the best sign there is, and their doubt; None without a sign."""
    memory = None if profile.counters is None else profile.counters.memory_utilization
    power, busy = power_share(profile, gpu), profile.busy_share
    by_power = None if power is None else _BY_POWER[on_slice].at(power)
    if memory is not None and slices_follow_memory(gpu):
        odds, doubt = _BY_MEMORY[on_slice].at(memory)
        if by_power is not None and (beyond := by_power[0] - _APART - odds) > 0:
            odds, doubt = odds + beyond, min(doubt + beyond, by_power[1])
    elif profile.mps is not None and profile.mps.limited:
        return work_by_limits(profile, gpu), _BY_LIMITS_ON_SLICES if on_slice else _BY_LIMITS
    elif by_power is not None:
        odds, doubt = by_power
    elif busy is not None:
        odds, doubt = _BY_UTILISATION[on_slice].at(busy)
    else:
        return None
    if busy is None or busy >= 1:
        return odds, doubt
    return min(odds, log(max(busy, _LEAST_SMS) / (1 - busy))), doubt  # it works while it is busy


def power_share(profile: Profile, gpu: Gpu) -> float | None:
    """Return power alone over the GPU's limit; None if one of both is unknown."""
    if profile.power_w is None or gpu.power_limit_w is None:
        return None
    return profile.power_w / gpu.power_limit_w


@cached_by_profiles
def work_by_limits(profile: Profile, gpu: Gpu) -> float:
    """Return log odds of W with which the law comes nearest to the steps of the MPS probe."""
    assert profile.mps is not None
    off = np.zeros_like(_ODDS)
    for run in profile.mps.limited:
        share = (run.sms or limited_sms(run.limit_pct, gpu.sms)) / gpu.sms
        measured = np.log(run.step_s / profile.mps.unlimited.step_s)
        slowed = _slowed(_ODDS, _work_slowdown(share, 1.0))
        off += (_log_slowdown(slowed) - measured) ** 2
    return float(_ODDS[int(np.argmin(off))])
