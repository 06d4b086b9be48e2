"""The one place that moves a profile: to a host of another speed, an MPS limit, a part of the GPU.

A step's host path is the host's and not the workload's: on another machine, or in another minute
on a virtual one, the same Python and the same launches take longer or shorter. A fixed piece of
host work (`advisor.measure.process.cores`) tells by how much.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from math import exp, inf, log
from typing import NamedTuple

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu, known_gpus
from advisor.hardware.gpu_partition import Partition
from advisor.prediction.cache import once_a_profile
from advisor.prediction.fewer_sms import busy_slowdown, slowdown_on
from advisor.prediction.kernel_pace import exponent_alone, slowdowns, told_exponent
from advisor.prediction.mix_prediction import Interval
from advisor.prediction.physics import Physics
from advisor.prediction.trace import Floats, demand, replay_trace
from advisor.workload.host_side import HostSide
from advisor.workload.kernel_trace import KernelTrace
from advisor.workload.measured import Counters, Window
from advisor.workload.plausible import check_number
from advisor.workload.profile import LimitedRun, MpsProbe, Profile

_OF_SMS = ("sm_active", "sm_occupancy", "tensor_active")
_OF_BANDWIDTH = ("dram_active", "memory_utilization")
_RATES = ("pcie_rx_mib_s", "pcie_tx_mib_s")
_SHARES = tuple(each.name for each in fields(Counters) if each.name not in ("source", *_RATES))


# A check of a twentieth of a second is a noisy measure of the seconds after it, and is not all that
# a step does: over 114 solo runs of host-bound workloads on seven hosts, log steps followed log
# checks with this slope, which leaves 9 % of a step where the profile alone leaves 24 %.
_TRUST = 0.73


def host_slowdown(there_s: float, here_s: float) -> float:
    """How much longer host work takes where the host check takes `here_s` instead of `there_s`."""
    return float((here_s / there_s) ** _TRUST)


def host_slowdown_at(profile: Profile, gract: float) -> float:
    """How many times as slow a host is on which the job alone keeps the engine active so much.

    What the GPU does in a step stays, so it is the host that makes a longer one. 1.0 where the GPU
    sets the pace and is not active for less of the time.

    Args:
        profile: With a host path.
        gract: As nvidia-smi or DCGM show it for the job alone on the whole GPU, (0, 1].

    Raises:
        InvalidInput: `gract` is no such share, or the profile does not say how active the GPU is.
    """
    check_number("GPU utilisation", gract, 1.0, 0.01)
    if profile.counters is None or profile.host_s is None:
        raise InvalidInput(
            f"{profile.name}: what the host and what the GPU does of a step is not known, so a "
            f"utilisation tells nothing of the host. Leave it out."
        )
    longer = profile.counters.gract / gract
    if profile.host_s >= (profile.gpu_s or 0.0):
        return longer
    return longer * profile.step_s / profile.host_s if longer > 1 else 1.0


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
        host=profile.host and _slower(profile.host, slowdown),
        trace=trace,
        host_check_s=profile.host_check_s and profile.host_check_s * slowdown,
        sm_exponent=_kept_exponent(profile),
    )


def _kept_exponent(profile: Profile) -> float | None:
    """How its kernels slow with fewer SMs, which no host changes."""
    card = known_gpus().get(profile.gpu)
    return profile.sm_exponent if card is None else told_exponent(profile, card)


def _slower(host: HostSide, slowdown: float) -> HostSide:
    """`host` on a slower one; files stay as large."""
    times = {
        name: value and value * slowdown
        for name in ("main_s", "loader_s", "loader_cpu_s", "wait_s")
        if (value := getattr(host, name)) is not None
    }
    return replace(host, **times)


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

    Kernels slow as `advisor.prediction.kernel_pace` says; what they lose with L2 is not modelled
    apart from bandwidth, of which a slice has as much. `advisor.prediction.fewer_sms` answers for
    jobs without a trace.
    """
    if partition.whole:
        return profile
    busier = _busier(profile, partition, physics)
    stretch = step_on(profile, partition, physics).p50 / profile.step_s
    of_sms = dict.fromkeys(_OF_SMS, 1 / partition.sm_share)
    of_bandwidth = dict.fromkeys(_OF_BANDWIDTH, 1 / partition.bandwidth_share)
    grown = of_sms | of_bandwidth | {"gract": busier}
    there = _at_pace(profile, stretch)
    return replace(
        there,
        gpu_s=profile.gpu_s and profile.gpu_s * busier,
        counters=profile.counters and _thinned(profile.counters, stretch, grown),
        mps=there.mps and _probe_on(there.mps, profile, partition, physics),
        trace=profile.trace and _trace_on(profile, profile.trace, partition, physics),
        sm_exponent=told_exponent(profile, partition.gpu),
    )


# By how much the log of what kernels lose on a partition is off, as a share of it, for nine jobs in
# ten: under limits of an H200 and an H100, each told from the other limits of a probe, and without
# a probe. On MIG hardware, all of 14 steps of two networks were inside that others measured on an
# A100 and that were translated from an H100 (`research/slice_traces.py`).
_DOUBT, _DOUBT_WITHOUT_PROBE = 0.2, 0.25


class _Work(NamedTuple):
    """The kernels that the GPU runs for a step, in turn.

    Attributes:
        duration_s: On the whole GPU, shape (kernels,).
        demand: SMs that each can use, as a share of the GPU's, shape (kernels,).
        gaps_s: Seconds between them, together.
        exponent: As of `exponent_alone`.
    """

    duration_s: Floats
    demand: Floats
    gaps_s: float
    exponent: float

    def busy_s(self, profile: Profile, partition: Partition) -> float:
        slower = slowdowns(self.demand, profile, partition, self.exponent)
        return float((self.duration_s * slower).sum())


def _work(profile: Profile, gpu: Gpu, physics: Physics) -> _Work | None:
    """None without a trace."""
    played = replay_trace(profile, gpu.sms, physics.packing)
    if played is None:
        return None
    exponent = exponent_alone(profile, gpu)
    return _Work(played.duration_s, played.demand, played.gap_s * len(played.demand), exponent)


def _busier(profile: Profile, partition: Partition, physics: Physics) -> float:
    """How many times as long a step keeps the GPU busy there."""
    work = _work(profile, partition.gpu, physics)
    if work is None:
        return busy_slowdown(profile, partition)
    busy_s = float(work.duration_s.sum())
    return work.busy_s(profile, partition) / busy_s if busy_s else 1.0


def step_on(profile: Profile, partition: Partition, physics: Physics) -> Interval:
    """Seconds of a step there: the slower of host and GPU sets the pace, as in a replay."""
    work = _work(profile, partition.gpu, physics)
    if work is None:
        return slowdown_on(profile, partition).scaled(profile.step_s)
    busy_s, alone_s = work.busy_s(profile, partition), float(work.duration_s.sum())
    doubt = _DOUBT_WITHOUT_PROBE if profile.mps is None else _DOUBT
    end = doubt * log(busy_s / alone_s) if alone_s else 0.0
    return Interval(*(
        max(profile.step_s, busy_s * exp(away) + work.gaps_s) for away in (-end, 0.0, end)
    ))  # fmt: skip


def _trace_on(
    profile: Profile, trace: KernelTrace, partition: Partition, physics: Physics
) -> KernelTrace:
    gpu = partition.gpu
    exponent = exponent_alone(profile, gpu)
    slower = slowdowns(demand(trace, gpu.sms, physics.packing), profile, partition, exponent)
    return replace(trace, duration_us=tuple((np.asarray(trace.duration_us) * slower).tolist()))


def _probe_on(
    probe: MpsProbe, profile: Profile, partition: Partition, physics: Physics
) -> MpsProbe:
    """`probe` at the same per cents of the partition: computed, as limits are without mates."""
    whole_s = step_on(profile, partition, physics).p50

    def limited(run: LimitedRun) -> LimitedRun:
        left = partition.limited(run.limit_pct)
        step_s = probe.unlimited.step_s * step_on(profile, left, physics).p50 / whole_s
        return replace(_longer(run, step_s / run.step_s), sms=left.sms)

    return replace(
        probe,
        unlimited=replace(probe.unlimited, sms=partition.sms),
        limited=tuple(map(limited, probe.limited)),
    )
