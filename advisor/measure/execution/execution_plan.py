"""An exported plan in the form that is executed: jobs with their settings, in stages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.measure.shared.strict_record import record
from advisor.sharing import Group, Hybrid, SharedPartition, parse_sharing
from advisor.sharing.traversal import check_count, groups
from advisor.workload.documents import read_json
from advisor.workload.files import located
from advisor.workload.plan_document import DocumentedJob, PlanDocument, StepRange
from advisor.workload.plausible import MOST_COUNT, check_number
from advisor.workload.spec import Script, Workload

_REMEDY = "Export the plan again: `advisor export --format json`."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedJob:
    """One job as it is started.

    Attributes:
        number: From 1, in the order of the plan.
        script: The user's, which starts it; None: a workload of the zoo.
        steps: How many it is to do, of which a script decides itself; None: not known.
        core_count: Host cores that it is pinned to.
        limit: ``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``; None: none.
        memory_cap_mib: What it may allocate at most under MPS; None: as much as there is.
        step_s: Predicted while all of its stage run; None: not predicted.
    """

    number: int
    workload: Workload
    script: Script | None
    steps: int | None
    core_count: int
    limit: float | None
    memory_cap_mib: int | None
    step_s: StepRange | None

    @property
    def name(self) -> str:
        return self.workload.name


@dataclass(frozen=True, slots=True)
class ExecutedPartition:
    """What has SMs of its own, with the jobs on it.

    Attributes:
        number: From 1, over the whole plan.
        jobs: Their numbers.
        instance: The MIG GPU instance, with its start; None: the whole GPU.
        slices: Compute slices of a compute instance; None: all of the instance.
    """

    number: int
    jobs: tuple[int, ...]
    under_mps: bool
    instance: str | None = None
    slices: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutedStage:
    """Partitions that are there at once; the next stage begins when all their jobs have ended."""

    partitions: tuple[ExecutedPartition, ...]

    @property
    def jobs(self) -> tuple[int, ...]:
        """Numbers of the jobs that start together."""
        return tuple(job for part in self.partitions for job in part.jobs)


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """Jobs on one GPU, and when each starts.

    Attributes:
        gpu: Catalogue key, or ``"cpu"``.
        jobs: In the order of the plan, shape (jobs,).
        power_cap_w: None: the GPU's own limit.
    """

    gpu: str
    sharing: str
    jobs: tuple[ExecutedJob, ...]
    stages: tuple[ExecutedStage, ...]
    power_cap_w: float | None

    def job(self, number: int) -> ExecutedJob:
        return self.jobs[number - 1]

    @property
    def on_mig(self) -> bool:
        return any(part.instance for stage in self.stages for part in stage.partitions)


def read_execution_plan(path: Path, most_steps: int | None = None) -> ExecutionPlan:
    """The plan in the file `path`, as ``advisor export --format json`` writes it.

    Args:
        path: A JSON file.
        most_steps: Steps that each job of the zoo does at most; None: as many as the plan says.

    Raises:
        InvalidInput: It holds no plan, or one that cannot be meant.
    """
    document = read_json(path, _REMEDY)
    with located(path, _REMEDY):
        return execution_plan(record(PlanDocument, document), most_steps)


def execution_plan(document: PlanDocument, most_steps: int | None = None) -> ExecutionPlan:
    """As `read_execution_plan`, of what a file holds.

    Raises:
        InvalidInput: The plan cannot be meant.
    """
    if len(document.plans) != 1 or not document.plans[0].jobs:
        raise InvalidInput("it holds one plan, of at least one job")
    (plan,) = document.plans
    sharing = parse_sharing(plan.sharing)
    check_count(sharing, len(plan.jobs))
    stages = tuple(_stages(groups(sharing, len(plan.jobs))))
    jobs = tuple(
        _job(number, each, document, most_steps) for number, each in enumerate(plan.jobs, start=1)
    )
    return ExecutionPlan(document.gpu, plan.sharing, jobs, stages, plan.power_cap_w)


def _job(
    number: int, planned: DocumentedJob, document: PlanDocument, most_steps: int | None
) -> ExecutedJob:
    workload = document.workloads.get(planned.job)
    if workload is None:
        raise InvalidInput(f"workloads lacks {planned.job!r}")
    if planned.script is None:
        workload.check_startable()
    script = planned.script or workload.script
    steps = _steps(planned, workload.batch) if script is None or script.by_steps else None
    if most_steps is not None and script is None:
        steps = min(most_steps, steps or most_steps)
    return ExecutedJob(
        number=number,
        workload=workload,
        script=script,
        steps=steps,
        core_count=_core_count(planned, workload),
        limit=planned.mps_limit_percent,
        memory_cap_mib=planned.memory_cap_mib,
        step_s=planned.step_s,
    )


def _steps(planned: DocumentedJob, batch: int) -> int | None:
    """Validation and checkpoints are the job's own; None where an epoch's length is not known."""
    if planned.examples_per_epoch is None:
        return None
    if planned.examples_per_epoch < 1 or not 0 < planned.epochs < float("inf"):
        raise InvalidInput(f"{planned.job}: there is nothing to do")
    steps = planned.epochs * min(-(-planned.examples_per_epoch // batch), MOST_COUNT)
    check_number(f"{planned.job}: steps", steps, MOST_COUNT)
    return max(1, ceil(steps))


def _core_count(planned: DocumentedJob, workload: Workload) -> int:
    if planned.cores is None:
        return workload.cores
    if len(planned.cores) != 2 or not 0 <= planned.cores[0] <= planned.cores[1]:
        raise InvalidInput(f"{planned.job}: cores are a first and a last one")
    return planned.cores[1] - planned.cores[0] + 1


def _stages(found: Sequence[Group | Hybrid]) -> Iterator[ExecutedStage]:
    """Each group; jobs that take turns are a stage each."""
    number = 1
    for group in found:
        for together in group.running_together:
            parts = tuple(_partitions(group.partitions, together, number))
            number += len(parts)
            yield ExecutedStage(parts)


def _partitions(
    parts: Sequence[SharedPartition], together: Sequence[int], first: int
) -> Iterator[ExecutedPartition]:
    for number, part in enumerate(parts, start=first):
        yield ExecutedPartition(
            number=number,
            jobs=tuple(job for job in part.jobs if job in together),
            under_mps=part.sharing.under_mps,
            instance=None if part.instance is None else str(part.instance),
            slices=part.slices,
        )
