"""All plans for any of some jobs on one GPU, by their cost as far as partitions do not couple."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from advisor.plan.objectives import OBJECTIVES
from advisor.plan.objectives.objective import Awake
from advisor.plan.recommendation import Question
from advisor.plan.rules import FitsMemory, rules
from advisor.plan.search.assignment import signature
from advisor.plan.search.cost_table import (
    Outcomes,
    Source,
    outcomes,
    predictor_source,
    surrogate_source,
)
from advisor.plan.search.job_sets import Indices, Sets, sets_of
from advisor.plan.search.partition_search import Assignment, AssignmentSearch
from advisor.plan.search.partitions import (
    WHOLE,
    Bounds,
    Cut,
    Option,
    PartitionKind,
    Price,
    SetScores,
    cuts,
    options,
)
from advisor.workload.job import Job

MOST_ASKED = 3
"""Of at most so many jobs the predictor itself may be asked for every set in every partition."""


class Space:
    """What any set of `jobs` does in any partition, each worked out once.

    Args:
        jobs: Any of which may be asked about.
        question: What is asked.
        ask: Whether to ask the predictor itself where that is affordable, not its surrogate model.

    Attributes:
        exact: Whether costs are what the predictor says, as far as partitions do not couple; else
            they are estimates of its surrogate model.
    """

    def __init__(self, jobs: Sequence[Job], question: Question, *, ask: bool = False) -> None:
        self.sets: Sets = sets_of(jobs)
        self.question = question
        self.objective = OBJECTIVES[question.objective]
        self.rules = rules(question.gpu, question.conditions)
        margin = question.conditions.memory_margin
        few = ask and len(jobs) <= MOST_ASKED and len(self.sets.counts) <= 2**MOST_ASKED
        rough = None if few else surrogate_source(question.predictor, margin, self.sets)
        self.exact = rough is None
        self.source: Source = rough or predictor_source(
            question.predictor,
            FitsMemory(question.gpu, margin),
            question.level,
            self.sets,
            of_steps=self.objective.of_steps,
        )
        self._outcomes: dict[Option, Outcomes] = {}
        self._scores: dict[tuple[Option, int], SetScores] = {}
        self._hybrids: dict[int, AssignmentSearch] = {}

    def outcome(self, option: Option) -> Outcomes:
        """What comes of every set under `option`."""
        if option not in self._outcomes:
            partitions = [WHOLE] if option.partition == WHOLE else self._partitions
            together = [each for partition in partitions for each in options(partition)]
            self._outcomes |= outcomes(together, self.sets, self.source, self.rules)
        return self._outcomes[option]

    def scores(self, option: Option, jobs: int) -> SetScores:
        """Of every set under `option`, where `jobs` run at once on the GPU."""
        if (found := self._scores.get((option, jobs))) is None:
            outcomes = self.outcome(option)
            numbers = self.objective.of_sets(outcomes, self.sets, self.awake(jobs))
            found = SetScores(*numbers).without(~outcomes.allowed)
            self._scores[option, jobs] = found
        return found

    def awake(self, jobs: int) -> Awake:
        """The GPU while `jobs` run at once."""
        return Awake(self.source.awake_w, jobs)

    def price(self, jobs: int) -> Price:
        """What follows from the scores of sets, where `jobs` run at once."""
        awake = self.awake(jobs)
        return lambda most, total: self.objective.price(most, total, awake)

    def on_instances(self, state: int) -> Iterator[Assignment]:
        """Plans on MIG instances for the jobs of `state`, cheapest first, each once."""
        return _each_once(self.hybrids(self.jobs_in(state)).in_order(state))

    def one_job_each(self, state: int) -> Iterator[Assignment]:
        """As `on_instances`, of those in which each job has a MIG instance of its own."""
        every, crowded = self.hybrids(self.jobs_in(state)), self.sets.sizes > 1
        whole = [cut for cut in every.bounds.cuts if not any(cut.parts)]
        scores = {
            partition: [(option, own.without(crowded)) for option, own in ways[:1]]
            for partition, ways in every.bounds.scores.items()
        }
        apart = AssignmentSearch(
            Bounds(self.sets, whole, scores), every.price, every.allowed_states
        )
        return _each_once(apart.in_order(state))

    def hybrids(self, jobs: int) -> AssignmentSearch:
        """Where `jobs` run at once."""
        if jobs not in self._hybrids:
            # Of joules of steps, the scores of a set depend on how many jobs run elsewhere.
            alike = not self.objective.of_steps
            known = next(iter(self._hybrids.values()), None) if alike else None
            bounds = known.bounds if known else self._bounds(jobs)
            self._hybrids[jobs] = AssignmentSearch(bounds, self.price(jobs), self._allowed_states)
        return self._hybrids[jobs]

    def _bounds(self, jobs: int) -> Bounds:
        scores = {partition: [(each, self._in_partition(each, jobs)) for each in options(partition)]
                  for partition in self._partitions}  # fmt: skip
        return Bounds(self.sets, self._cuts, scores)

    def jobs_in(self, state: int) -> int:
        """How many there are in a state."""
        return int(self._state_sizes[state])

    def members(self, state: int) -> tuple[int, ...]:
        """Positions of jobs that make up a state, of copies the first."""
        (chosen, *_) = np.flatnonzero(self.sets.state == state)
        counts = self.sets.of_kind[chosen].tolist()
        pairs = zip(self.sets.positions, counts, strict=True)
        return tuple(sorted(at for own, wanted in pairs for at in own[:wanted]))

    def _in_partition(self, option: Option, jobs: int) -> SetScores:
        """As `scores`, but a job alone in a partition is no MPS client."""
        found = self.scores(option, jobs)
        return found.without(self.sets.sizes == 1) if option.sharing.under_mps else found

    @cached_property
    def _state_sizes(self) -> Indices:
        found = np.zeros(self.sets.states, dtype=np.intp)
        found[self.sets.state] = self.sets.sizes
        return found

    @cached_property
    def _cuts(self) -> tuple[Cut, ...]:
        gpu = self.question.gpu
        return cuts(gpu) if gpu.mig and self.question.conditions.root else ()

    @cached_property
    def _partitions(self) -> list[PartitionKind]:
        """Of all cuts, each once."""
        return list(dict.fromkeys(partition for cut in self._cuts for partition in cut.partitions))

    @cached_property
    def _allowed_states(self) -> dict[str, NDArray[np.bool_]]:
        """By profile, which states one instance has memory for; isolated jobs have it alone."""
        found = {}
        for profile in {each.profile for cut in self._cuts for each in cut.instances}:
            may = np.zeros(self.sets.states, dtype=bool)
            for option in options(PartitionKind(profile)):
                np.logical_or.at(may, self.sets.state, self.outcome(option).allowed)
            found[profile] = may
        return found


def _each_once(assignments: Iterable[Assignment]) -> Iterator[Assignment]:
    """Of those that differ in which of equal partitions is whose, the first."""
    seen = set()
    for assignment in assignments:
        mark = signature(assignment.cut, assignment)
        if mark not in seen:
            seen.add(mark)
            yield assignment
