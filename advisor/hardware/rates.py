"""Rates that a GPU attains: its maker's, less what best products and copies were seen to lose."""

from dataclasses import replace
from math import log

from advisor.hardware.gpus import Gpu, GpuRates, catalogue

# The share of its maker's rate that a GPU attains. FP32: best product of an A100 PCIe (0.93) and a
# V100 PCIe (0.95) among the timings in NeuSight's artifact (ASPLOS'25, sitar-lab/NeuSight), whose
# SMs have 64 lanes, as Turing's do; and of the same on an H100, whose SMs have 128,
# as all others here. Tensor cores: best product in TF32 on that H100; those of GPUs for graphics,
# with half of the rate or less to feed, are taken to attain what 64 lanes do. An H200 and another
# H100, measured afterwards, attain the same shares: 0.76 in FP32, 0.81 in
# TF32, 0.77 in FP16, 0.90 and 0.91 of their bandwidth.
_OF_64_LANES, _OF_128_LANES = 0.94, 0.80
_OF_TENSOR, _OF_SMALL_TENSOR = 0.74, 0.94
_WITH_64_LANES = ("7.0", "7.5", "8.0")
_FOR_GRAPHICS = ("7.5", "8.6", "8.9", "12.0", "12.1")
# Best addition, by the same timings: 0.85 of an A100, 0.91 of a V100 and 0.90 of an H100.
_OF_BANDWIDTH, _OF_A100_BANDWIDTH = 0.90, 0.85

# Watts that an SM takes for each GHz under arithmetic: with less, a GPU lowers its clock. An L4 has
# 0.6, and by NeuSight's timings attains 0.4 of its maker's rate; GPUs with more keep theirs.
_W_PER_SM_GHZ = 1.33

# GeForce cards run above their maker's boost clock as far as their power lets them, other GPUs do
# not. A tenth is usual; with it, steps of 13 networks of timm on an RTX 3090 are 8.1 % off, without
# it 10.6 %.
_GEFORCE_CLOCK = 1.1

_RATES_NEEDED = ("fp32_tflops", "fp16_tflops", "bandwidth_gb_s")


def rates_of(gpu: Gpu) -> GpuRates | None:
    """Attained rates of `gpu`; None if the catalogue has no rates for its kind."""
    rates = gpu.rates or _of_its_kind(gpu)
    if rates is None:
        return None
    if any("GeForce" in product for product in gpu.products):
        faster = _scaled(rates, _GEFORCE_CLOCK, _GEFORCE_CLOCK, rates.bandwidth_gb_s)
        rates = replace(faster, clock_mhz=_GEFORCE_CLOCK * rates.clock_mhz)
    clock = 1.0  # share of its highest clock at which its power limit lets it compute
    if gpu.power_limit_w is not None:
        sm_ghz = gpu.sms * rates.clock_mhz * 1e-3
        clock = min(1.0, gpu.power_limit_w / sm_ghz / _W_PER_SM_GHZ)
    lanes = _OF_64_LANES if gpu.compute_capability in _WITH_64_LANES else _OF_128_LANES
    ampere = gpu.compute_capability == "8.0"
    bandwidth = (_OF_A100_BANDWIDTH if ampere else _OF_BANDWIDTH) * rates.bandwidth_gb_s
    return _scaled(rates, clock * lanes, clock * tensor_share(gpu), bandwidth)


def _of_its_kind(gpu: Gpu) -> GpuRates | None:
    """Rates scaled from the nearest GPU of equal compute capability; None if there is none."""
    kin = (
        each for each in catalogue().values() if each.compute_capability == gpu.compute_capability
    )
    nearest = min(kin, key=lambda each: abs(each.sms - gpu.sms), default=None)
    if nearest is None or gpu.bandwidth_gb_s is None:
        return None
    assert nearest.rates is not None, "the catalogue has the rates of every GPU"
    share = gpu.sms / nearest.sms
    return _scaled(nearest.rates, share, share, gpu.bandwidth_gb_s)


def _scaled(rates: GpuRates, vector: float, tensor: float, bandwidth_gb_s: float) -> GpuRates:
    """`rates` times the shares for vector units and tensor cores, with another bandwidth."""
    tf32_tflops = rates.tf32_tflops
    return replace(
        rates,
        fp32_tflops=vector * rates.fp32_tflops,
        tf32_tflops=None if tf32_tflops is None else tensor * tf32_tflops,
        fp16_tflops=tensor * rates.fp16_tflops,
        bandwidth_gb_s=bandwidth_gb_s,
    )


def unlikeness(one: Gpu, other: Gpu) -> float:
    """Distance between the log rates of two GPUs; less for GPUs of one architecture."""
    first, second = rates_of(one), rates_of(other)
    if first is None or second is None:
        return float("inf")
    apart = sum(abs(log(getattr(first, name) / getattr(second, name))) for name in _RATES_NEEDED)
    return apart + 10 * (one.architecture != other.architecture)


def tensor_share(gpu: Gpu) -> float:
    """Share of its peak that products on tensor cores attain at most, 0..1."""
    return _OF_SMALL_TENSOR if gpu.compute_capability in _FOR_GRAPHICS else _OF_TENSOR
