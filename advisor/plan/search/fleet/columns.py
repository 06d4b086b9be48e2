"""Jobs by kind, and groups of them that share one GPU from the same moment on."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from advisor.sharing import Sharing
from advisor.sharing.relabel import groups_of
from advisor.timeline.waiting_jobs import repartition_s
from advisor.workload.job import Job

Team = tuple[int, ...]
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

    def of(self, team: Team) -> tuple[Job, ...]:
        """The jobs of `team`, in its order."""
        return tuple(self.jobs[kind] for kind in team)

    def allows(self, team: Team) -> bool:
        """Whether there are as many jobs of each kind."""
        return all(count <= len(self.positions[kind]) for kind, count in Counter(team).items())


def kinds(jobs: Sequence[Job]) -> Kinds:
    """`jobs` by kind, in the order in which the first of each stands."""
    first = [jobs.index(job) for job in jobs]  # a profile is long: comparing is less than hashing
    places = [tuple(at for at, other in enumerate(first) if other == each) for each in first]
    one_each = [at for at, other in enumerate(first) if other == at]
    return Kinds(tuple(jobs[at] for at in one_each), tuple(places[at] for at in one_each))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A group of jobs on one GPU, and what comes of it.

    Attributes:
        team: Who.
        sharing: How; its numbers and limits count in `team`.
        ends_s: From their common start until each ends, in the order of `team`, shape (jobs,);
            of a throughput, in units of the time that each job takes alone.
        energy_j: Of its GPU until the last ends; None: not known.
        foretold: Whether the predictor answered for it; else it is a rough estimate.
        batches: Examples a step of each job, as `Setup` has them.
        in_seconds: Whether `ends_s` are; of a throughput, no pause between groups counts.
    """

    team: Team
    sharing: Sharing
    ends_s: tuple[float, ...]
    energy_j: float | None
    foretold: bool
    batches: tuple[int, ...] = ()
    in_seconds: bool = True

    @property
    def runs_s(self) -> float:
        """Until the last job ends."""
        return max(self.ends_s)

    def after_s(self, before: "Column") -> float:
        """Between the end of `before` and its own start on the same GPU."""
        if not self.in_seconds:
            return 0.0
        return _between_s(before.sharing, len(before.team), self.sharing, len(self.team))


@cache
def _between_s(before: Sharing, jobs_before: int, after: Sharing, jobs: int) -> float:
    last = groups_of(before, range(1, jobs_before + 1))[-1]
    first = groups_of(after, range(1, jobs + 1))[0]
    return repartition_s(last, first)


@dataclass(frozen=True, slots=True)
class Placed:
    """A column on a GPU.

    Attributes:
        gpu: From 0.
        start_s: When its jobs start.
    """

    column: Column
    gpu: int
    start_s: float

    @property
    def ends_s(self) -> Iterator[float]:
        """When each job ends, in the order of the column's team."""
        return (self.start_s + end_s for end_s in self.column.ends_s)


def dealt(columns: Sequence[Column], gpus: int) -> tuple[Placed, ...]:
    """`columns` in this order, each on the GPU that is free first, as early as it can start."""
    free_s = [0.0] * gpus
    last: list[Column | None] = [None] * gpus
    plan = []
    for column in columns:
        gpu = free_s.index(min(free_s))
        placed = _after(last[gpu], column, gpu, free_s[gpu])
        plan.append(placed)
        last[gpu], free_s[gpu] = column, placed.start_s + column.runs_s
    return tuple(plan)


def queued(queues: Sequence[Sequence[Column]]) -> tuple[Placed, ...]:
    """Each queue on a GPU of its own, one column after another."""
    plan = []
    for gpu, queue in enumerate(queues):
        free_s, last = 0.0, None
        for column in queue:
            placed = _after(last, column, gpu, free_s)
            plan.append(placed)
            last, free_s = column, placed.start_s + column.runs_s
    return tuple(plan)


def _after(last: Column | None, column: Column, gpu: int, free_s: float) -> Placed:
    """The first on a GPU finds it set up."""
    return Placed(column, gpu, free_s if last is None else free_s + column.after_s(last))
