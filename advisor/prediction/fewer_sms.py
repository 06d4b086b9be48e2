"""What a part of the GPU costs a job alone of which no kernel trace is known: a limit, an instance.

`advisor.prediction.part_curve` says how steps slow, given the share of a step that is work. On an
A100 nvidia-smi's memory utilisation tells that best, then the steps under MPS limits, then power;
its GPU utilisation tells least, since a kernel on a tenth of the SMs keeps that at 100 % too. The
constants are from the same measurements.
"""

from dataclasses import dataclass

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition, limited_sms
from advisor.prediction.cache import once_a_profile
from advisor.prediction.interval import Interval, spanning
from advisor.prediction.part_curve import CURVE
from advisor.prediction.trace import Floats
from advisor.prediction.utilisation_model import any_busy, power_share
from advisor.workload.profile import Profile

# Below half a per cent, nvidia-smi shows 0.
_LEAST = 0.005


@dataclass(frozen=True, slots=True)
class WorkSign:
    """How something that is known of a job alone tells the share of its step that is work.

    Attributes:
        constant: Log odds of W where the sign is 1.
        slope: What a unit of its log adds.
        doubt: By how much at most the log odds of nine cases in ten, of models left out, differ
            from that, on parts with less bandwidth.
        doubt_of_limits: The same on parts with all of it.
    """

    constant: float
    slope: float
    doubt: float
    doubt_of_limits: float

    def log_odds(self, shown: float) -> float:
        return float(self.constant + self.slope * np.log(max(shown, _LEAST)))


BY_MEMORY = WorkSign(1.14, 0.83, doubt=0.37, doubt_of_limits=0.88)
BY_POWER = WorkSign(2.35, 2.92, doubt=2.0, doubt_of_limits=0.87)
BY_UTILISATION = WorkSign(1.32, 3.35, doubt=1.82, doubt_of_limits=1.16)
# The log odds are found among these, so that the curve goes through the steps under limits.
_ODDS = np.linspace(-5, 5, 201)
BY_LIMITS = WorkSign(0.0, 0.0, doubt=1.77, doubt_of_limits=0.23)


def slowdown_on(profile: Profile, partition: Partition) -> Interval:
    """How many times as long a step takes alone on a part of the GPU that nobody else touches.

    The widest interval where nothing tells how much the job keeps the GPU busy.
    """
    known = _work(profile, partition.gpu)
    if known is None:
        return spanning([slowdown_on(each, partition) for (each,) in any_busy([profile])])
    odds, sign = known
    k = work_slowdown(partition)
    middle = float(np.exp(CURVE.log_slowdown(odds, k)))
    alike = sign.doubt if partition.bandwidth_share < 1 else sign.doubt_of_limits
    end = alike * float(CURVE.doubt(odds, k))
    return Interval(max(1.0, middle * np.exp(-end)), middle, middle * np.exp(end))


def busy_slowdown(profile: Profile, partition: Partition) -> float:
    """How many times as long the GPU is busy in a step there: at most all of the step.

    While it is busy, work fills a part of the SMs, and slows by what the partition lacks of that.
    """
    busy, known = profile.busy_share, _work(profile, partition.gpu)
    if not busy or known is None:
        return slowdown_on(profile, partition).p50
    filled = min(1.0, 1 / (1 + np.exp(-known[0])) / busy)
    stretched = max(1.0, filled * float(work_slowdown(partition)))
    return float(min(stretched, slowdown_on(profile, partition).p50 / busy))


def work_slowdown(partition: Partition) -> Floats:
    """How many times as long work takes there, at least 1."""
    return CURVE.work_slowdown(partition.sm_share, partition.bandwidth_share)


def memory_tells(gpu: Gpu) -> bool:
    """Whether memory utilisation tells of a job what a slice of `gpu` costs it.

    That was seen on an A100 alone; later GPUs have twice its bandwidth for as much work.
    """
    return gpu.architecture == "Ampere"


def _work(profile: Profile, gpu: Gpu) -> tuple[float, WorkSign] | None:
    """Log odds of W by the best sign there is, and that sign; None if there is none."""
    counters, power = profile.counters, power_share(profile, gpu)
    shown = None if counters is None else counters.memory_utilization
    if shown is not None and memory_tells(gpu):
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
    """Log odds of W with which the curve comes nearest to the steps of the job's MPS probe."""
    assert profile.mps is not None
    off = np.zeros_like(_ODDS)
    for run in profile.mps.limited:
        share = (run.sms or limited_sms(run.limit_pct, gpu.sms)) / gpu.sms
        k = CURVE.work_slowdown(share, 1.0)
        off += (
            CURVE.log_slowdown(_ODDS, k) - np.log(run.step_s / profile.mps.unlimited.step_s)
        ) ** 2
    return float(_ODDS[int(np.argmin(off))])
