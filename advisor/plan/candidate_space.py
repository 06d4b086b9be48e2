"""Plans for some jobs on one GPU, in the order of cost if partitions are independent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.plan.job_sets import (
    WHOLE_GPU,
    Option,
    Outcomes,
    PartitionKind,
    PredictorSource,
    Sets,
    Source,
    SurrogateSource,
    options,
    outcomes,
    sets_of,
)
from advisor.plan.objectives import OBJECTIVES, GroupScores, Turn
from advisor.plan.partitions import (
    Assignment,
    AssignmentSearch,
    Bounds,
    Choice,
    Cut,
    Price,
    SetScores,
    cuts,
)
from advisor.plan.rules import FitsMemory, rules
from advisor.plan.values import Question
from advisor.prediction.power import idle_power_w
from advisor.sharing import Group, Hybrid, Mps, Naive, Part, Place
from advisor.simulation.events import MIG_MODE_S, repartition_s
from advisor.workload.job import Job

MOST_EXACT = 3
"""Of at most so many jobs the predictor itself may be asked for every set in every partition."""


class Space:
    """The outcome of every set of `jobs` in every partition of a GPU, each computed once.

    With `ask`, and where that is affordable, the predictor itself says so, else its surrogate
    model.

    Attributes:
        exact: Whether costs are exact as far as partitions do not slow each other, since the
            predictor itself was asked; else they are estimates of its surrogate model.
    """

    def __init__(self, jobs: Sequence[Job], question: Question, *, ask: bool = False) -> None:
        self.sets: Sets = sets_of(jobs)
        self.question = question
        self.objective = OBJECTIVES[question.objective]
        self.rules = rules(question.gpu, question.conditions)
        profiles = [job.profile for job in self.sets.jobs]
        margin = question.conditions.memory_margin
        few = ask and len(jobs) <= MOST_EXACT and len(self.sets.counts) <= 2**MOST_EXACT
        surrogate = None if few else question.predictor.surrogate(profiles)
        self.exact = surrogate is None
        if surrogate is not None:
            self.source: Source = SurrogateSource(surrogate, margin)
        else:
            fits, awake_w = FitsMemory(question.gpu, margin), idle_power_w(profiles) or 0.0
            self.source = PredictorSource(question.predictor, fits, question.level, awake_w)
        self._state_sizes = np.zeros(self.sets.states, dtype=np.intp)
        self._state_sizes[self.sets.state] = self.sets.sizes
        self._outcomes: dict[Option, Outcomes] = {}
        self._scores: dict[Option, SetScores] = {}
        self._hybrids: dict[int, AssignmentSearch] = {}

    def jobs_in(self, state: int) -> int:
        """Return the number of jobs in `state`."""
        return int(self._state_sizes[state])

    def outcome(self, option: Option) -> Outcomes:
        """Return the outcome of every set of jobs under `option`."""
        if option not in self._outcomes:
            partitions = [WHOLE_GPU] if option.partition == WHOLE_GPU else self._partitions
            together = [each for partition in partitions for each in options(partition)]
            self._outcomes |= outcomes(together, self.sets, self.source, self.rules)
        return self._outcomes[option]

    def scores(self, option: Option) -> SetScores:
        """Return the scores of every set under `option`."""
        if option not in self._scores:
            outcome = self.outcome(option)
            numbers = self.objective.of_sets(outcome, self.sets)
            self._scores[option] = SetScores(*numbers).without(~outcome.allowed)
        return self._scores[option]

    def price(self, jobs: int) -> Price:
        """Return what turns scores into cost and tie-breaker, where `jobs` jobs run at once."""
        return lambda most, total: self.objective.price(most, total, self.source.awake_w, jobs)

    def one_job_each(self) -> Iterator[Assignment]:
        """Yield plans for all jobs in which each has its own MIG instance, cheapest first."""
        state = self.sets.states - 1
        search, crowded = self.hybrids(self.jobs_in(state)), self.sets.sizes > 1
        whole = [cut for cut in search.bounds.cuts if not any(cut.parts)]
        scores = {
            partition: [(option, own.without(crowded)) for option, own in ways[:1]]
            for partition, ways in search.bounds.scores.items()
        }
        bounds = Bounds(self.sets, whole, scores)
        return AssignmentSearch(bounds, search.price, search.allowed_states).in_order(state)

    def hybrids(self, jobs: int) -> AssignmentSearch:
        """Return the search for plans on MIG instances, where `jobs` jobs run at once."""
        if jobs not in self._hybrids:
            price, allowed = self.price(jobs), self._allowed_states
            self._hybrids[jobs] = AssignmentSearch(self._bounds, price, allowed)
        return self._hybrids[jobs]

    @cached_property
    def _bounds(self) -> Bounds:
        scores: dict[PartitionKind, list[tuple[Option, SetScores]]] = {}
        for partition in self._partitions:
            scores[partition] = []
            for option in options(partition):
                own = self.scores(option)  # a job alone in a partition is no MPS client
                own = own.without(self.sets.sizes == 1) if option.sharing.under_mps else own
                scores[partition].append((option, own))
        return Bounds(self.sets, self._cuts, scores)

    @cached_property
    def _cuts(self) -> tuple[Cut, ...]:
        gpu = self.question.gpu
        return cuts(gpu) if gpu.mig and self.question.conditions.root else ()

    @cached_property
    def _partitions(self) -> list[PartitionKind]:
        """The kinds of partitions of all cuts, each once."""
        return list(dict.fromkeys(partition for cut in self._cuts for partition in cut.partitions))

    @cached_property
    def _allowed_states(self) -> dict[str, NDArray[np.bool_]]:
        """For each MIG profile: the states that fit in its memory and keep isolated jobs alone."""
        allowed = {}
        for profile in {each.profile for cut in self._cuts for each in cut.instances}:
            allowed[profile] = np.zeros(self.sets.states, dtype=bool)
            for option in options(PartitionKind(profile)):
                fits = self.outcome(option).allowed
                np.logical_or.at(allowed[profile], self.sets.state, fits)
        return allowed


def hybrid(assignment: Assignment, jobs: Callable[[int], tuple[int, ...]]) -> Hybrid:
    """Return the sharing of `assignment`; `jobs` maps each of its sets in turn to job numbers."""
    cut = assignment.cut
    parts: dict[int, list[Part]] = {}
    partitions = zip(cut.partitions, cut.instance_at, assignment.partitions, strict=True)
    for partition, at, choice in partitions:
        if choice.chosen:
            own = jobs(choice.chosen)
            part = Part(own, choice.option.of(len(own)), partition.slices)
            parts.setdefault(at, []).append(part)
    return Hybrid(tuple(Place(cut.instances[at], tuple(own)) for at, own in parts.items()))


# Most labels kept for each state, of those that no other beats in every respect.
_MOST_KEPT = 12


@dataclass(frozen=True, slots=True)
class PhaseGroup:
    """Jobs that share the GPU until the last of them ends.

    Attributes:
        state: The set of jobs, as a state of `Sets`.
        placement: A set of jobs on the whole GPU, or an assignment to MIG instances.
        setup: Number of the set-up of the GPU that the group needs.
    """

    state: int
    placement: Choice | Assignment
    on_instances: bool
    setup: int
    scores: GroupScores


def phased(space: Space, most: int) -> list[tuple[float, tuple[PhaseGroup, ...]]]:
    """Find the best plans that run all jobs in phases, at most `most`, each with its cost.

    Each has two or more groups, in the order in which they run; the best comes first.

    The best one without MIG instances is always among them, if need be as one more: how instances
    slow each other is not counted here, so groups on instances seem cheaper than they are.

    This is a dynamic program. Its state is the set of jobs that are done; its labels are sequences
    of groups that end there, kept apart by how they leave the GPU set up. A label that another
    beats in every respect is dropped.

    A group on MIG instances uses the way that is best for the group alone. Of two ways that cost
    nearly the same, the search may therefore miss the one with the cheaper change of instances. The
    loss is at most the seconds that making and destroying instances take.
    """
    jobs, of_phases = space.jobs_in(space.sets.states - 1), space.objective.of_phases
    plans = [(of_phases(each.cost, each.worst, jobs), each.groups) for each in _reached(space)]
    plans.sort(key=lambda each: each[0])
    whole = (each for each in plans if not any(group.on_instances for group in each[1]))
    sure = next(whole, None)
    return [each for at, each in enumerate(plans) if at < most or each is sure]


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
    states, last = dict.fromkeys(sets.state.tolist()), sets.states - 1
    groups = {state: list(table.groups(state)) for state in states if 0 < state < last}
    reached: dict[int, _Labels] = {0: {(_NOT_SET_UP, False): [_Label(0.0, 0.0, ())]}}
    for done in sorted(states, key=space.jobs_in):
        if done in reached and done != last:
            inside, _ = sets.inside(last - done)
            left = dict.fromkeys(sets.state[inside].tolist())
            ahead = [group for state in left if state in groups for group in groups[state]]
            _go_on(table, done, ahead, reached)
    return [each for labels in reached.get(last, {}).values() for each in labels]


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
    for label in kept:  # no generator: most are looked at once, and dropped
        if label.cost <= cost and label.worst <= worst:
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
        jobs = self.space.jobs_in(state)
        tried = options(WHOLE_GPU)[: None if jobs > 1 else 1]
        for chosen in np.flatnonzero(self.space.sets.state == state).tolist():
            for option in tried:
                group = self._group(state, Choice(option, chosen))
                same = ways.setdefault(option.sharing == Naive(), [])
                beaten = any(each.scores.beats(group.scores) for each in same)
                if np.isfinite(group.scores.cost) and not beaten:
                    same[:] = [each for each in same if not group.scores.beats(each.scores)]
                    same.append(group)
        kept = [group for same in ways.values() for group in same]
        yield from kept
        # The best way on MIG instances, if its bound is below every way on the whole GPU, where
        # MIG mode is entered and left for this group alone.
        turn, least = Turn(2 * MIG_MODE_S, jobs, self.idle_w), np.inf
        for group in kept:
            cost, worst = self.objective.after((0.0, 0.0), group.scores, turn)
            least = min(least, self.objective.of_phases(cost, worst, jobs))
        hybrids = self.space.hybrids(jobs)
        if hybrids.least(state) < least:
            for assignment in islice(hybrids.in_order(state), 1):
                yield self._group(state, assignment)

    def pause_s(self, before: int, after: int) -> float:
        """Seconds between a group of the set-up `before` and one of the set-up `after`."""
        if before == _NOT_SET_UP:
            return 0.0
        if (before, after) not in self._pauses_s:
            pause_s = repartition_s(self._setups[before], self._setups[after])
            self._pauses_s[before, after] = pause_s
        return self._pauses_s[before, after]

    def _group(self, state: int, placement: Choice | Assignment) -> PhaseGroup:
        space, jobs = self.space, self.space.jobs_in(state)
        parts = [placement] if isinstance(placement, Choice) else [
            each for each in placement.partitions if each.chosen
        ]  # fmt: skip
        scores = [(space.scores(each.option), each.chosen) for each in parts]
        most = max(float(own.most[chosen]) for own, chosen in scores)
        total = sum(float(own.total[chosen]) for own, chosen in scores)
        cost, worst = self.objective.of_group(most, total, space.source.awake_w, jobs)
        time_s, due = self._timed(parts) if self.objective.uses_deadlines else (most, ())
        group_scores = GroupScores(jobs, time_s, cost, worst, due)
        on_instances = isinstance(placement, Assignment)
        return PhaseGroup(state, placement, on_instances, self._setup(placement), group_scores)

    def _timed(self, parts: Sequence[Choice]) -> tuple[float, tuple[tuple[float, float], ...]]:
        """Seconds until the last job ends, and `GroupScores.due`."""
        sets, last_s = self.space.sets, 0.0
        due: dict[int, tuple[float, float]] = {}
        for part in parts:
            ends_s = self.space.outcome(part.option).ends_s[part.chosen]
            last_s = max(last_s, float(ends_s.max()))
            for kind in sets.tenants[part.chosen]:
                deadline_s = sets.jobs[kind].deadline_s
                if deadline_s is not None:
                    before_s, _ = due.get(kind, (0.0, 0.0))
                    due[kind] = max(before_s, float(ends_s[kind])), deadline_s
        return last_s, tuple(due[kind] for kind in sorted(due))

    def _setup(self, placement: Choice | Assignment) -> int:
        """A key of the instances and MPS daemons that a group needs."""
        needs: Group | Hybrid
        if isinstance(placement, Choice):
            needs = Group((1,), Mps() if placement.option.sharing.under_mps else Naive())
        else:
            numbers = count(1)
            sizes = self.space.sets.sizes
            needs = hybrid(placement, lambda chosen: tuple(islice(numbers, sizes[chosen])))
        stays = frozenset(
            (memory[0].instance, tuple(part.sharing.under_mps for part in memory))
            for memory in needs.memories
        )
        number = self._numbers.setdefault(stays, len(self._setups))
        if number == len(self._setups):
            self._setups.append(needs)
        return number
