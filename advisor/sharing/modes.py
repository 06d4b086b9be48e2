"""The four ways to share a GPU in which nothing is nested.

Every way to share has a `mode`, `limits` (empty where no job on the whole GPU has one) and
`instances` (empty without MIG). Most code asks for these instead of the type.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from advisor.english import counted
from advisor.errors import InvalidInput

Mode = Literal["serial", "naive", "mps", "mps-limits", "phases", "mig", "hybrid"]
"""The name under which plans and runs are fitted, sorted and reported, simplest to set up first;
"mig": a job on each instance; "hybrid": instances that are shared or divided."""

SHARED_MODES: tuple[Mode, ...] = ("naive", "mps", "mps-limits")
"""Those in which jobs have the whole GPU at the same time."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG GPU instance: its profile, e.g. ``"3g.71gb"``, and its first memory slice."""

    profile: str
    start: int | None = None

    def __str__(self) -> str:
        return self.profile if self.start is None else f"{self.profile}@{self.start}"


class _WithoutMps:
    """Jobs that take turns on the whole GPU: one after another, or in time slices."""

    __slots__ = ()
    mode: ClassVar[Mode]
    limits: ClassVar[tuple[float, ...]] = ()
    instances: ClassVar[tuple[Instance, ...]] = ()
    under_mps: ClassVar[bool] = False
    keeps_sms_apart: ClassVar[bool] = False

    def among(self, places: Sequence[int]) -> Self:  # noqa: ARG002 - as of `Mps`
        """How the jobs at `places` share while the others are not running."""
        return self

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

    Raises:
        InvalidInput: A limit is impossible.
    """

    limits: tuple[float, ...] = ()
    instances: ClassVar[tuple[Instance, ...]] = ()
    under_mps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if wrong := [limit for limit in self.limits if not 0 < limit <= 100]:
            raise InvalidInput(f"an MPS limit is a per cent in (0, 100], got {wrong[0]:g}")
        if small := [limit for limit in self.limits if limit < 1]:
            raise InvalidInput(
                f"an MPS limit is a per cent of the SMs: {small[0]:g} % is less than the two SMs "
                f"that a client gets of any GPU. Did you mean {100 * small[0]:g}?"
            )

    @property
    def mode(self) -> Mode:
        """``"mps"``; or a mode of its own with limits."""
        return "mps-limits" if self.limits else "mps"

    def among(self, places: Sequence[int]) -> Self:
        """How the jobs at `places` share while the others are not running."""
        return type(self)(tuple(self.limits[at] for at in places) if self.limits else ())

    @property
    def keeps_sms_apart(self) -> bool:
        """Whether limits add up to at most 100, so that no two jobs need to share an SM."""
        return 0 < sum(self.limits) <= 100

    def __str__(self) -> str:
        limits = "=" + ",".join(f"{limit:g}" for limit in self.limits) if self.limits else ""
        return f"mps{limits}"


@dataclass(frozen=True, slots=True)
class Mig:
    """Each job alone on a MIG instance of its own, in the jobs' order."""

    instances: tuple[Instance, ...]
    mode: ClassVar[Mode] = "mig"
    limits: ClassVar[tuple[float, ...]] = ()
    keeps_sms_apart: ClassVar[bool] = False

    def __str__(self) -> str:
        return "mig=" + ",".join(map(str, self.instances))


Concurrent = Naive | Mps
"""How jobs have a whole GPU, an instance, or a part of one at the same time."""

PartitionSharing = Serial | Concurrent
"""How jobs share what has SMs of its own: a whole GPU, an instance, or a part of one."""


def check_group(jobs: tuple[int, ...], sharing: PartitionSharing) -> None:
    """Check that a group of jobs is possible and can share by `sharing`.

    Args:
        jobs: Their numbers, from 1.
        sharing: With one limit for each of `jobs` if it has limits.

    Raises:
        InvalidInput: There is no job, a job is named twice, or limits are for more or fewer jobs.
    """
    if not jobs or min(jobs) < 1:
        raise InvalidInput("jobs are named by their numbers, from 1, at least one in brackets")
    check_once(jobs)
    if sharing.limits and len(sharing.limits) != len(jobs):
        raise InvalidInput(
            f"{sharing}: {counted(len(sharing.limits), 'limit')} for {counted(len(jobs), 'job')}"
        )


def check_once(jobs: tuple[int, ...]) -> None:
    """Check that no job is named twice.

    Raises:
        InvalidInput: One is.
    """
    if len(set(jobs)) < len(jobs):
        twice = min(job for job in jobs if jobs.count(job) > 1)
        raise InvalidInput(f"job {twice} is named twice; each job has one place")


@dataclass(frozen=True, slots=True)
class SharedPartition:
    """A partition, which has SMs of its own, with its jobs.

    Attributes:
        jobs: Their numbers, from 1.
        sharing: How the jobs share it; limits are in per cent of its SMs.
        instance: Its MIG GPU instance; None: the partition is the whole GPU.
        slices: Compute slices if it is a compute instance; None: all of the GPU instance.
    """

    jobs: tuple[int, ...]
    sharing: PartitionSharing
    instance: Instance | None = None
    slices: int | None = None
