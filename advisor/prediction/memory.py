"""Device memory of a mix, in both meanings, and the risk that it does not fit.

Memory adds up over processes. `memory_mib` is what a process holds when nothing stops it: what
torch's caching allocator reserved plus the CUDA context. `memory_min_mib` is what it needs:
allocated at peak plus the context; that suffices only where the process is capped to it,
because one process's cache is never released for another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition, partition_of
from advisor.prediction.cache import once_a_profile
from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Mode, SharedPartition, Sharing
from advisor.sharing.traversal import memories, partitions
from advisor.workload.plausible import check
from advisor.workload.profile import Profile

Bools = NDArray[np.bool_]
FloatOrArray = TypeVar("FloatOrArray", float, Floats)

# What the MPS server holds of the device, as nvidia-smi listed it on an H200, driver 580.159.04.
MPS_SERVER_MIB = 66.0

# Convolutions do with smaller workspaces where memory is short, and what is left in pieces between
# live tensors nobody can use: so other jobs give up a third as much of their caches. Of 270 mixes
# and 36 jobs alone on an H200 made to look like smaller cards, either set alone tells the same.
_RIGID = 0.33
# Share of its GPU time in convolutions from which a job counts as one of these: a choice.
_CONVOLUTIONAL = 0.1

Z95 = 1.645  # standard normal quantile


@dataclass(frozen=True, slots=True)
class Context:
    """How a CUDA context's size depends on where it lives, fitted to measured processes.

    Attributes:
        usual_mib: Size to assume where the driver does not say.
        per_sm_mib: What each SM that an MPS limit or an instance takes away saves: the context
            keeps local memory for every thread that its SMs can hold. 4.4 under limits of an H200;
            4.2 on slices of an A100, by what two networks held on them (MIGPerf).
    """

    usual_mib: float
    per_sm_mib: float

    def __post_init__(self) -> None:
        check(self, ("usual_mib", "per_sm_mib"))


@dataclass(frozen=True, slots=True)
class Need:
    """Device memory of one process, MiB.

    Attributes:
        held_mib: Memory held when nothing stops it.
        least_mib: Live tensors at their peak, and the context.
        spread_mib: Standard deviation, if it is an estimate.
        pliable: How readily it gives up what it holds beyond `least_mib`, relative to a job of
            convolutions.
    """

    held_mib: float
    least_mib: float
    spread_mib: float = 0.0
    pliable: float = 1.0

    @property
    def cache_mib(self) -> float:
        """Memory beyond its least need that it gives up when memory is short."""
        return self.pliable * (self.held_mib - self.least_mib)

    def interval_mib(self, sigma: float) -> Interval:
        """Around what it holds, at a relative standard error of `sigma` in measured ones."""
        wide = hypot(sigma, self.spread_mib / self.held_mib if self.held_mib else 0.0)
        ends = (upper_end_mib(self.held_mib, each) for each in (-wide, 0.0, wide))
        return Interval(*ends)


def need(profile: Profile, context: Context, *, under_mps: bool, sms_taken: float = 0) -> Need:
    """Memory of one process of `profile`.

    Args:
        profile: Measured alone.
        context: Of processes on this GPU.
        under_mps: Whether it will be an MPS client; as measured where the probe measured it.
        sms_taken: SMs that its MPS limit or instance takes away.
    """
    memory = profile.mps.memory if under_mps and profile.mps else profile.memory
    measured = memory.context_mib
    whole_mib = context.usual_mib if measured is None else measured
    spread = profile.other_batches.memory_spread if profile.other_batches else 0.0
    saved_mib = min(whole_mib, sms_taken * context.per_sm_mib)
    if memory.reserved_mib is None or memory.allocated_mib is None:
        # What of it is a cache is not known.
        held_mib = max(0.0, (memory.device_mib or 0.0) - saved_mib)
        return Need(held_mib, held_mib, spread * held_mib)
    context_mib = whole_mib - saved_mib
    tensors_mib = memory.reserved_mib
    return Need(
        tensors_mib + context_mib,
        memory.allocated_mib + context_mib,
        spread * tensors_mib,
        _pliable(profile),
    )


@once_a_profile
def _pliable(profile: Profile) -> float:
    if profile.trace is None:
        return _RIGID
    us = np.asarray(profile.trace.duration_us)
    of_conv = np.array(profile.trace.classes)[list(profile.trace.class_of)] == "conv"
    return 1.0 if float(us[of_conv].sum()) > _CONVOLUTIONAL * float(us.sum()) else _RIGID


def needs(
    profiles: Sequence[Profile], sharing: Arrangement, context: Context, gpu: Gpu
) -> list[Need]:
    """Memory of each of `profiles` under `sharing`, in order.

    The context on a compute instance is taken to be as large as on the whole GPU instance, which
    owns the memory: no smaller one was measured.
    """
    found: dict[int, Need] = {}
    for part in partitions(sharing, len(profiles)):
        there = _partition(part, gpu)
        limited = [there.sms - there.limited(each).sms for each in part.sharing.limits]
        beyond = gpu.sms - _partition(replace(part, slices=None), gpu).sms
        for number, own in zip(part.jobs, limited or [0] * len(part.jobs), strict=True):
            under_mps, taken = part.sharing.under_mps, beyond + own
            its = need(profiles[number - 1], context, under_mps=under_mps, sms_taken=taken)
            found[number] = its
    return [found[number] for number in sorted(found)]


def upper_end_mib(held_mib: FloatOrArray, sigma: float) -> FloatOrArray:
    """Upper end of the memory of processes that are predicted to hold `held_mib`."""
    return held_mib * (1 + Z95 * sigma)


def leaves_free(upper_mib: FloatOrArray, capacity_mib: float, margin: float) -> Bools:
    """Whether a share `margin` of the memory stays free if processes take `upper_mib`."""
    return np.asarray(upper_mib <= (1 - margin) * capacity_mib)


@dataclass(frozen=True, slots=True)
class Pool:
    """Memory of a GPU or MIG instance, the positions of the jobs on it, and how they share."""

    jobs: tuple[int, ...]
    capacity_mib: float
    mode: Mode


def pools(gpu: Gpu, sharing: Sharing, jobs: int, mps_server_mib: float) -> list[Pool]:
    """The pools of `jobs` jobs, one group after another; jobs in turn have one each.

    Args:
        gpu: The GPU.
        sharing: With instances that `gpu` offers.
        jobs: How many there are.
        mps_server_mib: What an MPS server holds of the memory that its clients share.
    """
    return [_pool(memory, gpu, mps_server_mib) for memory in memories(sharing, jobs)]


def pools_of(mix: MixPrediction, gpu: Gpu) -> list[Pool]:
    """The pools that the jobs of `mix` share on `gpu`."""
    server_mib = MPS_SERVER_MIB if mix.mps_server_mib is None else mix.mps_server_mib
    return pools(gpu, mix.sharing, len(mix.jobs), server_mib)


def _pool(parts: Sequence[SharedPartition], gpu: Gpu, mps_server_mib: float) -> Pool:
    whole_mib = _partition(parts[0], gpu).memory_mib
    servers = sum(part.sharing.under_mps for part in parts)
    positions = tuple(number - 1 for part in parts for number in part.jobs)
    capacity_mib = float(whole_mib) - servers * mps_server_mib
    return Pool(positions, capacity_mib, parts[0].sharing.mode)


def _partition(part: SharedPartition, gpu: Gpu) -> Partition:
    return partition_of(gpu, part.instance.profile if part.instance else None, part.slices)
