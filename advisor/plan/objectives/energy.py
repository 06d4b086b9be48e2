"""Objectives in joules: until the last job ends, for an epoch of each job, or for an example."""

from abc import abstractmethod
from collections.abc import Sequence
from math import fsum
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor.plan import ObjectiveName
from advisor.plan.objectives.objective import (
    LENGTHS_MISSING,
    POWER_MISSING,
    Arrays,
    Awake,
    EndsOf,
    GroupScores,
    Objective,
    Sums,
    Turn,
)
from advisor.plan.recommendation import Forecast
from advisor.plan.search.cost_table import Outcomes
from advisor.plan.search.fleet.placement import FleetGroup, PlacedGroup, Problem, makespan_s
from advisor.plan.search.job_sets import Sets
from advisor.prediction.interval import LEVELS, Interval, all_known, around
from advisor.prediction.mix_prediction import JobPrediction
from advisor.prediction.trace import Floats
from advisor.workload.spec import Workload

if TYPE_CHECKING:
    from advisor.plan.search.fleet.cp_model import PackingModel
    from advisor.plan.search.fleet.packing import CoverBounds

_WITHOUT_POWER: tuple[tuple[ObjectiveName, str], ...] = (
    ("makespan", POWER_MISSING),
    ("throughput", LENGTHS_MISSING),
)
_WITHOUT_LENGTHS: tuple[tuple[ObjectiveName, str], ...] = (
    ("energy-example", LENGTHS_MISSING),
    *_WITHOUT_POWER,
)


class Energy(Objective):
    """Joules until the last job ends; for several GPUs, those of idle ones too."""

    name = "energy"
    unit = "J"
    choice = "least energy"
    measure = "energy until all are done"
    instead = _WITHOUT_LENGTHS

    def cost(self, forecast: Forecast) -> Interval | None:
        return forecast.energy_j

    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        return f"{shown} (one after another: {gain} as much)"

    def of_sets(self, outcomes: Outcomes, sets: Sets, awake: Awake) -> Arrays:
        return outcomes.last_s(sets), outcomes.added_j

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        return awake.power_w * most + total, most

    def of_group(self, most: float, total: float, awake: Awake) -> Sums:
        return awake.power_w * most + total, 0.0

    def after(self, before: Sums, group: GroupScores, turn: Turn) -> Sums:
        return before[0] + group.cost + turn.idle_w * turn.pause_s, 0.0

    def fleet_cost(self, plan: Sequence[PlacedGroup], problem: Problem) -> float:
        held_s = problem.gpus * makespan_s(plan)
        free_s = held_s - fsum(each.group.runs_s for each in plan)
        used_j = fsum(each.group.energy_j or 0.0 for each in plan)
        return used_j + free_s * (problem.idle_power_w or 0.0)

    def group_weight(self, group: FleetGroup, problem: Problem, waiting: float) -> float:
        return group.runs_s if group.energy_j is None else group.energy_j

    def least_cost(self, problem: Problem, places: int) -> float | None:
        return None

    def bound(self, bounds: "CoverBounds") -> float:
        return bounds.least_sum([each.energy_j or 0.0 for each in bounds.groups])

    def minimised(self, model: "PackingModel") -> Any:
        return model.joules()

    def packed_cost(self, wanted: float, model: "PackingModel", jobs: int) -> float:
        return wanted * model.part_j


class _StepEnergy(Objective):
    """Joules of a number of steps of each job, while all jobs run, summed over the jobs."""

    unit = "J"
    of_steps = True

    @abstractmethod
    def _of_job(self, job: JobPrediction) -> Interval | None:
        """Joules of one job's steps; None where they are not known."""

    @abstractmethod
    def _steps(self, workload: Workload) -> float:
        """Number of steps of a job that count; NaN where it is not known."""

    def cost(self, forecast: Forecast) -> Interval | None:
        if (known := all_known(map(self._of_job, forecast.prediction.jobs))) is None:
            return None
        return around([sum(each.at(level) for each in known) for level in LEVELS])

    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        what = self.name.removeprefix("energy-")
        return f"{shown} for an {what} of each job (one after another: {gain} as much)"

    def of_limits(self, slowdowns: Floats, ends_s: EndsOf, deadlines_s: Floats) -> Floats:
        return np.asarray(slowdowns.max(axis=1))

    def of_sets(self, outcomes: Outcomes, sets: Sets, awake: Awake) -> Arrays:
        step_j = outcomes.step_j + awake.power_w / awake.jobs * outcomes.steps_s
        steps = np.array([self._steps(job.profile.workload) for job in sets.variants])
        return sets.largest(outcomes.slowdowns), (sets.counts * steps * step_j).sum(axis=1)

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        return total, most


class EpochEnergy(_StepEnergy):
    """Joules of one epoch of each job while all run, together."""

    name = "energy-epoch"
    choice = "least energy per epoch"
    measure = "energy of an epoch of each job"
    instead = _WITHOUT_LENGTHS

    def _of_job(self, job: JobPrediction) -> Interval | None:
        return job.energy_epoch_j

    def _steps(self, workload: Workload) -> float:
        return workload.steps_per_epoch or np.nan


class ExampleEnergy(_StepEnergy):
    """Joules of one example of each job while all run, together."""

    name = "energy-example"
    choice = "least energy per example"
    measure = "energy of an example of each job"
    instead = _WITHOUT_POWER

    def _of_job(self, job: JobPrediction) -> Interval | None:
        return job.energy_example_j

    def _steps(self, workload: Workload) -> float:
        return 1 / workload.batch
