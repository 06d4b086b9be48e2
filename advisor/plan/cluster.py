"""The GPUs that a plan for many jobs has: models, hosts, and how many; and what it is asked for."""

import re
from dataclasses import dataclass
from functools import cached_property

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu, gpu_meant
from advisor.plan import MOST_GPUS, ObjectiveName, check_objective
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.power import idle_power_w
from advisor.prediction.prediction import Level
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True)
class GpuCount:
    """So many equal GPUs on equal hosts.

    Attributes:
        gpu: Catalogue key; None: the model that the question is about.
        host_gpus: GPUs of each host.
    """

    gpu: str | None
    hosts: int
    host_gpus: int

    @property
    def gpus(self) -> int:
        return self.hosts * self.host_gpus


_COUNT = re.compile(r"(?:(?P<gpu>[^:]+):)?(?:(?P<hosts>\d{1,4})x)?(?P<gpus>\d{1,4})")


def parse_gpus(text: str) -> tuple[GpuCount, ...]:
    """Return the GPUs of ``4``, of ``2x4`` on two hosts, or of ``a100-40gb:8,h100-sxm-80gb:2x4``.

    Raises:
        InvalidInput: It is malformed, names a GPU that is not known or twice, or too many.
    """
    counts = []
    for word in text.replace(" ", "").split(","):
        match = _COUNT.fullmatch(word)
        if match is None:
            raise InvalidInput(
                f"--gpus {text!r:.60}: expected a number of GPUs, as 4, or 2x4 for two hosts of "
                f"4, or with models, as a100-40gb:8,h100-sxm-80gb:2x4."
            )
        key = match["gpu"] and gpu_meant(match["gpu"]).key
        hosts, host_gpus = int(match["hosts"] or 1), int(match["gpus"])
        counts.append(GpuCount(key, hosts, host_gpus))
    keys = [each.gpu for each in counts]
    if len(set(keys)) < len(keys) or (None in keys and len(keys) > 1):
        raise InvalidInput(f"--gpus {text!r:.60}: name the model of each number of GPUs, once.")
    if min(each.gpus for each in counts) < 1 or sum(each.gpus for each in counts) > MOST_GPUS:
        raise InvalidInput(f"--gpus {text!r:.60}: expected 1 to {MOST_GPUS} GPUs.")
    return tuple(counts)


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
        parse_gpus(str(self.gpus))
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
        return parse_gpus(str(self.gpus))

    @property
    def total(self) -> int:
        """Number of all GPUs."""
        return sum(each.gpus for each in self.counts)
