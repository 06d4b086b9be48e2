"""How long each kernel of a step takes on another GPU, from how long it took on this one.

A trace has neither operations nor bytes, so a kernel's time is divided among what may have bound
it: its start, arithmetic, DRAM, and all else on the chip (L2, issue, latency), which follows SMs
and clocks. Arithmetic and DRAM are known from the profile's counters for products and convolutions;
for other kernels from their class and length, since what fits into L2 does not go to DRAM. Each
part is scaled by the ratio of the two GPUs' rates for it; the parts of products overlap.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.attained_rates import tensor_share
from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_rates import GpuRates
from advisor.prediction.trace import Floats
from advisor.workload.kernel_trace import HOST_COPY
from advisor.workload.profile import Profile
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
    moved = _moved(kernels, rest_us, source, target)
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


def _moved(kernels: _Kernels, rest_us: Floats, source: RatedGpu, target: RatedGpu) -> Floats:
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
