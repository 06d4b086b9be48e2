"""The ways to share in which others are nested: on MIG instances, and in phases."""

from dataclasses import dataclass, field
from typing import ClassVar

from advisor.errors import InvalidInput
from advisor.sharing.modes import (
    Concurrent,
    Instance,
    Mig,
    Mode,
    Naive,
    PartitionSharing,
    SharedPartition,
    check_group,
    check_once,
)


@dataclass(frozen=True, slots=True)
class Part:
    """Jobs on a MIG GPU instance, or on a compute instance in it.

    Attributes:
        jobs: Their numbers, from 1.
        sharing: How they share it; limits are in per cent of its SMs.
        slices: Compute slices of a compute instance; None: all of the GPU instance.

    Raises:
        InvalidInput: These jobs cannot share in this way, or there is no slice.
    """

    jobs: tuple[int, ...]
    sharing: Concurrent = field(default_factory=Naive)
    slices: int | None = None

    def __post_init__(self) -> None:
        if self.slices is not None and self.slices < 1:
            raise InvalidInput(f"a compute instance has at least 1 slice, got {self.slices}")
        check_group(self.jobs, self.sharing)

    def __str__(self) -> str:
        """How they share is left out for one job without a limit."""
        size = "" if self.slices is None else f"{self.slices}c"
        plain = len(self.jobs) == 1 and self.sharing == Naive()
        numbers = ",".join(map(str, self.jobs))
        return f"{size}[{numbers}]" + ("" if plain else f"/{self.sharing}")


@dataclass(frozen=True, slots=True)
class Place:
    """A MIG GPU instance with the jobs on it.

    Attributes:
        parts: One without slices: the instance is whole. With slices, the compute instances into
            which it is cut: they have SMs of their own, and one memory.

    Raises:
        InvalidInput: It has no part, or a job is named twice.
    """

    instance: Instance
    parts: tuple[Part, ...]

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
        cut = "" if self.parts[0].slices is None else "/ci="
        return f"{self.instance}{cut}" + "+".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Hybrid:
    """MIG instances, each with jobs of its own that share it.

    Raises:
        InvalidInput: It has no place, or a job is named twice.
    """

    places: tuple[Place, ...]
    mode: ClassVar[Mode] = "hybrid"
    limits: ClassVar[tuple[float, ...]] = ()
    priorities: ClassVar[tuple[int, ...]] = ()
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
    return Hybrid(
        tuple(Place(each, (Part((job,)),)) for job, each in enumerate(instances, start=1))
    )


Arrangement = PartitionSharing | Mig | Hybrid
"""A GPU that is set up once."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that share the whole GPU, by their numbers from 1.

    Raises:
        InvalidInput: These jobs cannot share in this way.
    """

    jobs: tuple[int, ...]
    sharing: PartitionSharing
    instances: ClassVar[tuple[Instance, ...]] = ()

    def __post_init__(self) -> None:
        check_group(self.jobs, self.sharing)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """What has SMs of its own: the whole GPU."""
        return (SharedPartition(self.jobs, self.sharing),)

    @property
    def memories(self) -> tuple[tuple[SharedPartition, ...], ...]:
        """Partitions that have one memory at the same time; jobs in turn have it to themselves."""
        return tuple((SharedPartition(jobs, self.sharing),) for jobs in self.running_together)

    @property
    def running_together(self) -> tuple[tuple[int, ...], ...]:
        """Jobs that run at the same time, each set after the other."""
        one_by_one = self.sharing.mode == "serial"
        return tuple((job,) for job in self.jobs) if one_by_one else (self.jobs,)

    def __str__(self) -> str:
        return f"{self.sharing}[" + ",".join(map(str, self.jobs)) + "]"


@dataclass(frozen=True, slots=True)
class Phases:
    """Groups one after another: the next starts when the last job of the one before has ended.

    A hybrid names its jobs itself, so it is a group.

    Raises:
        InvalidInput: There are fewer than two groups, or a job is in two.
    """

    groups: tuple[Group | Hybrid, ...]
    mode: ClassVar[Mode] = "phases"
    limits: ClassVar[tuple[float, ...]] = ()
    priorities: ClassVar[tuple[int, ...]] = ()
    keeps_sms_apart: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if len(self.groups) < 2:
            raise InvalidInput("phases are at least two groups of jobs, with a ; between them")
        check_once(self.jobs)

    @property
    def jobs(self) -> tuple[int, ...]:
        """Numbers of all jobs, in the order of the groups."""
        return tuple(job for group in self.groups for job in group.jobs)

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The GPU instances of each group after the other."""
        return tuple(each for group in self.groups for each in group.instances)

    def __str__(self) -> str:
        return ";".join(map(str, self.groups))


Sharing = Arrangement | Phases
