"""Ways to share that nest others: jobs on MIG instances, and groups in phases."""

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
        sharing: How the jobs share it; limits are in per cent of its SMs.
        slices: Compute slices of a compute instance; None: all of the GPU instance.

    Raises:
        InvalidInput: These jobs cannot share like this, or there are no slices.
    """

    jobs: tuple[int, ...]
    sharing: Concurrent = field(default_factory=Naive)
    slices: int | None = None

    def __post_init__(self) -> None:
        if self.slices is not None and self.slices < 1:
            raise InvalidInput(f"a compute instance has at least 1 slice, got {self.slices}")
        check_group(self.jobs, self.sharing)

    def __str__(self) -> str:
        """The notation; a single job without a limit has no sharing in it."""
        size = "" if self.slices is None else f"{self.slices}c"
        plain = len(self.jobs) == 1 and self.sharing == Naive()
        numbers = ",".join(map(str, self.jobs))
        return f"{size}[{numbers}]" + ("" if plain else f"/{self.sharing}")


@dataclass(frozen=True, slots=True)
class Place:
    """A MIG GPU instance with the jobs on it.

    Attributes:
        parts: A single part without slices: the instance is whole. Parts with slices: compute
            instances, with SMs of their own and one memory.

    Raises:
        InvalidInput: There is no part, or a job is named twice.
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
        """Its partitions: each part."""
        return tuple(
            SharedPartition(part.jobs, part.sharing, self.instance, part.slices)
            for part in self.parts
        )

    def __str__(self) -> str:
        cut = "" if self.parts[0].slices is None else "/ci="
        return f"{self.instance}{cut}" + "+".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Hybrid:
    """MIG instances, each shared by jobs of its own.

    Raises:
        InvalidInput: There is no instance, or a job is named twice.
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
        """All partitions: whole GPU instances, and the parts of divided ones."""
        return tuple(part for place in self.places for part in place.partitions)

    @property
    def memories(self) -> tuple[tuple[SharedPartition, ...], ...]:
        """Partitions grouped by memory: those of each GPU instance share one."""
        return tuple(place.partitions for place in self.places)

    @property
    def running_together(self) -> tuple[tuple[int, ...], ...]:
        """Sets of jobs that run at the same time, one set after another: here a single one."""
        return (tuple(sorted(self.jobs)),)

    def __str__(self) -> str:
        return "mig=" + "+".join(map(str, self.places))


def one_job_each(instances: tuple[Instance, ...]) -> Hybrid:
    """`Mig` as a `Hybrid`: the first job alone on the first instance, and so on."""
    return Hybrid(
        tuple(Place(each, (Part((job,)),)) for job, each in enumerate(instances, start=1))
    )


Arrangement = PartitionSharing | Mig | Hybrid
"""A GPU that is set up once."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs, by their numbers from 1, that share the whole GPU.

    Raises:
        InvalidInput: These jobs cannot share like this.
    """

    jobs: tuple[int, ...]
    sharing: PartitionSharing
    instances: ClassVar[tuple[Instance, ...]] = ()

    def __post_init__(self) -> None:
        check_group(self.jobs, self.sharing)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """Its only partition: the whole GPU."""
        return (SharedPartition(self.jobs, self.sharing),)

    @property
    def memories(self) -> tuple[tuple[SharedPartition, ...], ...]:
        """Partitions grouped by memory; jobs one after another each have all of it."""
        return tuple((SharedPartition(jobs, self.sharing),) for jobs in self.running_together)

    @property
    def running_together(self) -> tuple[tuple[int, ...], ...]:
        """Sets of jobs that run at the same time, one set after another."""
        one_by_one = self.sharing.mode == "serial"
        return tuple((job,) for job in self.jobs) if one_by_one else (self.jobs,)

    def __str__(self) -> str:
        return f"{self.sharing}[" + ",".join(map(str, self.jobs)) + "]"


@dataclass(frozen=True, slots=True)
class Phases:
    """Groups one after another: the next starts when the last job of the one before has ended.

    A group on MIG instances is a `Hybrid`, which names its jobs itself.

    Raises:
        InvalidInput: There are fewer than two groups, or a job is in two of them.
    """

    groups: tuple[Group | Hybrid, ...]
    mode: ClassVar[Mode] = "phases"
    limits: ClassVar[tuple[float, ...]] = ()
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
        """The GPU instances of all groups, one group after another."""
        return tuple(each for group in self.groups for each in group.instances)

    def __str__(self) -> str:
        return ";".join(map(str, self.groups))


Sharing = Arrangement | Phases
