"""Jobs by kind, and groups of them that share one GPU from the same moment on."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.planning.fleet.renumbered import groups_of
from advisor.sharing import Group, Serial, Sharing
from advisor.simulation.repartition import repartition_s
from advisor.workload.job import Job

Team = tuple[int, ...]
"""Numbers of the kinds of jobs that share a GPU, increasing; copies repeat theirs."""

_IDLE = Group((1,), Serial())


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
    """

    team: Team
    sharing: Sharing
    ends_s: tuple[float, ...]
    energy_j: float | None
    foretold: bool
    batches: tuple[int, ...] = ()

    @property
    def runs_s(self) -> float:
        """Until the last job ends."""
        return max(self.ends_s)

    @property
    def set_up_s(self) -> float:
        """To make an idle GPU ready for it."""
        return repartition_s(_IDLE, groups_of(self.sharing, self._numbers)[0])

    @property
    def clear_s(self) -> float:
        """To make its GPU idle again."""
        return repartition_s(groups_of(self.sharing, self._numbers)[-1], _IDLE)

    @property
    def _numbers(self) -> tuple[int, ...]:
        return tuple(range(1, len(self.team) + 1))


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
    """`columns` in this order, each on the GPU that is free first, as early as it can start.

    The first on a GPU finds it set up.
    """
    free_s, plan = [0.0] * gpus, []
    for number, column in enumerate(columns):
        gpu = free_s.index(min(free_s))
        start_s = free_s[gpu] + (column.set_up_s if number >= gpus else 0.0)
        plan.append(Placed(column, gpu, start_s))
        free_s[gpu] = start_s + column.runs_s + column.clear_s
    return tuple(plan)
