"""Local search: from one plan of predicted groups to better ones."""

from collections.abc import Iterator, Sequence
from math import inf
from random import Random

from advisor.plan.search.fleet.group_pool import GroupPool
from advisor.plan.search.fleet.grouping import changes, rebatched, some_of
from advisor.plan.search.fleet.placement import (
    FleetGroup,
    PlacedGroup,
    Problem,
    arranged,
    levelled,
    replaced,
)
from advisor.plan.search.job_sets import Members

# Weight of the plan's groups beside its cost in the score, each as a share of the best plan's: the
# search continues from the plan of lowest score, since cheaper plans come from lighter groups.
_WEIGHT = 0.5


class Incumbent:
    """The best plan so far, and the plan from which the search continues."""

    def __init__(self, problem: Problem, plan: Sequence[PlacedGroup]) -> None:
        self._problem = problem
        self.plan = self.current = tuple(plan)

    @property
    def groups(self) -> list[FleetGroup]:
        """The groups of the plan from which the search continues."""
        return [each.group for each in self.current]

    def offer(self, plan: Sequence[PlacedGroup]) -> bool:
        """Keep `plan` if it is the best, continue from it if its score is better; whether used."""
        rank = self._problem.rank
        better = self.score(plan) < self.score(self.current)
        best = rank(plan) < rank(self.plan)
        if best:
            self.plan = tuple(plan)
        if better or best:
            self.current = tuple(plan)
        return better or best

    def offer_groups(self, groups: Sequence[FleetGroup]) -> bool:
        """As `offer`, for the best arrangement of `groups` that is soon found."""
        return self.offer(arranged(groups, self._problem))

    def offer_change(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> bool:
        """As `offer`, for the plan with `new` groups in place of `old` ones."""
        plan = self._changed(old, new)
        return plan is not None and self.offer(plan)

    def promises(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> bool:
        """Whether the estimates of the `new` groups give a better score than the `old` ones."""
        plan = self._changed(old, new)
        return plan is not None and self.score(plan) < self.score(self.current)

    def score_in_place(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> float:
        """Score of the plan with `new` groups at the places of `old` ones; cheap."""
        plan = replaced(self.current, old, new, self._problem.gpus)
        return inf if plan is None else self.score(plan)

    def _changed(
        self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]
    ) -> tuple[PlacedGroup, ...] | None:
        """The plan with `new` groups in place of `old` ones, or of all groups arranged anew."""
        plan = replaced(self.current, old, new, self._problem.gpus)
        if plan is None:
            return None
        here = plan if self._problem.objective.order_matters else levelled(plan, self._problem)
        anew = arranged([each.group for each in plan], self._problem)
        return min((plan, here, anew), key=self.score)

    def score(self, plan: Sequence[PlacedGroup]) -> float:
        """Cost plus weight, each as a share of the best plan's; the lower, the better."""
        cost, weight = self._problem.cost(self.plan), self._weight(self.plan)
        relative = self._problem.cost(plan) / cost if cost > 0 else 1.0 + self._problem.cost(plan)
        return relative + _WEIGHT * self._weight(plan) / weight

    def _weight(self, plan: Sequence[PlacedGroup]) -> float:
        return sum(self._problem.weight(each.group) for each in plan)


# Numbers of groups in a block, used in turn.
_BLOCKS = (4, 6, 3, 8, 5)
# How many changes of the plan a round scores, and how many of them it predicts at most.
_LOOKED_AT, _TRIED = 300, 8
_SEED = 1


class Improver:
    """Makes small changes to a plan, in a sequence that is the same each time."""

    def __init__(self, pool: GroupPool, problem: Problem, incumbent: Incumbent) -> None:
        self._pool, self._problem, self._incumbent = pool, problem, incumbent
        self._draw = Random(_SEED)
        self._rounds = 0

    def offer(self, member_sets: Sequence[Members]) -> None:
        """Predict `member_sets` one after another, and offer each plan that they make meanwhile.

        Jobs whose group is not predicted yet run alone, as they do when the time ends there: so
        what is found in less time is found in more time as well.
        """
        parts: list[Members] = []
        for at, members in enumerate(member_sets):
            later = [(kind,) for each in member_sets[at + 1 :] for kind in each]
            for now in self._fitting(members):
                self._offer_parts([*parts, *now, *later])
            parts += now

    def _offer_parts(self, parts: Sequence[Members]) -> None:
        """Offer `parts`, each shared in the way that seems best, and all under MPS."""
        best = [group for part in parts if (group := self._pool.best(part))]
        under_mps = [self._pool.under(each.members, "mps") or each for each in best]
        for groups in (best, under_mps):
            self._incumbent.offer_groups(groups)

    def _fitting(self, members: Members) -> Iterator[list[Members]]:
        """Divisions of `members` into groups that fit, better from one to the next."""
        for ways in (["mps"], []):
            if self._pool.predict(members, ways):
                yield [members]
            elif not self._pool.in_time():
                yield [(kind,) for kind in members]
                return
        if self._pool.best(members) is None:
            half = len(members) // 2
            later = [(kind,) for kind in members[half:]]
            for first in self._fitting(members[:half]):
                yield [*first, *later]
            for second in self._fitting(members[half:]):
                yield [*first, *second]

    def round(self) -> bool:
        """Try one kind of change; whether it improves the plan."""
        self._rounds += 1
        number, odd = divmod(self._rounds - 1, 2)
        return self._change_few() if odd else self._batch_anew(number)

    def _batch_anew(self, number: int) -> bool:
        """Regroup the jobs of some groups, block by block, and offer what is predicted."""
        groups = self._incumbent.groups
        self._draw.shuffle(groups)
        size = _BLOCKS[number % len(_BLOCKS)]
        blocks = [groups[at : at + size] for at in range(0, len(groups), size)]
        member_sets = [[each.members for each in block] for block in blocks]
        starts = [self._mixed(block) for block in member_sets] if number % 2 else member_sets
        found = rebatched(starts, self._pool, self._problem, self._draw)
        pairs = [(block, new) for block, old, new in zip(blocks, member_sets, found, strict=True)
                 if new != old]  # fmt: skip
        pairs.sort(key=lambda each: self._lost(*each), reverse=True)
        return any([self._adopted(block, new) for block, new in pairs])

    def _mixed(self, member_sets: Sequence[Members]) -> list[Members]:
        """Groups of the same sizes, with their jobs shuffled."""
        jobs = [kind for members in member_sets for kind in members]
        self._draw.shuffle(jobs)
        return [tuple(sorted(jobs.pop() for _ in members)) for members in member_sets]

    def _lost(self, old: Sequence[FleetGroup], new: Sequence[Members]) -> float:
        """Weight saved by `new` in place of `old`, by the best known weights."""
        before = sum(map(self._problem.weight, old))
        return before - sum(map(self._problem.weight, self._pool.estimated(new)))

    def _change_few(self) -> bool:
        """Change one or two groups of the plan where that promises most."""
        groups = self._incumbent.groups
        looked = some_of(changes([each.members for each in groups]), _LOOKED_AT, self._draw)
        known = self._pool.estimates(members for change in looked for members in change.new)
        scored = []
        for change in looked:
            if all(members in known for members in change.new):
                old = [groups[at] for at in change.old]
                new = [known[members] for members in change.new]
                scored.append((self._incumbent.score_in_place(old, new), old, change.new))
        scored.sort(key=lambda each: each[0])
        return any([self._adopted(old, new) for _, old, new in scored[:_TRIED]])

    def _adopted(self, old: Sequence[FleetGroup], new: Sequence[Members]) -> bool:
        """Replace `old` by `new` if that is better when predicted; whether it is."""
        for members in new:
            if self._pool.best(members) is None and not (
                self._incumbent.promises(old, self._pool.estimated(new))
                and self._pool.predict(members)
            ):
                return False
        return self._incumbent.offer_change(old, self._pool.estimated(new))
