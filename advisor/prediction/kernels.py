"""How kernels slow with the SMs that a limit or a partition takes, and with the bandwidth."""

from dataclasses import dataclass

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import Partition, limit_shares, limited_sms
from advisor.prediction.cache import once_a_profile
from advisor.prediction.capacity import any_busy, power_share
from advisor.prediction.prediction import Interval, spanning
from advisor.prediction.trace import DECIMALS, Floats, ReplayTrace, replay_trace
from advisor.workload.profile import Profile

# Exponents are those of a kernel that has a quarter of the SMs that it could use. What it is spared
# dies away with this power of the SMs that are left. With it and the constants below, limits left
# out of the probes of an H200 and an H100 are 4.0 % and 5.5 % off, 6.6 % and 9.5 % with an exponent
# that is the same for all limits; without any one family, the same constants are the best.
_QUARTER, _POWER = 4.0, 2 / 3
# With less, kernels would be faster on fewer SMs.
_LEAST = 0.35
_EXPONENTS = np.linspace(_LEAST, 1.2, 35).round(3)
# Of a job without a probe, and how firmly a probe's is taken to be near that: exponents differ by
# about 0.1, and logs of its steps by 0.03 from what they should be.
_USUAL_EXPONENT, _FIRMNESS = 0.8, 0.1
# As fitted on both; see `advisor.prediction.replay.Physics`.
_PACKING = 0.45


def sm_pace(demand: Floats, share: float, exponent: float) -> Floats:
    """Pace of kernels on a share of the SMs over that on all of them, (0, 1], shape as `demand`.

    Args:
        demand: Share of the SMs that each can use, 0..1.
        share: Of the SMs that it has, (0, 1].
        exponent: As of `limit_exponent`.
    """
    lack = np.maximum(demand, share) / share
    return np.asarray(np.round(_spared(lack, exponent) / lack, DECIMALS))


def _spared(lack: Floats, exponent: float) -> Floats:
    """How many times as fast as in proportion to its SMs a kernel is that could use `lack` times.

    Kernels that move data lose little with the first SMs that are taken: the others ask for as much
    bandwidth. Of few SMs each moves as much as it can, and kernels slow in proportion.

    Args:
        lack: SMs that each could use over those that it has, at least 1.
        exponent: As of `limit_exponent`.
    """
    died_away = (1 - lack**-_POWER) / (1 - _QUARTER**-_POWER)
    return np.asarray(_QUARTER ** ((1 - max(_LEAST, exponent)) * died_away))


def limit_exponent(profile: Profile, gpu: Gpu, bandwidth: float) -> float:
    """How the job's kernels slow with the SMs that a limit takes; 1: in proportion.

    On a quarter of the SMs that they could use, they run at ``0.25 ** exponent`` of their pace.

    Args:
        profile: Measured alone.
        gpu: Its GPU.
        bandwidth: How far limited jobs keep the bandwidth that each had alone.
    """
    return bandwidth * exponent_alone(profile, gpu) + (1 - bandwidth)


def exponent_alone(profile: Profile, gpu: Gpu) -> float:
    """As `limit_exponent` of a job from which nobody takes bandwidth, by its probe.

    Kernels that move data slow less than those that compute. The usual exponent where there is no
    probe.
    """
    measured = measured_exponent(profile, gpu)
    return _USUAL_EXPONENT if measured is None else measured


@once_a_profile
def measured_exponent(profile: Profile, gpu: Gpu) -> float | None:
    """What the probe of `profile` tells of its kernels, wherever it ran; None without one.

    The exponent with which steps under the limits of the probe come nearest to those measured:
    those that hide in the host's path tell only what is too much. What its host did to a probe
    moves it little, since few exponents are far from the usual one.
    """
    played = replay_trace(profile, gpu.sms, _PACKING)
    if profile.sm_exponent is not None or profile.mps is None or played is None:
        return profile.sm_exponent
    off = _FIRMNESS * (_EXPONENTS - _USUAL_EXPONENT) ** 2
    for run in profile.mps.limited:
        share = run.sms / gpu.sms if run.sms else limit_shares([run.limit_pct], gpu.sms)[0]
        kernels_s = _kernels_s(played, share)
        told = np.array([played.alone_s(profile.step_s, each) for each in kernels_s])
        told /= profile.step_s
        off += np.log(told / max(1.0, run.step_s / profile.mps.unlimited.step_s)) ** 2
    return float(_EXPONENTS[int(np.argmin(off))])


def _kernels_s(played: ReplayTrace, share: float) -> Floats:
    """Seconds of a step's kernels on a share of the SMs, by each of `_EXPONENTS`."""
    demand, kind = np.unique(played.demand, return_inverse=True)  # most kernels are like others
    alike_s = np.bincount(kind, played.duration_s)
    return np.array([(alike_s / sm_pace(demand, share, each)).sum() for each in _EXPONENTS])


def slowdowns(demand: Floats, profile: Profile, partition: Partition, exponent: float) -> Floats:
    """Of kernels with that demand on a partition, at least 1, in the shape of `demand`.

    As under a limit that leaves as many SMs; where bandwidth and L2 are cut too, such that a share
    of everything works at that share of the pace: kernels that slow less than in proportion to SMs
    do so for the bandwidth that a limit leaves them. A job that uses more of the GPU's bandwidth
    while busy than the partition has slows by that at least.
    """
    sms = np.maximum(1.0, demand / partition.sm_share)
    bandwidth = np.maximum(1.0, demand / partition.bandwidth_share)
    moving = min(1.0, exponent)  # kernels that slow by more do not do so for bandwidth
    richer = _spared(np.maximum(1.0, sms / bandwidth), moving)
    poorer = _spared(np.maximum(1.0, bandwidth / sms), moving)
    by_both = sms / _spared(sms, max(1.0, exponent)) / richer * poorer
    return np.asarray(np.maximum(by_both, dram_share(profile) / partition.bandwidth_share))


def moving_s(profile: Profile) -> float:
    """Seconds in which the whole GPU's bandwidth moves what a step moves; 0 where unknown."""
    counters = profile.counters
    return 0.0 if counters is None else (counters.dram_active or 0.0) * profile.step_s


def dram_share(profile: Profile) -> float:
    """Share of DRAM bandwidth in use while the GPU works for the job, 0..1; 0 where unknown."""
    busy_s = (profile.busy_share or 0.0) * profile.step_s
    return min(1.0, moving_s(profile) / busy_s) if busy_s else 0.0


_Real = Floats | float

# Of the curve itself, as if sensitivity to the log odds were at least this on small parts. The
# smallest round number with which 85 to 95 % of left-out models are inside on slices of every size.
_OWN_DOUBT = 0.25


@dataclass(frozen=True, slots=True)
class PartCurve:
    """How steps slow on a part of a GPU.

    Attributes:
        sharpness: p of the formula above.
        sms: Power of the share of SMs by which work speeds up, with as much of the bandwidth.
        bandwidth: Power by which it speeds up with more bandwidth than that.
        surplus: Times that; still more buys nothing, as under an MPS limit, which takes SMs only.
    """

    sharpness: float
    sms: float
    bandwidth: float
    surplus: float

    def work_slowdown(self, sm_share: _Real, bandwidth_share: _Real) -> Floats:
        """Of parts with those shares, in (0, 1], in their shape: k of the formula above."""
        sms = np.asarray(sm_share, dtype=np.float64)
        richer = np.minimum(bandwidth_share / sms, self.surplus)
        return np.asarray(np.maximum(1.0, sms**-self.sms * richer**-self.bandwidth))

    def log_slowdown(self, log_odds: _Real, work_slowdown: Floats) -> Floats:
        """Log of a step over the step alone, at least 0; `log_odds` are those of W."""
        return np.log1p(self._slowed(log_odds, work_slowdown)) / self.sharpness

    def doubt(self, log_odds: _Real, work_slowdown: Floats) -> Floats:
        """How far off `log_slowdown` may be, where the log odds may be off by 1."""
        slowed = self._slowed(log_odds, work_slowdown)
        by_odds = slowed / (1 + slowed) / (1 + np.exp(log_odds))
        return np.asarray(np.hypot(by_odds, _OWN_DOUBT * (1 - work_slowdown**-2)))

    def _slowed(self, log_odds: _Real, work_slowdown: Floats) -> Floats:
        share = 1 / (1 + np.exp(-np.asarray(log_odds)))
        return np.asarray(share**self.sharpness * (work_slowdown**self.sharpness - 1))


CURVE = PartCurve(sharpness=1.75, sms=1.0, bandwidth=0.37, surplus=1.87)


# Below half a per cent, nvidia-smi shows 0.
_LEAST_SMS = 0.005


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
        return float(self.constant + self.slope * np.log(max(shown, _LEAST_SMS)))


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
