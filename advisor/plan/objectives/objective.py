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
from advisor.prediction.mix_prediction import Interval
from advisor.prediction.trace import Floats

if TYPE_CHECKING:
    from advisor.plan.search.fleet.cp_model import PackingModel
    from advisor.plan.search.fleet.packing import CoverBounds

Arrays = tuple[Floats, Floats]
Sums = tuple[float, float]
EndsOf = Callable[[], Floats]

LENGTHS_MISSING = "needs every job's length: examples_per_epoch"
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
    each other, `of_group`, `after` and `of_phases` for groups of jobs one after another, and those
    from `fleet_cost` on for groups on several GPUs, by default of a plan that costs its makespan.

    Attributes:
        unit: Of `cost`.
        choice: What the best plan is best at, for a list to choose from.
        measure: What `cost` is, in words.
        explained: How a `cost` is to be read that has no unit; empty where it has one.
        instead: What plans are ranked by where the cost of one is not known, and why; of several
            the first that is known. The last is always known.
        of_steps: Whether it counts joules of single steps, and not those until the last job ends:
            by these, plans for several GPUs are not searched for.
        uses_deadlines: Whether the order of deadlines counts.
        then: What decides between plans whose costs are closer than we can compare; None: nothing
            but their costs.
        per_job: Whether `of_phases` divides by the number of jobs.
        order_matters: Whether the order in which groups run counts, not only how long they take.
        in_seconds: Whether times are; of a throughput they are in units of what each job takes
            alone, and no pause between groups counts.
        within_group: What the plan of one group is searched for by, where that differs: deadlines
            count from the start of all, fairness by the end of each job, and of one group the start
            is not known, so its jobs are to end early.
    """

    name: ClassVar[ObjectiveName]
    unit: ClassVar[Literal["s", "J", "ratio"]]
    choice: ClassVar[str]
    measure: ClassVar[str]
    explained: ClassVar[str] = ""
    instead: ClassVar[tuple[tuple[ObjectiveName, str], ...]] = (("throughput", LENGTHS_MISSING),)
    of_steps: ClassVar[bool] = False
    uses_deadlines: ClassVar[bool] = False
    then: ClassVar[Literal["makespan"] | None] = None
    per_job: ClassVar[bool] = False
    order_matters: ClassVar[bool] = False
    in_seconds: ClassVar[bool] = True
    within_group: ClassVar[ObjectiveName | None] = None

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
        """Two numbers of each set, each shape (sets,): by default of when its jobs end.

        Of the one a plan counts the largest over its partitions, of the other the sum.
        """
        return outcomes.last_s(sets), outcomes.summed_ends_s(sets)

    def price(self, most: Floats, total: Floats, awake: Awake) -> Arrays:
        """Cost, and what decides between equal costs, from the largest and the sum of `of_sets`.

        Both grow with each, so that lower bounds of `most` and `total` bound the cost.
        """
        return most, total

    def of_group(self, most: float, total: float, awake: Awake) -> Sums:
        """What a group adds to a plan in phases: a cost to sum, and one to take the largest of."""
        return total, 0.0

    def after(self, before: Sums, group: GroupScores, turn: Turn) -> Sums:
        """The two numbers of `of_group` of groups that ran `before`, with one more after them."""
        cost, worst = before
        return cost + group.cost, max(worst, group.worst)

    def of_phases(self, cost: float, worst: float, jobs: int) -> float:
        """What groups one after another cost, from the numbers of `after`."""
        return cost / jobs if self.per_job else cost

    def fleet_cost(self, plan: Sequence[PlacedGroup], problem: Problem) -> float:
        """What `plan` costs: the lower, the better."""
        return makespan_s(plan)

    def group_weight(self, group: FleetGroup, problem: Problem, waiting: float) -> float:
        """What a group adds to the cost, about, while a share `waiting` of its GPU's jobs waits."""
        if self.order_matters:
            waits_s = waiting * sum(problem.counts) / problem.gpus * group.runs_s
            return sum(group.ends_s) + waits_s
        return group.runs_s

    def least_cost(self, problem: Problem, places: int) -> float | None:
        """No plan costs less that runs at most `places` jobs at once; None: not known.

        No job is faster than alone: so the predictor has it, by construction. So each job holds one
        of so many places for as long as it takes alone at least.
        """
        each_s = problem.of_every_job(problem.least_s)
        return max(*each_s, sum(each_s) / places)

    def bound(self, bounds: "CoverBounds") -> float:
        """No plan of the groups of `bounds` costs less; 0 where nothing is known."""
        return bounds.least_sum([each.runs_s for each in bounds.groups]) / bounds.problem.gpus

    def minimised(self, model: "PackingModel") -> Any:
        """What is minimised, as an expression over the variables of `model`."""
        return model.end

    def packed_cost(self, wanted: float, model: "PackingModel", jobs: int) -> float:
        """What a plan of `jobs` costs at least where `minimised` is `wanted`."""
        return wanted * model.unit_s
