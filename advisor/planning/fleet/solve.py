"""The best plan for many jobs on equal GPUs that can be found in a given time.

Thousands of groups are estimated roughly, CP-SAT picks among them, and what it picks is foretold,
until every group of the plan is foretold or its time is over. In what time is left, the one-GPU
solver looks for better ways to share within the groups of the plan.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from time import monotonic

from advisor.errors import NothingFits
from advisor.planning.fleet.columns import Column, Kinds, Placed, Team, dealt
from advisor.planning.fleet.estimates import Foretold, Rough
from advisor.planning.fleet.goals import Problem
from advisor.planning.fleet.growing import beside, gain, grown
from advisor.planning.fleet.packing import Packing, packed

# Shares of the time: until no more groups are thought of, until the packing of all groups has
# ended, until none more is foretold, until all packing has ended; and what each of the packings
# before may take.
_GROWING, _LONGEST, _FORETELLING, _PACKING, _ROUND = 0.4, 0.55, 0.9, 1.0, 0.08
# What the one-GPU solver is taken to need for a group before it was asked, as a share of the time.
_THOROUGH = 0.25
# Neighbours of the plan's groups that are added after each packing.
_NEIGHBOURS = 60


@dataclass(frozen=True, slots=True)
class Found:
    """A plan of groups that are all foretold, and what is known of better ones.

    Attributes:
        cost: As `Problem.cost` says.
        bound: No plan of the groups that were thought of costs less, if those that are not
            foretold cost what was estimated.
        groups: How many were thought of.
        foretold: How many of them were foretold.
        seconds: That it took.
        in_time: Whether the last search ended before its time did.
    """

    plan: tuple[Placed, ...]
    cost: float
    bound: float
    groups: int
    foretold: int
    seconds: float
    in_time: bool

    @property
    def gap(self) -> float:
        """Share of the cost that a better plan of these groups might save, 0..1."""
        return max(0.0, 1 - self.bound / self.cost) if self.cost > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Sources:
    """Where columns come from.

    Attributes:
        rough: For thousands of groups; None: each that is thought of is foretold, as many as
            there is time for.
        foretold: For those that are picked.
        thorough: For those of the plan: the one-GPU solver.
    """

    rough: Rough | None
    foretold: Foretold
    thorough: Foretold


class FleetSolver:
    """Thinks of groups, packs them, and foretells what is picked.

    Args:
        kinds: Of all jobs.
        problem: What the plan is to be best at.
        sources: Of columns.
        limit_s: Seconds that it may take.
    """

    def __init__(self, kinds: Kinds, problem: Problem, sources: Sources, limit_s: float) -> None:
        self._kinds, self._problem, self._sources = kinds, problem, sources
        self._began_s, self._limit_s = monotonic(), limit_s
        self._pool: dict[Team, Column] = {}
        self._tried: set[Team] = set()

    def best(self) -> Found:
        """The best plan found.

        Raises:
            NothingFits: A job fits on no GPU, not even alone.
        """
        sure = self._one_by_one()
        for column in grown(self._kinds, self._problem, self._thought_of):
            self._pool.setdefault(column.team, column)
        while self._left_s(_GROWING) > 0:
            found = self._packed(sure, self._limit_s * _ROUND)
            if not self._vague(found.plan):
                break
            sure = self._foretold_like(found.plan, sure)
            self._grow_beside(found.plan)
        whole = self._packed(sure, self._left_s(_LONGEST))
        sure = self._foretold_like(whole.plan, sure)
        if self._vague(whole.plan) or not whole.in_time:
            known = [column for column in self._pool.values() if column.foretold]
            sure = packed(known, self._problem, self._left_s(_PACKING), sure).plan
        sure = self._thorough(sure)
        cost = self._problem.cost(sure)
        return Found(
            sure, cost, min(whole.bound, cost), len(self._pool),
            sum(column.foretold for column in self._pool.values()),
            monotonic() - self._began_s, whole.in_time,
        )  # fmt: skip

    def _left_s(self, share: float) -> float:
        """Until `share` of the time is over; at least a moment."""
        return max(0.0, self._began_s + share * self._limit_s - monotonic())

    def _one_by_one(self) -> tuple[Placed, ...]:
        """Each job alone, the shortest or the longest ones first."""
        for kind, job in enumerate(self._kinds.jobs):
            if not self._foretell((kind,)):
                raise NothingFits(
                    f"{job.name} does not fit on a GPU even alone. Use a smaller batch, or a GPU "
                    f"with more memory."
                )
        alone = [(self._pool[kind,],) * count for kind, count in enumerate(self._problem.counts)]
        every = sorted(chain(*alone), key=lambda column: column.runs_s)
        plans = [dealt(order, self._problem.gpus) for order in (every, every[::-1])]
        return min(plans, key=self._problem.rank)

    def _packed(self, sure: Sequence[Placed], limit_s: float) -> Packing:
        return packed(list(self._pool.values()), self._problem, limit_s, sure)

    def _thought_of(self, teams: Sequence[Team]) -> Iterator[Column]:
        new = [team for team in teams if team not in self._pool and team not in self._tried]
        if self._sources.rough is not None:
            yield from self._sources.rough.columns(new)
            return
        for team in new:
            if not self._left_s(_GROWING):
                return
            if column := self._sources.foretold.column(team):
                yield column

    def _grow_beside(self, plan: Sequence[Placed]) -> None:
        teams = beside({each.column.team for each in plan}, self._kinds)
        found = sorted(self._thought_of(teams), key=lambda each: -gain(each, self._problem))
        self._pool.update((column.team, column) for column in found[:_NEIGHBOURS])

    def _vague(self, plan: Sequence[Placed]) -> list[Team]:
        teams = {each.column.team for each in plan if not each.column.foretold}
        return sorted(teams, key=lambda team: (len(team), team))

    def _foretold_like(
        self, plan: Sequence[Placed], sure: tuple[Placed, ...]
    ) -> tuple[Placed, ...]:
        """The better of `sure` and of `plan` with all its groups foretold, where they all fit."""
        for team in self._vague(plan):
            if self._left_s(_FORETELLING):
                self._foretell(team)
        columns = [self._pool.get(each.column.team) for each in plan]
        known = [column for column in columns if column is not None and column.foretold]
        if len(known) < len(columns):
            return sure
        return min(sure, dealt(known, self._problem.gpus), key=self._problem.rank)

    def _foretell(self, team: Team) -> bool:
        """Put `team` into the pool as it is foretold, or take it out; whether it fits."""
        self._pool.pop(team, None)
        self._tried.add(team)
        if column := self._sources.foretold.column(team):
            self._pool[team] = column
        return team in self._pool

    def _thorough(self, plan: tuple[Placed, ...]) -> tuple[Placed, ...]:
        """`plan` with better ways to share within its groups, the longest first, in time."""
        longest_s = self._limit_s * _THOROUGH
        for team in self._longest_first(plan):
            began_s = monotonic()
            if self._left_s(1) <= longest_s:
                break
            if better := self._sources.thorough.column(team):
                columns = [better if each.column.team == team else each.column for each in plan]
                plan = min(plan, dealt(columns, self._problem.gpus), key=self._problem.rank)
            longest_s = max(longest_s, monotonic() - began_s)
        return plan

    def _longest_first(self, plan: Sequence[Placed]) -> list[Team]:
        runs_s = {each.column.team: each.column.runs_s for each in plan}
        shared = [team for team in runs_s if len(team) > 1]
        return sorted(shared, key=lambda team: -runs_s[team])
