"""How kernels slow with the SMs that a limit or a partition takes, and with the bandwidth."""

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition, limit_shares
from advisor.prediction.cache import once_a_profile
from advisor.prediction.part_curve import CURVE
from advisor.prediction.trace import DECIMALS, Floats, replay_trace
from advisor.workload.profile import Profile

# A limit that slows a job by less than this does not show how its kernels react to limits.
_FELT = 1.1
_EXPONENTS = np.linspace(0.3, 1.2, 19)
# The median of 152 probes on an H200 and an H100, the same on both.
_USUAL_EXPONENT = 0.85


def sm_pace(demand: Floats, share: float, exponent: float) -> Floats:
    """Pace of kernels on a share of the SMs over that on all of them, (0, 1], shape as `demand`.

    Args:
        demand: Share of the SMs that each can use, 0..1.
        share: Of the SMs that it has, (0, 1].
        exponent: As of `limit_exponent`.
    """
    return np.asarray(np.round(np.minimum(1, share / np.maximum(demand, share)) ** exponent,
                               DECIMALS))  # fmt: skip


def limit_exponent(profile: Profile, gpu: Gpu, packing: float, bandwidth: float) -> float:
    """How the job's kernels slow with the SMs that a limit takes; 1: in proportion.

    Args:
        profile: Measured alone.
        gpu: Its GPU.
        packing: As of `advisor.prediction.physics.Physics`.
        bandwidth: How far limited jobs keep the bandwidth that each had alone.
    """
    return bandwidth * exponent_alone(profile, gpu, packing) + (1 - bandwidth)


@once_a_profile
def exponent_alone(profile: Profile, gpu: Gpu, packing: float) -> float:
    """As `limit_exponent` of a job from which nobody takes bandwidth, by its probe.

    Kernels that move data slow less than those that compute. The usual exponent where there is no
    probe, or no limit of it was felt.
    """
    played = replay_trace(profile, gpu.sms, packing)
    if profile.mps is None or played is None:
        return _USUAL_EXPONENT
    found = []
    for run in profile.mps.limited:
        slowdown = run.step_s / profile.mps.unlimited.step_s
        share = run.sms / gpu.sms if run.sms else limit_shares([run.limit_pct], gpu.sms)[0]
        if slowdown < _FELT:
            continue
        gaps_s = played.gap_s * len(played.demand)
        alone_s = [
            float((played.duration_s / sm_pace(played.demand, share, x)).sum()) + gaps_s
            for x in _EXPONENTS
        ]
        fits = np.abs(np.log(np.asarray(alone_s) / (slowdown * profile.step_s)))
        found.append(float(_EXPONENTS[int(np.argmin(fits))]))
    return float(np.mean(found)) if found else _USUAL_EXPONENT


def slowdowns(demand: Floats, profile: Profile, partition: Partition, exponent: float) -> Floats:
    """Of kernels with that demand on a partition, at least 1, in the shape of `demand`.

    As under a limit that leaves as many SMs, and slower by the bandwidth that an instance lacks
    beside that. A job that uses more of the GPU's bandwidth while busy than the partition has slows
    by that at least.
    """
    shares = partition.sm_share, partition.bandwidth_share
    steep = max(exponent, CURVE.bandwidth)  # or more SMs would slow a kernel
    by_sms = CURVE.bandwidth_slowdown(*shares) * (demand / partition.sm_share) ** steep
    by_bandwidth = dram_share(profile) / partition.bandwidth_share
    return np.maximum(np.maximum(1.0, by_sms), by_bandwidth)


def moving_s(profile: Profile) -> float:
    """Seconds in which the whole GPU's bandwidth moves what a step moves; 0 where unknown."""
    counters = profile.counters
    return 0.0 if counters is None else (counters.dram_active or 0.0) * profile.step_s


def dram_share(profile: Profile) -> float:
    """Share of DRAM bandwidth in use while the GPU works for the job, 0..1; 0 where unknown."""
    busy_s = (profile.busy_share or 0.0) * profile.step_s
    return min(1.0, moving_s(profile) / busy_s) if busy_s else 0.0
