"""What an objective answers to the search for plans on several GPUs, beyond those on one."""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from advisor.plan.objectives import ObjectiveName
from advisor.plan.objectives.objective import Objective
from advisor.plan.search.fleet.fleet_groups import FleetGroup, FleetJobs, PlacedGroup, makespan_s


class GroupBounds(Protocol):
    """Lower bounds over all plans that consist of some groups; 0 where nothing is known."""

    @property
    def groups(self) -> Sequence[FleetGroup]: ...

    @property
    def fleet(self) -> FleetJobs: ...

    def least_sum(self, weights: Sequence[float]) -> float:
        """Of the summed `weights`, one of each group."""

    def mean_completion_s(self) -> float:
        """Of the seconds until a job ends, on average."""


class PackingModel(Protocol):
    """Expressions over the variables of a CP-SAT model, in whole units.

    Attributes:
        end: When the last job ends.
        latest: No job ends later.
        unit_s: Seconds of a unit of time.
        part_j: Joules of a unit of energy.
    """

    @property
    def end(self) -> Any: ...

    @property
    def latest(self) -> int: ...

    @property
    def unit_s(self) -> float: ...

    @property
    def part_j(self) -> float: ...

    def sum_of_ends(self) -> Any: ...

    def worst_slowdown(self) -> Any: ...

    def late_jobs(self) -> Any: ...

    def joules(self) -> Any: ...

    def slowdown(self, wanted: float) -> float:
        """The least slowdown that a value of `worst_slowdown` means."""


class FleetObjective(Objective):
    """An objective by which plans for several GPUs can be searched for.

    The defaults are those of a plan that costs what its makespan is.

    Attributes:
        order_matters: Whether the order in which groups run counts, not only how long they take.
        in_seconds: Whether times are; of a throughput they are in units of what each job takes
            alone, and no pause between groups counts.
        within_group: What the plan of one group is searched for by, where that differs: deadlines
            count from the start of all, fairness by the end of each job, and of one group the start
            is not known, so its jobs are to end early.
    """

    order_matters: ClassVar[bool] = False
    in_seconds: ClassVar[bool] = True
    within_group: ClassVar[ObjectiveName | None] = None

    def fleet_cost(self, plan: Sequence[PlacedGroup], fleet: FleetJobs) -> float:
        """What `plan` costs: the lower, the better."""
        return makespan_s(plan)

    def group_weight(self, group: FleetGroup, fleet: FleetJobs, waiting: float) -> float:
        """What a group adds to the cost, about, whatever the others are.

        Args:
            group: The group.
            fleet: For which the plan is.
            waiting: Share of a GPU's jobs that wait for it, 0..1.
        """
        if self.order_matters:
            waits_s = waiting * sum(fleet.counts) / fleet.gpus * group.runs_s
            return sum(group.ends_s) + waits_s
        return group.runs_s

    def least_cost(self, fleet: FleetJobs, places: int) -> float | None:
        """No plan costs less that runs at most `places` jobs at once; None: not known.

        No job is faster than alone: so the predictor has it, by construction. So each job holds one
        of so many places for as long as it takes alone at least.
        """
        each_s = fleet.of_every_job(fleet.least_s)
        return max(*each_s, sum(each_s) / places)

    def bound(self, bounds: GroupBounds) -> float:
        """No plan of the groups of `bounds` costs less; 0 where nothing is known."""
        return bounds.least_sum([each.runs_s for each in bounds.groups]) / bounds.fleet.gpus

    def minimised(self, model: PackingModel) -> Any:
        """What is minimised, as an expression over the variables of `model`."""
        return model.end

    def packed_cost(self, wanted: float, model: PackingModel, jobs: int) -> float:
        """What a plan of `jobs` costs at least where `minimised` is `wanted`."""
        return wanted * model.unit_s
