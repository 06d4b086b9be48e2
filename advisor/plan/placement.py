"""Groups of jobs placed on GPUs of one or more models: where and when they run, and the cost."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import fsum, inf
from typing import TypeVar

from advisor.plan.cluster import GpuPool
from advisor.plan.job_sets import Kinds, Members
from advisor.plan.objectives import Objective
from advisor.sharing import Sharing
from advisor.sharing.groups import groups
from advisor.simulation.events import repartition_s

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGroup:
    """A group of jobs that share one GPU, or a job that takes several, and how long they take.

    Attributes:
        pool: Index of the pool whose GPU it takes.
        sharing: How they share; job numbers and limits refer to positions in `members`, from 1.
        ends_s: Seconds from their common start until each job ends, in the order of `members`,
            shape (jobs,); for throughput, in units of each job's time alone.
        energy_j: Joules of its GPUs until the last job ends; None: not known.
        in_seconds: Whether `ends_s` are seconds; if not, pauses do not count.
        gpus: GPUs of one host that it takes at once.
    """

    members: Members
    pool: int
    sharing: Sharing
    ends_s: tuple[float, ...]
    energy_j: float | None
    in_seconds: bool
    gpus: int = 1

    @property
    def runs_s(self) -> float:
        """Seconds until the last job ends."""
        return max(self.ends_s)

    @property
    def holds_s(self) -> float:
        """Seconds until the last job ends, times the number of its GPUs."""
        return self.runs_s * self.gpus

    def after_s(self, before: "FleetGroup") -> float:
        """Return the seconds between the end of `before` and its own start on the same GPU."""
        if not self.in_seconds:
            return 0.0
        return _between_s(before.sharing, len(before.members), self.sharing, len(self.members))


@cache
def _between_s(before: Sharing, jobs_before: int, after: Sharing, jobs: int) -> float:
    return repartition_s(groups(before, jobs_before)[-1], groups(after, jobs)[0])


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A group placed on its GPUs, numbered from 0; its jobs start at `start_s`."""

    group: FleetGroup
    gpus: tuple[int, ...]
    start_s: float

    @property
    def end_s(self) -> float:
        return self.start_s + self.group.runs_s


Placement = tuple[PlacedGroup, ...]
"""A plan: each group on its GPUs."""


def makespan_s(plan: Sequence[PlacedGroup]) -> float:
    """Return when the last job ends."""
    return max(each.end_s for each in plan)


def job_ends_s(plan: Iterable[PlacedGroup]) -> Iterator[tuple[int, float]]:
    """Yield kind and end of each job of `plan`."""
    for placed in plan:
        for kind, end_s in zip(placed.group.members, placed.group.ends_s, strict=True):
            yield kind, placed.start_s + end_s


# Share of a GPU's jobs that wait while a group runs: half, on average.
_WAITING = 0.5


class Problem:
    """Jobs to run on the GPUs of `pools`, numbered pool by pool and host by host from 0.

    Attributes:
        counts: Number of jobs of each kind, shape (kinds,).
        widths: GPUs that a job of each kind takes, same shape.
        alone_s: Seconds of a job of each kind alone, on the GPU where it is fastest; 1 for
            throughput.
        deadlines_s: Deadline of each kind from the start of all.
        hosts: Numbers of the GPUs of each host, pool by pool.
        pool_of: Pool of each GPU.
    """

    def __init__(self, kinds: Kinds, objective: Objective, pools: Sequence[GpuPool]) -> None:
        self.pools, self.objective, self.counts = tuple(pools), objective, kinds.copies
        self.widths = [job.gpus for job in kinds.jobs]
        first = [positions[0] for positions in kinds.positions]
        self.alone_s = [1.0] * len(first)
        if objective.in_seconds:
            self.alone_s = [min(pool.jobs[at].alone_s or 0.0 for pool in pools) for at in first]
        self.deadlines_s = [job.deadline_s for job in kinds.jobs]
        self.gpus, self.hosts = 0, list[list[tuple[int, ...]]]()
        for pool in pools:
            own = range(self.gpus, self.gpus + pool.gpus)
            self.hosts.append([tuple(own[at : at + pool.host_gpus])
                               for at in range(0, pool.gpus, pool.host_gpus)])  # fmt: skip
            self.gpus += pool.gpus
        self.pool_of = [at for at, pool in enumerate(pools) for _ in range(pool.gpus)]

    def gpus_of(self, pool: int) -> list[int]:
        """Return the numbers of the GPUs of a pool."""
        return [gpu for host in self.hosts[pool] for gpu in host]

    def of_every_job(self, of_kinds: Sequence[_Value]) -> list[_Value]:
        """Repeat each of `of_kinds` for every job of its kind."""
        pairs = zip(of_kinds, self.counts, strict=True)
        return [each for each, count in pairs for _ in range(count)]

    def late(self, plan: Iterable[PlacedGroup]) -> int:
        """Count the jobs of `plan` that miss their deadlines."""
        return sum(end_s > (self.deadlines_s[kind] or inf) for kind, end_s in job_ends_s(plan))

    def cost(self, plan: Sequence[PlacedGroup]) -> float:
        """Compute the cost of `plan`, the lower the better; for deadlines it counts late jobs."""
        match self.objective.name:
            case "mean-completion":
                return fsum(end_s for _, end_s in job_ends_s(plan)) / sum(self.counts)
            case "deadlines":
                return float(self.late(plan))
            case "energy":
                last_s, used_j = makespan_s(plan), fsum(each.group.energy_j or 0.0 for each in plan)
                for at, pool in enumerate(self.pools):
                    own = (each.group.holds_s for each in plan if each.group.pool == at)
                    used_j += (pool.gpus * last_s - fsum(own)) * (pool.idle_power_w or 0.0)
                return used_j
            case _:
                return makespan_s(plan)

    def rank(self, plan: Sequence[PlacedGroup]) -> tuple[float, float, float]:
        """Return late jobs, cost and makespan, by which plans are compared in this order."""
        return self.late(plan), self.cost(plan), makespan_s(plan)

    def weight(self, group: FleetGroup) -> float:
        """Estimate a group's part in the cost."""
        if self.objective.order_matters:
            waits_s = _WAITING * sum(self.counts) / self.gpus * group.holds_s
            return sum(group.ends_s) + waits_s
        if self.objective.saves_energy and group.energy_j is not None:
            return group.energy_j
        return group.holds_s


@dataclass(slots=True)
class _Deal:
    """GPUs while groups are dealt out to them."""

    problem: Problem
    plan: list[PlacedGroup] = field(default_factory=list)
    free_s: list[float] = field(default_factory=list)
    last: dict[int, FleetGroup] = field(default_factory=dict)

    def start_s(self, group: FleetGroup, gpu: int) -> float:
        """When `group` may start on one GPU; there is no pause before the first group."""
        before = self.last.get(gpu)
        return self.free_s[gpu] + (group.after_s(before) if before else 0.0)

    def soonest(self, group: FleetGroup) -> tuple[float, tuple[int, ...]]:
        """When and where `group` ends soonest: the GPUs of one host that are free first."""
        ends = []
        for host in self.problem.hosts[group.pool]:
            if len(host) >= group.gpus:
                first = sorted(host, key=self.free_s.__getitem__)[: group.gpus]
                start_s = max(self.start_s(group, gpu) for gpu in first)
                ends.append((start_s + group.runs_s, tuple(first)))
        return min(ends)

    def place(self, group: FleetGroup, gpus: tuple[int, ...]) -> None:
        start_s = max(self.start_s(group, gpu) for gpu in gpus)
        self.plan.append(PlacedGroup(group, gpus, start_s))
        for gpu in gpus:
            self.free_s[gpu], self.last[gpu] = start_s + group.runs_s, group


def dealt(items: Iterable[Sequence[FleetGroup]], problem: Problem) -> Placement:
    """Place each of `items`, in this order, where it ends soonest.

    An item is a group of jobs as it would run on each pool that can hold it.
    """
    deal = _Deal(problem, free_s=[0.0] * problem.gpus)
    for ways in items:
        places = map(deal.soonest, ways)
        _, at, gpus = min((end_s, at, gpus) for at, (end_s, gpus) in enumerate(places))
        deal.place(ways[at], gpus)
    return tuple(deal.plan)


def queued(queues: Sequence[Sequence[FleetGroup]], problem: Problem) -> Placement:
    """Place each of `queues`, of groups that take one GPU, on the GPU of its number."""
    deal = _Deal(problem, free_s=[0.0] * problem.gpus)
    for gpu, queue in enumerate(queues):
        for group in queue:
            deal.place(group, (gpu,))
    return tuple(deal.plan)


def queues_of(plan: Sequence[PlacedGroup], problem: Problem) -> list[list[FleetGroup]]:
    """Return the groups of each GPU in the order in which they run."""
    queues: list[list[FleetGroup]] = [[] for _ in range(problem.gpus)]
    for placed in sorted(plan, key=lambda each: each.start_s):
        for gpu in placed.gpus:
            queues[gpu].append(placed.group)
    return queues


def arranged(items: Sequence[Sequence[FleetGroup]], problem: Problem) -> Placement:
    """Arrange `items` in the best plan of a few orders; what takes most GPUs comes first."""

    def due_s(ways: Sequence[FleetGroup]) -> float:
        return min(problem.deadlines_s[kind] or inf for kind in ways[0].members)

    def runs_s(ways: Sequence[FleetGroup]) -> float:
        return min(each.runs_s for each in ways)

    orders = [sorted(items, key=lambda each: (-each[0].gpus, -runs_s(each)))]
    if problem.objective.order_matters:
        orders.append(sorted(items, key=lambda each: runs_s(each) / len(each[0].members)))
        orders.append(sorted(items, key=lambda each: min(problem.alone_s[kind]
                                                         for kind in each[0].members)))  # fmt: skip
    if any(problem.deadlines_s):
        orders.append(sorted(items, key=lambda each: (due_s(each), runs_s(each))))
    return min((dealt(order, problem) for order in orders), key=problem.rank)


# Less is rounding, as a share of the time of a GPU.
_DUST = 1e-9


def soonest_first(plan: Placement, problem: Problem) -> Placement:
    """Order the groups of each GPU of `plan` so that a job ends soonest on average.

    By Smith's rule what takes least time for each job that waits for it comes first. Plans that
    would cost more, whose order counts for the cost, or with jobs on several GPUs stay.
    """
    wide = any(each.group.gpus > 1 for each in plan)
    if wide or problem.objective.order_matters or not problem.objective.in_seconds:
        return plan
    queues = queues_of(plan, problem)
    for gpu, queue in enumerate(queues):
        sooner = sorted(queue, key=lambda each: each.runs_s / len(each.members))
        if _pauses_s(sooner) <= _pauses_s(queue) + _DUST:
            queues[gpu] = sooner
    other, late, cost = queued(queues, problem), problem.late, problem.cost
    as_good = late(other) <= late(plan) and cost(other) <= (1 + _DUST) * cost(plan)
    return other if as_good else plan


def _pauses_s(queue: Sequence[FleetGroup]) -> float:
    return sum(after.after_s(before) for before, after in pairwise(queue))
