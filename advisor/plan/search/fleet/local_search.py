"""Steps from one plan of foretold groups to better ones."""

from collections.abc import Iterator, Sequence
from math import inf
from random import Random

from advisor.plan.search.fleet.fleet_groups import FleetGroup, PlacedGroup, Team
from advisor.plan.search.fleet.group_pool import Pool
from advisor.plan.search.fleet.grouping import changes, rebatched, some_of
from advisor.plan.search.fleet.placement import Problem, arranged, levelled, replaced

# A plan is better to stand at if what it costs and what its groups weigh, each as a share of what
# the best plan has, are less together: lighter groups are where cheaper plans come from.
_WEIGHT = 0.5


class Incumbent:
    """Plans of foretold groups, of which the best is kept.

    Args:
        problem: What they are to be best at.
        plan: The first.
    """

    def __init__(self, problem: Problem, plan: Sequence[PlacedGroup]) -> None:
        self._problem = problem
        self.plan = self.stand = tuple(plan)

    @property
    def columns(self) -> list[FleetGroup]:
        """Groups of the plan where the search stands."""
        return [each.group for each in self.stand]

    def hear(self, plan: Sequence[PlacedGroup]) -> bool:
        """Keep `plan` if it is the best, and stand there if it is better to; whether it is."""
        rank = self._problem.rank
        better = self.score(plan) < self.score(self.stand)
        best = rank(plan) < rank(self.plan)
        if best:
            self.plan = tuple(plan)
        if better or best:
            self.stand = tuple(plan)
        return better or best

    def hear_columns(self, columns: Sequence[FleetGroup]) -> bool:
        """Likewise of groups, arranged well."""
        return self.hear(arranged(columns, self._problem))

    def hear_change(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> bool:
        """Likewise of groups in place of some."""
        plan = self._changed(old, new)
        return plan is not None and self.hear(plan)

    def promises(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> bool:
        """Whether that would be better, if `new` groups come to what is known of them."""
        plan = self._changed(old, new)
        return plan is not None and self.score(plan) < self.score(self.stand)

    def score_in_place(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> float:
        """Score with `new` groups just where `old` ones were: soon said, of many."""
        plan = replaced(self.stand, old, new, self._problem.gpus)
        return inf if plan is None else self.score(plan)

    def _changed(
        self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]
    ) -> tuple[PlacedGroup, ...] | None:
        """Likewise, or all arranged anew, whichever is better."""
        plan = replaced(self.stand, old, new, self._problem.gpus)
        if plan is None:
            return None
        here = plan if self._problem.objective.order_matters else levelled(plan, self._problem)
        anew = arranged([each.group for each in plan], self._problem)
        return min((plan, here, anew), key=self.score)

    def score(self, plan: Sequence[PlacedGroup]) -> float:
        """Cost and weight, as shares of the best plan's: the lower, the better."""
        cost, weight = self._problem.cost(self.plan), self._weight(self.plan)
        dear = self._problem.cost(plan) / cost if cost > 0 else 1.0 + self._problem.cost(plan)
        return dear + _WEIGHT * self._weight(plan) / weight

    def _weight(self, plan: Sequence[PlacedGroup]) -> float:
        return sum(self._problem.weight(each.group) for each in plan)


# Groups in a block, one size after another.
_BLOCKS = (4, 6, 3, 8, 5)
# Changes of the whole plan that are looked at in a round, and foretold at most.
_LOOKED_AT, _TRIED = 300, 8
_SEED = 1


class Improver:
    """Batches groups of a plan anew, and lets jobs swap places; what is drawn is always the same.

    Args:
        pool: Knows what teams come to.
        problem: What plans are to be best at.
        incumbent: Hears of every plan.
    """

    def __init__(self, pool: Pool, problem: Problem, incumbent: Incumbent) -> None:
        self._pool, self._problem, self._incumbent = pool, problem, incumbent
        self._draw = Random(_SEED)
        self._rounds = 0

    def hear(self, teams: Sequence[Team]) -> None:
        """Foretell `teams` one after another, and hear of each plan that they make meanwhile.

        Jobs whose team is not foretold yet run alone, as they do when the time ends there: so what
        is found in less time is heard of in more time as well.
        """
        parts: list[Team] = []
        for at, team in enumerate(teams):
            later = [(kind,) for each in teams[at + 1 :] for kind in each]
            for now in self._fitting(team):
                self._hear_parts([*parts, *now, *later])
            parts += now

    def _hear_parts(self, parts: Sequence[Team]) -> None:
        """Hear of `parts` in the ways that seem best, and of all under MPS."""
        best = [column for part in parts if (column := self._pool.best(part))]
        under_mps = [self._pool.under(each.team, "mps") or each for each in best]
        for columns in (best, under_mps):
            self._incumbent.hear_columns(columns)

    def _fitting(self, team: Team) -> Iterator[list[Team]]:
        """What `team` is known to be divided into: itself where it fits, jobs alone at first."""
        for ways in (["mps"], []):
            if self._pool.foretell(team, ways):
                yield [team]
            elif not self._pool.in_time():
                yield [(kind,) for kind in team]
                return
        if self._pool.best(team) is None:
            half = len(team) // 2
            later = [(kind,) for kind in team[half:]]
            for first in self._fitting(team[:half]):
                yield [*first, *later]
            for second in self._fitting(team[half:]):
                yield [*first, *second]

    def round(self) -> bool:
        """Try one kind of change; whether it helps."""
        self._rounds += 1
        number, odd = divmod(self._rounds - 1, 2)
        return self._change_few() if odd else self._batch_anew(number)

    def _batch_anew(self, number: int) -> bool:
        """Batch the jobs of some groups anew, block by block, and hear of what is foretold."""
        columns = self._incumbent.columns
        self._draw.shuffle(columns)
        size = _BLOCKS[number % len(_BLOCKS)]
        blocks = [columns[at : at + size] for at in range(0, len(columns), size)]
        teams = [[each.team for each in block] for block in blocks]
        starts = [self._mixed(block) for block in teams] if number % 2 else teams
        found = rebatched(starts, self._pool, self._problem, self._draw)
        pairs = [(block, new) for block, old, new in zip(blocks, teams, found, strict=True)
                 if new != old]  # fmt: skip
        pairs.sort(key=lambda each: self._lost(*each), reverse=True)
        return any([self._adopted(block, new) for block, new in pairs])

    def _mixed(self, teams: Sequence[Team]) -> list[Team]:
        """Teams as large, of the same jobs in another order."""
        jobs = [kind for team in teams for kind in team]
        self._draw.shuffle(jobs)
        return [tuple(sorted(jobs.pop() for _ in team)) for team in teams]

    def _lost(self, old: Sequence[FleetGroup], new: Sequence[Team]) -> float:
        """Weight that the jobs of `old` lose as `new`, as well as is known."""
        before = sum(map(self._problem.weight, old))
        return before - sum(map(self._problem.weight, self._pool.estimated(new)))

    def _change_few(self) -> bool:
        """Change one or two groups of the plan, where that promises most."""
        columns = self._incumbent.columns
        looked = some_of(changes([each.team for each in columns]), _LOOKED_AT, self._draw)
        known = self._pool.estimates(team for change in looked for team in change.new)
        scored = []
        for change in looked:
            if all(team in known for team in change.new):
                old = [columns[at] for at in change.old]
                new = [known[team] for team in change.new]
                scored.append((self._incumbent.score_in_place(old, new), old, change.new))
        scored.sort(key=lambda each: each[0])
        return any([self._adopted(old, new) for _, old, new in scored[:_TRIED]])

    def _adopted(self, old: Sequence[FleetGroup], new: Sequence[Team]) -> bool:
        """Take `new` for `old` if that is better when all is foretold; whether it is."""
        for team in new:
            if self._pool.best(team) is None and not (
                self._incumbent.promises(old, self._pool.estimated(new))
                and self._pool.foretell(team)
            ):
                return False
        return self._incumbent.hear_change(old, self._pool.estimated(new))
