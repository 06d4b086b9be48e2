"""How kernels slow with the SMs that a limit or a partition takes, and with the bandwidth."""

from math import inf

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition, limit_shares
from advisor.prediction.cache import once_a_profile
from advisor.prediction.trace import DECIMALS, Floats, ReplayTrace, replay_trace
from advisor.workload.profile import Profile

# A limit that slows a job by less than this does not show how its kernels react to limits.
FELT = 1.1
_EXPONENTS = np.linspace(0.3, 1.2, 19)
# The median of 152 probes on an H200 and an H100, the same on both.
_USUAL_EXPONENT = 0.85
# As fitted on both; see `advisor.prediction.physics.Physics`.
_PACKING = 0.3


def sm_pace(demand: Floats, share: float, exponent: float) -> Floats:
    """Pace of kernels on a share of the SMs over that on all of them, (0, 1], shape as `demand`.

    Args:
        demand: Share of the SMs that each can use, 0..1.
        share: Of the SMs that it has, (0, 1].
        exponent: As of `limit_exponent`.
    """
    return np.asarray(np.round(np.minimum(1, share / np.maximum(demand, share)) ** exponent,
                               DECIMALS))  # fmt: skip


def limit_exponent(profile: Profile, gpu: Gpu, bandwidth: float) -> float:
    """How the job's kernels slow with the SMs that a limit takes; 1: in proportion.

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

    A limit that is felt shows how long the kernels take there; one that is not felt, how long they
    take at most. That bounds the exponent, which is the usual one where no limit is felt.
    """
    played = replay_trace(profile, gpu.sms, _PACKING)
    if profile.sm_exponent is not None or profile.mps is None or played is None:
        return profile.sm_exponent
    felt, bounds = [], [inf]
    for run in profile.mps.limited:
        share = run.sms / gpu.sms if run.sms else limit_shares([run.limit_pct], gpu.sms)[0]
        alone_s = np.array([_alone_s(played, share, each) for each in _EXPONENTS])
        slowdown = run.step_s / profile.mps.unlimited.step_s
        if slowdown < FELT:
            hidden = _EXPONENTS[alone_s < FELT * profile.step_s]
            bounds.append(float(hidden.max(initial=_EXPONENTS[0])))
        else:
            fits = np.abs(np.log(alone_s / (slowdown * profile.step_s)))
            felt.append(float(_EXPONENTS[int(np.argmin(fits))]))
    return min(float(np.mean(felt or [_USUAL_EXPONENT])), *bounds)


def _alone_s(played: ReplayTrace, share: float, exponent: float) -> float:
    """Seconds of a step's kernels on a share of the SMs, gaps between them included."""
    kernels_s = (played.duration_s / sm_pace(played.demand, share, exponent)).sum()
    return float(kernels_s) + played.gap_s * len(played.demand)


def slowdowns(demand: Floats, profile: Profile, partition: Partition, exponent: float) -> Floats:
    """Of kernels with that demand on a partition, at least 1, in the shape of `demand`.

    As under a limit that leaves as many SMs; where bandwidth and L2 are cut too, such that a share
    of everything works at that share of the pace: kernels that slow less than in proportion to SMs
    do so for the bandwidth that a limit leaves them. A job that uses more of the GPU's bandwidth
    while busy than the partition has slows by that at least.
    """
    of_bandwidth = max(0.0, 1 - exponent)
    by_sms = np.maximum(1.0, demand / partition.sm_share) ** exponent
    by_both = by_sms * np.maximum(1.0, demand / partition.bandwidth_share) ** of_bandwidth
    return np.asarray(np.maximum(by_both, dram_share(profile) / partition.bandwidth_share))


def moving_s(profile: Profile) -> float:
    """Seconds in which the whole GPU's bandwidth moves what a step moves; 0 where unknown."""
    counters = profile.counters
    return 0.0 if counters is None else (counters.dram_active or 0.0) * profile.step_s


def dram_share(profile: Profile) -> float:
    """Share of DRAM bandwidth in use while the GPU works for the job, 0..1; 0 where unknown."""
    busy_s = (profile.busy_share or 0.0) * profile.step_s
    return min(1.0, moving_s(profile) / busy_s) if busy_s else 0.0
