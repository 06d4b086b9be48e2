"""The part of a GPU that jobs have: all of it, what an MPS limit leaves, an instance of MIG."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.compute_instances import compute_profiles


@dataclass(frozen=True, slots=True)
class GpuPartition:
    """A part of the GPU with SMs of its own.

    Attributes:
        sms: Its SMs.
        sm_share: Of the GPU's SMs, (0, 1].
        bandwidth_share: Share of the GPU's bandwidth that its GPU instance has, (0, 1].
    """

    sms: int
    sm_share: float
    bandwidth_share: float

    @property
    def whole(self) -> bool:
        """Whether it has all SMs and all of the bandwidth."""
        return self.sm_share == self.bandwidth_share == 1.0


def partition_of(gpu: Gpu, instance: MigProfile, slices: int | None = None) -> GpuPartition:
    """What an instance of MIG has, or a compute instance of so many `slices` of it.

    Where nobody counted its SMs, a compute instance has its slices' share of the instance's.
    """
    slices = slices or instance.compute_slices
    offered = compute_profiles(gpu, instance.name)
    counted = next(each.sms for each in offered if each.compute_slices == slices)
    whole = instance.sms or gpu.sms * instance.compute_slices // 8
    sms = counted or whole * slices // instance.compute_slices
    return GpuPartition(sms, min(1.0, sms / gpu.sms), instance.memory_slices / gpu.memory_slices)


def limit_shares(limits: Sequence[float], sms: int) -> list[float]:
    """SMs that each MPS limit leaves to its client, as a share of the `sms` of a partition.

    An H200 gave 18, 36, 56, 74, 92 and 112 of its 132 SMs under 14, 28, 43, 57, 71 and 86 per
    cent: the even number below the share asked for, since SMs come in pairs.
    """
    return [max(2, 2 * int(limit * sms / 200)) / sms for limit in limits]
