"""Groups of jobs placed on several equal GPUs: where and when they run, and what that costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapreplace
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.plan.search.job_sets import Members
from advisor.prediction.trace import Floats
from advisor.sharing import Sharing
from advisor.sharing.traversal import groups
from advisor.timeline.waiting_jobs import repartition_s

if TYPE_CHECKING:
    from advisor.plan.search.fleet.cp_model import PackingModel
    from advisor.plan.search.fleet.packing import CoverBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGroup:
    """A group of jobs that share one GPU, and how long they take.

    Attributes:
        members: The kinds of its jobs.
        sharing: How they share; job numbers and limits refer to positions in `members`, from 1.
        ends_s: Seconds from their common start until each job ends, in the order of `members`,
            shape (jobs,); for throughput, in units of each job's time alone.
        energy_j: Joules of its GPU until the last job ends; None: not known.
        predicted: Whether it was predicted, not only estimated.
        in_seconds: Whether `ends_s` are seconds; for throughput they are not, and pauses do not
            count.
    """

    members: Members
    sharing: Sharing
    ends_s: tuple[float, ...]
    energy_j: float | None
    predicted: bool
    in_seconds: bool = True

    @property
    def runs_s(self) -> float:
        """Seconds until the last job ends."""
        return max(self.ends_s)

    def after_s(self, before: "FleetGroup") -> float:
        """Seconds between the end of `before` and its own start on the same GPU."""
        if not self.in_seconds:
            return 0.0
        return _between_s(before.sharing, len(before.members), self.sharing, len(self.members))


@cache
def _between_s(before: Sharing, jobs_before: int, after: Sharing, jobs: int) -> float:
    return repartition_s(groups(before, jobs_before)[-1], groups(after, jobs)[0])


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A group placed on a GPU.

    Attributes:
        gpu: Number of the GPU, from 0.
        start_s: When its jobs start.
    """

    group: FleetGroup
    gpu: int
    start_s: float

    @property
    def ends_s(self) -> Iterator[float]:
        """When each job ends, in the order of the group's members."""
        return (self.start_s + end_s for end_s in self.group.ends_s)


def makespan_s(plan: Sequence[PlacedGroup]) -> float:
    """When the last job ends."""
    return max(each.start_s + each.group.runs_s for each in plan)


def job_ends_s(plan: Sequence[PlacedGroup]) -> Iterator[tuple[int, float]]:
    """Kind and end of each job of `plan`."""
    for each in plan:
        yield from zip(each.group.members, each.ends_s, strict=True)


def dealt(groups: Sequence[FleetGroup], gpus: int) -> tuple[PlacedGroup, ...]:
    """`groups` in this order, each placed on the GPU that is free first."""
    return _placed([(None, group) for group in groups], gpus)


def queued(queues: Sequence[Sequence[FleetGroup]]) -> tuple[PlacedGroup, ...]:
    """Each of `queues` placed on a GPU of its own, one group after another."""
    pairs = [(gpu, group) for gpu, queue in enumerate(queues) for group in queue]
    return _placed(pairs, len(queues))


def _placed(pairs: Sequence[tuple[int | None, FleetGroup]], gpus: int) -> tuple[PlacedGroup, ...]:
    """Each group on its GPU, or on the first free one; no pause before the first on a GPU."""
    free_s, plan = [0.0] * gpus, []
    last: dict[int, FleetGroup] = {}
    for named, group in pairs:
        gpu = free_s.index(min(free_s)) if named is None else named
        start_s = free_s[gpu] + (group.after_s(last[gpu]) if gpu in last else 0.0)
        plan.append(PlacedGroup(group, gpu, start_s))
        last[gpu], free_s[gpu] = group, start_s + group.runs_s
    return tuple(plan)


# Share of a GPU's jobs that wait while a group runs: half, on average.
WAITING = 0.5


class FleetObjective(Protocol):
    """The part of an objective that plans on several GPUs are ranked and bounded by."""

    in_seconds: ClassVar[bool]
    order_matters: ClassVar[bool]
    uses_deadlines: ClassVar[bool]

    @property
    def saves_energy(self) -> bool: ...

    def fleet_cost(self, plan: Sequence[PlacedGroup], problem: "Problem") -> float: ...

    def group_weight(self, group: FleetGroup, problem: "Problem", waiting: float) -> float: ...

    def least_cost(self, problem: "Problem", places: int) -> float | None: ...

    def bound(self, bounds: "CoverBounds") -> float: ...

    def minimised(self, model: "PackingModel") -> Any: ...

    def packed_cost(self, wanted: float, model: "PackingModel", jobs: int) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Jobs to run on equal GPUs, and the objective of their plan.

    Attributes:
        gpus: Number of equal GPUs.
        counts: Number of jobs of each kind, shape (kinds,).
        alone_s: Seconds of a job of each kind alone, same shape.
        least_s: Seconds of a job of each kind at least, however it runs, same shape.
        deadlines_s: Deadline of each kind from the start of all, same shape; None: it has none.
        idle_power_w: Power of a GPU on which nothing runs; None where not measured.
    """

    objective: "FleetObjective"
    gpus: int
    counts: tuple[int, ...]
    alone_s: tuple[float, ...]
    least_s: tuple[float, ...]
    deadlines_s: tuple[float | None, ...]
    idle_power_w: float | None

    def late(self, kind: int, end_s: float) -> bool:
        """Whether a job of `kind` that ends at `end_s` misses its deadline."""
        deadline_s = self.deadlines_s[kind]
        return deadline_s is not None and end_s > deadline_s

    def of_every_job(self, of_kinds: Sequence[float]) -> list[float]:
        """`of_kinds` repeated once for every job of each kind."""
        pairs = zip(of_kinds, self.counts, strict=True)
        return [each for each, count in pairs for _ in range(count)]

    def cost(self, plan: Sequence[PlacedGroup]) -> float:
        """Cost of `plan`, the lower the better."""
        return self.objective.fleet_cost(plan, self)

    def rank(self, plan: Sequence[PlacedGroup]) -> tuple[float, float]:
        """Cost, then makespan: of plans of equal cost, the one that ends first is better."""
        return self.cost(plan), makespan_s(plan)

    def weight(self, group: FleetGroup, waiting: float = WAITING) -> float:
        """Estimated part of `group` in the cost; `waiting`: share of its GPU's jobs behind it."""
        return self.objective.group_weight(group, self, waiting)


# Less than this is rounding, as a share of the time of the GPU that ends last.
_DUST = 1e-9


def arranged(groups: Sequence[FleetGroup], problem: Problem) -> tuple[PlacedGroup, ...]:
    """The best plan of `groups` that is soon found."""
    best = roughly_arranged(groups, problem)
    if problem.objective.order_matters:
        return best
    return min(best, levelled(best, problem), key=problem.rank)


def roughly_arranged(groups: Sequence[FleetGroup], problem: Problem) -> tuple[PlacedGroup, ...]:
    """As `arranged`, faster: the best of dealing them out in a few orders."""
    plans = (dealt(order, problem.gpus) for order in _orders(groups, problem))
    return min(plans, key=problem.rank)


def _orders(groups: Sequence[FleetGroup], problem: Problem) -> Iterator[list[FleetGroup]]:
    def due_s(group: FleetGroup) -> float:
        return min(problem.deadlines_s[kind] or inf for kind in group.members)

    yield sorted(groups, key=lambda each: -each.runs_s)
    if not problem.objective.order_matters:
        return
    yield sorted(groups, key=lambda each: each.runs_s / len(each.members))
    yield sorted(groups, key=lambda each: min(problem.alone_s[kind] for kind in each.members))
    if problem.objective.uses_deadlines:
        yield sorted(groups, key=lambda each: (due_s(each), each.runs_s))


def replaced(
    plan: Sequence[PlacedGroup], old: Sequence[FleetGroup], new: Sequence[FleetGroup], gpus: int
) -> tuple[PlacedGroup, ...] | None:
    """`plan` with `new` groups at the places of `old` ones, longest for longest.

    Groups in excess go to the GPU that has least to do. None where `plan` lacks an old group.
    """
    left, places = list(plan), []
    for group in sorted(old, key=lambda each: -each.runs_s):
        found = next((each for each in left if each.group is group), None)
        if found is None:
            return None
        left.remove(found)
        places.append(found)
    coming = sorted(new, key=lambda each: -each.runs_s)
    left += [PlacedGroup(group, each.gpu, each.start_s)
             for group, each in zip(coming, places, strict=False)]  # fmt: skip
    queues: list[list[FleetGroup]] = [[] for _ in range(gpus)]
    for placed in sorted(left, key=lambda each: each.start_s):
        queues[placed.gpu].append(placed.group)
    for group in coming[len(places) :]:
        min(queues, key=lambda queue: sum(each.runs_s for each in queue)).append(group)
    return queued(queues)


def levelled(plan: Sequence[PlacedGroup], problem: Problem) -> tuple[PlacedGroup, ...]:
    """`plan` with groups moved or swapped from the GPU that ends last, while that helps."""
    groups = [each.group for each in plan]
    runs_s = np.array([each.runs_s for each in groups])
    where = np.array([each.gpu for each in plan])
    while _less_long(runs_s, where, problem.gpus):
        pass
    longest_first = np.argsort(-runs_s, kind="stable")
    return queued([
        [groups[at] for at in longest_first if where[at] == gpu] for gpu in range(problem.gpus)
    ])  # fmt: skip


def _less_long(runs_s: Floats, where: NDArray[np.intp], gpus: int) -> bool:
    """Improve `where` by the move or swap that helps the longest GPU most; whether one does."""
    takes_s = np.bincount(where, weights=runs_s, minlength=gpus)
    longest = int(takes_s.argmax())
    own, others = np.flatnonzero(where == longest), np.flatnonzero(where != longest)
    targets = np.concatenate([where[others], np.delete(np.arange(gpus), longest)])
    comes_s = np.concatenate([runs_s[others], np.zeros(gpus - 1)])
    if not targets.size:
        return False
    less_s = runs_s[own][:, None] - comes_s
    ends_s = np.maximum(takes_s[longest] - less_s, takes_s[targets] + less_s)
    leaves, comes = np.unravel_index(ends_s.argmin(), ends_s.shape)
    if ends_s[leaves, comes] >= takes_s[longest] * (1 - _DUST):
        return False
    where[own[leaves]] = targets[comes]
    if comes < len(others):
        where[others[comes]] = longest
    return True


def soonest_s(takes_s: Sequence[float], places: int) -> float:
    """Least sum of the ends of jobs that run one at a time on `places` places: shortest first."""
    free_s = [0.0] * places
    ends_s = 0.0
    for each_s in sorted(takes_s):
        ends_s += heapreplace(free_s, free_s[0] + each_s) + each_s
    return ends_s
