"""Groups of jobs one after another: every way to make them, by dynamic programming.

A state of the program is the set of jobs that are done, how the GPU is set up now, and what all of
them cost so far. Of sequences that end in the same state, those that another beats in every respect
are dropped. A group has the whole GPU in any way to share it, or MIG instances in the way that is
best for the group alone; so of two such ways that cost nearly the same, the one that is cheaper to
change to may be missed, by the seconds that it takes to make and destroy instances.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from advisor.plan.objectives.objective import GroupScores, Turn
from advisor.plan.search.assignment import job_numbers
from advisor.plan.search.candidate_space import Space
from advisor.plan.search.partition_search import Assignment, Choice
from advisor.plan.search.partitions import WHOLE, Option, options
from advisor.prediction.power import idle_power_w
from advisor.sharing import Group, Hybrid, Mps, Naive
from advisor.timeline.waiting_jobs import MIG_MODE_S, repartition_s

# Sequences kept for each set of jobs that are done, of those that no other beats in every respect.
_MOST_KEPT = 12


@dataclass(frozen=True, slots=True)
class PhaseGroup:
    """Jobs that share the GPU until the last of them ends.

    Attributes:
        state: The set of jobs, as `Sets.state` numbers it.
        how: A set of jobs on the whole GPU, or sets on instances.
        setup: How the GPU is set up for them; the job numbers in it have no meaning.
        mark: Equal for groups after which the GPU is set up in the same way.
        scores: What the group adds to an objective's sums.
    """

    state: int
    how: Choice | Assignment
    setup: Group | Hybrid
    mark: int
    scores: GroupScores

    @property
    def on_instances(self) -> bool:
        """Whether they are on MIG instances."""
        return bool(self.setup.instances)


class Label(NamedTuple):
    """A sequence of groups, in the order in which they run, and the two sums of its objective."""

    cost: float
    worst: float
    groups: tuple[PhaseGroup, ...]


# Sequences by how the GPU is set up after them, and by whether it was ever cut into instances.
_Reached = dict[tuple[int, bool], list[Label]]


@dataclass(frozen=True, slots=True)
class Phased:
    """Groups that run one after another.

    Attributes:
        cost: By the objective.
        groups: In the order in which they run, two or more.
    """

    cost: float
    groups: tuple[PhaseGroup, ...]


def phased(space: Space, state: int, most: int) -> list[Phased]:
    """Up to `most` of the best ways to run the jobs of `state` in groups, best first.

    The best one without MIG instances is always among them, as one more if need be: groups on
    instances seem cheaper than they are, since how instances slow each other is not counted.
    """
    return _Phases(space, state).best(most)


class _Phases:
    def __init__(self, space: Space, state: int) -> None:
        self.space, self.state = space, state
        self.objective = space.objective
        self.jobs = space.jobs_in(state)
        self.idle_w = idle_power_w([job.profile for job in space.sets.variants]) or 0.0
        self.pauses_s: dict[tuple[int, int], float] = {}
        self.turns: dict[tuple[int, int, int], Turn] = {}
        self.marks: dict[object, int] = {}
        inside = dict.fromkeys(map(int, space.sets.state[space.sets.inside(state)[0]]))
        self.groups = {each: list(self._groups(each)) for each in inside if each}

    def best(self, most: int) -> list[Phased]:
        """As `phased`."""
        reached: dict[int, _Reached] = {0: {(-1, False): [Label(0.0, 0.0, ())]}}
        for done in sorted((0, *self.groups), key=self.space.jobs_in):
            if done in reached and done != self.state:
                self._go_on(done, reached)
        ends = [each for labels in reached.get(self.state, {}).values() for each in labels]
        found = [
            Phased(self.objective.of_phases(each.cost, each.worst, self.jobs), each.groups)
            for each in ends
        ]
        found.sort(key=lambda each: each.cost)
        sure = next(
            (each for each in found if not any(group.on_instances for group in each.groups)), None
        )
        return [each for at, each in enumerate(found) if at < most or each is sure]

    def _go_on(self, done: int, reached: dict[int, _Reached]) -> None:
        """Append each group of jobs that are left to each sequence that ends in `done`."""
        left, count = self.jobs - self.space.jobs_in(done), self.objective.after
        ahead = [
            (group, group.mark, group.on_instances, reached.setdefault(done + group.state, {}))
            for group in self._next(done)
        ]
        for (mark, cut), labels in reached[done].items():
            for group, own, cut_up, after in ahead:
                key = own, cut or cut_up
                if (kept := after.get(key)) is None:
                    kept = after[key] = []
                turn, scores = self._turn(labels[0], group, mark, left), group.scores
                for label in labels:
                    cost, worst = count((label.cost, label.worst), scores, turn)
                    _keep(kept, cost, worst, label, group)

    def _next(self, done: int) -> Iterator[PhaseGroup]:
        """Groups of jobs that are left; all jobs in one group are not phases."""
        inside, _ = self.space.sets.inside(self.state - done)
        for state in dict.fromkeys(self.space.sets.state[inside].tolist()):
            if state and state != self.state:
                yield from self.groups[state]

    def _turn(self, label: Label, group: PhaseGroup, mark: int, left: int) -> Turn:
        """The turn of `group` after the sequence `label`, which leaves the GPU as `mark` says."""
        key = mark, group.mark, left
        if (found := self.turns.get(key)) is None:
            pause_s = self._pause_s(label, group, mark)
            found = self.turns[key] = Turn(pause_s, left, self.idle_w)
        return found

    def _pause_s(self, label: Label, group: PhaseGroup, mark: int) -> float:
        if not label.groups:
            return 0.0
        key = mark, group.mark
        if key not in self.pauses_s:
            self.pauses_s[key] = repartition_s(label.groups[-1].setup, group.setup)
        return self.pauses_s[key]

    def _groups(self, state: int) -> Iterator[PhaseGroup]:
        """Ways for the jobs of `state` to share the GPU, but those beaten in every respect."""
        sets, jobs = self.space.sets, self.space.jobs_in(state)
        ways: dict[bool, list[PhaseGroup]] = {}
        for chosen in np.flatnonzero(sets.state == state).tolist():
            for option in options(WHOLE)[: None if jobs > 1 else 1]:
                group = self._group(state, jobs, Choice(option, chosen), [(option, chosen)])
                if np.isfinite(group.scores.cost):
                    _keep_group(ways.setdefault(option.sharing == Naive(), []), group)
        kept = [group for same in ways.values() for group in same]
        yield from kept
        yield from self._on_instances(state, jobs, kept)

    def _on_instances(
        self, state: int, jobs: int, whole: Sequence[PhaseGroup]
    ) -> Iterator[PhaseGroup]:
        """The best way on MIG instances, if its bound is below every way on the whole GPU."""
        hybrids = self.space.hybrids(jobs)
        bar = min((self._price_alone(each) for each in whole), default=np.inf)
        if hybrids.least(state) < bar:
            for assignment in islice(self.space.on_instances(state), 1):
                partitions = [
                    (each.option, each.chosen) for each in assignment.partitions if each.chosen
                ]
                yield self._group(state, jobs, assignment, partitions)

    def _price_alone(self, group: PhaseGroup) -> float:
        """Cost of a group if MIG mode is left and entered for it; as `AssignmentSearch.least`."""
        jobs = group.scores.jobs
        turn = Turn(2 * MIG_MODE_S, jobs, self.idle_w)
        cost, worst = self.objective.after((0.0, 0.0), group.scores, turn)
        return self.objective.of_phases(cost, worst, jobs)

    def _group(
        self,
        state: int,
        jobs: int,
        how: Choice | Assignment,
        partitions: Sequence[tuple[Option, int]],
    ) -> PhaseGroup:
        space, objective = self.space, self.objective
        parts = [(space.scores(option, jobs), chosen) for option, chosen in partitions]
        most = max(float(each.most[chosen]) for each, chosen in parts)
        total = sum(float(each.total[chosen]) for each, chosen in parts)
        cost, worst = objective.of_group(most, total, space.awake(jobs))
        time_s = most
        if objective.uses_deadlines:
            time_s = max(
                float(space.outcome(way).ends_s[chosen].max()) for way, chosen in partitions
            )
        setup = self._setup(how, state)
        scores = GroupScores(jobs, time_s, cost, worst, self._due(partitions))
        return PhaseGroup(state, how, setup, self._mark(setup), scores)

    def _mark(self, setup: Group | Hybrid) -> int:
        """The `mark` of a group: a number for each set of instances and MPS daemons that stay."""
        stays = tuple(
            (memory[0].instance, tuple(part.sharing.under_mps for part in memory))
            for memory in setup.memories
        )
        if not setup.instances:
            return int(stays == ((None, (True,)),))
        return self.marks.setdefault(frozenset(stays), 2 + len(self.marks))

    def _setup(self, how: Choice | Assignment, state: int) -> Group | Hybrid:
        if isinstance(how, Choice):
            return Group((1,), Mps() if how.option.sharing.under_mps else Naive())
        return job_numbers(self.space.sets, self.space.members(state)).hybrid(how)

    def _due(self, partitions: Sequence[tuple[Option, int]]) -> tuple[tuple[float, float], ...]:
        if not self.objective.uses_deadlines:
            return ()
        found: dict[int, tuple[float, float]] = {}
        for option, chosen in partitions:
            ends_s = self.space.outcome(option).ends_s[chosen]
            for variant in self.space.sets.tenants[chosen]:
                kind = self.space.sets.kind_of[variant]
                if (deadline_s := self.space.sets.variants[variant].deadline_s) is not None:
                    before_s, _ = found.get(kind, (0.0, 0.0))
                    found[kind] = max(before_s, float(ends_s[variant])), deadline_s
        return tuple(found[kind] for kind in sorted(found))


def _keep(kept: list[Label], cost: float, worst: float, before: Label, group: PhaseGroup) -> None:
    """Add `group` after `before` unless another is no worse in anything, and drop what it beats."""
    for each in kept:  # no generator: most are looked at once, and dropped
        if each.cost <= cost and each.worst <= worst:
            return
    kept[:] = [each for each in kept if each.cost < cost or each.worst < worst]
    kept.append(Label(cost, worst, (*before.groups, group)))
    if len(kept) > _MOST_KEPT:
        kept.sort(key=lambda each: each.cost * max(each.worst, 1e-9))
        kept.pop()


def _keep_group(kept: list[PhaseGroup], group: PhaseGroup) -> None:
    """As `_keep`, of groups of the same jobs that leave the GPU set up alike."""
    if not any(each.scores.beats(group.scores) for each in kept):
        kept[:] = [each for each in kept if not group.scores.beats(each.scores)]
        kept.append(group)
