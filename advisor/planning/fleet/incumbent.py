"""The plan that a search stands at, and the best that it has found."""

from collections.abc import Sequence

from advisor.planning.fleet.arranging import arranged, roughly_arranged
from advisor.planning.fleet.columns import Column, Placed
from advisor.planning.fleet.goals import Problem

# A plan is better to stand at if what it costs and what its groups weigh, each as a share of what
# the best plan has, are less together: lighter groups are where cheaper plans come from.
_WEIGHT = 0.5


class Incumbent:
    """Plans of foretold groups, of which the best is kept.

    Args:
        problem: What they are to be best at.
        plan: The first.
    """

    def __init__(self, problem: Problem, plan: Sequence[Placed]) -> None:
        self._problem = problem
        self.plan = self.stand = tuple(plan)

    @property
    def columns(self) -> list[Column]:
        """Groups of the plan where the search stands."""
        return [each.column for each in self.stand]

    def hear(self, plan: Sequence[Placed]) -> bool:
        """Keep `plan` if it is the best, and stand there if it is better to; whether it is."""
        rank = self._problem.rank
        better = self.score(plan) < self.score(self.stand)
        best = rank(plan) < rank(self.plan)
        if best:
            self.plan = tuple(plan)
        if better or best:
            self.stand = tuple(plan)
        return better or best

    def hear_columns(self, columns: Sequence[Column]) -> bool:
        """Likewise of groups, arranged well."""
        return self.hear(arranged(columns, self._problem))

    def promises(self, columns: Sequence[Column]) -> bool:
        """Whether groups would make a better plan, if they come to what is known of them."""
        return self.rough_score(columns) < self.score(self.stand)

    def rough_score(self, columns: Sequence[Column]) -> float:
        return self.score(roughly_arranged(columns, self._problem))

    def score(self, plan: Sequence[Placed]) -> float:
        """Cost and weight, as shares of the best plan's: the lower, the better."""
        cost, weight = self._problem.cost(self.plan), self._weight(self.plan)
        dear = self._problem.cost(plan) / cost if cost > 0 else 1.0 + self._problem.cost(plan)
        return dear + _WEIGHT * self._weight(plan) / weight

    def _weight(self, plan: Sequence[Placed]) -> float:
        return sum(self._problem.weight(each.column) for each in plan)
