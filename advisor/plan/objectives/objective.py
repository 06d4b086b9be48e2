"""What an objective answers to the searches on one GPU, and to reports."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from advisor.plan.objectives import ObjectiveName
from advisor.plan.recommendation import Forecast
from advisor.plan.search.cost_table import Outcomes
from advisor.plan.search.job_sets import Sets
from advisor.prediction.mix_prediction import Interval
from advisor.prediction.trace import Floats

Unit = Literal["s", "J", "ratio"]
Arrays = tuple[Floats, Floats]
Sums = tuple[float, float]
EndsOf = Callable[[], Floats]

LENGTHS_MISSING = "needs to know how long an epoch of every job is"
POWER_MISSING = "needs the power of every job, which was not measured"


class Awake(NamedTuple):
    """A GPU that runs `jobs` at once, in all partitions, and its power without what they add."""

    power_w: float
    jobs: int


@dataclass(frozen=True, slots=True)
class GroupScores:
    """What a group of jobs that share the GPU until the last of them ends counts in phases.

    Attributes:
        jobs: How many.
        time_s: Until the last ends.
        cost: As `Objective.of_group` counts it.
        worst: The largest of what counts by its largest, as `of_group` says.
        due: Until the last job of each kind that has a deadline ends, and its deadline.
    """

    jobs: int
    time_s: float
    cost: float
    worst: float
    due: tuple[tuple[float, float], ...]

    def beats(self, other: "GroupScores") -> bool:
        """Whether it is no worse in anything than another group of the same jobs."""
        return (
            self.time_s <= other.time_s
            and self.cost <= other.cost
            and self.worst <= other.worst
            and all(mine[0] <= yours[0] for mine, yours in zip(self.due, other.due, strict=True))
        )


class Turn(NamedTuple):
    """The turn of one group after others.

    Attributes:
        pause_s: Seconds to set the GPU up for it.
        left: Jobs that have not ended when it starts.
        idle_w: Power of a GPU on which nothing runs.
    """

    pause_s: float
    left: int
    idle_w: float


class Objective(ABC):
    """What makes one plan better than another, always as a cost: the lower, the better.

    `cost` is exact: it is what plans are ranked by. The other methods answer for thousands of
    candidates at once, so that a search finds those that are worth an exact forecast: `of_limits`
    for vectors of MPS limits, `of_sets` and `price` for sets of jobs in partitions that do not slow
    each other, `of_group`, `after` and `of_phases` for groups of jobs one after another.

    Attributes:
        unit: Of `cost`.
        choice: What the best plan is best at, for a list to choose from.
        measure: What `cost` is, in words.
        instead: What plans are ranked by where the cost of one is not known, and why; of several
            the first that is known. The last is always known.
        of_steps: Whether it counts joules of single steps, and not those until the last job ends.
        uses_deadlines: Whether the order of deadlines counts.
        per_job: Whether `of_phases` divides by the number of jobs.
    """

    name: ClassVar[ObjectiveName]
    unit: ClassVar[Unit]
    choice: ClassVar[str]
    measure: ClassVar[str]
    instead: ClassVar[tuple[tuple[ObjectiveName, str], ...]] = (("throughput", LENGTHS_MISSING),)
    of_steps: ClassVar[bool] = False
    uses_deadlines: ClassVar[bool] = False
    per_job: ClassVar[bool] = False

    @property
    def saves_energy(self) -> bool:
        """Whether it costs joules: a power cap makes no job faster, and serves nothing else."""
        return self.unit == "J"

    @abstractmethod
    def cost(self, forecast: Forecast) -> Interval | None:
        """What `forecast` costs, in `unit`; None where it cannot be computed."""

    @abstractmethod
    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        """What the best plan achieves, in words.

        Args:
            cost: Of the plan.
            shown: `cost` with its unit.
            gain: How many times better than serial, e.g. ``"1.3x"``.
        """

    def of_limits(self, slowdowns: Floats, ends_s: EndsOf, deadlines_s: Floats) -> Floats:
        """What each vector of limits costs, shape (vectors,); only their order means something.

        Args:
            slowdowns: Of each job while all run, shape (vectors, jobs).
            ends_s: Computes when each job ends, same shape.
            deadlines_s: Of each job, shape (jobs,); infinite where it has none.
        """
        return np.asarray(ends_s().max(axis=1))

    def of_sets(self, outcomes: Outcomes, sets: Sets, awake: Awake) -> Arrays:
        """Two numbers of each set: of one a plan counts the largest, of the other the sum.

        Args:
            outcomes: Of every set under one option.
            sets: Those.
            awake: What runs with them.

        Returns:
            The numbers, each shape (sets,); by default of when the jobs end.
        """
        return outcomes.last_s(sets), outcomes.summed_ends_s(sets)

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        """Cost, and what decides between equal costs, from the numbers of `of_sets`.

        Both grow with each argument, so that lower bounds of `most` and `total` bound the cost.

        Args:
            most: Largest over partitions.
            total: Sum over partitions.
            awake: What runs at once.
        """
        return most, total

    def of_group(self, most: float, total: float, awake: Awake) -> Sums:
        """What a group adds to a plan in phases: a cost to sum, and one to take the largest of."""
        return total, 0.0

    def after(self, before: Sums, group: GroupScores, turn: Turn) -> Sums:
        """The two numbers of `of_group` of several groups, with one more after them.

        Args:
            before: Of those that ran before.
            group: The next one.
            turn: When it runs.
        """
        cost, worst = before
        return cost + group.cost, max(worst, group.worst)

    def of_phases(self, cost: float, worst: float, jobs: int) -> float:
        """What groups one after another cost, from the numbers of `after`."""
        return cost / jobs if self.per_job else cost
