"""What a profile becomes on a GPU on which nobody measured it.

Kernels are scaled one by one (`advisor.prediction.other_gpu`); memory, counters, power and
what MPS limits cost follow from them and the two GPUs. The host's part stays as it was measured:
it is of the host and not of the GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput, with_article
from advisor.hardware.gpus import Gpu, GpuRates, check_power, known_gpus, rates_of, tensor_share
from advisor.hardware.partition import limited_sms
from advisor.hardware.sm_limits import sm_limits
from advisor.prediction.host import engine_growth, stretched
from advisor.prediction.trace import Floats, exponent_alone, waiting_step
from advisor.workload.calibration import Calibration
from advisor.workload.catalogue import how_to_measure
from advisor.workload.kernel_trace import HOST_COPY, KernelTrace
from advisor.workload.profile import Counters, LimitedRun, Memory, MpsProbe, Profile
from advisor.workload.reading import LEAST_STEP_S
from advisor.workload.spec import Precision

# A kernel that does nothing takes about this long on an H100 or H200: the start and end of a grid.
START_US = 2.0

# Share of a kernel's time that DRAM bounds where its data exceed L2 by far: how 30,000 kernels of
# 71 workloads differ between an H200 and an H100, which differ in DRAM alone.
_DRAM_SHARE = {
    "elementwise": 0.8, "softmax": 1.0, "optimizer": 1.0, "copy": 0.8, "memset": 0.8, "sort": 0.7,
    "layout": 0.7, "reduce": 0.4, "norm": 0.3, "other": 0.3, "embedding": 0.15,
    "pooling": 0.1, "loss": 0.1,
}  # fmt: skip
_PRODUCTS = ("gemm", "conv", "attention", "recurrent")

_LEAST_US = 1e-9  # where nothing takes longer than a start

# Of the same kernels: as much of a kernel's data as this share of L2 may still be there.
_L2_KEPT = 0.5
_MIB_PER_US_OF_GB_S = 1e3 / 2**20

# Share of the attained rate at which FP32 products compute: those of GPT-2 on an H100, and those of
# over 1 ms on an A100 and a V100 in NeuSight's artifact (ASPLOS'25, sitar-lab/NeuSight).
_FP32_BUSY = 1.0

# What stands in where a profile has no counters: as of the median workload on an H200.
_TENSOR_USUAL, _DRAM_USUAL = 0.2, 0.15

# How parts that overlap add up: as the norm of this order, between their sum (1) and the longest.
_OVERLAP = 2.0

Arithmetic = Literal["fp32", "tf32", "fp16", "bf16"]


def arithmetic(kind: str, precision: Precision) -> Arithmetic:
    """What kernels of the class `kind` compute in, in a job of `precision`.

    Torch's own switches let convolutions and recurrent layers use TF32, and products not.
    """
    if precision == "default":
        return "tf32" if kind in ("conv", "recurrent") else "fp32"
    words: Mapping[str, Arithmetic] = {"tf32": "tf32", "amp": "bf16", "fp16": "fp16"}
    return words[precision]


def tflops(rates: GpuRates, what: Arithmetic) -> float:
    """Rate of a GPU for arithmetic of this kind, 1e12 operations a second.

    Without tensor cores for a format it is computed in FP32.
    """
    peak: float | None = rates.fp32_tflops
    if what == "tf32":
        peak = rates.tf32_tflops
    elif what == "fp16" or (what == "bf16" and rates.tf32_tflops is not None):
        peak = rates.fp16_tflops
    return peak or rates.fp32_tflops


@dataclass(frozen=True, slots=True)
class RatedGpu:
    """A GPU and the rates that it attains."""

    gpu: Gpu
    rates: GpuRates


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernels:
    """The kernels of a step; columns of shape (kernels,)."""

    kinds: NDArray[np.str_]
    us: Floats
    blocks: Floats


def scaled_us(profile: Profile, source: RatedGpu, target: RatedGpu) -> Floats:
    """Microseconds of each kernel of the profile's step on `target`, shape (kernels,).

    Without a trace, of the whole time in which its GPU was busy as if it were one product.

    Args:
        profile: Measured on `source`.
        source: Its GPU.
        target: Another, or the same.
    """
    kernels = _kernels(profile)
    start_us = np.minimum(kernels.us, START_US)
    rest_us = kernels.us - start_us
    is_product, is_of_host = np.isin(kernels.kinds, _PRODUCTS), kernels.kinds == HOST_COPY
    moved = _moving(kernels, rest_us, source, target)
    computed = _computed(profile, kernels, rest_us, source, target)
    clock = source.rates.clock_mhz / target.rates.clock_mhz
    there_us = start_us * clock + rest_us * np.where(is_product, computed, moved)
    return np.where(is_of_host, kernels.us, there_us)


def _kernels(profile: Profile) -> _Kernels:
    trace = profile.trace
    if trace is None:
        busy_us = 1e6 * (profile.gpu_s or profile.step_s)
        return _Kernels(kinds=np.array(["gemm"]), us=np.array([busy_us]), blocks=np.array([np.inf]))
    return _Kernels(
        kinds=np.array(trace.classes)[list(trace.class_of)],
        us=np.asarray(trace.duration_us, dtype=np.float64),
        blocks=np.asarray(trace.blocks, dtype=np.float64),
    )


def _on_chip(kernels: _Kernels, source: RatedGpu, target: RatedGpu) -> Floats:
    """How much longer what follows SMs and clocks takes, by the SMs that each grid can fill."""
    return (source.rates.clock_mhz * _filled(kernels, source)) / (
        target.rates.clock_mhz * _filled(kernels, target)
    )


def _filled(kernels: _Kernels, gpu: RatedGpu) -> Floats:
    """SMs that each kernel can use; what has no blocks counts as all."""
    return np.where(kernels.blocks > 0, np.minimum(kernels.blocks, gpu.gpu.sms), gpu.gpu.sms)


def _moving(kernels: _Kernels, rest_us: Floats, source: RatedGpu, target: RatedGpu) -> Floats:
    """How much longer kernels that mostly move data take."""
    slower = source.rates.bandwidth_gb_s / target.rates.bandwidth_gb_s
    there = _dram_share(kernels, rest_us, source, target)
    return (1 - there) * _on_chip(kernels, source, target) + there * slower


def _dram_share(kernels: _Kernels, rest_us: Floats, source: RatedGpu, target: RatedGpu) -> Floats:
    """Share of the time of each kernel that DRAM would bound with the L2 of `target`, 0..1.

    A grid that leaves SMs idle cannot ask for all of the bandwidth.
    """
    usual = np.array([_DRAM_SHARE.get(kind, 0.0) for kind in kernels.kinds])
    share = usual * _filled(kernels, source) / source.gpu.sms
    touched_mib = share * rest_us * source.rates.bandwidth_gb_s * _MIB_PER_US_OF_GB_S
    return np.asarray(share * _beyond_l2(touched_mib, target))


def _beyond_l2(touched_mib: Floats, gpu: RatedGpu) -> Floats:
    """Share of the data that L2 cannot have kept, 0..1."""
    kept_mib = _L2_KEPT * (gpu.gpu.l2_mib or 0.0)
    return np.asarray(1 - np.minimum(1.0, kept_mib / np.maximum(touched_mib, 1e-9)))


def _computed(
    profile: Profile, kernels: _Kernels, rest_us: Floats, source: RatedGpu, target: RatedGpu
) -> Floats:
    """How much longer products and convolutions take."""
    what = [arithmetic(kind, profile.workload.precision) for kind in kernels.kinds]
    fewer = _filled(kernels, source) / source.gpu.sms * target.gpu.sms / _filled(kernels, target)
    slower = (
        np.array([tflops(source.rates, each) / tflops(target.rates, each) for each in what]) * fewer
    )
    busy = _arithmetic_share(profile, kernels, rest_us, what, source.gpu)
    dram = _dram_share_of_products(profile, kernels, rest_us, source)
    moving = np.full_like(busy, dram)
    used = busy**_OVERLAP + moving**_OVERLAP
    parts = np.array([busy, moving, np.maximum(0.0, 1 - used) ** (1 / _OVERLAP)])
    bandwidth = np.full_like(busy, source.rates.bandwidth_gb_s / target.rates.bandwidth_gb_s)
    there = parts * np.array([slower, bandwidth, _on_chip(kernels, source, target)])
    return np.asarray(_together(there) / _together(parts))


def _together(parts: Floats) -> Floats:
    return np.asarray((parts**_OVERLAP).sum(axis=0) ** (1 / _OVERLAP))


def _arithmetic_share(
    profile: Profile, kernels: _Kernels, rest_us: Floats, what: list[Arithmetic], source: Gpu
) -> Floats:
    """Share of its time for which each product's arithmetic would take at attained rates, 0..1."""
    on_tensor = np.isin(kernels.kinds, _PRODUCTS) & (np.array(what) != "fp32")
    active = None if profile.counters is None else profile.counters.tensor_active
    if active is None or not on_tensor.any():
        return np.where(on_tensor, _TENSOR_USUAL, _FP32_BUSY)
    active_us = active * profile.step_s * 1e6 / tensor_share(source)
    share = min(1.0, active_us / (_LEAST_US + float(rest_us[on_tensor].sum())))
    return np.where(on_tensor, share, _FP32_BUSY)


def _dram_share_of_products(
    profile: Profile, kernels: _Kernels, rest_us: Floats, source: RatedGpu
) -> float:
    """Share of their time for which products keep DRAM busy: what other kernels leave of it."""
    products = np.isin(kernels.kinds, _PRODUCTS)
    active = None if profile.counters is None else profile.counters.dram_active
    if active is None or not products.any():
        return _DRAM_USUAL
    moved_us = _dram_share(kernels, rest_us, source, source) * rest_us
    others_us = float(moved_us[~products].sum())
    left_us = active * profile.step_s * 1e6 - others_us
    return min(1.0, max(0.0, left_us / (_LEAST_US + float(rest_us[products].sum()))))


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
