"""Groups of jobs for a plan on several GPUs, and local search from one plan to better ones."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, combinations_with_replacement, groupby
from math import inf
from random import Random
from typing import NamedTuple

import numpy as np

from advisor.hardware.partition import whole_gpu
from advisor.plan.candidates import best_plan, plan_under
from advisor.plan.job_sets import Kinds, Members, with_one, without
from advisor.plan.objectives import Objective, throughput
from advisor.plan.placement import (
    FleetGroup,
    PlacedGroup,
    Placement,
    Problem,
    arranged,
    levelled,
    replaced,
)
from advisor.plan.rules import MAX_OOM_PROBABILITY, broken_rule
from advisor.plan.values import Forecast, Question
from advisor.prediction.mix_steps import SurrogatePredictor, Tenancy
from advisor.prediction.surrogate import MixBatch
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mode, Mps, Naive
from advisor.simulation.events import Bools, Indices, array_stretches

WAYS: dict[str, Concurrent] = {"mps": Mps(), "naive": Naive()}
"""To share a whole GPU without limits."""


class EstimatedGroups:
    """Estimates groups by time slicing and MPS with the surrogate model; medians, for screening.

    Arrays of members hold groups of one size, shape (groups, jobs).
    """

    def __init__(
        self, kinds: Kinds, surrogate: SurrogatePredictor, question: Question, objective: Objective
    ) -> None:
        self._kinds, self._surrogate, self._gpu = kinds, surrogate, question.gpu
        self._conditions, self._objective = question.conditions, objective
        self._obeys: dict[tuple[str, tuple[int, ...]], bool] = {}
        work = [job.work_steps or 0.0 for job in kinds.jobs]
        self._work = np.array(work) if objective.in_seconds else 1 / surrogate.jobs.step_s

    def groups(self, member_sets: Sequence[Members]) -> Iterator[FleetGroup]:
        """Yield the best group of each of `member_sets`, of two and more, small ones first."""
        for _, same in groupby(sorted(member_sets, key=len), len):
            yield from self._best(np.array(list(same)))

    def may(self, members: Members, mode: Mode) -> bool:
        """Check whether `members` may share in this way, and fit in memory."""
        if not self._allowed(members, mode):
            return False
        profiles = tuple(job.profile for job in self._kinds.of(members))
        ones = np.ones((1, len(members)), dtype=np.intp)
        return bool(self._fit(replace(self._surrogate, profiles=profiles), ones, mode)[0])

    def _allowed(self, members: Members, mode: Mode) -> bool:
        """Check that no rule forbids it; jobs that are equal for all rules are checked once."""
        key = mode, tuple(sorted(self._kinds.ruled_as[kind] for kind in members))
        if key not in self._obeys:
            jobs = self._kinds.of(members)
            broken = broken_rule(jobs, WAYS[mode], self._gpu, self._conditions)
            self._obeys[key] = broken is None
        return self._obeys[key]

    def _fit(self, surrogate: SurrogatePredictor, counts: Indices, mode: Mode) -> Bools:
        margin = self._conditions.memory_margin
        return surrogate.fits(self._tenancy(mode), counts, MAX_OOM_PROBABILITY, margin)

    def _best(self, member_sets: Indices) -> Iterator[FleetGroup]:
        counts = (member_sets[:, :, None] == np.arange(len(self._kinds.jobs))).sum(axis=1)
        modes = [mode for mode in WAYS if mode in self._surrogate.distilled.surrogates]
        fits = {mode: self._fit(self._surrogate, counts, mode) for mode in modes}
        outcomes = {mode: self._outcomes(member_sets, mode) for mode in modes}
        for row, kinds in enumerate(member_sets):
            members = tuple(map(int, kinds))
            allowed = [mode for mode in modes if fits[mode][row] and self._allowed(members, mode)]
            if allowed:
                mode = min(allowed, key=lambda each: float(outcomes[each][0][row].max()))
                ends_s, energy_j = (each[row] for each in outcomes[mode])
                yield FleetGroup(
                    members=members, sharing=WAYS[mode], ends_s=tuple(map(float, ends_s)),
                    energy_j=None if np.isnan(energy_j) else float(energy_j),
                    in_seconds=self._objective.in_seconds,
                )  # fmt: skip

    def _outcomes(self, member_sets: Indices, mode: Mode) -> tuple[Floats, Floats]:
        """Ends of the jobs of each group, (groups, jobs), and joules until the last one, (groups,).

        Joules are NaN where the objective does not need them.
        """
        ends_s, energy_j = np.zeros(member_sets.shape), np.full(len(member_sets), np.nan)
        if not self._objective.in_seconds:
            alone_s = self._surrogate.jobs.step_s[member_sets]
            speeds = alone_s / self._steps_s(member_sets, mode)
            return ends_s + (member_sets.shape[1] / speeds.sum(axis=1))[:, None], energy_j
        if self._objective.saves_energy:
            energy_j[:] = 0.0
        for at, running, seconds in array_stretches(
            self._work[member_sets],
            lambda at, running: self._paced_s(np.where(running, member_sets[at], -1), mode),
        ):
            ends_s[at] += np.where(running, seconds[:, None], 0.0)
            if self._objective.saves_energy:
                left = np.where(running, member_sets[at], -1)
                energy_j[at] += seconds * self._power_w(left, mode)
        return ends_s, energy_j

    def _power_w(self, member_sets: Indices, mode: Mode) -> Floats:
        """Power of the GPU while a group runs, shape (groups,); NaN: unknown. -1: a job ended."""
        surrogate, shape = self._surrogate, (len(member_sets), len(self._kinds.jobs) + 1)
        steps_s, added_w = np.ones(shape), np.zeros(shape)  # the last column: jobs that ended
        np.put_along_axis(steps_s, member_sets, self._steps_s(member_sets, mode), axis=1)
        added_w[:, :-1] = surrogate.added_w(self._tenancy(mode), steps_s[:, :-1])
        own_w = np.take_along_axis(added_w, member_sets, axis=1).sum(axis=1)
        awake_w = surrogate.model.of(surrogate.gpu).power.awake_w
        return np.asarray(np.minimum(awake_w + own_w, self._gpu.power_limit_w or np.inf))

    def _tenancy(self, mode: Mode) -> Tenancy:
        return Tenancy(whole_gpu(self._gpu), WAYS[mode])

    def _paced_s(self, member_sets: Indices, mode: Mode) -> Floats:
        """Seconds of a step and its share of epoch ends, in the shape of `member_sets`."""
        host_s, work = np.array([each.end_share for each in self._surrogate.profiles]).T
        steps_s = self._steps_s(member_sets, mode)
        return np.asarray(steps_s * (1 + work[member_sets]) + host_s[member_sets])

    def _steps_s(self, member_sets: Indices, mode: Mode) -> Floats:
        batch = MixBatch(member_sets, np.full(member_sets.shape, 100.0))
        return self._surrogate.distilled.steps(self._surrogate.jobs, batch, mode)


# Jobs in a group at most: what was ever measured together.
MOST_TOGETHER = 8


class GroupPool:
    """Groups predicted so far, and estimates for screening.

    Nothing more is predicted once `in_time` returns False, because no time is left.
    """

    def __init__(
        self, kinds: Kinds, problem: Problem, question: Question, in_time: Callable[[], bool]
    ) -> None:
        self._kinds, self._problem, self.in_time = kinds, problem, in_time
        surrogate = question.predictor.surrogate([job.profile for job in kinds.jobs])
        self._estimates = None
        if surrogate is not None:
            self._estimates = EstimatedGroups(kinds, surrogate, question, problem.objective)
        self.has_estimates = surrogate is not None
        self._question = question
        self._solved: dict[Members, Forecast | None] = {}
        self._estimated: dict[Members, FleetGroup | None] = {}
        self._ways: dict[tuple[Members, str], FleetGroup | None] = {}
        self._best: dict[Members, FleetGroup] = {}

    def solve(self, members: Members, way: str | None = None) -> FleetGroup | None:
        """Predict the best group of `members`, in one way to share or in the best; None: none fits.

        For throughput, all jobs are taken to be equally long alone.
        """
        in_seconds, level = self._problem.objective.in_seconds, self._question.level
        if way:
            plan = plan_under(WAYS[way], self._kinds.of(members), self._question)
        else:
            if members not in self._solved:
                self._solved[members] = best_plan(self._kinds.of(members), self._question)
            plan = self._solved[members]
        if plan is None:
            return None
        if not in_seconds or plan.ends_s is None:
            ends_s = (len(members) / throughput(plan.prediction, level),) * len(members)
        else:
            ends_s = tuple(end_s.at(level) for end_s in plan.ends_s)
        return FleetGroup(
            members=members, sharing=plan.sharing, ends_s=ends_s,
            in_seconds=in_seconds,
            energy_j=None if plan.energy_j is None else plan.energy_j.at(level),
        )  # fmt: skip

    def sizes(self) -> tuple[int, int]:
        """Count the sets of jobs that were predicted or estimated, and those predicted."""
        predicted = {members for members, _ in self._ways}
        return len(predicted | set(self._estimated)), len(predicted)

    @property
    def groups(self) -> list[FleetGroup]:
        """All predicted groups."""
        return [group for group in self._ways.values() if group is not None]

    def best(self, members: Members) -> FleetGroup | None:
        """Return the lightest predicted group of `members`; None: not predicted."""
        return self._best.get(members)

    def under(self, members: Members, way: str) -> FleetGroup | None:
        """Return the predicted group of `members` that shares in the way `way`; None: none."""
        return self._ways.get((members, way))

    def estimates(self, member_sets: Iterable[Members]) -> dict[Members, FleetGroup]:
        """Return the best group so far of each of `member_sets` that fits, estimating new ones.

        Without a surrogate model all are predicted, while there is time.
        """
        wanted = list(dict.fromkeys(member_sets))
        if self._estimates is None:
            return {members: group for members in wanted if (group := self.predict(members))}
        new = [members for members in wanted if len(members) > 1
               and members not in self._best and members not in self._estimated]  # fmt: skip
        self._estimated |= dict.fromkeys(new)
        self._estimated |= {group.members: group for group in self._estimates.groups(new)}
        best = {members: self._best.get(members) or self._estimated.get(members)
                for members in wanted}  # fmt: skip
        return {members: group for members, group in best.items() if group is not None}

    def estimated(self, member_sets: Sequence[Members]) -> list[FleetGroup]:
        """Return the best groups of `member_sets`; those that do not fit run one by one."""
        groups = self.estimates(member_sets)
        parts = (
            [members] if members in groups else [(kind,) for kind in members]
            for members in member_sets
        )
        return [groups.get(part) or self._best[part] for some in parts for part in some]

    def alone(self, kind: int) -> FleetGroup:
        """Predict a job alone, even if no time is left."""
        group = self.solve((kind,), "mps")
        assert group is not None, "`check_each_fits` checks each job"
        self.offer(group)
        return group

    def predict(self, members: Members, ways: Sequence[str] = ()) -> FleetGroup | None:
        """Predict the lightest group of `members`; None where none fits, or time is up.

        The ways to share in `ways` are tried; without any, those that seem best.
        """
        if not ways:
            estimate = self._estimated.get(members)
            ways = [name for name, way in WAYS.items() if not estimate or way == estimate.sharing]
        for way in ways:
            if len(members) > 1 and (members, way) not in self._ways and self.in_time():
                self._ways[members, way] = None
                if group := self.solve(members, way):
                    self.offer(group)
        if members not in self._best:
            self._estimated[members] = None
        return self._best.get(members)

    def offer(self, group: FleetGroup) -> None:
        """Add a predicted group; the lightest of each set of members counts as its best."""
        self._ways[group.members, str(group.sharing)] = group
        best = self._best.setdefault(group.members, group)
        if self._problem.weight(group) < self._problem.weight(best):
            self._best[group.members] = group

    def may(self, members: Members) -> bool:
        """Check whether `members` may share a GPU under MPS, and fit in memory."""
        if self._estimates is not None:
            return self._estimates.may(members, "mps")
        return self.predict(members, ["mps"]) is not None

    def predict_all(self, most: int) -> bool:
        """Predict all sets of jobs that fit on a GPU; False: they exceed `most`, or time is up.

        More jobs never take less memory, so supersets of a set that does not fit are skipped.
        """
        left, kinds = most, range(len(self._kinds.jobs))
        smaller: set[Members] = {(kind,) for kind in kinds}
        for size in range(2, min(MOST_TOGETHER, sum(self._problem.counts)) + 1):
            larger = []
            for members in combinations_with_replacement(kinds, size):
                rest = (without(members, kind) for kind in members)
                if self._kinds.allows(members) and smaller.issuperset(rest):
                    larger.append(members)
                    if len(larger) > left:
                        return False
            for members in larger:
                self.predict(members, list(WAYS))
            if not self.in_time():
                return False
            smaller = {members for members in larger if members in self._best}
            left -= len(smaller)
        return True


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
                    new = with_one(without(own, leaves), comes)
                    yield Change((one, other), (new, with_one(without(its, comes), leaves)))
        for source, target in ((one, other), (other, one)):
            rest, goal = member_sets[source], member_sets[target]
            if len(goal) < MOST_TOGETHER and (len(rest) > 1 or source < target):
                for kind in set(rest):
                    left, joined = without(rest, kind), with_one(goal, kind)
                    yield Change((source, target), (left, joined) if left else (joined,))
    for at, members in enumerate(member_sets):
        for kind in set(members) if len(members) > 1 else ():
            yield Change((at,), (without(members, kind), (kind,)))


def some_of(changes: Iterator[Change], most: int, draw: Random) -> list[Change]:
    """Choose at most `most` of `changes`, drawn at random by `draw`."""
    listed = list(changes)
    return listed if len(listed) <= most else draw.sample(listed, most)


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


# Weight of the plan's groups next to its cost in the score, each as a share of the best plan's: the
# search continues from the plan of lowest score, because cheaper plans come from lighter groups.
_WEIGHT = 0.5


class Incumbent:
    """The best plan so far, and the plan from which the search continues."""

    def __init__(self, problem: Problem, plan: Sequence[PlacedGroup]) -> None:
        self._problem = problem
        self.plan = self.current = tuple(plan)

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
        """Offer `groups` as `arranged`."""
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

    def _changed(self, old: Sequence[FleetGroup], new: Sequence[FleetGroup]) -> Placement | None:
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

        Jobs whose group is not predicted yet run alone, as they do when the time ends there: so a
        plan that is reached in less time is reached in more time as well.
        """
        parts: list[Members] = []
        for at, members in enumerate(member_sets):
            later = [(kind,) for each in member_sets[at + 1 :] for kind in each]
            for now in self._fitting(members):
                candidates = [*parts, *now, *later]
                best = [group for part in candidates if (group := self._pool.best(part))]
                self._incumbent.offer_groups(best)  # each shared in the way that seems best
                mps = [self._pool.under(each.members, "mps") or each for each in best]
                self._incumbent.offer_groups(mps)
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
        number, odd = divmod(self._rounds, 2)
        self._rounds += 1
        return self._change_few() if odd else self._regroup(number)

    def _regroup(self, number: int) -> bool:
        """Regroup the jobs of some groups, block by block, and offer what is predicted."""
        groups = [each.group for each in self._incumbent.current]
        self._draw.shuffle(groups)
        size = _BLOCKS[number % len(_BLOCKS)]
        blocks = [groups[at : at + size] for at in range(0, len(groups), size)]
        member_sets = [[each.members for each in block] for block in blocks]
        starts = [self._mixed(block) for block in member_sets] if number % 2 else member_sets
        regrouped = self._rebatched(starts)
        pairs = [(block, new)
                 for block, old, new in zip(blocks, member_sets, regrouped, strict=True)
                 if new != old]  # fmt: skip

        def saved(pair: tuple[list[FleetGroup], list[Members]]) -> float:
            old, new = pair
            before = sum(map(self._problem.weight, old))
            return before - sum(map(self._problem.weight, self._pool.estimated(new)))

        pairs.sort(key=saved, reverse=True)
        return any([self._adopted(block, new) for block, new in pairs])

    def _rebatched(self, blocks: Sequence[Sequence[Members]]) -> list[list[Members]]:
        """Regroup the jobs of each block into groups that are estimated lighter."""
        result = [list(block) for block in blocks]
        moving = list(range(len(result)))
        for _ in range(_ROUNDS):
            if not self._pool.in_time():
                break
            most = max(_OF_EACH, _LOOKED_AT // max(1, len(moving)))
            looked = {at: some_of(changes(result[at]), most, self._draw) for at in moving}
            own = [members for at in moving for members in result[at]]
            new = [members for some in looked.values() for change in some for members in change.new]
            estimates = self._pool.estimates([*own, *new]).items()
            weights = {members: self._problem.weight(group) for members, group in estimates}
            better = {at: _changed(result[at], some, weights) for at, some in looked.items()}
            moving = [at for at, member_sets in better.items() if member_sets]
            for at in moving:
                result[at] = better[at] or result[at]
        return result

    def _mixed(self, member_sets: Sequence[Members]) -> list[Members]:
        """Groups of the same sizes, with their jobs shuffled."""
        jobs = [kind for members in member_sets for kind in members]
        self._draw.shuffle(jobs)
        return [tuple(sorted(jobs.pop() for _ in members)) for members in member_sets]

    def _change_few(self) -> bool:
        """Change one or two groups of the plan where that promises most."""
        groups = [each.group for each in self._incumbent.current]
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
