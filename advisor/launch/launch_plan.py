"""A plan ready to be applied: what starts when, and where."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import zip_longest
from math import inf, isfinite

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import Gpu, gpu_meant
from advisor.hardware.partition import compute_profiles
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.prediction.memory import memory_caps, memory_requests
from advisor.prediction.mig_instances import placed
from advisor.prediction.prediction import Interval, MixPrediction
from advisor.sharing import Instance, PartitionSharing, SharedPartition, Sharing
from advisor.sharing.groups import groups
from advisor.workload.job import Job

NOT_RUN = "Untested on MIG hardware: written from NVIDIA's documentation."
"""A note in every file that cuts up a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of one job.

    Attributes:
        number: Number of the job, from 1, in the order of the user's jobs.
        cores: Host cores that it keeps busy, for a scheduler; None: not known.
        limit: ``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``; None: not set.
        memory_cap_mib: Most memory that it may allocate; None: it needs no cap, or cannot have one.
        memory_mib: Memory to reserve for it, predicted with a margin; jobs at the same time have no
            more together than the GPU or instance.
        step_s: Predicted step.
    """

    number: int
    job: Job
    cores: int | None
    limit: float | None
    memory_cap_mib: int | None
    memory_mib: int
    step_s: Interval

    @property
    def most_s(self) -> float | None:
        """Upper end of the predicted time of all its steps; None: their number is not known."""
        steps = self.job.work_steps
        return None if steps is None else steps * self.job.profile.paced_s(self.step_s.p95)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPartition:
    """A partition, which has SMs of its own, with the jobs to start on it.

    Attributes:
        number: From 1, over the whole plan.
        instance: MIG GPU instance, with its start; None: the whole GPU.
        slices: Compute slices of a compute instance; None: all of the instance.
        profile: MIG's name of it, e.g. ``"3g.71gb"`` or ``"3c.7g.141gb"``; None: the whole GPU.
        at_once: Most jobs of a queue that run at the same time; None: it is not a queue.
    """

    number: int
    sharing: PartitionSharing
    starts: tuple[Start, ...]
    instance: Instance | None = None
    slices: int | None = None
    profile: str | None = None
    at_once: int | None = None

    @property
    def under_mps(self) -> bool:
        return self.sharing.under_mps

    def __str__(self) -> str:
        if self.instance is None:
            return "the whole GPU"
        return str(self.instance) if self.slices is None else f"{self.slices}c in {self.instance}"

    def with_starts(self, change: Callable[[Start], Start]) -> "LaunchPartition":
        """Return the partition with every start changed."""
        return replace(self, starts=tuple(map(change, self.starts)))


@dataclass(frozen=True, slots=True)
class Stage:
    """Partitions that exist at the same time; the next stage starts when all their jobs ended."""

    partitions: tuple[LaunchPartition, ...]

    @property
    def on_mig(self) -> bool:
        return self.partitions[0].instance is not None

    @property
    def one_by_one(self) -> bool:
        return self.partitions[0].sharing.mode == "serial"

    @property
    def at_once(self) -> int:
        """Most jobs that run at the same time."""
        return 1 if self.one_by_one else self.partitions[0].at_once or len(self.starts)

    @property
    def starts(self) -> tuple[Start, ...]:
        """Starts of all partitions, in the jobs' order."""
        starts = (start for part in self.partitions for start in part.starts)
        return tuple(sorted(starts, key=lambda start: start.number))


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A plan for one GPU, ready to be applied.

    Attributes:
        sharing: The sharing that was predicted.
        power_cap_w: Power cap in watts; None: the GPU's own limit.
        estimated_from: Keys of the other GPUs from which it was predicted; None: none.
        number: Number of the GPU, from 0, over all hosts of a plan for several GPUs.
        host: Number of its host, from 0.
        device: Index of the GPU on its host.
        gres: Slurm's name of the GPU, e.g. ``gpu:a100``; None: any GPU.
    """

    gpu: Gpu
    sharing: Sharing
    stages: tuple[Stage, ...]
    power_cap_w: float | None
    estimated_from: str | None = None
    number: int = 0
    host: int = 0
    device: int = 0
    gres: str | None = None

    @property
    def wide(self) -> Job | None:
        """A job that takes several GPUs, and is in the plan of each of them; None: none does."""
        return next((start.job for start in self.starts if start.job.gpus > 1), None)

    @property
    def partitions(self) -> tuple[LaunchPartition, ...]:
        return tuple(part for stage in self.stages for part in stage.partitions)

    @property
    def starts(self) -> tuple[Start, ...]:
        """Starts of all stages, in the jobs' order."""
        return Stage(self.partitions).starts

    @property
    def on_mig(self) -> bool:
        """True if any stage is on MIG."""
        return any(stage.on_mig for stage in self.stages)

    @property
    def switches_mode(self) -> bool:
        """True if some stages are on MIG and others are not."""
        return len({stage.on_mig for stage in self.stages}) > 1

    @property
    def under_mps(self) -> bool:
        """True if any partition is under MPS."""
        return any(part.under_mps for part in self.partitions)

    def with_partitions(self, change: Callable[[LaunchPartition], LaunchPartition]) -> "LaunchPlan":
        """Return the plan with every partition changed."""
        stages = (Stage(tuple(map(change, stage.partitions))) for stage in self.stages)
        return replace(self, stages=tuple(stages))


def launch_plan(jobs: Sequence[Job], gpu: Gpu, prediction: MixPrediction) -> LaunchPlan:
    """Return the launch plan of `jobs` on `gpu`, for which `prediction` was made.

    Raises:
        NothingFits: `gpu` cannot be cut up like that.
    """
    caps, requests = memory_caps(gpu, prediction), memory_requests(gpu, prediction)
    stages: list[Stage] = []
    partitions = 0
    for group in groups(placed(prediction.sharing, gpu), len(jobs)):
        parts = []
        for part in group.partitions:
            partitions += 1
            starts = tuple(
                Start(
                    number=number,
                    job=job,
                    # For the step and each loader worker; bare numbers lack workers.
                    cores=job.profile.workload.cores if job.profile.cores else None,
                    limit=limit,
                    memory_cap_mib=caps.get(number),
                    memory_mib=requests[number],
                    step_s=prediction.jobs[number - 1].step_s,
                )
                for number, limit in zip_longest(part.jobs, part.sharing.limits)
                for job in [jobs[number - 1]]
            )
            parts.append(
                LaunchPartition(
                    number=partitions,
                    sharing=part.sharing,
                    instance=part.instance,
                    slices=part.slices,
                    profile=_profile(part, gpu),
                    starts=starts,
                    at_once=part.at_once,
                )
            )
        stages.append(Stage(tuple(parts)))
    return LaunchPlan(
        gpu, prediction.sharing, tuple(stages), prediction.power_cap_w, prediction.estimated_from
    )


HOST_MARGIN = 0.25
"""Share of the measured host memory that a job may hold on top."""


def host_needs(groups: Iterable[tuple[Sequence[Start], int]]) -> tuple[int, float | None]:
    """Return host cores and MiB, with a margin, of `groups` of jobs that run one after another.

    Jobs without cores count none. Without the memory of a job, it is None.

    Args:
        groups: The jobs of each group, and how many of them run at the same time.
    """
    cores, held_mib = 0, 0.0
    for starts, at_once in groups:
        cores = max(cores, sum(nlargest(at_once, (start.cores or 0 for start in starts))))
        measured = [start.job.profile.host_memory_mib for start in starts]
        most_mib = nlargest(at_once, (inf if each is None else each for each in measured))
        held_mib = max(held_mib, sum(most_mib) * (1 + HOST_MARGIN))
    return cores, held_mib if isfinite(held_mib) else None


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


def _profile(part: SharedPartition, gpu: Gpu) -> str | None:
    """MIG's name of the partition; None: the whole GPU."""
    if part.instance is None:
        return None
    if part.slices is None:
        return part.instance.profile
    offered = compute_profiles(gpu, part.instance.profile)
    return next(row.name for row in offered if row.compute_slices == part.slices)


_GRES = re.compile(r"[A-Za-z][\w.-]*(:[\w.-]+)?")


def gres_names(keys: Sequence[str], words: str | None) -> dict[str, str]:
    """Return Slurm's name of each GPU by model; a model without one means any GPU.

    Without `words`, several models have the types ``a100``, ``h100``, ...: Slurm accepts any part
    of the driver's name of a GPU as its type.

    Args:
        keys: Models of all GPUs that jobs may get.
        words: ``gpu:tesla``, or by model, as ``a100-40gb=gpu:a100,h100-sxm-80gb=gpu:h100``.

    Raises:
        InvalidInput: `words` are malformed, or do not tell several models apart.
    """
    first_words = [key.partition("-")[0] for key in keys]
    types = first_words if len({*first_words}) == len(keys) else keys
    defaults = dict(zip(keys, [f"gpu:{each}" for each in types], strict=True))
    names = defaults if len(keys) > 1 else {}
    for word in filter(None, (words or "").replace(" ", "").split(",")):
        model, _, name = word.rpartition("=")
        if not _GRES.fullmatch(name) or (not model and len(keys) > 1):
            raise InvalidInput(
                f"--gres-name {words!r:.60}: expected Slurm's name of each GPU, without a count, "
                f"as {','.join(f'{key}={default}' for key, default in defaults.items())}."
            )
        names[gpu_meant(model).key if model else keys[0]] = name
    return names
