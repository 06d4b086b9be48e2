"""Jobs by kind, and groups of them that share one GPU from the same moment on."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from advisor.sharing import Sharing
from advisor.sharing.traversal import groups
from advisor.timeline.waiting_jobs import repartition_s
from advisor.workload.job import Job

Members = tuple[int, ...]
"""Numbers of the kinds of jobs that share a GPU, increasing; copies repeat theirs."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """Jobs of which only the number matters: those that are equal are one kind.

    Attributes:
        jobs: One of each kind, shape (kinds,).
        positions: Where the jobs of each kind stand among all, from 0.
    """

    jobs: tuple[Job, ...]
    positions: tuple[tuple[int, ...], ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.positions))

    @property
    def together(self) -> tuple[Job, ...]:
        """All jobs, those of a kind next to each other, in the order of the kinds."""
        pairs = zip(self.jobs, self.counts, strict=True)
        return tuple(job for job, count in pairs for _ in range(count))

    def of(self, members: Members) -> tuple[Job, ...]:
        """The jobs of `members`, in its order."""
        return tuple(self.jobs[kind] for kind in members)

    def allows(self, members: Members) -> bool:
        """Whether there are as many jobs of each kind."""
        return all(count <= len(self.positions[kind]) for kind, count in Counter(members).items())


def kinds(jobs: Sequence[Job]) -> Kinds:
    """`jobs` by kind, in the order of the first of each."""
    first = [jobs.index(job) for job in jobs]  # a profile is long: comparing is less than hashing
    places = [tuple(at for at, other in enumerate(first) if other == each) for each in first]
    one_each = [at for at, other in enumerate(first) if other == at]
    return Kinds(tuple(jobs[at] for at in one_each), tuple(places[at] for at in one_each))


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetJobs:
    """The jobs that are to run on equal GPUs, and how long they take alone.

    Attributes:
        gpus: Equal GPUs that there are.
        counts: Jobs of each kind, shape (kinds,).
        alone_s: Seconds that a job of each kind takes alone, same shape.
        least_s: Seconds that it takes at least, however it runs, same shape.
        deadlines_s: From the start of all, same shape; None: the kind has none.
        idle_power_w: Of a GPU on which nothing runs; None where it was not measured.
    """

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
        """What each kind of job has, once for every job of it."""
        pairs = zip(of_kinds, self.counts, strict=True)
        return [each for each, count in pairs for _ in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGroup:
    """A group of jobs on one GPU, and what comes of it.

    Attributes:
        members: Who.
        sharing: How; its numbers and limits count in `members`.
        ends_s: From their common start until each ends, in the order of `members`, shape (jobs,);
            of a throughput, in units of the time that each job takes alone.
        energy_j: Of its GPU until the last ends; None: not known.
        predicted: Whether the predictor answered for it; else it is an estimate.
        batches: Examples a step of each job, as `Candidate` has them.
        in_seconds: Whether `ends_s` are; of a throughput, no pause between groups counts.
    """

    members: Members
    sharing: Sharing
    ends_s: tuple[float, ...]
    energy_j: float | None
    predicted: bool
    batches: tuple[int, ...] = ()
    in_seconds: bool = True

    @property
    def runs_s(self) -> float:
        """Until the last job ends."""
        return max(self.ends_s)

    def after_s(self, before: "FleetGroup") -> float:
        """Between the end of `before` and its own start on the same GPU."""
        if not self.in_seconds:
            return 0.0
        return _between_s(before.sharing, len(before.members), self.sharing, len(self.members))


@cache
def _between_s(before: Sharing, jobs_before: int, after: Sharing, jobs: int) -> float:
    last = groups(before, jobs_before)[-1]
    first = groups(after, jobs)[0]
    return repartition_s(last, first)


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A group on a GPU.

    Attributes:
        gpu: From 0.
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
    """Of each job its kind, and when it ends."""
    for each in plan:
        yield from zip(each.group.members, each.ends_s, strict=True)


def dealt(groups: Sequence[FleetGroup], gpus: int) -> tuple[PlacedGroup, ...]:
    """`groups` in this order, each on the GPU that is free first, as early as it can start."""
    free_s = [0.0] * gpus
    last: list[FleetGroup | None] = [None] * gpus
    plan = []
    for group in groups:
        gpu = free_s.index(min(free_s))
        placed = _after(last[gpu], group, gpu, free_s[gpu])
        plan.append(placed)
        last[gpu], free_s[gpu] = group, placed.start_s + group.runs_s
    return tuple(plan)


def queued(queues: Sequence[Sequence[FleetGroup]]) -> tuple[PlacedGroup, ...]:
    """Each queue on a GPU of its own, one group after another."""
    plan = []
    for gpu, queue in enumerate(queues):
        free_s, last = 0.0, None
        for group in queue:
            placed = _after(last, group, gpu, free_s)
            plan.append(placed)
            last, free_s = group, placed.start_s + group.runs_s
    return tuple(plan)


def _after(last: FleetGroup | None, group: FleetGroup, gpu: int, free_s: float) -> PlacedGroup:
    """The first on a GPU finds it set up."""
    return PlacedGroup(group, gpu, free_s if last is None else free_s + group.after_s(last))
