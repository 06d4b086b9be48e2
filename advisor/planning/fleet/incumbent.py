"""The plan that a search stands at, and the best that it has found."""

from collections.abc import Sequence
from math import inf

from advisor.planning.fleet.arranging import arranged, levelled, replaced
from advisor.planning.fleet.columns import Column, Placed
from advisor.planning.fleet.goals import IN_TURN, Problem

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

    def hear_change(self, old: Sequence[Column], new: Sequence[Column]) -> bool:
        """Likewise of groups in place of some."""
        plan = self._changed(old, new)
        return plan is not None and self.hear(plan)

    def promises(self, old: Sequence[Column], new: Sequence[Column]) -> bool:
        """Whether that would be better, if `new` groups come to what is known of them."""
        plan = self._changed(old, new)
        return plan is not None and self.score(plan) < self.score(self.stand)

    def score_in_place(self, old: Sequence[Column], new: Sequence[Column]) -> float:
        """Score with `new` groups just where `old` ones were: soon said, of many."""
        plan = replaced(self.stand, old, new, self._problem.gpus)
        return inf if plan is None else self.score(plan)

    def _changed(self, old: Sequence[Column], new: Sequence[Column]) -> tuple[Placed, ...] | None:
        """Likewise, or all arranged anew, whichever is better."""
        plan = replaced(self.stand, old, new, self._problem.gpus)
        if plan is None:
            return None
        here = plan if self._problem.aim in IN_TURN else levelled(plan, self._problem)
        anew = arranged([each.column for each in plan], self._problem)
        return min((plan, here, anew), key=self.score)

    def score(self, plan: Sequence[Placed]) -> float:
        """Cost and weight, as shares of the best plan's: the lower, the better."""
        cost, weight = self._problem.cost(self.plan), self._weight(self.plan)
        dear = self._problem.cost(plan) / cost if cost > 0 else 1.0 + self._problem.cost(plan)
        return dear + _WEIGHT * self._weight(plan) / weight

    def _weight(self, plan: Sequence[Placed]) -> float:
        return sum(self._problem.weight(each.column) for each in plan)
