"""MIG instances that hold several jobs, or that are cut into compute instances."""

from dataclasses import dataclass, field
from typing import ClassVar

from advisor.errors import InvalidInput
from advisor.sharing.modes import (
    Instance,
    Mig,
    Mode,
    Mps,
    Naive,
    PartitionSharing,
    SharedPartition,
    check_group,
    check_once,
)


def _with_jobs(jobs: tuple[int, ...], sharing: Naive | Mps) -> str:
    """The jobs in brackets and how they share, which is left out for one job without a limit."""
    numbers = "[" + ",".join(map(str, jobs)) + "]"
    return numbers if len(jobs) == 1 and sharing == Naive() else f"{numbers}/{sharing}"


@dataclass(frozen=True, slots=True)
class Slot:
    """A MIG GPU instance with the jobs on it.

    Attributes:
        jobs: Their numbers, from 1.
        sharing: How they share the instance; limits are in per cent of its SMs.

    Raises:
        InvalidInput: These jobs cannot share in this way.
    """

    instance: Instance
    jobs: tuple[int, ...]
    sharing: Naive | Mps = field(default_factory=Naive)

    def __post_init__(self) -> None:
        check_group(self.jobs, self.sharing)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """What has SMs of its own: all of it."""
        return (SharedPartition(self.jobs, self.sharing, self.instance),)

    def __str__(self) -> str:
        return f"{self.instance}{_with_jobs(self.jobs, self.sharing)}"


@dataclass(frozen=True, slots=True)
class Compute:
    """A MIG compute instance with the jobs on it; fields as of `Slot`.

    Attributes:
        slices: Compute slices of the GPU instance that are its own.

    Raises:
        InvalidInput: It has no slice, or these jobs cannot share so.
    """

    slices: int
    jobs: tuple[int, ...]
    sharing: Naive | Mps = field(default_factory=Naive)

    def __post_init__(self) -> None:
        if self.slices < 1:
            raise InvalidInput(f"a compute instance has at least 1 slice, got {self.slices}")
        check_group(self.jobs, self.sharing)

    def __str__(self) -> str:
        return f"{self.slices}c{_with_jobs(self.jobs, self.sharing)}"


@dataclass(frozen=True, slots=True)
class Divided:
    """A MIG GPU instance cut into compute instances: SMs of their own, one memory for all.

    Raises:
        InvalidInput: It has no part, or a job is named twice.
    """

    instance: Instance
    parts: tuple[Compute, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidInput(f"{self.instance} is cut into no compute instance")
        check_once(self.jobs)

    @property
    def jobs(self) -> tuple[int, ...]:
        """Numbers of all jobs on it."""
        return tuple(job for part in self.parts for job in part.jobs)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """What has SMs of its own: each part."""
        return tuple(
            SharedPartition(part.jobs, part.sharing, self.instance, part.slices)
            for part in self.parts
        )

    def __str__(self) -> str:
        return f"{self.instance}/ci=" + "+".join(map(str, self.parts))


Place = Slot | Divided


@dataclass(frozen=True, slots=True)
class Hybrid:
    """MIG instances, each with jobs of its own that share it.

    Raises:
        InvalidInput: It has no place, or a job is named twice.
    """

    places: tuple[Place, ...]
    mode: ClassVar[Mode] = "hybrid"
    limits: ClassVar[tuple[float, ...]] = ()
    keeps_sms_apart: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.places:
            raise InvalidInput("a hybrid has at least one MIG instance")
        check_once(self.jobs)

    @property
    def jobs(self) -> tuple[int, ...]:
        """Numbers of all jobs, in the order of the places."""
        return tuple(job for place in self.places for job in place.jobs)

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The GPU instance of each place."""
        return tuple(place.instance for place in self.places)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """Everything with SMs of its own, whole GPU instances and parts of divided ones."""
        return tuple(part for place in self.places for part in place.partitions)

    @property
    def memories(self) -> tuple[tuple[SharedPartition, ...], ...]:
        """Partitions that have one memory at the same time: those of each GPU instance."""
        return tuple(place.partitions for place in self.places)

    @property
    def running_together(self) -> tuple[tuple[int, ...], ...]:
        """Jobs that run at the same time, each set after the other: here all."""
        return (tuple(sorted(self.jobs)),)

    def __str__(self) -> str:
        return "mig=" + "+".join(map(str, self.places))


def one_job_each(instances: tuple[Instance, ...]) -> Hybrid:
    """The first job alone on the first instance, and so on: `Mig` as a `Hybrid`."""
    return Hybrid(tuple(Slot(each, (job,)) for job, each in enumerate(instances, start=1)))


Arrangement = PartitionSharing | Mig | Hybrid
"""A GPU that is set up once."""
