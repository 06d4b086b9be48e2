"""The file of an exported plan: how the jobs of each GPU share it, and the profiles of the jobs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Literal

from advisor.errors import InvalidInput
from advisor.files.reading import MOST_COUNT
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.spec import Script, Workload


@dataclass(frozen=True, slots=True)
class StepRange:
    """A predicted step in seconds: its median, and the ends of the interval around it."""

    p05: float
    p50: float
    p95: float

    def __post_init__(self) -> None:
        if not 0 < self.p05 <= self.p50 <= self.p95 < float("inf"):
            raise InvalidInput(f"a predicted step is 0 < p05 <= p50 <= p95 seconds, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedJob:
    """One job of a plan.

    Attributes:
        number: From 1 among all jobs of the file; None: its position in its plan.
        profile: Position in the file's `profiles`, from 0; None: an earlier version wrote the file,
            and the profile is found by the job's name.
        script: What starts it, instead of what its workload names; None: that.
        step_s: Predicted together with its co-located jobs; None: the file does not say.
    """

    job: str
    examples_per_epoch: int | None
    epochs: float
    validation_s: float
    checkpoint_s: float
    user: str | None
    data_parallel: bool
    isolated: bool
    mps_limit_percent: float | None
    memory_cap_mib: int | None
    protect: float | None = None
    script: Script | None = None
    step_s: StepRange | None = None
    number: int | None = None
    profile: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedPlan:
    """The plan of one GPU: how its jobs share, in the notation of `advisor.sharing.parse_sharing`.

    Attributes:
        sharing: Calls the jobs by their positions in `jobs`, from 1.
        gpu: Catalogue key of the GPU; None: that of the file.
        host: Number of the GPU's host, from 0.
        device: Index of the GPU on its host.
        estimated_from: Keys of the other GPUs from which the plan is predicted; None: none.
    """

    rank: int
    sharing: str
    power_cap_w: float | None
    note: str | None
    jobs: tuple[DocumentedJob, ...]
    estimated_from: str | None = None
    gpu: str | None = None
    host: int = 0
    device: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """Number of each of its jobs among all jobs of the file."""
        return tuple(job.number or at for at, job in enumerate(self.jobs, start=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """A whole file, with the plan of one GPU or of several.

    Attributes:
        gpu: Catalogue key of the first plan's GPU.
        workloads: By the jobs' names, as `workloads_by_name` has them.
        plans: A job that takes several GPUs is in the plan of each, with the same number.
        profiles: All that predictions for the jobs need, as it was when the file was written.
    """

    schema: Literal[1]
    gpu: str
    objective: None
    workloads: dict[str, Workload]
    plans: tuple[DocumentedPlan, ...]
    profiles: tuple[Profile, ...] = ()

    def __post_init__(self) -> None:
        if not self.plans:
            raise InvalidInput("plans: a file has the plan of one GPU at least")
        places = {(plan.host, plan.device) for plan in self.plans}
        if len(places) < len(self.plans) or min(map(min, places)) < 0:
            raise InvalidInput("plans: each has a host and a device of its own, which count from 0")
        for plan in self.plans:
            if any(number <= before for before, number in pairwise((0, *plan.numbers))):
                raise InvalidInput(
                    f"plans: the numbers of its jobs count from 1 and increase, got "
                    f"{list(plan.numbers)}"
                )
            for job in plan.jobs:
                if job.profile is not None and not 0 <= job.profile < len(self.profiles):
                    raise InvalidInput(
                        f"{job.job}: profile {job.profile} is not among the {len(self.profiles)} "
                        f"there"
                    )

    def workload_of(self, job: DocumentedJob) -> Workload:
        """Return what `job` trains; its script may start another."""
        return (
            self.workloads[job.job] if job.profile is None else self.profiles[job.profile].workload
        )


def profile_positions(jobs: Iterable[Job]) -> dict[Profile, int]:
    """Return the profiles of `jobs`, each once, with their positions among `embedded`."""
    profiles = dict.fromkeys(job.profile for job in jobs)
    return {profile: at for at, profile in enumerate(profiles)}


def embedded(profiles: Iterable[Profile]) -> tuple[Profile, ...]:
    """Return `profiles` for a file in which each job names its script, so they need none."""
    return tuple(
        each
        if each.workload.source == "script"  # which has one always
        else replace(each, workload=replace(each.workload, script=None))
        for each in profiles
    )


def planned_steps(
    planned: DocumentedJob, workload: Workload, most_steps: int | None = None
) -> int | None:
    """Return the training steps of a job of a plan; None if the job decides itself when it ends.

    A job of the zoo does `most_steps` at most; None: as planned.
    """
    script = planned.script or workload.script
    steps = None
    if planned.examples_per_epoch and (script is None or script.by_steps):
        a_pass = min(-(-planned.examples_per_epoch // workload.batch), MOST_COUNT)
        steps = max(1, ceil(planned.epochs * a_pass))
    if most_steps is not None and script is None:
        steps = min(most_steps, steps or most_steps)
    return steps


def workloads_by_name(workloads: Iterable[Workload]) -> dict[str, Workload]:
    """Return the workload of each name, without a script where one of that name has none.

    Jobs of one name may be started by different scripts, which each of them names: a job without
    one must not be started by another's.
    """
    by_name: dict[str, Workload] = {}
    for workload in workloads:
        if workload.name not in by_name or workload.script is None:
            by_name[workload.name] = workload
    return by_name
