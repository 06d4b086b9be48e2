"""Estimates a profile on a GPU on which it was not measured; the host's part stays as measured.

A kernel's time is divided among its start, arithmetic, DRAM, and all else on the chip (L2, issue,
latency), by counters or its class. Each part is scaled by the ratio of the GPUs' rates for it.
"""

from dataclasses import dataclass, replace
from math import log
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput, with_article
from advisor.files.units import LEAST_STEP_S
from advisor.hardware.gpus import Gpu, GpuRates, known_gpus
from advisor.hardware.machine import Counters
from advisor.hardware.partition import limited_sms, rates_of, sm_limits, tensor_share
from advisor.prediction.host import engine_growth, on_host
from advisor.prediction.trace import Floats, exponent_alone, waiting_step
from advisor.workload.catalogue import how_to_measure
from advisor.workload.profile import (
    HOST_COPY,
    QUEUED_COPY,
    KernelTrace,
    LimitedRun,
    Memory,
    MpsProbe,
    Profile,
)
from advisor.workload.profile_checks import at_pace, check_power, longer, stretched
from advisor.workload.spec import Precision

# A kernel that does nothing takes about this long on an H100 or H200: the start and end of a grid.
START_US = 2.0

# Share of a kernel's time that DRAM bounds where its data exceed L2 by far: how 30,000 kernels of
# 71 workloads differ between an H200 and an H100, which differ in DRAM alone.
_DRAM_SHARE = {
    "elementwise": 0.8,
    "softmax": 1.0,
    "optimizer": 1.0,
    "copy": 0.8,
    "memset": 0.8,
    "sort": 0.7,
    "layout": 0.7,
    "reduce": 0.4,
    "norm": 0.3,
    "other": 0.3,
    "embedding": 0.15,
    "pooling": 0.1,
    "loss": 0.1,
}
_PRODUCTS = ("gemm", "conv", "attention", "recurrent")

_LEAST_US = 1e-9  # where nothing takes longer than a start

# Of the same kernels: as much of a kernel's data as this share of L2 may still be there.
_L2_KEPT = 0.5
_MIB_PER_US_OF_GB_S = 1e3 / 2**20

# Share of the attained rate at which FP32 products compute: those of GPT-2 on an H100, and those of
# over 1 ms on an A100 and a V100 in NeuSight's artifact (ASPLOS'25, sitar-lab/NeuSight).
_FP32_BUSY = 1.0

# Stand-ins for counters that a profile lacks: those of the median workload on an H200.
_TENSOR_USUAL, _DRAM_USUAL = 0.2, 0.15

# How parts that overlap add up: as the norm of this order, between their sum (1) and the longest.
_OVERLAP = 2.0

Arithmetic = Literal["fp32", "tf32", "fp16", "bf16"]


def arithmetic(kind: str, precision: Precision) -> Arithmetic:
    """Return the format in which kernels of the class `kind` compute, in a job of `precision`.

    Torch's own switches let convolutions and recurrent layers use TF32, and products not.
    """
    if precision == "default":
        return "tf32" if kind in ("conv", "recurrent") else "fp32"
    return "bf16" if precision == "amp" else precision


def tflops(rates: GpuRates, what: Arithmetic) -> float:
    """Return the rate of a GPU for arithmetic of this kind, 1e12 operations a second.

    Without tensor cores for a format it is computed in FP32.
    """
    half = what == "fp16" or (what == "bf16" and rates.tf32_tflops is not None)
    peak = rates.fp16_tflops if half else rates.tf32_tflops if what == "tf32" else None
    return peak or rates.fp32_tflops


@dataclass(frozen=True, slots=True)
class RatedGpu:
    """A GPU and the rates that it attains."""

    gpu: Gpu
    rates: GpuRates


class _Kernels(NamedTuple):
    """The kernels of a round of `steps` steps; columns of shape (kernels,)."""

    kinds: NDArray[np.str_]
    us: Floats
    blocks: Floats
    steps: int


def scaled_us(profile: Profile, source: RatedGpu, target: RatedGpu) -> Floats:
    """Return microseconds of each kernel of the profile's trace on `target`, shape (kernels,).

    `profile` was measured on `source`. Without a trace the whole time in which its GPU was busy
    counts as one product.
    """
    kinds, us, blocks = ["gemm"], [1e6 * (profile.gpu_s or profile.step_s)], [np.inf]
    if (trace := profile.trace) is not None:
        kinds, us = [trace.classes[at] for at in trace.class_of], [*trace.duration_us]
        blocks = [*trace.blocks]
    steps = 1 if trace is None else trace.steps
    columns = np.array(kinds), np.array(us, np.float64), np.array(blocks, np.float64)
    kernels = _Kernels(*columns, steps)
    start_us = np.minimum(kernels.us, START_US)
    rest_us = kernels.us - start_us
    slower = source.rates.bandwidth_gb_s / target.rates.bandwidth_gb_s
    dram = _dram_share(kernels, rest_us, source, target)
    moved = (1 - dram) * _on_chip(kernels, source, target) + dram * slower
    computed = _computed(profile, kernels, rest_us, source, target)
    factor = np.where(np.isin(kernels.kinds, _PRODUCTS), computed, moved)
    clock = source.rates.clock_mhz / target.rates.clock_mhz
    return np.where(
        np.isin(kernels.kinds, (HOST_COPY, QUEUED_COPY)),
        kernels.us,
        start_us * clock + rest_us * factor,
    )


def _on_chip(kernels: _Kernels, source: RatedGpu, target: RatedGpu) -> Floats:
    """Return the factor on time that follows SMs and clocks, by the SMs that grids can fill."""
    before, after = (each.rates.clock_mhz * _filled(kernels, each) for each in (source, target))
    return np.asarray(before / after)


def _filled(kernels: _Kernels, gpu: RatedGpu) -> Floats:
    """Return the SMs that each kernel can use: all for a kernel without blocks."""
    return np.where(kernels.blocks > 0, np.minimum(kernels.blocks, gpu.gpu.sms), gpu.gpu.sms)


def _dram_share(kernels: _Kernels, rest_us: Floats, source: RatedGpu, target: RatedGpu) -> Floats:
    """Return the share of each kernel's time that DRAM would bound with the L2 of `target`."""
    usual = np.array([_DRAM_SHARE.get(kind, 0.0) for kind in kernels.kinds])
    # A grid that leaves SMs idle cannot ask for all of the bandwidth.
    share = usual * _filled(kernels, source) / source.gpu.sms
    touched_mib = share * rest_us * source.rates.bandwidth_gb_s * _MIB_PER_US_OF_GB_S
    kept_mib = _L2_KEPT * (target.gpu.l2_mib or 0.0)
    beyond_l2 = 1 - np.minimum(1.0, kept_mib / np.maximum(touched_mib, 1e-9))
    return np.asarray(share * beyond_l2)


def _computed(
    profile: Profile, kernels: _Kernels, rest_us: Floats, source: RatedGpu, target: RatedGpu
) -> Floats:
    """Return the factor on the time of products and convolutions."""
    formats = [arithmetic(kind, profile.workload.precision) for kind in kernels.kinds]
    fewer = _filled(kernels, source) / source.gpu.sms * target.gpu.sms / _filled(kernels, target)
    rates = [tflops(source.rates, each) / tflops(target.rates, each) for each in formats]
    products, counters = np.isin(kernels.kinds, _PRODUCTS), profile.counters
    # Share of its time that each product's arithmetic would take at attained rates, 0..1.
    on_tensor = products & (np.array(formats) != "fp32")
    tensor, active = _TENSOR_USUAL, None if counters is None else counters.tensor_active
    if active is not None and on_tensor.any():
        active_us = active * profile.step_s * 1e6 * kernels.steps / tensor_share(source.gpu)
        tensor = min(1.0, active_us / (_LEAST_US + float(rest_us[on_tensor].sum())))
    busy = np.where(on_tensor, tensor, _FP32_BUSY)
    # Share of their time for which products keep DRAM busy: the other kernels leave that of it.
    dram, active = _DRAM_USUAL, None if counters is None else counters.dram_active
    if active is not None and products.any():
        moved_us = _dram_share(kernels, rest_us, source, source) * rest_us
        used_us = active * profile.step_s * 1e6 * kernels.steps
        left_us = used_us - float(moved_us[~products].sum())
        dram = min(1.0, max(0.0, left_us / (_LEAST_US + float(rest_us[products].sum()))))
    moving = np.full_like(busy, dram)
    used = busy**_OVERLAP + moving**_OVERLAP
    before = np.array([busy, moving, np.maximum(0.0, 1 - used) ** (1 / _OVERLAP)])
    bandwidth = np.full_like(busy, source.rates.bandwidth_gb_s / target.rates.bandwidth_gb_s)
    slower = np.array([np.array(rates) * fewer, bandwidth, _on_chip(kernels, source, target)])
    sums = ((parts**_OVERLAP).sum(axis=0) ** (1 / _OVERLAP) for parts in (before * slower, before))
    return np.asarray(np.divide(*sums))


def on_gpu(profile: Profile, target: Gpu) -> Profile:
    """Estimate the profile of its workload on `target`; the same profile on its own GPU.

    Raises:
        InvalidInput: The profile is an estimate itself, draws more power than its GPU, or the rates
            of one of the GPUs are unknown.
    """
    if profile.estimated_from is not None:
        raise InvalidInput(
            f"{profile.name} is an estimate itself. Use the profile that was measured on "
            f"{with_article(profile.estimated_from)}."
        )
    source = known_gpus().get(profile.gpu)
    source_rates = None if source is None else rates_of(source)
    if source is None or source_rates is None:
        raise InvalidInput(
            f"{profile.name} was measured on {profile.gpu}, whose rates are unknown. Use a "
            "profile measured on a GPU of `advisor gpus`."
        )
    check_power(profile, source)
    if target.key == source.key:
        return profile
    rates = rates_of(target)
    if rates is None:
        raise InvalidInput(
            f"the speed of {target.key} is unknown, so nothing can be estimated for it. Measure "
            f"there: {how_to_measure([profile.name])}."
        )
    return _moved(profile, RatedGpu(source, source_rates), RatedGpu(target, rates))


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
        epoch_end=profile.epoch_end and profile.epoch_end.changed(steps=stretch),
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
    """Return the factor on a step, of which the slower of host and GPU sets the pace, or both."""
    if (waiting := waiting_step(profile)) is not None:
        return waiting.growth(gpu=slower, gap=slower)
    gpu_s, host_s = profile.gpu_s or profile.step_s, min(profile.host_s or 0.0, profile.step_s)
    return max(host_s, gpu_s * slower) / max(host_s, gpu_s)


def on_host_of(profile: Profile, other: Profile) -> Profile:
    """Convert `profile` to the host of `other`, the same job measured on another GPU.

    The step is that of `other`, stretched by how much longer the kernels of `profile` take. So a
    GPU with faster kernels never has the longer step. Without both sides of both it is unchanged.
    """
    host_s, gpu_s, other_s = other.host_s, profile.gpu_s, other.gpu_s
    if not (profile.host_s and host_s and gpu_s and other_s):
        return profile
    if (profile.host_s, profile.host_check_s) == (host_s, other.host_check_s):
        return profile
    stretch = _stretch(other, gpu_s / other_s)
    there = on_host(profile, host_s / profile.host_s)
    probe, gpus = there.mps, known_gpus()
    if probe and other.mps and gpus.keys() >= {profile.gpu, other.gpu}:
        # A limit shows its cost on the faster host, and is hidden by the slower.
        pair = gpus[other.gpu], gpus[profile.gpu]
        probe = replace(_probe(other.mps, stretch, gpu_s / other_s, *pair), memory=probe.memory)
    return replace(
        at_pace(there, other.step_s * stretch / there.step_s),
        mps=probe,
        host_s=host_s,
        host=other.host,
        host_check_s=other.host_check_s,
        host_cpu_share=other.host_cpu_share and other.host_cpu_share / max(1.0, stretch),
        host_from=other.host_gpu,
        cores=other.cores,
        epoch_end=other.epoch_end and other.epoch_end.changed(steps=stretch),
    )


# Of the exponent by which kernels slow with fewer SMs, for each unit of the log of bandwidth over
# arithmetic: of 26 jobs that fill both GPUs, it is less by 0.056 (standard deviation 0.038) on an
# H100, which has 0.70 times the bandwidth of an H200 for the same arithmetic. The cost of limits is
# 4.5 % off on an H100 by an H200's exponents, and not 6.4 %; the other way 5.8 % and not 10.2 %.
_PER_BANDWIDTH = 0.155
_FURTHEST = log(2)  # it was not measured between other GPUs


def _exponent(profile: Profile, source: RatedGpu, target: RatedGpu) -> float | None:
    """Estimate `sm_exponent`: higher where bandwidth binds kernels less; None without a trace."""
    if profile.trace is None:
        return None
    used = arithmetic("conv", profile.workload.precision)
    after, before = (
        each.rates.bandwidth_gb_s / tflops(each.rates, used) for each in (target, source)
    )
    richer = min(_FURTHEST, max(-_FURTHEST, log(after / before)))
    return max(0.0, exponent_alone(profile, source.gpu) + _PER_BANDWIDTH * richer)


def _trace(trace: KernelTrace, us: Floats, target: Gpu) -> KernelTrace:
    """Keep as many blocks of a kernel on an SM as on the source, if the SM's threads allow."""
    most = sm_limits(target.compute_capability).blocks
    resident = tuple(
        max(1, min(fit, most, target.threads_per_sm // max(1, threads))) if fit else 0
        for fit, threads in zip(trace.resident_blocks, trace.threads, strict=True)
    )
    return replace(trace, duration_us=tuple(map(float, us.round(2))), resident_blocks=resident)


def _memory(memory: Memory, source: Gpu, target: Gpu) -> Memory:
    """Scale the context, which keeps local memory for every thread that the SMs can hold."""
    if memory.device_mib is None or memory.context_mib is None:
        return memory
    threads = target.sms * target.threads_per_sm / (source.sms * source.threads_per_sm)
    return replace(memory, device_mib=memory.device_mib + memory.context_mib * (threads - 1))


# A limit that slows a job by less than this does not show how its kernels react to limits.
_FELT = 1.1


def _probe(probe: MpsProbe, stretch: float, slower: float, source: Gpu, target: Gpu) -> MpsProbe:
    """Convert `probe` to steps that take `stretch` times as long, and kernels `slower` times."""
    whole_s = probe.unlimited.step_s

    def moved(run: LimitedRun) -> LimitedRun:
        sms = None if run.sms is None else limited_sms(run.limit_pct, target.sms)
        # Under a limit that slows a job its kernels set the pace, even if its host did without.
        felt = run.step_s >= _FELT * whole_s
        by = max(slower, stretch * whole_s / run.step_s) if felt else stretch
        return replace(longer(run, by), sms=sms)

    memory = _memory(probe.memory, source, target)
    return MpsProbe(moved(probe.unlimited), tuple(map(moved, probe.limited)), memory)


def _counters(
    before: Profile, after: Profile, source: RatedGpu, target: RatedGpu
) -> Counters | None:
    """Return counters of the same bytes and operations, in another time and at other peaks."""

    def share(before: float | None, ratio: float) -> float | None:
        return None if before is None else min(1.0, before * ratio)

    counters = before.counters
    if counters is None:
        return None
    stretch = after.step_s / before.step_s
    busier = (after.busy_share or 1.0) / (before.busy_share or 1.0)
    used = arithmetic("conv", before.workload.precision)
    threads = source.gpu.threads_per_sm / target.gpu.threads_per_sm
    bandwidth = source.rates.bandwidth_gb_s / target.rates.bandwidth_gb_s
    products = tflops(source.rates, used) / tflops(target.rates, used)
    fuller = _fullness(after, target.gpu) / _fullness(before, source.gpu)
    return replace(
        counters,
        gract=min(1.0, counters.gract * engine_growth(before, busier * stretch) / stretch),
        sm_active=share(counters.sm_active, busier * fuller),
        sm_occupancy=share(counters.sm_occupancy, busier * threads),
        tensor_active=share(counters.tensor_active, products / stretch),
        dram_active=share(counters.dram_active, bandwidth / stretch),
        pcie_rx_mib_s=counters.pcie_rx_mib_s and counters.pcie_rx_mib_s / stretch,
        pcie_tx_mib_s=counters.pcie_tx_mib_s and counters.pcie_tx_mib_s / stretch,
    )


def _fullness(profile: Profile, gpu: Gpu) -> float:
    """Return the mean share of the GPU's SMs that the kernels of the profile can use, 0..1."""
    if (trace := profile.trace) is None:
        return 1.0
    filled = np.minimum(1.0, np.asarray(trace.blocks) / gpu.sms)
    return max(1e-3, float(np.average(filled, weights=np.asarray(trace.duration_us) + 1e-9)))


def _power(
    before: Profile, after: Profile, source: Gpu, target: Gpu
) -> tuple[float | None, float | None]:
    """Return power and idle power: the same shares of the limit, as far as the GPU works."""
    limit_w, most_w = source.power_limit_w, target.power_limit_w
    if before.power_w is None or limit_w is None or most_w is None:
        return None, None
    ratio, idle_w = most_w / limit_w, before.idle_power_w or 0.0
    busier = (after.busy_share or 1.0) / (before.busy_share or 1.0)
    power_w = min(most_w, ratio * (idle_w + (before.power_w - idle_w) * busier))
    return power_w, before.idle_power_w and before.idle_power_w * ratio
