"""Predictions and estimates of groups of jobs, each computed once, for the search over fleets."""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement

from advisor.plan.recommendation import Question
from advisor.plan.search.fleet.group_costs import WAYS, EstimatedGroups, PredictedGroups
from advisor.plan.search.fleet.placement import FleetGroup, Problem
from advisor.plan.search.job_sets import Kinds, Members
from advisor.plan.search.job_sets import kinds as all_kinds
from advisor.plan.search.proposals import OneGpuSolver, WholeGpuSolver

# Jobs in a group at most: what was ever measured together.
MOST_TOGETHER = 8

InTime = Callable[[], bool]
"""Whether there is time left."""


class GroupPool:
    """Groups predicted so far, and estimates for screening.

    Nothing more is predicted once `in_time` answers no.
    """

    def __init__(self, kinds: Kinds, problem: Problem, question: Question, in_time: InTime) -> None:
        self._kinds, self._problem, self.in_time = kinds, problem, in_time
        surrogate = question.predictor.surrogate([job.profile for job in kinds.jobs])
        self._estimates = None
        if surrogate is not None:
            self._estimates = EstimatedGroups(kinds, surrogate, question, problem.objective)
        ordered = kinds.together
        alike = all_kinds(ordered)

        def predicted(solver: OneGpuSolver | WholeGpuSolver) -> PredictedGroups:
            return PredictedGroups(alike, solver, problem.objective, question.level)

        self._sources = {
            name: predicted(WholeGpuSolver(ordered, question, way)) for name, way in WAYS.items()
        }
        self.thorough = predicted(OneGpuSolver(ordered, question))
        self._estimated: dict[Members, FleetGroup | None] = {}
        self._ways: dict[tuple[Members, str], FleetGroup | None] = {}
        self._best: dict[Members, FleetGroup] = {}

    @property
    def predicted(self) -> int:
        """Number of sets of jobs that were predicted."""
        return len(self._predicted)

    @property
    def member_sets(self) -> int:
        """Number of sets of jobs that were predicted or estimated."""
        return len(self._predicted | set(self._estimated))

    @property
    def _predicted(self) -> set[Members]:
        return {members for members, _ in self._ways}

    @property
    def groups(self) -> list[FleetGroup]:
        """All predicted groups."""
        return [group for group in self._ways.values() if group is not None]

    @property
    def has_estimates(self) -> bool:
        """Whether a surrogate model can estimate thousands of sets of jobs."""
        return self._estimates is not None

    def best(self, members: Members) -> FleetGroup | None:
        """The lightest predicted group of `members`; None where none is known."""
        return self._best.get(members)

    def under(self, members: Members, way: str) -> FleetGroup | None:
        """The predicted group of `members` that shares in the way `way`; None: none is known."""
        return self._ways.get((members, way))

    def estimates(self, member_sets: Iterable[Members]) -> dict[Members, FleetGroup]:
        """The best known group of each of `member_sets` that fits.

        Without a surrogate model all are predicted, while there is time.
        """
        asked = list(dict.fromkeys(member_sets))
        if self._estimates is None:
            return {members: group for members in asked if (group := self.predict(members))}
        new = [
            members
            for members in asked
            if len(members) > 1 and members not in self._best and members not in self._estimated
        ]
        self._estimated |= dict.fromkeys(new)
        self._estimated |= {group.members: group for group in self._estimates.groups(new)}
        found = (
            (members, self._best.get(members) or self._estimated.get(members)) for members in asked
        )
        return {members: group for members, group in found if group is not None}

    def estimated(self, member_sets: Sequence[Members]) -> list[FleetGroup]:
        """The best known groups of `member_sets`, those that do not fit split into single jobs."""
        known = self.estimates(member_sets)
        parts = (
            [members] if members in known else [(kind,) for kind in members]
            for members in member_sets
        )
        return [known.get(part) or self._best[part] for some in parts for part in some]

    def alone(self, kind: int) -> FleetGroup | None:
        """A job alone, whether there is time or not; None where it does not fit."""
        members = (kind,)
        if members not in self._best and (group := self._sources["mps"].group(members)):
            self._ways[members, "mps"] = self._best[members] = group
        return self._best.get(members)

    def predict(self, members: Members, ways: Sequence[str] = ()) -> FleetGroup | None:
        """Predict the lightest group of `members`; None where none fits, or time is up.

        The ways to share in `ways` are tried; without any, those that seem best.
        """
        for way in ways or self._promising(members):
            if len(members) > 1 and (members, way) not in self._ways and self.in_time():
                self._ways[members, way] = self._sources[way].group(members)
                self._compare(self._ways[members, way])
        if members not in self._best:
            self._estimated[members] = None
        return self._best.get(members)

    def offer(self, group: FleetGroup) -> None:
        """Add a predicted group that was found elsewhere."""
        self._ways[group.members, str(group.sharing)] = group
        self._compare(group)

    def _compare(self, group: FleetGroup | None) -> None:
        """Keep the lightest group of each set of members."""
        known = None if group is None else self._best.get(group.members)
        if group is not None and (
            known is None or self._problem.weight(group) < self._problem.weight(known)
        ):
            self._best[group.members] = group

    def may(self, members: Members) -> bool:
        """Whether `members` may share a GPU under MPS, and has the memory to."""
        if self._estimates is not None:
            return self._estimates.may(members, "mps")
        return self.predict(members, ["mps"]) is not None

    def every_member_set(self, most: int) -> list[Members] | None:
        """All sets of jobs that fit on a GPU, each predicted; None where they exceed `most`.

        More jobs never take less memory, so supersets of a set that does not fit are skipped.
        """
        found: list[Members] = []
        smaller: set[Members] = {(kind,) for kind in range(len(self._kinds.jobs))}
        for size in range(2, min(MOST_TOGETHER, sum(self._problem.counts)) + 1):
            larger = self._all_larger(smaller, size, most - len(found))
            if larger is None:
                return None
            for members in larger:
                self.predict(members, list(WAYS))
            if not self.in_time():
                return None
            smaller = {members for members in larger if members in self._best}
            found += smaller
        return found

    def _all_larger(self, smaller: set[Members], size: int, most: int) -> list[Members] | None:
        found = []
        for members in combinations_with_replacement(range(len(self._kinds.jobs)), size):
            rest = (members[:at] + members[at + 1 :] for at in range(size))
            if self._kinds.allows(members) and all(each in smaller for each in rest):
                found.append(members)
                if len(found) > most:
                    return None
        return found

    def _promising(self, members: Members) -> list[str]:
        """The ways to share that seem best, in the order in which to try them."""
        estimate = self._estimated.get(members)
        if estimate is None:
            return list(WAYS)
        return [name for name, sharing in WAYS.items() if sharing == estimate.sharing]
