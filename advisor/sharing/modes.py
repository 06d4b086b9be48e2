"""The four ways to share a GPU in which nothing is nested.

Every way to share has a `mode`, `limits` (empty where no job on the whole GPU has one) and
`instances` (empty without MIG), so that most code asks for these and not for its type.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from advisor.english import counted
from advisor.errors import InvalidInput

Mode = Literal["serial", "naive", "mps", "mps-limits", "mig", "hybrid", "phases"]
"""The name under which plans and runs are fitted, sorted and reported; "mig": a job on each
instance; "hybrid": instances that are shared or divided."""

SHARED_MODES: tuple[Mode, ...] = ("naive", "mps", "mps-limits")
"""Those in which jobs have the whole GPU at the same time: runs of these are measured."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG GPU instance: its profile, e.g. ``"3g.71gb"``, and its first memory slice."""

    profile: str
    start: int | None = None

    def __str__(self) -> str:
        return self.profile if self.start is None else f"{self.profile}@{self.start}"


class _WithoutMps:
    """Jobs on the whole GPU that take turns, one after another or in slices of time."""

    __slots__ = ()
    mode: ClassVar[Mode]
    limits: ClassVar[tuple[float, ...]] = ()
    instances: ClassVar[tuple[Instance, ...]] = ()
    under_mps: ClassVar[bool] = False
    keeps_sms_apart: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.mode


@dataclass(frozen=True, slots=True)
class Serial(_WithoutMps):
    """One job after another, each with the whole GPU."""

    mode: ClassVar[Mode] = "serial"


@dataclass(frozen=True, slots=True)
class Naive(_WithoutMps):
    """Processes take turns on the whole GPU, as the driver time-slices them."""

    mode: ClassVar[Mode] = "naive"


@dataclass(frozen=True, slots=True)
class Mps:
    """Processes run side by side under NVIDIA's Multi-Process Service.

    Attributes:
        limits: ``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`` of each job, in per cent, shape (jobs,);
            empty if no job has one. A cap, not a reservation: the sum may exceed 100.
    """

    limits: tuple[float, ...] = ()
    instances: ClassVar[tuple[Instance, ...]] = ()
    under_mps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if wrong := [limit for limit in self.limits if not 0 < limit <= 100]:
            raise InvalidInput(f"an MPS limit is a per cent in (0, 100], got {wrong[0]:g}")

    @property
    def mode(self) -> Mode:
        """With limits it is a mode of its own."""
        return "mps-limits" if self.limits else "mps"

    @property
    def keeps_sms_apart(self) -> bool:
        """Whether limits add up to at most 100, so that no two jobs share an SM."""
        return 0 < sum(self.limits) <= 100

    def __str__(self) -> str:
        return "mps" + ("=" + ",".join(f"{limit:g}" for limit in self.limits)) * bool(self.limits)


@dataclass(frozen=True, slots=True)
class Mig:
    """Each job alone on a MIG instance of its own, in the jobs' order."""

    instances: tuple[Instance, ...]
    mode: ClassVar[Mode] = "mig"
    limits: ClassVar[tuple[float, ...]] = ()
    keeps_sms_apart: ClassVar[bool] = False

    def __str__(self) -> str:
        return "mig=" + ",".join(map(str, self.instances))


PartitionSharing = Serial | Naive | Mps
"""How jobs share what has SMs of its own: a whole GPU, an instance, or a part of one."""


def check_group(jobs: tuple[int, ...], sharing: PartitionSharing) -> None:
    """Refuse an impossible group of jobs, or one that cannot share by `sharing`.

    Args:
        jobs: Their numbers, counted from 1 in the order in which the jobs were given.
        sharing: With one limit for each of `jobs`, if it has limits.

    Raises:
        InvalidInput: There is not a job, one is named twice, or the limits are for more or fewer.
    """
    if not jobs or min(jobs) < 1:
        raise InvalidInput("jobs are named by their numbers, from 1, at least one in brackets")
    check_once(jobs)
    if sharing.limits and len(sharing.limits) != len(jobs):
        raise InvalidInput(
            f"{sharing}: {counted(len(sharing.limits), 'limit')} for {counted(len(jobs), 'job')}"
        )


def check_once(jobs: tuple[int, ...]) -> None:
    """Refuse a list of jobs that names one twice.

    Raises:
        InvalidInput: One is.
    """
    if len(set(jobs)) < len(jobs):
        twice = min(job for job in jobs if jobs.count(job) > 1)
        raise InvalidInput(f"job {twice} is named twice; each job has one place")


@dataclass(frozen=True, slots=True)
class SharedPartition:
    """What has SMs of its own, with the jobs on it.

    Attributes:
        jobs: Their numbers, from 1.
        sharing: How they share it; limits are in per cent of its SMs.
        instance: The MIG GPU instance that it is, or is a part of; None: the whole GPU.
        slices: Compute slices of a compute instance; None: all of the instance.
    """

    jobs: tuple[int, ...]
    sharing: PartitionSharing
    instance: Instance | None = None
    slices: int | None = None
