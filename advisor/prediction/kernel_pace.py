"""How kernels slow with the SMs that a limit or a partition takes, and with the bandwidth."""

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition, limit_shares
from advisor.prediction.cache import once_a_profile
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
# As fitted on both; see `advisor.prediction.physics.Physics`.
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
