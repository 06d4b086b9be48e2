"""A plan ready to be applied: what starts when, and where.

The plan of each GPU is a `LaunchPlan`, whether it comes from a plan for one GPU or for several; all
writers of `advisor.launch.exports` get a sequence of them. Schedulers start `allocations` of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from heapq import nlargest
from itertools import zip_longest
from math import inf, isfinite

from advisor.errors import InvalidInput, NothingFits, in_percent
from advisor.hardware.gpus import Gpu, GpuCount
from advisor.hardware.partition import compute_profiles
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.plan.values import Schedule
from advisor.prediction.memory import memory_caps, memory_requests
from advisor.prediction.mig_instances import placed
from advisor.prediction.prediction import Interval, MixPrediction
from advisor.sharing import Instance, PartitionSharing, Sharing
from advisor.sharing.groups import groups
from advisor.workload.job import Job

NOT_RUN = "Untested on MIG hardware: written from NVIDIA's documentation."
"""A note in every file that cuts up a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of one job.

    Attributes:
        number: Number of the job, from 1, in the order of the user's jobs.
        cores: Host cores that it keeps busy, for a scheduler; None: unknown.
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
        """Upper end of the predicted time of all its steps; None: their number is unknown."""
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
        at_once: Most of its jobs that run at the same time, in order; None: all of them.
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

    @property
    def of_loader(self) -> tuple[Start, ...]:
        """Its jobs that start together and take their batches from one data loader."""
        sharers = tuple(each for each in self.starts if each.job.profile.workload.shared_loader)
        together = self.sharing.mode != "serial" and self.at_once is None
        return sharers if together and len(sharers) > 1 else ()

    def __str__(self) -> str:
        if self.instance is None:
            return "the whole GPU"
        return str(self.instance) if self.slices is None else f"{self.slices}c in {self.instance}"


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
        most = sum(part.at_once or len(part.starts) for part in self.partitions)
        return 1 if self.one_by_one else most

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
        models: Keys of all GPU models in the cluster, whether the plan uses them or not; empty: the
            plan's own.
    """

    gpu: Gpu
    sharing: Sharing
    stages: tuple[Stage, ...]
    power_cap_w: float | None
    estimated_from: str | None = None
    number: int = 0
    host: int = 0
    device: int = 0
    models: tuple[str, ...] = ()

    @property
    def shares_loader(self) -> bool:
        """True if several jobs take their batches from one data loader."""
        return any(part.of_loader for part in self.partitions)

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

    def with_starts(self, change: Callable[[Start], Start]) -> "LaunchPlan":
        """Return the plan with every start changed."""
        stages = (
            Stage(
                tuple(
                    replace(part, starts=tuple(map(change, part.starts)))
                    for part in stage.partitions
                )
            )
            for stage in self.stages
        )
        return replace(self, stages=tuple(stages))


def launch_plan(
    jobs: Sequence[Job],
    gpu: Gpu,
    prediction: MixPrediction,
    *,
    numbers: Sequence[int] | None = None,
    partitions_before: int = 0,
) -> LaunchPlan:
    """Return the launch plan of `jobs` on `gpu`, for which `prediction` was made.

    Args:
        jobs: The jobs, in the order of the prediction.
        gpu: The GPU.
        prediction: Of all jobs under one sharing.
        numbers: Number of each job among the jobs of all GPUs; None: from 1.
        partitions_before: Number of partitions of other GPUs.

    Raises:
        NothingFits: `gpu` cannot be cut up like that.
    """
    caps, requests = memory_caps(gpu, prediction), memory_requests(gpu, prediction)
    partition = partitions_before
    stages: list[Stage] = []
    for group in groups(placed(prediction.sharing, gpu), len(jobs)):
        parts = []
        for part in group.partitions:
            partition += 1
            profile = None if part.instance is None else part.instance.profile
            if part.instance is not None and part.slices is not None:
                offered = compute_profiles(gpu, part.instance.profile)
                profile = next(row.name for row in offered if row.compute_slices == part.slices)
            starts = tuple(
                Start(
                    number=position if numbers is None else numbers[position - 1],
                    job=job,
                    # For the step and each loader worker; bare numbers lack workers.
                    cores=job.profile.workload.cores if job.profile.cores else None,
                    limit=limit,
                    memory_cap_mib=caps.get(position),
                    memory_mib=requests[position],
                    step_s=prediction.jobs[position - 1].step_s,
                )
                for position, limit in zip_longest(part.jobs, part.sharing.limits)
                for job in [jobs[position - 1]]
            )
            parts.append(
                LaunchPartition(
                    number=partition,
                    sharing=part.sharing,
                    instance=part.instance,
                    slices=part.slices,
                    profile=profile,
                    starts=starts,
                    at_once=part.at_once,
                )
            )
        stages.append(Stage(tuple(parts)))
    return LaunchPlan(
        gpu, prediction.sharing, tuple(stages), prediction.power_cap_w, prediction.estimated_from
    )


def launch_plans(hosts: Sequence[GpuCount], plan: Schedule) -> tuple[LaunchPlan, ...]:
    """Return what each GPU of `hosts` runs, in the order of `plan.gpus`, jobs numbered among all.

    A job that takes several GPUs is in the plan of each of them, with the same number.
    """
    sizes = [count.host_gpus for count in hosts for _ in range(count.hosts)]
    places = [(host, device) for host, size in enumerate(sizes) for device in range(size)]
    models = tuple(str(count.gpu) for count in hosts)
    plans = list[LaunchPlan]()
    partitions = 0
    for on in plan.gpus:
        launched = launch_plan(
            on.members,
            on.gpu,
            on.prediction,
            numbers=on.job_numbers,
            partitions_before=partitions,
        )
        partitions += len(launched.partitions)
        host, device = places[on.number]
        plans.append(replace(launched, number=on.number, host=host, device=device, models=models))
    return tuple(plans)


def check_memory(plan: LaunchPlan, prediction: MixPrediction) -> None:
    """Check that the jobs do not run out of memory; jobs with a cap have what they need.

    Raises:
        NothingFits: They run out.
    """
    for start, job in zip(plan.starts, prediction.jobs, strict=True):
        if start.memory_cap_mib is None and job.oom_probability > MAX_OOM_PROBABILITY:
            raise NothingFits(
                f"{plan.sharing}: the risk that a job such as {job.job} runs out of memory is "
                f"{in_percent(prediction.oom_probability)}. Export a plan of `advisor recommend`."
            )


HOST_MARGIN = 0.25
"""Share of the measured host memory that a job may hold on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The part of a plan that one job of Slurm, or one pod of Kubernetes, runs.

    A GPU is one allocation from its first job to its last: so its jobs stay together, and no other
    user gets it between two groups. A partition of a GPU in MIG mode is one, too. A job that takes
    several GPUs is an allocation by itself. It waits for the allocations before it on each of its
    GPUs, and those after it wait for it. Equal GPUs are interchangeable.

    Attributes:
        name: A word, unique in the plan.
        plan: Its stages, on one whole device.
        devices: Indices of its GPUs on their host.
        after: Names of the allocations that have to end before it starts.
        profile: MIG's name of the GPU instance that it gets; None: whole GPUs.
    """

    name: str
    plan: LaunchPlan
    devices: tuple[int, ...] = (0,)
    after: tuple[str, ...] = ()
    profile: str | None = None

    @property
    def gpus(self) -> int:
        """Number of its GPUs, all of one host."""
        return len(self.devices)

    @property
    def starts(self) -> tuple[Start, ...]:
        return self.plan.starts

    @property
    def cores(self) -> int:
        """Host cores of the jobs at once, without jobs whose cores are unknown.

        Jobs that share a loader keep a core busy each, and the loader as many as one of them alone.
        """
        return self.gpus * max(map(_cores, self.plan.stages))

    @property
    def host_mib(self) -> float | None:
        """Host memory of the jobs at once, with a margin; None: a profile lacks it."""
        most_mib = 0.0
        for stage in self.plan.stages:
            measured = [start.job.profile.host_memory_mib for start in stage.starts]
            at_once = nlargest(stage.at_once, (inf if each is None else each for each in measured))
            most_mib = max(most_mib, sum(at_once))
        return self.gpus * most_mib * (1 + HOST_MARGIN) if isfinite(most_mib) else None


def _cores(stage: Stage) -> int:
    """Host cores of the jobs of `stage` that run at once, where they are known."""
    sharers = [start for part in stage.partitions for start in part.of_loader]
    others = [start.cores or 0 for start in stage.starts if start not in sharers]
    loader = max((start.cores or 0 for start in sharers), default=0)
    return len(sharers) + loader + sum(nlargest(stage.at_once - len(sharers), others))


def allocations(plans: Sequence[LaunchPlan], scheduler: str) -> list[Allocation]:
    """Return the allocations of `plans`, each after those that it waits for.

    Raises:
        InvalidInput: A plan changes MIG instances between groups of jobs.
    """
    instances = list[Allocation]()
    for plan in plans:
        if plan.on_mig:
            if len(plan.stages) > 1:
                raise InvalidInput(
                    f"{plan.sharing}: {scheduler} does not change MIG instances between jobs. "
                    f"Export the plan as commands, or export each group as a plan of its own."
                )
            for part in plan.partitions:
                assert part.instance is not None
                inside = Stage((replace(part, instance=None, slices=None, profile=None),))
                own = replace(plan, sharing=part.sharing, stages=(inside,), power_cap_w=None)
                name, profile = f"gpu_{plan.number}_{part.number}", part.instance.profile
                instances.append(Allocation(name=name, plan=own, profile=profile))
    return [*instances, *_on_gpus(plan for plan in plans if not plan.on_mig)]


def _on_gpus(plans: Iterable[LaunchPlan]) -> Iterator[Allocation]:
    """The allocations of whole GPUs; a job of several is in the plan of each, and is made once."""
    made = dict[str, Allocation]()
    after = dict[str, list[str]]()
    for plan in plans:
        before = list[str]()
        for position, stages in enumerate(_pieces(plan), start=1):
            first = stages[0].starts[0]
            name = f"gpu_{plan.number}" + (f"_{position}" if position > 1 else "")
            name = f"job_{first.number}" if first.job.gpus > 1 else name
            devices = (*(made[name].devices if name in made else ()), plan.device)
            own = replace(plan, stages=tuple(stages), power_cap_w=None)
            made[name] = Allocation(name=name, plan=own, devices=devices)
            after.setdefault(name, []).extend(before)
            before = [name]
    for name in TopologicalSorter(after).static_order():
        yield replace(made[name], after=tuple(dict.fromkeys(after[name])))


def _pieces(plan: LaunchPlan) -> list[list[Stage]]:
    """The stages of `plan` by allocation; a job of several GPUs becomes a stage of its own."""
    pieces = list[list[Stage]]()
    for stage in plan.stages:
        own = [stage]
        if any(start.job.gpus > 1 for start in stage.starts):
            (part,) = stage.partitions  # such jobs share nothing: they run one by one
            own = [Stage((replace(part, starts=(start,)),)) for start in part.starts]
        for piece in own:
            gpus = piece.starts[0].job.gpus
            if pieces and gpus == pieces[-1][0].starts[0].job.gpus == 1:
                pieces[-1].append(piece)
            else:
                pieces.append([piece])
    return pieces
