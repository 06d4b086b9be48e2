"""What an objective answers: to the searches on one GPU and on several, and to reports."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from advisor.plan import ObjectiveName
from advisor.plan.recommendation import Forecast
from advisor.plan.search.cost_table import Outcomes
from advisor.plan.search.fleet.placement import FleetGroup, PlacedGroup, Problem, makespan_s
from advisor.plan.search.job_sets import Sets
from advisor.prediction.interval import Interval
from advisor.prediction.trace import Floats
from advisor.workload.job import Job

if TYPE_CHECKING:
    from advisor.plan.search.fleet.cp_model import PackingModel
    from advisor.plan.search.fleet.packing import CoverBounds

Arrays = tuple[Floats, Floats]
Sums = tuple[float, float]
EndsOf = Callable[[], Floats]

LENGTHS_MISSING = "needs every job's length: examples_per_epoch"
POWER_MISSING = "needs the power of every job, which was not measured"


class Awake(NamedTuple):
    """A GPU on which `jobs` jobs run at once, and its power before what they add."""

    power_w: float
    jobs: int


@dataclass(frozen=True, slots=True)
class GroupScores:
    """The scores of one group of a plan in phases, whose jobs share the GPU until the last ends.

    Attributes:
        jobs: Number of jobs.
        time_s: Seconds until the last job ends.
        cost: The summed number of `Objective.of_group`.
        worst: The number of `Objective.of_group` of which the largest counts.
        due: For each kind of job with a deadline: when its last job ends, and the deadline.
    """

    jobs: int
    time_s: float
    cost: float
    worst: float
    due: tuple[tuple[float, float], ...]

    def beats(self, other: "GroupScores") -> bool:
        """Whether it is nowhere worse than `other`, a group of the same jobs."""
        return (
            self.time_s <= other.time_s
            and self.cost <= other.cost
            and self.worst <= other.worst
            and all(mine[0] <= yours[0] for mine, yours in zip(self.due, other.due, strict=True))
        )


class Turn(NamedTuple):
    """A group's place in a sequence of groups.

    Attributes:
        pause_s: Seconds to set up the GPU for the group.
        left: Number of jobs that have not ended when it starts.
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
    each other, `of_group`, `after` and `of_phases` for groups of jobs one after another, and those
    from `fleet_cost` on for groups on several GPUs, by default of a plan that costs its makespan.

    Attributes:
        unit: Unit of `cost`.
        choice: What the best plan is best at, for a list to choose from.
        measure: What `cost` measures, in words.
        explained: How to read a `cost` that has no unit; empty where it has one.
        instead: Objectives to rank by where this cost is not known, each with the reason; the first
            that is known is taken, and the last always is.
        uses_deadlines: Whether deadlines affect the cost.
        then: The objective that decides between plans whose costs are equal within our error; None:
            only their costs do.
        per_job: Whether `of_phases` divides by the number of jobs.
        order_matters: Whether the order in which groups run counts, not only how long they take.
        in_seconds: Whether times are in seconds. For throughput, each job's time alone is the unit,
            and pauses between groups do not count.
        within_group: The objective by which one group is searched, where it differs. Deadlines
            count from the start of the whole plan; the start of a group is not known, so its jobs
            are to end early.
    """

    name: ClassVar[ObjectiveName]
    unit: ClassVar[Literal["s", "J", "ratio"]]
    choice: ClassVar[str]
    measure: ClassVar[str]
    explained: ClassVar[str] = ""
    instead: ClassVar[tuple[tuple[ObjectiveName, str], ...]] = (("throughput", LENGTHS_MISSING),)
    uses_deadlines: ClassVar[bool] = False
    then: ClassVar[Literal["makespan"] | None] = None
    per_job: ClassVar[bool] = False
    order_matters: ClassVar[bool] = False
    in_seconds: ClassVar[bool] = True
    within_group: ClassVar[ObjectiveName | None] = None

    @property
    def saves_energy(self) -> bool:
        """Whether the cost is in joules: a power cap slows jobs, and lowers no other cost."""
        return self.unit == "J"

    @abstractmethod
    def cost(self, forecast: Forecast) -> Interval | None:
        """Cost of `forecast`, in `unit`; None where it cannot be computed."""

    @abstractmethod
    def headline(self, cost: Interval, shown: str, gain: str) -> str:
        """What the best plan achieves, in words.

        Args:
            cost: Cost of the plan.
            shown: The same with its unit.
            gain: How many times better than serial, e.g. ``"1.3x"``.
        """

    def turn(self, job: Job) -> float:
        """By what jobs come one after another so that this costs least, the least first."""
        return 0.0

    def of_limits(self, slowdowns: Floats, ends_s: EndsOf, deadlines_s: Floats) -> Floats:
        """Cost of each vector of limits, shape (vectors,); only the order of the costs matters.

        Args:
            slowdowns: Slowdown of each job while all run, shape (vectors, jobs).
            ends_s: Computes when each job ends, same shape.
            deadlines_s: Deadline of each job, shape (jobs,); infinite where it has none.
        """
        return np.asarray(ends_s().max(axis=1))

    def of_sets(self, outcomes: Outcomes, sets: Sets) -> Arrays:
        """Two scores of each set of jobs in a partition, each of shape (sets,).

        A plan counts the largest of the first over its partitions, and the sum of the second. By
        default both follow from when the jobs of the set end.
        """
        return outcomes.last_s(sets), outcomes.summed_ends_s(sets)

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        """Cost and tie-breaker of a plan, from the largest and the summed score of `of_sets`.

        Both grow with `most` and with `total`, so lower bounds of these bound the cost.
        """
        return most, total

    def of_group(self, most: float, total: float, awake: Awake) -> Sums:
        """A group's part in the cost of phases: one number to add, one whose largest counts."""
        return total, 0.0

    def after(self, before: Sums, group: GroupScores, turn: Turn) -> Sums:
        """The two numbers of `of_group` for the groups `before`, followed by `group`."""
        cost, worst = before
        return cost + group.cost, max(worst, group.worst)

    def of_phases(self, cost: float, worst: float, jobs: int) -> float:
        """Cost of groups that run one after another, from the numbers of `after`."""
        return cost / jobs if self.per_job else cost

    def fleet_cost(self, plan: Sequence[PlacedGroup], problem: Problem) -> float:
        """Cost of `plan`, the lower the better."""
        return makespan_s(plan)

    def group_weight(self, group: FleetGroup, problem: Problem, waiting: float) -> float:
        """Estimated part of a group in the cost; `waiting`: share of its GPU's jobs behind it."""
        if self.order_matters:
            waits_s = waiting * sum(problem.counts) / problem.gpus * group.runs_s
            return sum(group.ends_s) + waits_s
        return group.runs_s

    def least_cost(self, problem: Problem, places: int) -> float | None:
        """Lower bound on plans that run at most `places` jobs at once; None: not known.

        By construction of the predictor no job is faster than alone, so each job occupies one place
        for at least its time alone.
        """
        each_s = problem.of_every_job(problem.least_s)
        return max(*each_s, sum(each_s) / places)

    def bound(self, bounds: "CoverBounds") -> float:
        """Lower bound on plans of the groups of `bounds`; 0 where nothing is known."""
        return bounds.least_sum([each.runs_s for each in bounds.groups]) / bounds.problem.gpus

    def minimised(self, model: "PackingModel") -> Any:
        """The expression over the variables of `model` that is minimised."""
        return model.end

    def packed_cost(self, wanted: float, model: "PackingModel", jobs: int) -> float:
        """Least cost of a plan of `jobs` for which `minimised` has the value `wanted`."""
        return wanted * model.unit_s
