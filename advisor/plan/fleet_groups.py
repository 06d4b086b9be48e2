"""Groups of jobs on GPUs of one or more models: how long they take, where and when they run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum, inf

from advisor.plan.job_sets import Cut, Kinds, Members
from advisor.plan.objectives import Objective
from advisor.plan.values import GpuPool, Totals
from advisor.sharing import Concurrent, Group, Mode, Mps, Naive, Queue, Serial, Sharing
from advisor.sharing.groups import groups, in_turn
from advisor.simulation.turns import repartition_s
from advisor.workload.job import Job

WAYS: dict[Mode, Concurrent] = {"mps": Mps(), "naive": Naive()}
"""To share a whole GPU without limits."""

MOST_TOGETHER = 8
"""Jobs at once on a GPU at most: what was ever measured together."""


@dataclass(frozen=True, slots=True)
class GpuQueue:
    """Kinds of jobs that start on a GPU in this order, at most `at_once` at a time.

    A batch is a queue that starts all its jobs at once. With a `cut`, they start on its instances,
    each alone and where it ends soonest.
    """

    order: Members
    at_once: int
    cut: Cut | None = None

    def sharing(self, way: Concurrent) -> Sharing:
        """Return how its jobs, numbered in their order, share the GPU."""
        jobs = tuple(range(1, len(self.order) + 1))
        if self.at_once == 1 or len(jobs) == 1:
            return Serial()
        if len(jobs) <= self.at_once:
            return way
        return in_turn([Group(jobs, Queue(way, self.at_once))])


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGroup:
    """A group of jobs that share one GPU, or a job that takes several, and how long they take.

    Attributes:
        pool: Index of the pool whose GPU it takes.
        sharing: How they share; job numbers and limits refer to positions in `members`, from 1.
        ends_s: Seconds from their common start until each job ends, in the order of `members`,
            shape (jobs,); for throughput, in units of each job's time alone.
        energy_j: Joules of its GPUs until the last job ends; None: unknown.
        gpus: GPUs of one host that it takes at once.
    """

    members: Members
    pool: int
    sharing: Sharing
    ends_s: tuple[float, ...]
    energy_j: float | None
    gpus: int = 1

    @property
    def runs_s(self) -> float:
        """Seconds until the last job ends."""
        return max(self.ends_s)

    @property
    def holds_s(self) -> float:
        """Seconds until the last job ends, times the number of its GPUs."""
        return self.runs_s * self.gpus


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
        jobs: Kind of each job, increasing, shape (jobs,).
        widths: GPUs that a job of each kind takes, shape (kinds,).
        alone_s: Seconds of a job of each kind alone, on the GPU where it is fastest; 1 for
            throughput.
        deadlines_s: Deadline of each kind from the start of all.
        hosts: Numbers of the GPUs of each host, pool by pool.
        pool_of: Pool of each GPU.
    """

    def __init__(self, kinds: Kinds, objective: Objective, pools: Sequence[GpuPool]) -> None:
        self.pools, self.objective, self.kinds = tuple(pools), objective, kinds
        self.jobs = [kind for kind, copies in enumerate(kinds.copies) for _ in range(copies)]
        self.widths = [job.gpus for job in kinds.jobs]
        self.alone_s = [
            min(self.work_s(pool.jobs[at]) for pool in pools) for at, *_ in kinds.positions
        ]
        self.deadlines_s = [job.deadline_s for job in kinds.jobs]
        self.pool_of = [at for at, pool in enumerate(pools) for _ in range(pool.gpus)]
        self.hosts = []
        for at, pool in enumerate(pools):
            first, size = self.pool_of.index(at), pool.host_gpus
            starts = range(first, first + pool.gpus, size)
            self.hosts.append([tuple(range(start, start + size)) for start in starts])

    def work_s(self, job: Job) -> float:
        """Return the seconds of `job` alone; 1 for throughput, of which that is the unit."""
        return job.alone_s or 0.0 if self.objective.in_seconds else 1.0

    def pause_s(self, before: FleetGroup | None, after: FleetGroup) -> float:
        """Return the seconds between two groups on one GPU; none before the first."""
        if before is None or not self.objective.in_seconds:
            return 0.0
        return _between_s(before.sharing, len(before.members), after.sharing, len(after.members))

    def late(self, plan: Iterable[PlacedGroup]) -> int:
        """Count the jobs of `plan` that miss their deadlines."""
        if not any(self.deadlines_s):
            return 0
        return sum(end_s > (self.deadlines_s[kind] or inf) for kind, end_s in job_ends_s(plan))

    def cost(self, plan: Sequence[PlacedGroup]) -> float:
        """Compute the cost of `plan` by the objective; infinite where it is unknown."""
        objective, last_s = self.objective, makespan_s(plan)
        ends = [*job_ends_s(plan)] if objective.order_matters else []
        totals = Totals(
            makespan_s=last_s,
            ends_s=[end_s for _, end_s in ends],
            deadlines_s=[self.deadlines_s[kind] for kind, _ in ends],
            energy_j=self._energy_j(plan, last_s) if objective.saves_energy else None,
            equal_work=last_s / len(self.jobs),
        )
        cost = objective.value(totals)
        return inf if cost is None else cost

    def _energy_j(self, plan: Sequence[PlacedGroup], last_s: float) -> float:
        """Joules of all GPUs, idle ones too, until the last job ends."""
        total_j = fsum(each.group.energy_j or 0.0 for each in plan)
        for at, pool in enumerate(self.pools):
            busy_s = fsum(each.group.holds_s for each in plan if each.group.pool == at)
            total_j += (pool.gpus * last_s - busy_s) * (pool.idle_power_w or 0.0)
        return total_j

    def rank(self, plan: Sequence[PlacedGroup]) -> tuple[float, float, float]:
        """Return late jobs, cost and makespan, by which plans are compared in this order."""
        return self.late(plan), self.cost(plan), makespan_s(plan)

    def close_rank(self, plan: Sequence[PlacedGroup]) -> tuple[float, float, float]:
        """Return late jobs and cost, and what decides between equal costs: the ends of all."""
        late, cost, _ = self.rank(plan)
        return late, round(cost, 6), sum(each.end_s**2 for each in plan)

    def weight(self, group: FleetGroup) -> float:
        """Estimate a group's part in the cost."""
        if self.objective.order_matters:
            waits_s = _WAITING * len(self.jobs) / len(self.pool_of) * group.holds_s
            return sum(group.ends_s) + waits_s
        if self.objective.saves_energy and group.energy_j is not None:
            return group.energy_j
        return group.holds_s


@cache
def _between_s(before: Sharing, jobs_before: int, after: Sharing, jobs: int) -> float:
    return repartition_s(groups(before, jobs_before)[-1], groups(after, jobs)[0])


def dealt(
    items: Iterable[Sequence[FleetGroup]], problem: Problem, before: Placement = ()
) -> Placement:
    """Place each of `items`, in this order, where it ends soonest, after what runs `before`.

    An item is a group of jobs as it would run on each pool that can hold it. On a host it takes the
    GPUs that are free first.
    """
    plan, free_s = list[PlacedGroup](), [0.0] * len(problem.pool_of)
    last: dict[int, FleetGroup] = {}
    for placed in before:
        for gpu in placed.gpus:
            free_s[gpu], last[gpu] = placed.end_s, placed.group
    for ways in items:
        places = []
        for at, group in enumerate(ways):
            for host in problem.hosts[group.pool]:
                if len(host) >= group.gpus:
                    gpus = tuple(sorted(host, key=free_s.__getitem__)[: group.gpus])
                    start_s = max(
                        free_s[gpu] + problem.pause_s(last.get(gpu), group) for gpu in gpus
                    )
                    places.append((start_s + group.runs_s, at, gpus, start_s))
        end_s, at, gpus, start_s = min(places)
        plan.append(PlacedGroup(ways[at], gpus, start_s))
        free_s = [end_s if gpu in gpus else own_s for gpu, own_s in enumerate(free_s)]
        last |= dict.fromkeys(gpus, ways[at])
    return tuple(plan)


def arranged(
    items: Sequence[Sequence[FleetGroup]], problem: Problem, before: Placement = ()
) -> Placement:
    """Arrange `items` after what runs `before`, in the best of a few orders, the widest first."""

    def runs_s(ways: Sequence[FleetGroup]) -> float:
        return min(each.runs_s for each in ways)

    def least(of_kinds: Sequence[float | None], ways: Sequence[FleetGroup]) -> float:
        return min(of_kinds[kind] or inf for kind in ways[0].members)

    orders = [sorted(items, key=lambda each: (-each[0].gpus, -runs_s(each)))]
    if problem.objective.order_matters:
        orders.append(sorted(items, key=lambda each: runs_s(each) / len(each[0].members)))
        orders.append(sorted(items, key=lambda each: least(problem.alone_s, each)))
    if any(problem.deadlines_s):
        due_s = problem.deadlines_s
        orders.append(sorted(items, key=lambda each: (least(due_s, each), runs_s(each))))
    return min((dealt(order, problem, before) for order in orders), key=problem.rank)
