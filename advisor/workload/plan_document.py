"""The form of an exported plan as a file: one plan, its jobs in order, and what each name means."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Literal

from advisor.errors import InvalidInput
from advisor.workload.reading import MOST_COUNT
from advisor.workload.spec import Script, Workload


@dataclass(frozen=True, slots=True)
class StepRange:
    """A predicted step in seconds: its median, and the ends of the interval around it.

    Raises:
        InvalidInput: The ends do not contain the median, or a step takes no time.
    """

    p05: float
    p50: float
    p95: float

    def __post_init__(self) -> None:
        if not 0 < self.p05 <= self.p50 <= self.p95 < float("inf"):
            raise InvalidInput(f"a predicted step is 0 < p05 <= p50 <= p95 seconds, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedJob:
    """One job of a plan; `cores` are the first and the last of those that it was exported with.

    Attributes:
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
    cores: tuple[int, int] | None
    mps_limit_percent: float | None
    memory_cap_mib: int | None
    protect: float | None = None
    script: Script | None = None
    step_s: StepRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedPlan:
    """One plan: how the jobs share, in the notation of `advisor.sharing.parse_sharing`.

    Attributes:
        estimated_from: Keys of the other GPUs from which the plan is predicted; None: none.
    """

    rank: int
    sharing: str
    power_cap_w: float | None
    note: str | None
    jobs: tuple[DocumentedJob, ...]
    estimated_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """A whole file; `workloads` has each job's name, as `workloads_by_name` has them."""

    schema: Literal[1]
    gpu: str
    objective: None
    workloads: dict[str, Workload]
    plans: tuple[DocumentedPlan]


def planned_steps(
    planned: DocumentedJob, workload: Workload, most_steps: int | None = None
) -> int | None:
    """Training steps of a job of a plan; None if the job decides itself when it ends.

    Args:
        planned: The job.
        workload: What it trains.
        most_steps: Of a job of the zoo, at most; None: as planned.
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
