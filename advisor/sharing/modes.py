"""The ways to share a GPU, as values; `advisor.sharing` reads their notation.

Every way to share has a `mode`, `limits` (empty where no job on the whole GPU has one) and
`instances` (empty without MIG). Most code asks for these instead of the type. Making one that is
impossible, e.g. with a job in two places, raises InvalidInput.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeVar

from advisor.errors import InvalidInput, counted

Mode = Literal["serial", "naive", "mps", "queue", "mps-limits", "phases", "mig", "hybrid"]
"""The name under which plans and runs are fitted, sorted and reported, simplest to set up first;
"mig": one job at a time on each instance; "hybrid": instances that are shared or divided."""

SHARED_MODES: tuple[Mode, ...] = ("naive", "mps", "mps-limits")
"""Those in which jobs have the whole GPU at the same time."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG GPU instance: its profile, e.g. ``"3g.71gb"``, and its first memory slice."""

    profile: str
    start: int | None = None

    def __str__(self) -> str:
        return self.profile if self.start is None else f"{self.profile}@{self.start}"


_Own = TypeVar("_Own", bound="_WithoutMps")  # typing.Self is not in Python 3.10, which scripts run


class _WithoutLimits:
    __slots__ = ()
    limits: ClassVar[tuple[float, ...]] = ()
    keeps_sms_apart: ClassVar[bool] = False


class _WithoutMps(_WithoutLimits):
    """Jobs that take turns on the whole GPU: one after another, or in time slices."""

    __slots__ = ()
    mode: ClassVar[Mode]
    instances: ClassVar[tuple[Instance, ...]] = ()
    under_mps: ClassVar[bool] = False

    def among(self: _Own, places: Sequence[int]) -> _Own:  # noqa: ARG002 - as of `Mps`
        """Return how the jobs at `places` share while the others are not running."""
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
    """

    limits: tuple[float, ...] = ()
    instances: ClassVar[tuple[Instance, ...]] = ()
    under_mps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if wrong := [limit for limit in self.limits if not 0 < limit <= 100]:
            raise InvalidInput(
                f"expected an MPS limit in per cent above 0 and up to 100, got {wrong[0]:g}"
            )
        if small := [limit for limit in self.limits if limit < 1]:
            raise InvalidInput(
                f"an MPS limit is a per cent of the SMs: {small[0]:g} % is less than the two SMs "
                f"that a client always gets. Did you mean {100 * small[0]:g}?"
            )

    @property
    def mode(self) -> Mode:
        """``"mps"``; or a mode of its own with limits."""
        return "mps-limits" if self.limits else "mps"

    def among(self, places: Sequence[int]) -> "Mps":
        """Return how the jobs at `places` share while the others are not running."""
        return Mps(tuple(self.limits[at] for at in places) if self.limits else ())

    @property
    def keeps_sms_apart(self) -> bool:
        """True if limits add up to at most 100, so that no two jobs need to share an SM."""
        return 0 < sum(self.limits) <= 100

    def __str__(self) -> str:
        limits = "=" + ",".join(f"{limit:g}" for limit in self.limits) if self.limits else ""
        return f"mps{limits}"


@dataclass(frozen=True, slots=True)
class Mig(_WithoutLimits):
    """Each job alone on a MIG instance of its own, in the jobs' order.

    Without instances: in a simulation over time, in layouts chosen when a GPU has no job.
    """

    instances: tuple[Instance, ...]
    mode: ClassVar[Mode] = "mig"

    def __str__(self) -> str:
        return "mig=" + ",".join(map(str, self.instances)) if self.instances else "mig"


Concurrent = Naive | Mps
"""The ways to have a whole GPU, an instance, or a part of one at the same time."""


@dataclass(frozen=True, slots=True)
class Queue(_WithoutLimits):
    """Jobs start in order, at most `at_once` at a time: the next starts when one ends.

    Attributes:
        sharing: How those that run share the GPU, without limits.
        at_once: At least 2; the jobs are more than that.
    """

    sharing: Concurrent
    at_once: int
    mode: ClassVar[Mode] = "queue"
    instances: ClassVar[tuple[Instance, ...]] = ()

    def __post_init__(self) -> None:
        if self.at_once < 2:
            raise InvalidInput(
                f"{self}: a queue runs at least 2 jobs at once. Write serial for one at a time."
            )
        if self.sharing.limits:
            limits = ",".join(map(str, (*self.sharing.limits, self.at_once))).replace(".0", "")
            raise InvalidInput(
                f"{self}: jobs of a queue have no limits. Write mps/{self.at_once} for a queue, or "
                f"mps={limits} for limits."
            )

    @property
    def under_mps(self) -> bool:
        return self.sharing.under_mps

    def among(self, places: Sequence[int]) -> Concurrent:
        """Return how the jobs at `places` share while the others are not running."""
        return self.sharing.among(places)

    def __str__(self) -> str:
        return f"{self.sharing}/{self.at_once}"


PartitionSharing = Serial | Concurrent
"""The ways to share what has SMs of its own: a whole GPU, an instance, or a part of one."""


def _check_group(jobs: tuple[int, ...], sharing: PartitionSharing | Queue) -> None:
    """Check that there are jobs, each named once, with a limit for each if there are limits."""
    if not jobs or min(jobs) < 1:
        raise InvalidInput("expected the numbers of jobs, from 1, at least one in brackets")
    _check_once(jobs)
    if sharing.limits and len(sharing.limits) != len(jobs):
        raise InvalidInput(
            f"{sharing}: {counted(len(sharing.limits), 'limit')} for {counted(len(jobs), 'job')}"
        )


def _check_once(jobs: tuple[int, ...]) -> None:
    if len(set(jobs)) < len(jobs):
        twice = min(job for job in jobs if jobs.count(job) > 1)
        raise InvalidInput(f"job {twice} is named twice. Give each job one place")


@dataclass(frozen=True, slots=True)
class SharedPartition:
    """A partition, which has SMs of its own, with the numbers of its jobs, from 1.

    Attributes:
        sharing: How the jobs share it; limits are in per cent of its SMs.
        instance: Its MIG GPU instance; None: the partition is the whole GPU.
        slices: Compute slices if it is a compute instance; None: all of the GPU instance.
        at_once: Most of its jobs that run at the same time, if they start in order as others end;
            None: they share as `sharing` has it.
    """

    jobs: tuple[int, ...]
    sharing: PartitionSharing
    instance: Instance | None = None
    slices: int | None = None
    at_once: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Jobs, by their numbers from 1, on a MIG GPU instance, or on a compute instance in it.

    Attributes:
        sharing: How the jobs share it; limits are in per cent of its SMs. Serial: in the order of
            `jobs`, each with all of a GPU instance.
        slices: Compute slices of a compute instance; None: all of the GPU instance.
    """

    jobs: tuple[int, ...]
    sharing: PartitionSharing = field(default_factory=Naive)
    slices: int | None = None

    def __post_init__(self) -> None:
        if self.slices is not None and self.slices < 1:
            raise InvalidInput(
                f"expected a compute instance with at least 1 slice, got {self.slices}"
            )
        _check_group(self.jobs, self.sharing)
        if self.in_line and self.slices is not None:
            raise InvalidInput(
                f"{self}: jobs run one after another on undivided MIG instances only"
            )

    @property
    def in_line(self) -> bool:
        """True if its jobs run one after another, while those of other parts run."""
        return self.sharing == Serial()

    def among(self, left: Sequence[int], numbers: Sequence[int]) -> "Part":
        """Return it with only the jobs at places `left`, and with `numbers`."""
        alone = self.in_line and len(left) == 1
        sharing = Naive() if alone else self.sharing.among(left)
        return replace(self, jobs=tuple(numbers), sharing=sharing)

    def __str__(self) -> str:
        """The notation; a single job without a limit has no sharing in it."""
        size = "" if self.slices is None else f"{self.slices}c"
        plain = len(self.jobs) == 1 and not self.sharing.under_mps
        numbers = ",".join(map(str, self.jobs))
        return f"{size}[{numbers}]" + ("" if plain else f"/{self.sharing}")


@dataclass(frozen=True, slots=True)
class Place:
    """A MIG GPU instance with the jobs on it.

    Attributes:
        parts: A single part without slices: the instance is whole. Parts with slices: compute
            instances, with SMs of their own and one memory.
    """

    instance: Instance
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidInput(f"{self.instance} is cut into no compute instance")
        _check_once(self.jobs)

    @property
    def jobs(self) -> tuple[int, ...]:
        """Numbers of all jobs on it."""
        return tuple(job for part in self.parts for job in part.jobs)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """Its partitions: each part."""
        return tuple(
            SharedPartition(part.jobs, Naive(), self.instance, at_once=1)
            if part.in_line
            else SharedPartition(part.jobs, part.sharing, self.instance, part.slices)
            for part in self.parts
        )

    @property
    def memories(self) -> tuple[tuple[SharedPartition, ...], ...]:
        """Its partitions, which share its memory; jobs one after another each have all of it."""
        if not self.parts[0].in_line:
            return (self.partitions,)
        return tuple((SharedPartition((job,), Naive(), self.instance),) for job in self.jobs)

    def __str__(self) -> str:
        cut = "" if self.parts[0].slices is None else "/ci="
        return f"{self.instance}{cut}" + "+".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Hybrid(_WithoutLimits):
    """MIG instances, each with jobs of its own, which share it or run one after another."""

    places: tuple[Place, ...]
    mode: ClassVar[Mode] = "hybrid"

    def __post_init__(self) -> None:
        if not self.places:
            raise InvalidInput("expected at least one MIG instance")
        _check_once(self.jobs)

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
        return tuple(memory for place in self.places for memory in place.memories)

    @property
    def running_together(self) -> tuple[tuple[int, ...], ...]:
        """The jobs: no set of them waits for another, though a job may wait for a single one."""
        return (tuple(sorted(self.jobs)),)

    @property
    def at_once(self) -> int:
        """Most jobs that run at the same time."""
        return sum(part.at_once or len(part.jobs) for part in self.partitions)

    def __str__(self) -> str:
        return "mig=" + "+".join(map(str, self.places))


def one_job_each(instances: tuple[Instance, ...]) -> Hybrid:
    """Return `Mig` as a `Hybrid`: the first job alone on the first instance, and so on."""
    return Hybrid(
        tuple(Place(each, (Part((job,)),)) for job, each in enumerate(instances, start=1))
    )


Arrangement = PartitionSharing | Mig | Hybrid
"""A GPU that is set up once."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs, by their numbers from 1 and in the order of their starts, that share the whole GPU."""

    jobs: tuple[int, ...]
    sharing: PartitionSharing | Queue
    instances: ClassVar[tuple[Instance, ...]] = ()

    def __post_init__(self) -> None:
        _check_group(self.jobs, self.sharing)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """Its only partition: the whole GPU."""
        return (self._partition(self.jobs),)

    @property
    def memories(self) -> tuple[tuple[SharedPartition, ...], ...]:
        """Partitions grouped by memory; jobs one after another each have all of it."""
        return tuple((self._partition(jobs),) for jobs in self.running_together)

    def _partition(self, jobs: tuple[int, ...]) -> SharedPartition:
        if isinstance(self.sharing, Queue):
            return SharedPartition(jobs, self.sharing.sharing, at_once=self.at_once)
        return SharedPartition(jobs, self.sharing)

    @property
    def running_together(self) -> tuple[tuple[int, ...], ...]:
        """Sets of jobs that run at the same time, one set after another.

        The jobs of a queue are one set, of which at most `at_once` run at the same time.
        """
        one_by_one = self.sharing.mode == "serial"
        return tuple((job,) for job in self.jobs) if one_by_one else (self.jobs,)

    @property
    def at_once(self) -> int:
        """Most jobs that run at the same time."""
        most = self.sharing.at_once if isinstance(self.sharing, Queue) else len(self.jobs)
        return 1 if self.sharing.mode == "serial" else min(most, len(self.jobs))

    def __str__(self) -> str:
        return f"{self.sharing}[" + ",".join(map(str, self.jobs)) + "]"


def plain_group(group: Group) -> Group:
    """Return `group`; for a queue with room for all its jobs at once, its sharing."""
    if isinstance(group.sharing, Queue) and group.sharing.at_once >= len(group.jobs):
        return Group(group.jobs, group.sharing.sharing)
    return group


@dataclass(frozen=True, slots=True)
class Phases(_WithoutLimits):
    """Groups one after another: the next starts when the last job of the one before has ended.

    A group on MIG instances is a `Hybrid`, which names its jobs itself. A single group is a queue
    with an order of its own.
    """

    groups: tuple[Group | Hybrid, ...]

    def __post_init__(self) -> None:
        if not self.groups or (len(self.groups) == 1 and self.mode != "queue"):
            raise InvalidInput("expected at least two groups of jobs, with a ; between them")
        _check_once(self.jobs)

    @property
    def mode(self) -> Mode:
        """``"phases"``; ``"queue"`` of a single group, which is one."""
        first = self.groups[0]
        queued = isinstance(first, Group) and isinstance(first.sharing, Queue)
        return "queue" if queued and len(self.groups) == 1 else "phases"

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


Sharing = Arrangement | Queue | Phases
