"""The one place that moves a profile: to a host of another speed, an MPS limit, a part of the GPU.

A step's host path is the host's and not the workload's: on another machine, or in another minute
on a virtual one, the same Python and the same launches take longer or shorter. A fixed piece of
host work (`advisor.measure.process.cores`) tells by how much.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from math import inf, log

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition, limit_shares
from advisor.prediction.cache import once_a_profile
from advisor.prediction.trace import ReplayTrace, replay_trace
from advisor.workload.measured import Counters, Window
from advisor.workload.profile import LimitedRun, MpsProbe, Profile
from advisor.workload.run import Run, Tenant

# A limit that slows a job by less than this does not show how its kernels react to limits.
_FELT = 1.1
_EXPONENTS = np.linspace(0.3, 1.2, 19)

_RATES = ("pcie_rx_mib_s", "pcie_tx_mib_s")
_SHARES = tuple(each.name for each in fields(Counters) if each.name not in ("source", *_RATES))


# A check of a twentieth of a second is a noisy measure of the seconds after it, and is not all that
# a step does: over 114 solo runs of host-bound workloads on seven hosts, log steps followed log
# checks with this slope, which leaves 9 % of a step where the profile alone leaves 24 %.
_TRUST = 0.73
# Where cores differ by more than this, what the check leaves wrong (12 % of a step in the mean of
# 45 solo runs, against 6 % of 65 others) is larger than the effects of sharing.
_FAR = 1.2


def profiles_on_host(run: Run, profiles: Mapping[str, Profile]) -> tuple[Profile, ...]:
    """The profile of each tenant of `run`, as on the core that the tenant had, in its order.

    Raises:
        KeyError: A tenant has no profile.
    """
    return tuple(_on_core(profiles[each.workload.name], each) for each in run.tenants)


def on_like_core(profile: Profile, tenant: Tenant) -> bool:
    """Whether the core of `tenant` was known to be about as fast as the one of `profile`.

    Otherwise the step of a host-bound job depends more on the core than on its mates.
    """
    if tenant.host_check_s is None:
        return False
    ratio = tenant.host_check_s / (profile.host_check_s or tenant.host_check_s)
    return 1 / _FAR < ratio < _FAR


def _on_core(profile: Profile, tenant: Tenant) -> Profile:
    if tenant.host_check_s is None or profile.host_check_s is None:
        return profile
    return on_host(profile, host_slowdown(profile.host_check_s, tenant.host_check_s))


def host_slowdown(there_s: float, here_s: float) -> float:
    """How much longer host work takes where the host check takes `here_s` instead of `there_s`."""
    return float((here_s / there_s) ** _TRUST)


@once_a_profile
def on_host(profile: Profile, slowdown: float) -> Profile:
    """`profile` on a host that takes `slowdown` times as long for the same work.

    The host path stretches, and with it the step where the host sets its pace. What the GPU does
    in a step stays, so its shares of time shrink as steps grow.
    """
    if profile.host_s is None or slowdown == 1:
        return profile
    step_s = _step_s(profile, slowdown)
    stretch = step_s / profile.step_s
    trace = profile.trace and replace(
        profile.trace, launch_us=tuple(us * slowdown for us in profile.trace.launch_us)
    )
    return replace(
        profile,
        windows=_stretched(profile.windows, stretch),
        host_s=profile.host_s * slowdown,
        counters=profile.counters and _thinned(profile.counters, stretch),
        power_w=_power_w(profile, stretch),
        mps=profile.mps and _probe(profile.mps, stretch),
        trace=trace,
        host_check_s=profile.host_check_s and profile.host_check_s * slowdown,
    )


def log_beyond_host(profile: Profile, step_s: float) -> float:
    """Log of a step of `step_s` in a mix over the host's path alone, at least 0.

    At 0 the host sets the pace, and a slower host shows in full; mates hide a part of it.
    """
    host_s, gpu_s = profile.host_s or 0.0, profile.gpu_s or 0.0
    path_s = profile.step_s if host_s >= gpu_s else min(host_s, profile.step_s)
    return max(0.0, log(step_s / path_s)) if path_s else inf


def _step_s(profile: Profile, slowdown: float) -> float:
    """The slower side sets the pace; a host that was the slower one may become the faster."""
    host_s, gpu_s = profile.host_s or 0.0, profile.gpu_s or 0.0
    if host_s >= gpu_s:
        return max(profile.step_s * slowdown, min(gpu_s, profile.step_s))
    return max(profile.step_s, host_s * slowdown)


def _stretched(windows: tuple[Window, ...], stretch: float) -> tuple[Window, ...]:
    return tuple(Window(each.seconds * stretch, each.steps) for each in windows)


def _thinned(counters: Counters, stretch: float) -> Counters:
    most = dict.fromkeys(_SHARES, 1.0) | dict.fromkeys(_RATES, float("inf"))
    known = {name: getattr(counters, name) for name in most}
    thinned = {
        name: min(most[name], value / stretch) for name, value in known.items() if value is not None
    }
    return replace(counters, **thinned)


def _power_w(profile: Profile, stretch: float) -> float | None:
    if profile.power_w is None or profile.idle_power_w is None:
        return profile.power_w
    return profile.idle_power_w + (profile.power_w - profile.idle_power_w) / stretch


def _probe(probe: MpsProbe, stretch: float) -> MpsProbe:
    """All of it at one stretch, so that what a limit costs stays what it was."""

    def stretched(run: LimitedRun) -> LimitedRun:
        return replace(run, windows=_stretched(run.windows, stretch))

    return replace(
        probe, unlimited=stretched(probe.unlimited), limited=tuple(map(stretched, probe.limited))
    )


def limit_exponent(profile: Profile, gpu: Gpu, packing: float, bandwidth: float) -> float:
    """How the job's kernels slow with the SMs that a limit takes; 1: in proportion.

    Args:
        profile: Measured alone.
        gpu: Its GPU.
        packing: As of `advisor.prediction.physics.Physics`.
        bandwidth: How far limited jobs keep the bandwidth that each had alone.
    """
    return bandwidth * _exponent_alone(profile, gpu, packing) + (1 - bandwidth)


@once_a_profile
def _exponent_alone(profile: Profile, gpu: Gpu, packing: float) -> float:
    """Exponent of the slowdown of the job's kernels with fewer SMs, from its probe.

    1 means in proportion to the SMs.

    Bandwidth is not limited, so kernels that move data slow less than those that compute.
    """
    played = replay_trace(profile, gpu.sms, packing)
    if profile.mps is None or played is None:
        return 1.0
    found = []
    for run in profile.mps.limited:
        slowdown = run.step_s / profile.mps.unlimited.step_s
        share = run.sms / gpu.sms if run.sms else limit_shares([run.limit_pct], gpu.sms)[0]
        if slowdown < _FELT:
            continue
        stretch = np.maximum(1, played.demand / share)
        gaps_s = played.gap_s * len(stretch)
        alone_s = [float((played.duration_s * stretch**x).sum()) + gaps_s for x in _EXPONENTS]
        fits = np.abs(np.log(np.asarray(alone_s) / (slowdown * profile.step_s)))
        found.append(float(_EXPONENTS[int(np.argmin(fits))]))
    return float(np.mean(found)) if found else 1.0


def on_partition(profile: Profile, partition: Partition, packing: float) -> ReplayTrace | None:
    """The job's step on a part of its GPU that nobody else touches; None without a trace.

    A kernel slows with the SMs it misses or, where that is worse, with the bandwidth: at some
    share of the whole GPU's bandwidth while busy, it fills a smaller part sooner.
    """
    whole = replay_trace(profile, partition.gpu.sms, packing)
    if whole is None:
        return None
    demand = whole.demand / partition.sm_share
    slower = np.maximum(demand, dram_share(profile) / partition.bandwidth_share)
    return replace(
        whole,
        duration_s=whole.duration_s * np.maximum(1, slower),
        demand=np.minimum(1, demand),
        waves=whole.waves / partition.sm_share,
    )


def moving_s(profile: Profile) -> float:
    """Seconds in which the whole GPU's bandwidth moves what a step moves; 0 where unknown."""
    counters = profile.counters
    return 0.0 if counters is None else (counters.dram_active or 0.0) * profile.step_s


def dram_share(profile: Profile) -> float:
    """Share of DRAM bandwidth in use while the GPU works for the job, 0..1; 0 where unknown."""
    busy_s = (profile.busy_share or 0.0) * profile.step_s
    return min(1.0, moving_s(profile) / busy_s) if busy_s else 0.0
