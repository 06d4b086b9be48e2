"""MIG instances that are there, or are to be, as the driver names them: profile ids and placements.

What a plan asks for is an `advisor.sharing.Instance`.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ComputeInstance:
    """A part of a GPU instance with SMs of its own.

    Attributes:
        start: First compute slice of the GPU instance.
        size: Compute slices.
        profile_id: As the driver counts them; None: its first one of that size.
    """

    start: int
    size: int
    profile_id: int | None = None

    def is_like(self, other: "ComputeInstance") -> bool:
        """Whether one is what the other asks for."""
        ids = {self.profile_id, other.profile_id} - {None}
        return (self.start, self.size) == (other.start, other.size) and len(ids) < 2


@dataclass(frozen=True, slots=True, order=True)
class GpuInstance:
    """A GPU instance.

    Attributes:
        start: First memory slice of the GPU.
        size: Memory slices.
        profile_id: As ``nvidia-smi mig -cgi`` takes it.
        compute: Its compute instances, by start.
    """

    start: int
    size: int
    profile_id: int
    compute: tuple[ComputeInstance, ...] = ()

    @property
    def place(self) -> tuple[int, int, int]:
        """What it is without its compute instances."""
        return (self.profile_id, self.start, self.size)

    def is_like(self, other: "GpuInstance") -> bool:
        """Whether one is what the other asks for, with its compute instances."""
        return (
            self.place == other.place
            and len(self.compute) == len(other.compute)
            and all(a.is_like(b) for a, b in zip(self.compute, other.compute, strict=True))
        )

    def overlaps(self, other: "GpuInstance") -> bool:
        """Whether both would take one memory slice."""
        return self.start < other.start + other.size and other.start < self.start + self.size

    def __str__(self) -> str:
        return f"{self.profile_id}:{self.start}"


def described(instances: Sequence[GpuInstance]) -> str:
    """`instances` as ``nvidia-smi mig -cgi`` takes them, or in words that there is none."""
    return ",".join(map(str, instances)) or "no instance"
