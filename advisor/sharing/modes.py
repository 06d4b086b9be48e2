"""The four ways to share a whole GPU in which nothing is nested."""

from dataclasses import dataclass

from advisor.english import counted
from advisor.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Serial:
    """One job after another, each with the whole GPU."""

    def __str__(self) -> str:
        return "serial"


@dataclass(frozen=True, slots=True)
class Naive:
    """Processes take turns on the whole GPU, as the driver time-slices them."""

    def __str__(self) -> str:
        return "naive"


@dataclass(frozen=True, slots=True)
class Mps:
    """Processes run side by side under NVIDIA's Multi-Process Service.

    Attributes:
        limits: ``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`` of each job, in per cent, shape (jobs,);
            empty where no job has one. A cap, not a reservation: the sum may exceed 100.
    """

    limits: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if wrong := [limit for limit in self.limits if not 0 < limit <= 100]:
            raise InvalidInput(f"an MPS limit is a per cent in (0, 100], got {wrong[0]:g}")

    @property
    def keeps_apart(self) -> bool:
        """Whether limits add up to no more than the GPU, so that jobs meet on no SM."""
        return 0 < sum(self.limits) <= 100

    def __str__(self) -> str:
        return "mps" + ("=" + ",".join(f"{limit:g}" for limit in self.limits)) * bool(self.limits)


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG GPU instance: its profile, e.g. ``"3g.71gb"``, and its first memory slice."""

    profile: str
    start: int | None = None

    def __str__(self) -> str:
        return self.profile if self.start is None else f"{self.profile}@{self.start}"


@dataclass(frozen=True, slots=True)
class Mig:
    """Each job alone on a MIG instance of its own, in the jobs' order."""

    instances: tuple[Instance, ...]

    def __str__(self) -> str:
        return "mig=" + ",".join(map(str, self.instances))


def check_group(jobs: tuple[int, ...], sharing: Serial | Naive | Mps) -> None:
    """Refuse a group of jobs that cannot be, or that cannot share so.

    Args:
        jobs: Their numbers, counted from 1 in the order in which the jobs were asked for.
        sharing: With one limit for each of `jobs`, where it has limits.

    Raises:
        InvalidInput: There is no job, one is named twice, or the limits are for more or fewer.
    """
    if not jobs or min(jobs) < 1:
        raise InvalidInput("jobs are named by their numbers, from 1, at least one in brackets")
    check_once(jobs)
    if isinstance(sharing, Mps) and sharing.limits and len(sharing.limits) != len(jobs):
        raise InvalidInput(
            f"{sharing}: {counted(len(sharing.limits), 'limit')} for {counted(len(jobs), 'job')}"
        )


def check_once(jobs: tuple[int, ...]) -> None:
    """Refuse jobs of which one is named twice.

    Raises:
        InvalidInput: One is.
    """
    if twice := {job for job in jobs if jobs.count(job) > 1}:
        raise InvalidInput(f"job {min(twice)} is named twice; each job has one place")
