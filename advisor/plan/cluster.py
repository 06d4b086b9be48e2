"""The GPUs that a plan for many jobs has: models, hosts, and how many; and what it is asked for."""

from dataclasses import dataclass
from functools import cached_property

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu, GpuCount, parse_gpus
from advisor.plan import MOST_GPUS, ObjectiveName, check_objective
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.power import idle_power_w
from advisor.prediction.prediction import Level
from advisor.workload.job import Job


@dataclass(frozen=True, kw_only=True)
class GpuPool:
    """Equal GPUs on equal hosts.

    Attributes:
        host_gpus: GPUs of each host.
        jobs: All jobs of the question, with their profiles on this model of GPU.
        predictor: Predicts while each GPU has an equal part of its host's cores.
        host_memory_mib: Memory of each host, of which each GPU's jobs have an equal part; None: as
            much as they need.
    """

    gpu: Gpu
    hosts: int
    host_gpus: int
    jobs: tuple[Job, ...]
    predictor: Predicts
    host_memory_mib: float | None = None

    @property
    def gpus(self) -> int:
        return self.hosts * self.host_gpus

    @cached_property
    def idle_power_w(self) -> float | None:
        return idle_power_w([job.profile for job in self.jobs])


_MOST_EFFORT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTerms:
    """The options of a plan for many jobs or several GPUs.

    Attributes:
        gpus: Number of equal GPUs on one host, or what `parse_gpus` reads.
        effort: Times the work that a search for so many jobs usually takes.
        host_memory_mib: Memory of each host; None: no limit.

    Raises:
        InvalidInput: `gpus` or `effort` is not positive, or power caps save no energy.
    """

    objective: ObjectiveName = "makespan"
    gpus: int | str = 1
    effort: float = 1.0
    host_memory_mib: float | None = None
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"

    def __post_init__(self) -> None:
        parse_gpus(self.gpus, MOST_GPUS)
        if not 0 < self.effort <= _MOST_EFFORT:
            raise InvalidInput(
                f"the effort of a search is above 0 and at most {_MOST_EFFORT}, got {self.effort:g}"
            )
        check_objective(self.objective)
        objective = OBJECTIVES[self.objective]
        if self.conditions.power_caps and not (objective.saves_energy and self.conditions.root):
            raise InvalidInput(
                "a power cap saves energy, makes no job faster, and takes root to set: plans for "
                "many jobs choose caps with --objective energy, and not with --no-root."
            )

    @property
    def counts(self) -> tuple[GpuCount, ...]:
        """The GPUs by model."""
        return parse_gpus(self.gpus, MOST_GPUS)

    @property
    def total(self) -> int:
        """Number of all GPUs."""
        return sum(each.gpus for each in self.counts)
