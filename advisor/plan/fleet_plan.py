"""What is asked of a plan for many jobs on equal GPUs, and such a plan."""

from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.plan.candidates import Candidate
from advisor.plan.objectives import ObjectiveName
from advisor.plan.objectives.fleet_objective import FleetObjective
from advisor.plan.objectives.table import OBJECTIVES
from advisor.plan.recommendation import Forecast, Standing
from advisor.plan.rules import EXACT_JOBS, UNCONDITIONAL, Conditions
from advisor.plan.search.fleet.fleet_search import FleetSearchResult
from advisor.prediction.mix_prediction import LEVELS, Interval, Level
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTerms:
    """What is asked for.

    Attributes:
        gpus: Equal GPUs that there are.
        limit_s: Seconds that the search may take.
        level: What counts of times and joules: medians, or the upper ends of their intervals.

    Raises:
        InvalidInput: There is no GPU, no time, or no plan can be best at that.
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
        objective = OBJECTIVES[self.objective]
        if not isinstance(objective, FleetObjective):
            raise InvalidInput(
                f"plans for several GPUs or more than {EXACT_JOBS} jobs are not ranked by "
                f"{self.objective}. Use --objective energy: joules until the last job ends."
            )
        if self.conditions.power_caps and not (objective.saves_energy and self.conditions.root):
            raise InvalidInput(
                "a power cap saves energy, makes no job faster, and takes root to set: plans for "
                "many jobs choose caps with --objective energy, and not with --no-root."
            )


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """What one GPU runs.

    Attributes:
        number: Of the GPU, from 0.
        forecast: Of the jobs of `candidate`, from the first step to the last.
    """

    number: int
    candidate: Candidate
    forecast: Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """A plan for many jobs on equal GPUs, and how good it is.

    Attributes:
        on: What each GPU runs that runs anything.
        ranked_by: What it was searched for by; differs from the objective asked for where that
            cannot be computed, and then `note` says why.
        search: How it was searched for.
        serial_s: One job after another on as many GPUs, the longest first; None: lengths are
            not known.
        idle_power_w: Of a GPU on which nothing runs; None: not measured.
    """

    gpu: Gpu
    jobs: tuple[Job, ...]
    terms: FleetTerms
    ranked_by: ObjectiveName
    note: str | None
    on: tuple[GpuPlan, ...]
    search: FleetSearchResult
    serial_s: float | None
    idle_power_w: float | None
    standing: Standing = field(default_factory=Standing)

    @property
    def makespan_s(self) -> Interval | None:
        """Until the last job ends; None where a length is not known."""
        ends_s = [each.forecast.makespan_interval_s for each in self.on]
        known = [each for each in ends_s if each is not None]
        if len(known) < len(ends_s):
            return None
        return Interval(*(max(each.at(level) for each in known) for level in LEVELS))

    @property
    def ends_s(self) -> tuple[Interval, ...] | None:
        """Until each job ends, in the order asked for; None where a length is not known."""
        ends_s: dict[int, Interval] = {}
        for each in self.on:
            if each.forecast.ends_s is None:
                return None
            ends_s.update(zip(each.candidate.jobs, each.forecast.ends_s, strict=True))
        return tuple(ends_s[number] for number in sorted(ends_s))

    @property
    def mean_completion_s(self) -> float | None:
        return None if self.ends_s is None else fmean(each.p50 for each in self.ends_s)

    @property
    def late(self) -> tuple[int, ...]:
        """Numbers of the jobs that miss their deadlines, by the level that was asked for."""
        pairs = zip(self.jobs, self.ends_s or (), strict=self.ends_s is not None)
        return tuple(
            number
            for number, (job, end_s) in enumerate(pairs, start=1)
            if job.deadline_s is not None and end_s.at(self.terms.level) > job.deadline_s
        )

    @property
    def energy_j(self) -> Interval | None:
        """Of all GPUs until the last job ends, the idle ones too; None where not measured."""
        used = [each.forecast.energy_j for each in self.on]
        known = [each for each in used if each is not None]
        idle_w = self.idle_power_w
        if self.makespan_s is None or idle_w is None or len(known) < len(used):
            return None
        return Interval(
            *(
                sum(each.at(level) for each in known) + self._idle_gpu_s(level) * idle_w
                for level in LEVELS
            )
        )

    def _idle_gpu_s(self, level: Level) -> float:
        """Seconds without a job until the last job ends, summed over GPUs."""
        ends_s = [each.forecast.makespan_interval_s for each in self.on]
        known = [each.at(level) for each in ends_s if each is not None]
        return self.terms.gpus * max(known) - sum(known)
