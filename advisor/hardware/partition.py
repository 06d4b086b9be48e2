"""The part of a GPU that jobs use: all of it, what an MPS limit leaves, or a MIG instance.

Also how many blocks of a kernel an SM holds at once, and the rates that a GPU attains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement
from math import log

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import Capability, Gpu, GpuRates, capabilities, catalogue
from advisor.hardware.mig import packed, profile_of

# Compute slices of a GPU instance -> of a compute instance -> where in it that may start. Those
# of the 7g: NVML's mock of NVIDIA; the others follow from how many there may be of each.
_STARTS: dict[int, dict[int, tuple[int, ...]]] = {
    2: {1: (0, 1)},
    3: {1: (0, 1, 2), 2: (0,)},
    4: {1: (0, 1, 2, 3), 2: (0, 2)},
    7: {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 3: (0, 4), 4: (0,)},
}


@dataclass(frozen=True, slots=True)
class ComputeProfile:
    """One kind of compute instance inside one kind of GPU instance.

    It has SMs of its own and shares all else of the GPU instance (NVIDIA MIG User Guide, Concepts).

    Attributes:
        name: For ``nvidia-smi mig -cci``, e.g. ``"3c.7g.40gb"``; of the whole the instance's own.
        sms: Streaming multiprocessors of an instance; None if unknown.
        starts: First compute slices at which one may start: as many fit.
    """

    name: str
    compute_slices: int
    sms: int | None
    starts: tuple[int, ...]


def compute_profiles(gpu: Gpu, profile: str) -> tuple[ComputeProfile, ...]:
    """Return the compute instances that a GPU instance of `profile` offers, smallest first.

    If the offer of `gpu` is unknown, only the whole instance. On Ampere each slice has an equal
    share of the SMs; on later GPUs the whole has more than its slices.

    Raises:
        UnknownName: `gpu` has no MIG profile of that name.
    """
    row = profile_of(gpu, profile)
    cuts = _STARTS.get(row.compute_slices, {}) if "compute_instances" in gpu.sources else {}
    sms = row.sms if gpu.architecture == "Ampere" else None
    parts = (
        ComputeProfile(f"{size}c.{row.name}", size, sms and sms * size // row.compute_slices, at)
        for size, at in cuts.items()
    )
    return (*parts, ComputeProfile(row.name, row.compute_slices, row.sms, (0,)))


def place_compute(gpu: Gpu, profile: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the first compute slice of each compute instance, in order, in one GPU instance.

    `sizes` are their compute slices, e.g. ``(3, 4)`` of ``3c + 4c``.

    Raises:
        InvalidInput: `gpu` has no such profile, or its instances are not cut into such sizes.
        NothingFits: One cannot hold those at once.
    """
    starts = _starts(gpu, profile)
    words = "+".join(f"{size}c" for size in sizes)
    if any(size not in starts for size in sizes):
        offers = ", ".join(f"{size}c" for size in starts)
        unsure = "" if "compute_instances" in gpu.sources else ", as far as is known"
        raise InvalidInput(
            f"{profile} of {gpu.key} cannot be cut into {words}. It offers {offers}{unsure}."
        )
    places = packed([(starts[size], size) for size in sizes])
    if places is None:
        offers = "; ".join(f"{size}c at {', '.join(map(str, at))}" for size, at in starts.items())
        raise NothingFits(
            f"one {profile} of {gpu.key} cannot hold {words}: some would share one of its "
            f"{max(starts)} compute slices. Places to start: {offers}."
        )
    return places


@cache
def compute_sets(gpu: Gpu, profile: str) -> tuple[tuple[int, ...], ...]:
    """Return the maximal sets of compute instances in a GPU instance, by sizes, largest first."""
    starts = _starts(gpu, profile)

    def fits(sizes: Sequence[int]) -> bool:
        return packed([(starts[size], size) for size in sizes]) is not None

    slices, sizes = max(starts), sorted(starts, reverse=True)
    sets = (
        each
        for count in range(1, slices + 1)
        for each in combinations_with_replacement(sizes, count)
        if sum(each) <= slices and fits(each) and not any(fits((*each, more)) for more in sizes)
    )
    return tuple(sorted(sets, reverse=True))


def _starts(gpu: Gpu, profile: str) -> dict[int, tuple[int, ...]]:
    return {each.compute_slices: each.starts for each in compute_profiles(gpu, profile)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A part of a GPU: all of it, what an MPS limit leaves, a MIG instance, a part of one.

    Its SMs run at the clock of the GPU.

    Attributes:
        sms: SMs that kernels may use.
        bandwidth_share: Of the GPU's DRAM bandwidth and L2, (0, 1]: a memory slice of MIG is an
            equal part of both (NVIDIA MIG User Guide, Terminology); a limit takes neither.
        memory_mib: Device memory that its processes can have together.
    """

    gpu: Gpu
    sms: int
    bandwidth_share: float
    memory_mib: int

    @property
    def whole(self) -> bool:
        """True if it has all SMs and all of the bandwidth of the GPU."""
        return self.sm_share == self.bandwidth_share == 1.0

    @property
    def sm_share(self) -> float:
        """Share of the GPU's SMs, (0, 1]."""
        return self.sms / self.gpu.sms

    @property
    def as_gpu(self) -> Gpu:
        """The partition as a GPU with fewer SMs; the GPU itself if it has all."""
        return self.gpu if self.sms == self.gpu.sms else _with_sms(self.gpu, self.sms)

    def limited(self, limit_pct: float) -> "Partition":
        """Return the part of it that an MPS limit leaves, in per cent of its SMs."""
        return replace(self, sms=limited_sms(limit_pct, self.sms))


@cache  # answers are known by their GPU
def _with_sms(gpu: Gpu, sms: int) -> Gpu:
    return replace(gpu, sms=sms)


def whole_gpu(gpu: Gpu) -> Partition:
    """Return all of `gpu`, not in MIG mode."""
    return Partition(gpu=gpu, sms=gpu.sms, bandwidth_share=1.0, memory_mib=gpu.usable_mib)


@cache  # a search asks thousands of times
def partition_of(gpu: Gpu, profile: str | None, slices: int | None = None) -> Partition:
    """Return a MIG instance of `profile`, or a compute instance of so many `slices` of it.

    Without a profile all of `gpu`. If its number of SMs is unknown, a compute instance has its
    slices' share of the instance's.

    Raises:
        UnknownName: `gpu` has no MIG profile of that name.
    """
    if profile is None:
        return whole_gpu(gpu)
    instance = profile_of(gpu, profile)
    slices = slices or instance.compute_slices
    offered = {each.compute_slices: each.sms for each in compute_profiles(gpu, profile)}
    whole = instance.sms or gpu.sms * instance.compute_slices // 8
    return Partition(
        gpu=gpu,
        sms=min(gpu.sms, offered[slices] or whole * slices // instance.compute_slices),
        bandwidth_share=instance.memory_slices / gpu.memory_slices,
        # Catalogues state an instance's memory before the driver has taken its own.
        memory_mib=min(instance.memory_mib, gpu.usable_mib),
    )


def limited_sms(limit_pct: float, sms: int) -> int:
    """Return the SMs that an MPS limit leaves to its client, out of `sms`.

    An H200 gave 18, 36, 56, 74, 92 and 112 of its 132 SMs under 14, 28, 43, 57, 71 and 86 per
    cent: the even number below that share, because SMs come in pairs.
    """
    return sms if limit_pct == 100 else min(sms, max(2, 2 * int(limit_pct * sms / 200)))


def limit_shares(limits_pct: Sequence[float], sms: int) -> list[float]:
    """Share of `sms` SMs that each MPS limit leaves to its client."""
    return [limited_sms(each, sms) / sms for each in limits_pct]


_WARP = 32

# Of all capabilities below: registers of an SM, in four equal parts, each warp's in steps of 256.
_REGISTERS, _PARTS, _REGISTER_STEP = 65_536, 4, 256

_SHARED_STEP = 128


def sm_limits(compute_capability: str) -> Capability:
    """Return the limits of an SM of `compute_capability`, e.g. ``"9.0"``.

    Raises:
        InvalidInput: Its limits are not in the catalogue.
    """
    if (limits := capabilities().get(compute_capability)) is not None:
        return limits
    raise InvalidInput(
        f"the limits of an SM of compute capability {compute_capability} are unknown. Known: "
        f"{', '.join(capabilities())}."
    )


def resident_blocks(limits: Capability, *, threads: int, registers: int, shared_bytes: int) -> int:
    """Return the blocks of a kernel that fit on one SM at once; at least 1, because it ran."""
    warps = -(-threads // _WARP)
    by_threads = limits.threads // (warps * _WARP)
    of_warp = max(1, -(-registers * _WARP // _REGISTER_STEP)) * _REGISTER_STEP
    by_registers = _REGISTERS // _PARTS // of_warp * _PARTS // warps
    steps = -(-(shared_bytes + limits.reserved_kib * 1024) // _SHARED_STEP)
    by_shared = limits.shared_kib * 1024 // (steps * _SHARED_STEP) if steps else limits.blocks
    return max(1, min(limits.blocks, by_threads, by_registers, by_shared))


# The share of its maker's rate that a GPU attains. FP32: best product of an A100 PCIe (0.93) and a
# V100 PCIe (0.95) among the timings in NeuSight's artifact (ASPLOS'25, sitar-lab/NeuSight), whose
# SMs have 64 lanes, as Turing's do; and of the same on an H100, whose SMs have 128,
# as all others here. Tensor cores: best product in TF32 on that H100; those of GPUs for graphics,
# with half of the rate or less to feed, are taken to attain what 64 lanes do. An H200 and another
# H100, measured afterwards, attain the same shares: 0.76 in FP32, 0.81 in
# TF32, 0.77 in FP16, 0.90 and 0.91 of their bandwidth.
_OF_64_LANES, _OF_128_LANES = 0.94, 0.80
_OF_TENSOR, _OF_SMALL_TENSOR = 0.74, 0.94
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
    """Return the attained rates of `gpu`; None if the catalogue has no rates for its kind."""
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
    lanes = _OF_64_LANES if sm_limits(gpu.compute_capability).lanes == 64 else _OF_128_LANES
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
    """Return the distance between the log rates of two GPUs; less for GPUs of one architecture."""
    first, second = rates_of(one), rates_of(other)
    if first is None or second is None:
        return float("inf")
    apart = sum(abs(log(getattr(first, name) / getattr(second, name))) for name in _RATES_NEEDED)
    return apart + 10 * (one.architecture != other.architecture)


def tensor_share(gpu: Gpu) -> float:
    """Share of its peak that products on tensor cores attain at most, 0..1."""
    small = sm_limits(gpu.compute_capability).for_graphics
    return _OF_SMALL_TENSOR if small else _OF_TENSOR
