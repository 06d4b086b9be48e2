"""A plan as it is applied: what starts when, where, and on which cores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from advisor.errors import NothingFits
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import compute_profiles
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.prediction.memory import memory_caps
from advisor.prediction.mig_instances import placed
from advisor.prediction.prediction import JobPrediction, MixPrediction
from advisor.sharing import Group, Hybrid, Instance, PartitionSharing, SharedPartition, Sharing
from advisor.sharing.groups import groups
from advisor.workload.job import Job

# What every file says that cuts up a GPU.
NOT_RUN = "Untested on MIG hardware: written from NVIDIA's documentation."


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How one job is started.

    Attributes:
        number: Number of the job, from 1, in the order of the user's jobs.
        cores: First and last host core of its own: as many as its profile was measured on; None
            where the profile does not say.
        limit: ``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``; None: not set.
        memory_cap_mib: Most memory that it may allocate; None: it needs no cap, or cannot have one.
        most_s: Upper end of the predicted time of all its steps; None: their number is not known.
    """

    number: int
    job: Job
    cores: tuple[int, int] | None
    limit: float | None
    memory_cap_mib: int | None
    most_s: float | None

    @property
    def core_count(self) -> int | None:
        """How many host cores are its own; None where its profile does not say."""
        return None if self.cores is None else self.cores[1] - self.cores[0] + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPartition:
    """A partition, which has SMs of its own, with the jobs to start on it.

    Attributes:
        number: From 1, over the whole plan.
        instance: MIG GPU instance, with its start; None: the whole GPU.
        slices: Compute slices of a compute instance; None: all of the instance.
        profile: MIG's name of it, e.g. ``"3g.71gb"`` or ``"3c.7g.141gb"``; None: the whole GPU.
        device: Index of the GPU, of several that a plan is for.
    """

    number: int
    sharing: PartitionSharing
    starts: tuple[Start, ...]
    instance: Instance | None = None
    slices: int | None = None
    profile: str | None = None
    device: int = 0

    @property
    def under_mps(self) -> bool:
        return self.sharing.under_mps

    def __str__(self) -> str:
        if self.instance is None:
            return "the whole GPU"
        return str(self.instance) if self.slices is None else f"{self.slices}c in {self.instance}"


def _in_order(partitions: Sequence[LaunchPartition]) -> tuple[Start, ...]:
    every = (start for part in partitions for start in part.starts)
    return tuple(sorted(every, key=lambda start: start.number))


@dataclass(frozen=True, slots=True)
class Stage:
    """Partitions that exist at the same time; the next stage starts when all their jobs ended."""

    partitions: tuple[LaunchPartition, ...]

    @property
    def on_mig(self) -> bool:
        return self.partitions[0].instance is not None

    @property
    def device(self) -> int:
        """Index of the GPU, of several that a plan is for."""
        return self.partitions[0].device

    @property
    def starts(self) -> tuple[Start, ...]:
        """Of all partitions, in the jobs' order."""
        return _in_order(self.partitions)


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A plan for one GPU, ready to be applied.

    Attributes:
        sharing: The sharing that was predicted.
        power_cap_w: Power cap in watts; None: the GPU's own limit.
        estimated_from: Keys of the other GPUs from which it was predicted; None: none.
    """

    gpu: Gpu
    sharing: Sharing
    stages: tuple[Stage, ...]
    power_cap_w: float | None
    estimated_from: str | None = None

    @property
    def device(self) -> int:
        """Index of the GPU, of several that a plan is for."""
        return self.stages[0].device

    @property
    def partitions(self) -> tuple[LaunchPartition, ...]:
        """Of all stages."""
        return tuple(part for stage in self.stages for part in stage.partitions)

    @property
    def starts(self) -> tuple[Start, ...]:
        """Of all stages, in the jobs' order."""
        return _in_order(self.partitions)

    @property
    def on_mig(self) -> bool:
        """Whether any of it is."""
        return any(stage.on_mig for stage in self.stages)


def launch_plan(jobs: Sequence[Job], gpu: Gpu, prediction: MixPrediction) -> LaunchPlan:
    """Return the launch plan of `jobs` on `gpu`, for which `prediction` was made.

    Raises:
        NothingFits: `gpu` cannot be cut up like that.
    """
    stages: list[Stage] = []
    for group in groups(placed(prediction.sharing, gpu), len(jobs)):
        partitions = sum(len(stage.partitions) for stage in stages)
        stages.append(_stage(group, jobs, gpu, prediction, partitions + 1))
    return LaunchPlan(
        gpu, prediction.sharing, tuple(stages), prediction.power_cap_w, prediction.estimated_from
    )


def check_memory(plan: LaunchPlan, prediction: MixPrediction) -> None:
    """Check that the jobs do not run out of memory; jobs with a cap have what they need.

    Raises:
        NothingFits: They run out.
    """
    for start, job in zip(plan.starts, prediction.jobs, strict=True):
        if start.memory_cap_mib is None and job.oom_probability > MAX_OOM_PROBABILITY:
            raise NothingFits(
                f"{plan.sharing}: some job, such as {job.job}, runs out of memory with a chance of "
                f"{prediction.oom_probability:.0%}. Export another plan: `advisor recommend`."
            )


def _stage(
    group: Group | Hybrid, jobs: Sequence[Job], gpu: Gpu, prediction: MixPrediction, first: int
) -> Stage:
    """The stage that `group` becomes; `first` is the number of its first partition."""
    one_by_one = max(map(len, group.running_together)) == 1 < len(group.jobs)
    cores = _cores(group.jobs, jobs, one_by_one=one_by_one)
    caps = memory_caps(gpu, prediction)

    def starts(part: SharedPartition) -> Iterator[Start]:
        for number, limit in zip_longest(part.jobs, part.sharing.limits):
            yield Start(
                number=number, job=jobs[number - 1], cores=cores[number],
                limit=limit, memory_cap_mib=caps.get(number),
                most_s=_most_s(jobs[number - 1], prediction.jobs[number - 1]),
            )  # fmt: skip

    partitions = (
        LaunchPartition(
            number=number, sharing=part.sharing, instance=part.instance, slices=part.slices,
            profile=_profile(part, gpu), starts=tuple(starts(part)),
        )
        for number, part in enumerate(group.partitions, start=first)
    )  # fmt: skip
    return Stage(tuple(partitions))


def _most_s(job: Job, predicted: JobPrediction) -> float | None:
    """Seconds of `job` if every step takes what is predicted at most."""
    return None if job.work_steps is None else job.work_steps * predicted.step_s.p95


def _profile(part: SharedPartition, gpu: Gpu) -> str | None:
    """MIG's name of the partition; None: the whole GPU."""
    if part.instance is None:
        return None
    if part.slices is None:
        return part.instance.profile
    offered = compute_profiles(gpu, part.instance.profile)
    return next(row.name for row in offered if row.compute_slices == part.slices)


def _cores(
    numbers: Sequence[int], jobs: Sequence[Job], *, one_by_one: bool
) -> dict[int, tuple[int, int] | None]:
    """Cores of each job, next to each other from core 0; jobs one by one all begin there."""
    cores: dict[int, tuple[int, int] | None] = {}
    first = 0
    for number in sorted(numbers):
        used = len(jobs[number - 1].profile.cores)
        cores[number] = (first, first + used - 1) if used else None
        first = 0 if one_by_one else first + used
    return cores
