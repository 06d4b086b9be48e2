"""What a profile becomes on a GPU on which nobody measured it.

Kernels are scaled one by one (`advisor.prediction.kernel_transfer`); memory, counters, power and
what MPS limits cost follow from them and the two GPUs. The host's part stays as it was measured:
it is of the host and not of the GPU.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np

from advisor.english import with_article
from advisor.errors import InvalidInput
from advisor.hardware.attained_rates import rates_of
from advisor.hardware.bare_numbers import check_power
from advisor.hardware.catalogue import Gpu, known_gpus
from advisor.hardware.gpu_partition import limited_sms
from advisor.hardware.gpu_rates import GpuRates
from advisor.measure.solo.traced_step import sm_limits
from advisor.prediction.kernel_pace import exponent_alone
from advisor.prediction.kernel_transfer import RatedGpu, arithmetic, scaled_us, tflops
from advisor.prediction.stretched_profile import engine_growth, stretched
from advisor.prediction.trace import Floats, waiting_step
from advisor.workload.kernel_trace import KernelTrace
from advisor.workload.machine_calibration import Calibration
from advisor.workload.measured import Counters, Memory
from advisor.workload.named_workloads import how_to_measure
from advisor.workload.plausible import LEAST_STEP_S
from advisor.workload.profile import LimitedRun, MpsProbe, Profile


def on_gpu(profile: Profile, target: Gpu, calibrations: Sequence[Calibration] = ()) -> Profile:
    """An estimate of what would be measured of the profile's workload on `target`.

    On the GPU on which it was measured it is the profile itself.

    Args:
        profile: Measured, on a GPU of the catalogue.
        target: Another GPU.
        calibrations: Of either GPU, whose measured rates count instead of its maker's.

    Raises:
        InvalidInput: The profile is of no GPU that the catalogue has, or an estimate already, or
            the rates of `target` are not known, or its power is more than its GPU draws.
    """
    source = _source(profile, calibrations)
    if target.key == source.gpu.key:
        return profile
    rates = _rates(target, calibrations)
    if rates is None:
        raise InvalidInput(
            f"how fast {target.key} computes is not known, so nothing can be estimated for it. "
            f"Measure there: {how_to_measure([profile.name])}."
        )
    return _moved(profile, source, RatedGpu(target, rates))


def _rates(gpu: Gpu, calibrations: Sequence[Calibration]) -> GpuRates | None:
    return rates_of(gpu, next((each for each in calibrations if each.gpu == gpu.key), None))


def _source(profile: Profile, calibrations: Sequence[Calibration]) -> RatedGpu:
    if profile.estimated_from is not None:
        raise InvalidInput(
            f"{profile.name}: it is an estimate itself. Use the profile that was measured "
            f"on {with_article(profile.estimated_from)}."
        )
    source = known_gpus().get(profile.gpu)
    rates = None if source is None else _rates(source, calibrations)
    if source is None or rates is None:
        raise InvalidInput(
            f"{profile.name}: measured on {profile.gpu}, of which no rates are known: only what "
            f"was measured on a GPU that `advisor gpus` lists can be translated."
        )
    check_power(profile, source)
    return RatedGpu(source, rates)


def _moved(profile: Profile, source: RatedGpu, target: RatedGpu) -> Profile:
    before_us, us = scaled_us(profile, source, source), scaled_us(profile, source, target)
    slower = float(us.sum() / before_us.sum())
    step_s = max(LEAST_STEP_S, profile.step_s * _stretch(profile, slower))
    stretch = step_s / profile.step_s
    moved = replace(
        profile,
        gpu=target.gpu.key,
        estimated_from=source.gpu.key,
        windows=stretched(profile.windows, stretch),
        gpu_s=profile.gpu_s and profile.gpu_s * slower,
        host_cpu_share=profile.host_cpu_share and profile.host_cpu_share / max(1.0, stretch),
        memory=_memory(profile.memory, source.gpu, target.gpu),
        mps=profile.mps and _probe(profile.mps, stretch, slower, source.gpu, target.gpu),
        trace=profile.trace and _trace(profile.trace, us, target.gpu),
        took=None,
        sm_exponent=_exponent(profile, source, target),
    )
    power_w, idle_power_w = _power(profile, moved, source.gpu, target.gpu)
    return replace(
        moved,
        counters=_counters(profile, moved, source, target),
        power_w=power_w,
        energy_j=power_w and power_w * step_s,
        idle_power_w=idle_power_w,
    )


def _stretch(profile: Profile, slower: float) -> float:
    """How much longer a step takes: the slower of host and GPU sets the pace, before and after.

    What of a step is neither, as the gaps between kernels, grows with it. Where the host waits for
    the GPU, both set the pace.
    """
    if (waiting := waiting_step(profile)) is not None:
        return waiting.changed(gpu=slower, gap=slower).seconds() / profile.step_s
    gpu_s, host_s = profile.gpu_s or profile.step_s, profile.host_s or 0.0
    return max(host_s, gpu_s * slower) / max(host_s, gpu_s)


# Of the exponent by which kernels slow with fewer SMs, for each unit of the log of bandwidth over
# arithmetic: of 26 jobs that fill both GPUs, it is less by 0.056 (standard deviation 0.038) on an
# H100, which has 0.70 times the bandwidth of an H200 for the same arithmetic. What limits cost them
# is 4.5 % off on an H100 by what an H200 told, and not 6.4 %; the other way 5.8 % and not 10.2 %.
_PER_BANDWIDTH = 0.155
_FURTHEST = log(2)  # between other GPUs nobody measured it


def _exponent(profile: Profile, source: RatedGpu, target: RatedGpu) -> float | None:
    """How its kernels slow with fewer SMs: the more, the less bandwidth binds them.

    None without a trace.
    """
    if profile.trace is None:
        return None
    what = arithmetic("conv", profile.workload.precision)
    there, here = (
        each.rates.bandwidth_gb_s / tflops(each.rates, what) for each in (target, source)
    )
    richer = min(_FURTHEST, max(-_FURTHEST, log(there / here)))
    return max(0.0, exponent_alone(profile, source.gpu) + _PER_BANDWIDTH * richer)


def _trace(trace: KernelTrace, us: Floats, target: Gpu) -> KernelTrace:
    """As many blocks of a kernel share an SM as on the source, if its threads allow."""
    most = sm_limits(target.compute_capability).blocks
    resident = tuple(
        max(1, min(fit, most, target.threads_per_sm // max(1, threads))) if fit else 0
        for fit, threads in zip(trace.resident_blocks, trace.threads, strict=True)
    )
    return replace(trace, duration_us=tuple(map(float, us.round(2))), resident_blocks=resident)


def _memory(memory: Memory, source: Gpu, target: Gpu) -> Memory:
    """Tensors stay; a context keeps local memory for every thread that the SMs can hold.

    So it grows with these: bare contexts hold 520 MiB on an H100, 420 on an A100, 310 on a V100 and
    260 on an RTX 3090.
    """
    if memory.device_mib is None or memory.context_mib is None:
        return memory
    threads = target.sms * target.threads_per_sm / (source.sms * source.threads_per_sm)
    return replace(memory, device_mib=memory.device_mib + memory.context_mib * (threads - 1))


# A limit that slows a job by less than this does not show how its kernels react to limits.
_FELT = 1.1


def _probe(probe: MpsProbe, stretch: float, slower: float, source: Gpu, target: Gpu) -> MpsProbe:
    """`probe` where steps take `stretch` times as long, and kernels `slower` times.

    Under a limit that a job feels, its kernels set the pace, whatever did without one.
    """
    whole_s = probe.unlimited.step_s

    def moved(run: LimitedRun) -> LimitedRun:
        sms = None if run.sms is None else limited_sms(run.limit_pct, target.sms)
        felt = run.step_s >= _FELT * whole_s
        longer = max(slower, stretch * whole_s / run.step_s) if felt else stretch
        return replace(run, sms=sms, windows=stretched(run.windows, longer))

    return MpsProbe(
        unlimited=moved(probe.unlimited),
        limited=tuple(map(moved, probe.limited)),
        memory=_memory(probe.memory, source, target),
    )


def _counters(
    before: Profile, after: Profile, source: RatedGpu, target: RatedGpu
) -> Counters | None:
    """The same bytes and operations, in another time and at other peaks."""
    counters = before.counters
    if counters is None:
        return None
    stretch = after.step_s / before.step_s
    busier = (after.busy_share or 1.0) / (before.busy_share or 1.0)
    what = arithmetic("conv", before.workload.precision)
    threads = source.gpu.threads_per_sm / target.gpu.threads_per_sm
    bandwidth = source.rates.bandwidth_gb_s / target.rates.bandwidth_gb_s
    products = tflops(source.rates, what) / tflops(target.rates, what)
    fuller = _fullness(after, target.gpu) / _fullness(before, source.gpu)
    return replace(
        counters,
        gract=min(1.0, counters.gract * engine_growth(before, busier * stretch) / stretch),
        sm_active=_share(counters.sm_active, busier * fuller),
        sm_occupancy=_share(counters.sm_occupancy, busier * threads),
        tensor_active=_share(counters.tensor_active, products / stretch),
        dram_active=_share(counters.dram_active, bandwidth / stretch),
        pcie_rx_mib_s=counters.pcie_rx_mib_s and counters.pcie_rx_mib_s / stretch,
        pcie_tx_mib_s=counters.pcie_tx_mib_s and counters.pcie_tx_mib_s / stretch,
    )


def _share(share: float | None, ratio: float) -> float | None:
    return None if share is None else min(1.0, share * ratio)


def _fullness(profile: Profile, gpu: Gpu) -> float:
    """Mean share of the GPU's SMs that the kernels of the profile can use, 0..1."""
    trace = profile.trace
    if trace is None:
        return 1.0
    filled = np.minimum(1.0, np.asarray(trace.blocks) / gpu.sms)
    return max(1e-3, float(np.average(filled, weights=np.asarray(trace.duration_us) + 1e-9)))


def _power(
    before: Profile, after: Profile, source: Gpu, target: Gpu
) -> tuple[float | None, float | None]:
    """Power and idle power: the same shares of the limit, as far as the GPU works."""
    limit_w, there_w = source.power_limit_w, target.power_limit_w
    if before.power_w is None or limit_w is None or there_w is None:
        return None, None
    ratio, idle_w = there_w / limit_w, before.idle_power_w or 0.0
    busier = (after.busy_share or 1.0) / (before.busy_share or 1.0)
    power_w = min(there_w, ratio * (idle_w + (before.power_w - idle_w) * busier))
    return power_w, before.idle_power_w and before.idle_power_w * ratio
