"""Groups of jobs one after another, each with its own sharing."""

from dataclasses import dataclass
from typing import ClassVar

from advisor.errors import InvalidInput
from advisor.sharing.hybrid import Arrangement, Hybrid
from advisor.sharing.modes import (
    Instance,
    Mode,
    PartitionSharing,
    SharedPartition,
    check_group,
    check_once,
)


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
