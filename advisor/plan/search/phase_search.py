"""Plans in phases, groups of jobs one after another, by dynamic programming.

A state of the program is the set of jobs that are done. Its labels are sequences of groups that end
there, kept apart by how they leave the GPU set up; a label that another beats in every respect is
dropped.

A group shares the whole GPU in any way, or is on MIG instances in the way that is best for the
group alone. Of two such ways that cost nearly the same, the one with the cheaper change of
instances may therefore be missed, by the seconds that making and destroying instances take.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from advisor.plan.objectives.objective import GroupScores, Turn
from advisor.plan.search.candidate_space import Space, hybrid
from advisor.plan.search.partition_search import Assignment, Choice
from advisor.plan.search.partitions import WHOLE, options
from advisor.prediction.power import idle_power_w
from advisor.sharing import Group, Hybrid, Mps, Naive
from advisor.timeline.waiting_jobs import MIG_MODE_S, repartition_s

# Most labels kept for each state, of those that no other beats in every respect.
_MOST_KEPT = 12


@dataclass(frozen=True, slots=True)
class PhaseGroup:
    """Jobs that share the GPU until the last of them ends.

    Attributes:
        state: The set of jobs, as a state of `Sets`.
        placement: A set of jobs on the whole GPU, or an assignment to MIG instances.
        on_instances: Whether the jobs are on MIG instances.
        setup: Number of the set-up of the GPU that the group needs.
        scores: The group's part in the sums of the objective.
    """

    state: int
    placement: Choice | Assignment
    on_instances: bool
    setup: int
    scores: GroupScores


@dataclass(frozen=True, slots=True)
class Phased:
    """A plan in phases.

    Attributes:
        cost: Cost by the objective.
        groups: Two or more groups, in the order in which they run.
    """

    cost: float
    groups: tuple[PhaseGroup, ...]


def phased(space: Space, most: int) -> list[Phased]:
    """The best plans that run all jobs in phases, at most `most` of them, best first.

    The best one without MIG instances is always among them, if need be as one more: how instances
    slow each other is not counted here, so groups on instances seem cheaper than they are.
    """
    everyone, last = space.sets.states - 1, _reached(space)
    jobs, of_phases = space.jobs_in(everyone), space.objective.of_phases
    found = [Phased(of_phases(each.cost, each.worst, jobs), each.groups) for each in last]
    found.sort(key=lambda each: each.cost)
    whole = (each for each in found if not any(group.on_instances for group in each.groups))
    sure = next(whole, None)
    return [each for at, each in enumerate(found) if at < most or each is sure]


class _Label(NamedTuple):
    """A sequence of groups in the order in which they run, with the two sums of the objective."""

    cost: float
    worst: float
    groups: tuple[PhaseGroup, ...]


_Labels = dict[tuple[int, bool], list[_Label]]
"""Of one state: by the set-up that they leave, and by whether the GPU was ever cut up."""


def _reached(space: Space) -> list[_Label]:
    """The labels of the state in which all jobs are done, in two or more groups."""
    table, sets = _GroupTable(space), space.sets
    states, everyone = dict.fromkeys(sets.state.tolist()), sets.states - 1
    groups = {state: list(table.groups(state)) for state in states if 0 < state < everyone}
    reached: dict[int, _Labels] = {0: {(_NOT_SET_UP, False): [_Label(0.0, 0.0, ())]}}
    for done in sorted(states, key=space.jobs_in):
        if done in reached and done != everyone:
            inside, _ = sets.inside(everyone - done)
            left = dict.fromkeys(sets.state[inside].tolist())
            ahead = [group for state in left if state in groups for group in groups[state]]
            _go_on(table, done, ahead, reached)
    return [each for labels in reached.get(everyone, {}).values() for each in labels]


def _go_on(
    table: "_GroupTable", done: int, ahead: Sequence[PhaseGroup], reached: dict[int, _Labels]
) -> None:
    """Append each group `ahead`, of jobs that are left, to each label that ends in `done`."""
    jobs_in, add_up = table.space.jobs_in, table.objective.after
    left = jobs_in(table.space.sets.states - 1) - jobs_in(done)
    nexts = [(each, each.setup, each.on_instances, reached.setdefault(done + each.state, {}))
             for each in ahead]  # fmt: skip
    setups = {each.setup for each in ahead}
    for (setup, cut), labels in reached[done].items():
        turns = {each: Turn(table.pause_s(setup, each), left, table.idle_w) for each in setups}
        for group, own, cut_up, after in nexts:
            key = own, cut or cut_up
            if (kept := after.get(key)) is None:
                kept = after[key] = []
            for label in labels:
                cost, worst = add_up((label.cost, label.worst), group.scores, turns[own])
                _keep(kept, cost, worst, label, group)


def _keep(kept: list[_Label], cost: float, worst: float, before: _Label, group: PhaseGroup) -> None:
    """Keep `before` followed by `group` unless another label beats it; drop those that it beats."""
    for each in kept:  # no generator: most are looked at once, and dropped
        if each.cost <= cost and each.worst <= worst:
            return
    kept[:] = [each for each in kept if each.cost < cost or each.worst < worst]
    kept.append(_Label(cost, worst, (*before.groups, group)))
    if len(kept) > _MOST_KEPT:
        kept.sort(key=lambda each: each.cost * max(each.worst, 1e-9))
        kept.pop()


# The set-up before the first group: this one finds the GPU as it needs it.
_NOT_SET_UP = -1


class _GroupTable:
    """The groups that the jobs of a state can form, and the pauses between two groups."""

    def __init__(self, space: Space) -> None:
        self.space, self.objective = space, space.objective
        self.idle_w = idle_power_w([job.profile for job in space.sets.jobs]) or 0.0
        self._setups: list[Group | Hybrid] = []
        self._numbers: dict[object, int] = {}
        self._pauses_s: dict[tuple[int, int], float] = {}

    def groups(self, state: int) -> Iterator[PhaseGroup]:
        """Ways for the jobs of `state` to share the GPU, without those beaten in every respect."""
        ways: dict[bool, list[PhaseGroup]] = {}
        tried = options(WHOLE)[: None if self.space.jobs_in(state) > 1 else 1]
        for chosen in np.flatnonzero(self.space.sets.state == state).tolist():
            for option in tried:
                group = self._group(state, Choice(option, chosen))
                if np.isfinite(group.scores.cost):
                    _keep_group(ways.setdefault(option.sharing == Naive(), []), group)
        kept = [group for same in ways.values() for group in same]
        yield from kept
        # The best way on MIG instances, if its bound is below every way on the whole GPU.
        hybrids = self.space.hybrids(self.space.jobs_in(state))
        if hybrids.least(state) < min(map(self._price_alone, kept), default=np.inf):
            for assignment in islice(hybrids.in_order(state), 1):
                yield self._group(state, assignment)

    def pause_s(self, before: int, after: int) -> float:
        """Seconds between a group of the set-up `before` and one of the set-up `after`."""
        if before == _NOT_SET_UP:
            return 0.0
        if (found := self._pauses_s.get((before, after))) is None:
            found = repartition_s(self._setups[before], self._setups[after])
            self._pauses_s[before, after] = found
        return found

    def _price_alone(self, group: PhaseGroup) -> float:
        """Cost of a group if MIG mode is entered and left for it alone."""
        jobs = group.scores.jobs
        turn = Turn(2 * MIG_MODE_S, jobs, self.idle_w)
        cost, worst = self.objective.after((0.0, 0.0), group.scores, turn)
        return self.objective.of_phases(cost, worst, jobs)

    def _group(self, state: int, placement: Choice | Assignment) -> PhaseGroup:
        space, jobs = self.space, self.space.jobs_in(state)
        parts = (
            [placement]
            if isinstance(placement, Choice)
            else [p for p in placement.partitions if p.chosen]
        )
        scores = [(space.scores(each.option), each.chosen) for each in parts]
        most = max(float(own.most[chosen]) for own, chosen in scores)
        total = sum(float(own.total[chosen]) for own, chosen in scores)
        cost, worst = self.objective.of_group(most, total, space.awake(jobs))
        time_s, due = self._timed(parts) if self.objective.uses_deadlines else (most, ())
        return PhaseGroup(
            state, placement, isinstance(placement, Assignment), self._setup(placement),
            GroupScores(jobs, time_s, cost, worst, due),
        )  # fmt: skip

    def _timed(self, parts: Sequence[Choice]) -> tuple[float, tuple[tuple[float, float], ...]]:
        """Seconds until the last job ends, and `GroupScores.due`."""
        sets, last_s = self.space.sets, 0.0
        due: dict[int, tuple[float, float]] = {}
        for each in parts:
            ends_s = self.space.outcome(each.option).ends_s[each.chosen]
            last_s = max(last_s, float(ends_s.max()))
            for kind in sets.tenants[each.chosen]:
                deadline_s = sets.jobs[kind].deadline_s
                if deadline_s is not None:
                    before_s, _ = due.get(kind, (0.0, 0.0))
                    due[kind] = max(before_s, float(ends_s[kind])), deadline_s
        return last_s, tuple(due[kind] for kind in sorted(due))

    def _setup(self, placement: Choice | Assignment) -> int:
        """A key of the instances and MPS daemons that a group needs."""
        if isinstance(placement, Choice):
            found: Group | Hybrid = Group(
                (1,), Mps() if placement.option.sharing.under_mps else Naive()
            )
        else:
            numbers = count(1)
            found = hybrid(
                placement, lambda chosen: tuple(islice(numbers, self.space.sets.sizes[chosen]))
            )
        stays = frozenset(
            (memory[0].instance, tuple(part.sharing.under_mps for part in memory))
            for memory in found.memories
        )
        number = self._numbers.setdefault(stays, len(self._setups))
        if number == len(self._setups):
            self._setups.append(found)
        return number


def _keep_group(kept: list[PhaseGroup], group: PhaseGroup) -> None:
    """As `_keep`, for groups of the same jobs with the same set-up."""
    if not any(each.scores.beats(group.scores) for each in kept):
        kept[:] = [each for each in kept if not group.scores.beats(each.scores)]
        kept.append(group)
