"""The one place that moves a profile: to a host of another speed, an MPS limit, a part of the GPU.

A step's host path is the host's and not the workload's: on another machine, or in another minute
on a virtual one, the same Python and the same launches take longer or shorter. A fixed piece of
host work (`advisor.measure.process.cores`) tells by how much.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from math import inf, log
from typing import NamedTuple

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition
from advisor.prediction.cache import once_a_profile
from advisor.prediction.fewer_sms import kernel_exponent
from advisor.prediction.kernel_pace import limit_exponent, slowdowns
from advisor.prediction.physics import Physics
from advisor.prediction.trace import Floats, demand, replay_trace
from advisor.workload.measured import Counters, Window
from advisor.workload.profile import KernelTrace, LimitedRun, MpsProbe, Profile

_OF_SMS = ("sm_active", "sm_occupancy", "tensor_active")
_RATES = ("pcie_rx_mib_s", "pcie_tx_mib_s")
_SHARES = tuple(each.name for each in fields(Counters) if each.name not in ("source", *_RATES))


# A check of a twentieth of a second is a noisy measure of the seconds after it, and is not all that
# a step does: over 114 solo runs of host-bound workloads on seven hosts, log steps followed log
# checks with this slope, which leaves 9 % of a step where the profile alone leaves 24 %.
_TRUST = 0.73


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
    trace = profile.trace and replace(
        profile.trace, launch_us=tuple(us * slowdown for us in profile.trace.launch_us)
    )
    return replace(
        _at_pace(profile, _step_s(profile, slowdown) / profile.step_s),
        host_s=profile.host_s * slowdown,
        trace=trace,
        host_check_s=profile.host_check_s and profile.host_check_s * slowdown,
    )


def _at_pace(profile: Profile, stretch: float) -> Profile:
    """`profile` with steps that are longer by `stretch` and do the same work."""
    return replace(
        profile,
        windows=_stretched(profile.windows, stretch),
        counters=profile.counters and _thinned(profile.counters, stretch, {}),
        power_w=_power_w(profile, stretch),
        mps=profile.mps and _probe(profile.mps, stretch),
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


def _thinned(counters: Counters, stretch: float, grown: Mapping[str, float]) -> Counters:
    """`counters` over longer steps; those in `grown` are of so many times as much in a step."""
    most = dict.fromkeys(_SHARES, 1.0) | dict.fromkeys(_RATES, float("inf"))
    known = {name: getattr(counters, name) for name in most}
    thinned = {
        name: min(most[name], value * grown.get(name, 1.0) / stretch)
        for name, value in known.items() if value is not None
    }  # fmt: skip
    return replace(counters, **thinned)


def _power_w(profile: Profile, stretch: float) -> float | None:
    if profile.power_w is None or profile.idle_power_w is None:
        return profile.power_w
    return profile.idle_power_w + (profile.power_w - profile.idle_power_w) / stretch


def _probe(probe: MpsProbe, stretch: float) -> MpsProbe:
    """All of it at one stretch, so that what a limit costs stays what it was."""
    limited = tuple(_longer(run, stretch) for run in probe.limited)
    return replace(probe, unlimited=_longer(probe.unlimited, stretch), limited=limited)


def _longer(run: LimitedRun, stretch: float) -> LimitedRun:
    return replace(run, windows=_stretched(run.windows, stretch))


@once_a_profile
def on_partition(profile: Profile, partition: Partition, physics: Physics) -> Profile:
    """`profile` as of the job on a part of its GPU that nobody else touches; shares are of it.

    A kernel slows with the SMs that it misses or, where that is worse, with the bandwidth: at some
    share of the whole GPU's bandwidth while busy, it fills a smaller part sooner. The SMs count
    as under a limit in a mix, where others take the rest of the bandwidth. L2 is not modelled:
    nobody measured what a kernel loses with it.
    """
    if partition.whole:
        return profile
    work = _work(profile, partition.gpu, physics)
    busier = _busy_s(profile, work, partition) / work.busy_s if work.busy_s else 1.0
    stretch = _step_on(profile, work, partition) / profile.step_s
    of_sms = dict.fromkeys(_OF_SMS, 1 / partition.sm_share)
    grown = of_sms | {"gract": busier, "dram_active": 1 / partition.bandwidth_share}
    there = _at_pace(profile, stretch)
    return replace(
        there,
        gpu_s=profile.gpu_s and profile.gpu_s * busier,
        counters=profile.counters and _thinned(profile.counters, stretch, grown),
        mps=there.mps and _probe_on(there.mps, profile, partition, physics),
        trace=profile.trace and _trace_on(profile, profile.trace, partition, physics),
    )


class _Work(NamedTuple):
    """What the GPU does for a step: kernels in turn; without a trace, one that stands for all.

    Attributes:
        duration_s: On the whole GPU, shape (kernels,).
        demand: SMs that each can use, as a share of the GPU's, shape (kernels,).
        gaps_s: Seconds between them, together.
        exponent: As of `limit_exponent`.
    """

    duration_s: Floats
    demand: Floats
    gaps_s: float
    exponent: float

    @property
    def busy_s(self) -> float:
        return float(self.duration_s.sum())


# Of a step, where it is not known how long it keeps the GPU busy: midway.
_HALF = 0.5


def _work(profile: Profile, gpu: Gpu, physics: Physics) -> _Work:
    played = replay_trace(profile, gpu.sms, physics.packing)
    if played is None:
        busy_s = _HALF * profile.step_s if profile.gpu_s is None else profile.gpu_s
        return _Work(np.array([busy_s]), np.ones(1), 0.0, kernel_exponent(profile, gpu))
    gaps_s = played.gap_s * len(played.demand)
    exponent = limit_exponent(profile, gpu, physics.packing, physics.bandwidth)
    return _Work(played.duration_s, played.demand, gaps_s, exponent)


def _busy_s(profile: Profile, work: _Work, partition: Partition) -> float:
    slower = slowdowns(work.demand, profile, partition, work.exponent)
    return float((work.duration_s * slower).sum())


def _step_on(profile: Profile, work: _Work, partition: Partition) -> float:
    """Seconds of a step there: the slower of host and GPU sets the pace, as in a replay."""
    return max(profile.step_s, _busy_s(profile, work, partition) + work.gaps_s)


def _trace_on(
    profile: Profile, trace: KernelTrace, partition: Partition, physics: Physics
) -> KernelTrace:
    gpu = partition.gpu
    exponent = limit_exponent(profile, gpu, physics.packing, physics.bandwidth)
    slower = slowdowns(demand(trace, gpu.sms, physics.packing), profile, partition, exponent)
    return replace(trace, duration_us=tuple((np.asarray(trace.duration_us) * slower).tolist()))


def _probe_on(
    probe: MpsProbe, profile: Profile, partition: Partition, physics: Physics
) -> MpsProbe:
    """`probe` at the same per cents of the partition: computed, as limits are without mates."""
    work = _work(profile, partition.gpu, replace(physics, bandwidth=1.0))
    whole_s = _step_on(profile, work, partition)

    def limited(run: LimitedRun) -> LimitedRun:
        left = partition.limited(run.limit_pct)
        step_s = probe.unlimited.step_s * _step_on(profile, work, left) / whole_s
        return replace(_longer(run, step_s / run.step_s), sms=left.sms)

    return replace(
        probe,
        unlimited=replace(probe.unlimited, sms=partition.sms),
        limited=tuple(map(limited, probe.limited)),
    )
