"""What is known of groups of jobs, each worked out once."""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement

from advisor.plan.search.fleet.estimates import WAYS, ColumnSources
from advisor.plan.search.fleet.fleet_groups import FleetGroup, Kinds, Team
from advisor.plan.search.fleet.placement import Problem

# Jobs in a group at most: what was ever measured together.
MOST_TOGETHER = 8

InTime = Callable[[], bool]
"""Whether there is time left."""


class Pool:
    """Foretold columns, and rough ones for screening.

    Args:
        kinds: Of all jobs.
        problem: What the plan is to be best at.
        sources: Of columns.
        in_time: Nothing is worked out any more where it says no.
    """

    def __init__(
        self, kinds: Kinds, problem: Problem, sources: ColumnSources, in_time: InTime
    ) -> None:
        self._kinds, self._problem, self._sources = kinds, problem, sources
        self.in_time = in_time
        self._rough: dict[Team, FleetGroup | None] = {}
        self._ways: dict[tuple[Team, str], FleetGroup | None] = {}
        self._best: dict[Team, FleetGroup] = {}

    @property
    def foretold(self) -> int:
        """How many teams were."""
        return len(self._foretold)

    @property
    def teams(self) -> int:
        """How many were thought of."""
        return len(self._foretold | set(self._rough))

    @property
    def _foretold(self) -> set[Team]:
        return {team for team, _ in self._ways}

    @property
    def columns(self) -> list[FleetGroup]:
        """All that are foretold."""
        return [column for column in self._ways.values() if column is not None]

    @property
    def is_rough(self) -> bool:
        """Whether thousands of teams can be estimated."""
        return self._sources.rough is not None

    def best(self, team: Team) -> FleetGroup | None:
        """The lightest foretold column of `team`; None where none is known."""
        return self._best.get(team)

    def under(self, team: Team, way: str) -> FleetGroup | None:
        """The foretold column of `team` that shares so, likewise."""
        return self._ways.get((team, way))

    def estimates(self, teams: Iterable[Team]) -> dict[Team, FleetGroup]:
        """What each of `teams` comes to, as well as is known; those that do not fit are left out.

        Without rough answers all are foretold, while there is time.
        """
        asked = list(dict.fromkeys(teams))
        if self._sources.rough is None:
            return {team: column for team in asked if (column := self.foretell(team))}
        new = [team for team in asked
               if len(team) > 1 and team not in self._best and team not in self._rough]  # fmt: skip
        self._rough |= dict.fromkeys(new)
        self._rough |= {column.team: column for column in self._sources.rough.columns(new)}
        found = ((team, self._best.get(team) or self._rough.get(team)) for team in asked)
        return {team: column for team, column in found if column is not None}

    def estimated(self, teams: Sequence[Team]) -> list[FleetGroup]:
        """Columns of `teams`, as well as they are known; of those that do not fit, jobs alone."""
        known = self.estimates(teams)
        parts = ([team] if team in known else [(kind,) for kind in team] for team in teams)
        return [known.get(part) or self._best[part] for some in parts for part in some]

    def alone(self, kind: int) -> FleetGroup | None:
        """A job alone, whether there is time or not; None where it does not fit."""
        team = (kind,)
        if team not in self._best and (column := self._sources.ways["mps"].column(team)):
            self._ways[team, "mps"] = self._best[team] = column
        return self._best.get(team)

    def foretell(self, team: Team, ways: Sequence[str] = ()) -> FleetGroup | None:
        """The lightest column of `team`, foretold; None where it does not fit, or time is over.

        Args:
            team: A job alone, or more.
            ways: Of sharing that are looked at; none: what seems best, or both.
        """
        for way in ways or self._promising(team):
            if len(team) > 1 and (team, way) not in self._ways and self.in_time():
                self._ways[team, way] = self._sources.ways[way].column(team)
                self._compare(self._ways[team, way])
        if team not in self._best:
            self._rough[team] = None
        return self._best.get(team)

    def hear(self, column: FleetGroup) -> None:
        """Of a foretold column that came from elsewhere."""
        self._ways[column.team, str(column.sharing)] = column
        self._compare(column)

    def _compare(self, column: FleetGroup | None) -> None:
        """Of a team, keep the lightest column."""
        known = None if column is None else self._best.get(column.team)
        if column is not None and (
            known is None or self._problem.weight(column) < self._problem.weight(known)
        ):
            self._best[column.team] = column

    def may(self, team: Team) -> bool:
        """Whether `team` may share a GPU under MPS, and has the memory to."""
        if self._sources.rough is not None:
            return self._sources.rough.may(team, "mps")
        return self.foretell(team, ["mps"]) is not None

    def every_team(self, most: int) -> list[Team] | None:
        """Whoever may be together on a GPU, foretold in each way; None: more than `most`.

        More jobs never take less memory, so a team of which a part does not fit is left out.
        """
        found: list[Team] = []
        smaller: set[Team] = {(kind,) for kind in range(len(self._kinds.jobs))}
        for size in range(2, min(MOST_TOGETHER, sum(self._problem.counts)) + 1):
            larger = self._all_larger(smaller, size, most - len(found))
            if larger is None:
                return None
            for team in larger:
                self.foretell(team, list(WAYS))
            if not self.in_time():
                return None
            smaller = {team for team in larger if team in self._best}
            found += smaller
        return found

    def _all_larger(self, smaller: set[Team], size: int, most: int) -> list[Team] | None:
        found = []
        for team in combinations_with_replacement(range(len(self._kinds.jobs)), size):
            rest = (team[:at] + team[at + 1 :] for at in range(size))
            if self._kinds.allows(team) and all(each in smaller for each in rest):
                found.append(team)
                if len(found) > most:
                    return None
        return found

    def _promising(self, team: Team) -> list[str]:
        """The ways that seem best, in the order in which they are tried."""
        rough = self._rough.get(team)
        if rough is None:
            return list(WAYS)
        return [name for name, sharing in WAYS.items() if sharing == rough.sharing]
