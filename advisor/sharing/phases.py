"""Groups of jobs one after another, each with its own sharing."""

from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.sharing.hybrid import Arrangement, Hybrid
from advisor.sharing.modes import Mps, Naive, Serial, check_group, check_once


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that share the whole GPU, by their numbers from 1.

    Raises:
        InvalidInput: These jobs cannot share so.
    """

    jobs: tuple[int, ...]
    sharing: Serial | Naive | Mps

    def __post_init__(self) -> None:
        check_group(self.jobs, self.sharing)

    def __str__(self) -> str:
        return f"{self.sharing}[" + ",".join(map(str, self.jobs)) + "]"


@dataclass(frozen=True, slots=True)
class Phases:
    """Groups one after another: the next starts when the last job of the one before has ended.

    A hybrid names its jobs itself, so it is a group as it is.

    Raises:
        InvalidInput: There are fewer than two groups, or a job is in two.
    """

    groups: tuple[Group | Hybrid, ...]

    def __post_init__(self) -> None:
        if len(self.groups) < 2:
            raise InvalidInput("phases are at least two groups of jobs, with a ; between them")
        check_once(self.jobs)

    @property
    def jobs(self) -> tuple[int, ...]:
        """Numbers of all jobs, in the order of the groups."""
        return tuple(job for group in self.groups for job in group.jobs)

    def __str__(self) -> str:
        return ";".join(map(str, self.groups))


Sharing = Arrangement | Phases
