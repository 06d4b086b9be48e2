"""What is asked of a plan for many jobs or several GPUs."""

from dataclasses import dataclass
from math import isfinite

from advisor.errors import InvalidInput
from advisor.plan import ObjectiveName, check_objective
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.prediction.interval import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTerms:
    """The options of a plan for many jobs or several GPUs.

    Attributes:
        gpus: Number of equal GPUs.
        limit_s: Seconds that the search may take.
        level: Which point of an interval counts for times and joules: the median or the upper end.

    Raises:
        InvalidInput: There is no GPU, no time, or power caps are asked for that save no energy.
    """

    objective: ObjectiveName = "makespan"
    gpus: int = 1
    limit_s: float = 8.0
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InvalidInput(f"jobs need at least 1 GPU, got {self.gpus}")
        if not (isfinite(self.limit_s) and self.limit_s > 0):
            raise InvalidInput(f"a search takes more than 0 s, got {self.limit_s:g}")
        check_objective(self.objective)
        objective = OBJECTIVES[self.objective]
        if self.conditions.power_caps and not (objective.saves_energy and self.conditions.root):
            raise InvalidInput(
                "a power cap saves energy, makes no job faster, and takes root to set: plans for "
                "many jobs choose caps with --objective energy, and not with --no-root."
            )
