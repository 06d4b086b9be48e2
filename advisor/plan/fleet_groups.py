"""Groups for a plan on several GPUs: greedy ones, and local search from one plan to better ones."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from math import inf
from random import Random
from typing import NamedTuple

from advisor.plan.group_pool import MOST_TOGETHER, GroupPool
from advisor.plan.job_sets import Kinds, Members
from advisor.plan.placement import (
    FleetGroup,
    PlacedGroup,
    Problem,
    arranged,
    job_ends_s,
    levelled,
    makespan_s,
    queued,
    replaced,
)

# Numbers of jobs in a batch.
SIZES = (2, 3, 4, 5, 6, 8)
# Largest sum of the jobs' busy shares of a GPU, each measured alone, in best fit.
_BUSY = (1.0, 1.5, 2.0)

MayShare = Callable[[Members], bool]
"""Whether the jobs of a group may share a GPU, and fit on it."""


def greedy_groups(kinds: Kinds, problem: Problem, may: MayShare) -> list[list[Members]]:
    """Group all jobs, in batches of several sizes and by best fit, each in several orders."""
    jobs = [kind for kind, count in enumerate(problem.counts) for _ in range(count)]
    longest_first = sorted(jobs, key=lambda kind: -problem.alone_s[kind])
    orders = [longest_first]
    if problem.objective.order_matters:
        orders.append(longest_first[::-1])
    if problem.objective.uses_deadlines:
        due_s = [inf if each is None else each for each in problem.deadlines_s]
        orders.append(sorted(jobs, key=lambda kind: due_s[kind]))
    distinct: dict[tuple[Members, ...], list[Members]] = {}
    for order in orders:
        filled = [batches(order, size, may) for size in SIZES]
        filled += [best_fit(order, busy, kinds, may) for busy in _BUSY]
        for member_sets in filled:
            distinct.setdefault(tuple(sorted(member_sets)), member_sets)
    return list(distinct.values())


def batches(order: Sequence[int], size: int, may: MayShare) -> list[Members]:
    """Fill batches of `size` jobs: each job joins the first with a place and memory for it."""
    filled: list[Members] = []
    open_from = 0
    for kind in order:
        for at in range(open_from, len(filled)):
            larger = tuple(sorted((*filled[at], kind)))
            if len(larger) <= size and may(larger):
                filled[at] = larger
                break
        else:
            filled.append((kind,))
        while open_from < len(filled) and len(filled[open_from]) == size:
            open_from += 1
    return filled


def best_fit(order: Sequence[int], most_busy: float, kinds: Kinds, may: MayShare) -> list[Members]:
    """Let each job join the group that it fills best without exceeding `most_busy` of a GPU."""
    busy = [job.profile.busy_share or 1.0 for job in kinds.jobs]
    filled: list[Members] = []
    for kind in order:
        totals = [(sum(busy[other] for other in members) + busy[kind], at)
                  for at, members in enumerate(filled) if len(members) < max(SIZES)]  # fmt: skip
        for total, at in sorted(totals, reverse=True):
            larger = _with(filled[at], kind)
            if total <= most_busy and may(larger):
                filled[at] = larger
                break
        else:
            filled.append((kind,))
    return filled


# Most changes looked at in a round over all blocks, least of each block, and number of rounds.
_LOOKED_AT, _OF_EACH, _ROUNDS = 600, 20, 8
# Gains below this share of the weight of a block are rounding.
_DUST = 1e-6


class Change(NamedTuple):
    """Positions of groups in a plan, and the groups that replace them."""

    old: tuple[int, ...]
    new: tuple[Members, ...]


def changes(member_sets: Sequence[Members]) -> Iterator[Change]:
    """Yield every swap of two jobs, every move to another group, every job split off alone."""
    for one, other in combinations(range(len(member_sets)), 2):
        own, its = member_sets[one], member_sets[other]
        if len(own) > 1 or len(its) > 1:
            for leaves in set(own) - set(its):
                for comes in set(its) - set(own):
                    pair = _with(_without(own, leaves), comes), _with(_without(its, comes), leaves)
                    yield Change((one, other), pair)
        for source, target in ((one, other), (other, one)):
            rest, goal = member_sets[source], member_sets[target]
            if len(goal) < MOST_TOGETHER and (len(rest) > 1 or source < target):
                for kind in set(rest):
                    left, joined = _without(rest, kind), _with(goal, kind)
                    yield Change((source, target), (left, joined) if left else (joined,))
    for at, members in enumerate(member_sets):
        for kind in set(members) if len(members) > 1 else ():
            yield Change((at,), (_without(members, kind), (kind,)))


def _without(members: Members, kind: int) -> Members:
    at = members.index(kind)
    return (*members[:at], *members[at + 1 :])


def _with(members: Members, kind: int) -> Members:
    return tuple(sorted((*members, kind)))


def some_of(changes: Iterator[Change], most: int, draw: Random) -> list[Change]:
    """Choose at most `most` of `changes`, drawn at random by `draw`."""
    listed = list(changes)
    return listed if len(listed) <= most else draw.sample(listed, most)


def rebatched(
    blocks: Sequence[Sequence[Members]], pool: GroupPool, problem: Problem, draw: Random
) -> list[list[Members]]:
    """Regroup the jobs of each block into groups that are estimated lighter.

    Where there are many changes, `draw` chooses those that are looked at.
    """
    result = [list(block) for block in blocks]
    moving = list(range(len(result)))
    for _ in range(_ROUNDS):
        if not pool.in_time():
            break
        most = max(_OF_EACH, _LOOKED_AT // max(1, len(moving)))
        looked = {at: some_of(changes(result[at]), most, draw) for at in moving}
        own = [members for at in moving for members in result[at]]
        new = [members for some in looked.values() for change in some for members in change.new]
        estimates = pool.estimates([*own, *new])
        weights = {members: problem.weight(group) for members, group in estimates.items()}
        better = {at: _changed(result[at], some, weights) for at, some in looked.items()}
        for at, member_sets in better.items():
            result[at] = member_sets or result[at]
        moving = [at for at, member_sets in better.items() if member_sets]
    return result


def _changed(
    member_sets: Sequence[Members], looked: Sequence[Change], weights: Mapping[Members, float]
) -> list[Members] | None:
    """`member_sets` after the best changes of disjoint groups; None where none helps."""
    gains = []
    for change in looked:
        if all(members in weights for members in change.new):
            before = sum(weights.get(member_sets[at], 0.0) for at in change.old)
            after = sum(weights[members] for members in change.new)
            if after < before * (1 - _DUST):
                gains.append((before - after, change))
    touched: set[int] = set()
    added: list[Members] = []
    for _, change in sorted(gains, key=lambda each: -each[0]):
        if touched.isdisjoint(change.old):
            touched.update(change.old)
            added += change.new
    if not touched:
        return None
    return [members for at, members in enumerate(member_sets) if at not in touched] + added


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
        best = self._problem.rank(plan) < self._problem.rank(self.plan)
        better = best or self.score(plan) < self.score(self.current)
        if best:
            self.plan = tuple(plan)
        if better:
            self.current = tuple(plan)
        return better

    def offer_groups(self, groups: Sequence[FleetGroup]) -> bool:
        """Offer the best arrangement of `groups` that takes little time to find."""
        return self.offer(arranged(groups, self._problem))

    def offer_change(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> bool:
        """Offer the plan with `new` groups in place of `old` ones."""
        plan = self._changed(old, new)
        return plan is not None and self.offer(plan)

    def promises(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> bool:
        """Check whether estimates of `new` groups give a better score than the `old` ones."""
        plan = self._changed(old, new)
        return plan is not None and self.score(plan) < self.score(self.current)

    def score_in_place(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> float:
        """Compute, cheaply, the score of the plan with `new` groups at the places of `old` ones."""
        plan = replaced(self.current, old, new, self._problem.gpus)
        return inf if plan is None else self.score(plan)

    def _changed(
        self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]
    ) -> tuple[PlacedGroup, ...] | None:
        """The plan with `new` groups in place of `old` ones, or with all groups arranged again."""
        plan = replaced(self.current, old, new, self._problem.gpus)
        if plan is None:
            return None
        here = plan if self._problem.objective.order_matters else levelled(plan, self._problem)
        again = arranged([each.group for each in plan], self._problem)
        return min((plan, here, again), key=self.score)

    def score(self, plan: Sequence[PlacedGroup]) -> float:
        """Compute cost plus weight, each as a share of the best plan's; the lower, the better."""
        cost, weight = self._problem.cost(self.plan), self._weight(self.plan)
        relative = self._problem.cost(plan) / cost if cost > 0 else 1.0 + self._problem.cost(plan)
        return relative + _WEIGHT * self._weight(plan) / weight

    def _weight(self, plan: Sequence[PlacedGroup]) -> float:
        return sum(self._problem.weight(each.group) for each in plan)


# Numbers of groups in a block, used in turn.
_BLOCKS = (4, 6, 3, 8, 5)
# How many changes of the plan a round scores, and how many of them it predicts at most.
_LOOKED_AT_CHANGES, _TRIED = 300, 8
_SEED = 1


class Improver:
    """Makes small changes to a plan, in a sequence that is the same each time."""

    def __init__(self, pool: GroupPool, problem: Problem, incumbent: Incumbent) -> None:
        self._pool, self._problem, self._incumbent = pool, problem, incumbent
        self._draw = Random(_SEED)
        self._rounds = 0

    def offer(self, member_sets: Sequence[Members]) -> None:
        """Predict `member_sets` in turn, and after each offer the plan that results so far.

        Jobs whose group is not predicted yet run alone, as they do when the time ends there: so
        a plan that is found in less time is found in more time as well.
        """
        parts: list[Members] = []
        for at, members in enumerate(member_sets):
            later = [(kind,) for each in member_sets[at + 1 :] for kind in each]
            for now in self._fitting(members):
                candidates = [*parts, *now, *later]
                best = [group for part in candidates if (group := self._pool.best(part))]
                self._incumbent.offer_groups(best)  # each shared in the way that seems best
                self._incumbent.offer_groups(
                    [self._pool.under(each.members, "mps") or each for each in best]
                )
            parts += now

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
        return self._change_few() if odd else self._regroup(number)

    def _regroup(self, number: int) -> bool:
        """Regroup the jobs of some groups, block by block, and offer what is predicted."""
        groups = self._incumbent.groups
        self._draw.shuffle(groups)
        size = _BLOCKS[number % len(_BLOCKS)]
        blocks = [groups[at : at + size] for at in range(0, len(groups), size)]
        member_sets = [[each.members for each in block] for block in blocks]
        starts = [self._mixed(block) for block in member_sets] if number % 2 else member_sets
        regrouped = rebatched(starts, self._pool, self._problem, self._draw)
        pairs = [(block, new)
                 for block, old, new in zip(blocks, member_sets, regrouped, strict=True)
                 if new != old]  # fmt: skip

        def saved(pair: tuple[list[FleetGroup], list[Members]]) -> float:
            old, new = pair
            before = sum(map(self._problem.weight, old))
            return before - sum(map(self._problem.weight, self._pool.estimated(new)))

        pairs.sort(key=saved, reverse=True)
        return any([self._adopted(block, new) for block, new in pairs])

    def _mixed(self, member_sets: Sequence[Members]) -> list[Members]:
        """Groups of the same sizes, with their jobs shuffled."""
        jobs = [kind for members in member_sets for kind in members]
        self._draw.shuffle(jobs)
        return [tuple(sorted(jobs.pop() for _ in members)) for members in member_sets]

    def _change_few(self) -> bool:
        """Change one or two groups of the plan where that promises most."""
        groups = self._incumbent.groups
        looked = some_of(changes([each.members for each in groups]), _LOOKED_AT_CHANGES, self._draw)
        estimates = self._pool.estimates(members for change in looked for members in change.new)
        scored = []
        for change in looked:
            if all(members in estimates for members in change.new):
                old = [groups[at] for at in change.old]
                new = [estimates[members] for members in change.new]
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


# Less is rounding, as a share of the time of a GPU.
_ORDER_DUST = 1e-9
# Other groups are formed where that spares so much of the jobs' ends, as a share: a choice.
_WORTH = 0.01
# How many ways to group the jobs of a GPU are looked at.
_GROUPINGS = 200


def soonest_first(
    plan: Sequence[PlacedGroup], problem: Problem, usable: Sequence[FleetGroup] = ()
) -> tuple[PlacedGroup, ...]:
    """Regroup and order the jobs of each GPU of `plan` so that one ends soonest on average.

    No GPU ends later, and all of it costs no more: where it would, groups and order stay, as they
    do where the order counts for the cost, or times are no seconds. Groups `usable` may be formed.
    """
    if problem.objective.order_matters or not problem.objective.in_seconds:
        return tuple(plan)
    queues: list[list[FleetGroup]] = [[] for _ in range(problem.gpus)]
    for placed in sorted(plan, key=lambda each: each.start_s):
        queues[placed.gpu].append(placed.group)
    queues = [_soonest_first(queue) for queue in queues]
    for gpu, queue in enumerate(queues):
        other = [*queues[:gpu], _regrouped(queue, usable), *queues[gpu + 1 :]]
        if problem.cost(queued(other)) <= (1 + _ORDER_DUST) * problem.cost(queued(queues)):
            queues = other
    return queued(queues)


def _soonest_first(queue: Sequence[FleetGroup]) -> list[FleetGroup]:
    """By Smith's rule: those first that take least time for each job that then need not wait."""
    sooner = sorted(queue, key=lambda each: each.runs_s / len(each.members))
    return sooner if _end_s(sooner) <= (1 + _ORDER_DUST) * _end_s(queue) else list(queue)


def _regrouped(queue: list[FleetGroup], usable: Sequence[FleetGroup]) -> list[FleetGroup]:
    """The jobs of `queue` in those of the groups `usable` in which they end soonest on average."""
    jobs = Counter(kind for group in queue for kind in group.members)
    groupings = islice(_groupings(jobs, usable), _GROUPINGS)
    latest_s = (1 + _ORDER_DUST) * _end_s(queue)
    punctual = [each for each in map(_soonest_first, groupings) if _end_s(each) <= latest_s]
    best = min(punctual, key=_sum_of_ends_s, default=queue)
    return best if _sum_of_ends_s(best) < (1 - _WORTH) * _sum_of_ends_s(queue) else queue


def _groupings(jobs: Counter[int], offered: Sequence[FleetGroup]) -> Iterator[list[FleetGroup]]:
    """Every way to group `jobs`, counted by kind, into groups of `offered`."""
    usable = [each for each in offered if Counter(each.members) <= jobs]
    if not jobs:
        yield []
        return
    first = min(jobs)
    for group in usable:
        if first in group.members:
            left = jobs - Counter(group.members)
            yield from ([group, *others] for others in _groupings(left, usable))


def _sum_of_ends_s(queue: Sequence[FleetGroup]) -> float:
    return sum(end_s for _, end_s in job_ends_s(queued([queue])))


def _end_s(queue: Sequence[FleetGroup]) -> float:
    return makespan_s(queued([queue])) if queue else 0.0
