"""Candidate plans for some jobs on one GPU, in the order of cost if partitions are independent."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from advisor.plan.objectives import OBJECTIVES
from advisor.plan.objectives.objective import Awake
from advisor.plan.recommendation import Question
from advisor.plan.rules import FitsMemory, rules
from advisor.plan.search.cost_table import (
    Outcomes,
    PredictorSource,
    Source,
    SurrogateSource,
    outcomes,
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
from advisor.prediction.power import idle_power_w
from advisor.sharing import Hybrid, Part, Place
from advisor.workload.job import Job

MOST_ASKED = 3
"""Of at most so many jobs the predictor itself may be asked for every set in every partition."""


class Space:
    """What every set of `jobs` does in every partition of a GPU, each worked out once.

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
        few = ask and len(jobs) <= MOST_ASKED and len(self.sets.counts) <= 2**MOST_ASKED
        surrogate = None if few else question.predictor.surrogate(profiles)
        self.exact = surrogate is None
        if surrogate is not None:
            self.source: Source = SurrogateSource(surrogate.answers, margin)
        else:
            fits, awake_w = FitsMemory(question.gpu, margin), idle_power_w(profiles) or 0.0
            self.source = PredictorSource(question.predictor, fits, question.level, awake_w)
        self._outcomes: dict[Option, Outcomes] = {}
        self._scores: dict[Option, SetScores] = {}
        self._hybrids: dict[int, AssignmentSearch] = {}

    def outcome(self, option: Option) -> Outcomes:
        """What every set of jobs does under `option`."""
        if option not in self._outcomes:
            partitions = [WHOLE] if option.partition == WHOLE else self._partitions
            together = [each for partition in partitions for each in options(partition)]
            self._outcomes |= outcomes(together, self.sets, self.source, self.rules)
        return self._outcomes[option]

    def scores(self, option: Option) -> SetScores:
        """Scores of every set under `option`."""
        if (found := self._scores.get(option)) is None:
            outcomes = self.outcome(option)
            numbers = self.objective.of_sets(outcomes, self.sets)
            found = SetScores(*numbers).without(~outcomes.allowed)
            self._scores[option] = found
        return found

    def awake(self, jobs: int) -> Awake:
        """The GPU while `jobs` jobs run at once."""
        return Awake(self.source.awake_w, jobs)

    def price(self, jobs: int) -> Price:
        """Turns scores into cost and tie-breaker, where `jobs` jobs run at once."""
        awake = self.awake(jobs)
        return lambda most, total: self.objective.price(most, total, awake)

    def one_job_each(self) -> Iterator[Assignment]:
        """Plans for all jobs in which each has a MIG instance of its own, cheapest first."""
        state = self.sets.states - 1
        every, crowded = self.hybrids(self.jobs_in(state)), self.sets.sizes > 1
        whole = [cut for cut in every.bounds.cuts if not any(cut.parts)]
        scores = {
            partition: [(option, own.without(crowded)) for option, own in ways[:1]]
            for partition, ways in every.bounds.scores.items()
        }
        bounds = Bounds(self.sets, whole, scores)
        return AssignmentSearch(bounds, every.price, every.allowed_states).in_order(state)

    def hybrids(self, jobs: int) -> AssignmentSearch:
        """The search for plans on MIG instances, where `jobs` jobs run at once."""
        if jobs not in self._hybrids:
            price, allowed = self.price(jobs), self._allowed_states
            self._hybrids[jobs] = AssignmentSearch(self._bounds, price, allowed)
        return self._hybrids[jobs]

    @cached_property
    def _bounds(self) -> Bounds:
        scores = {partition: [(each, self._in_partition(each)) for each in options(partition)]
                  for partition in self._partitions}  # fmt: skip
        return Bounds(self.sets, self._cuts, scores)

    def jobs_in(self, state: int) -> int:
        """Number of jobs in `state`."""
        return int(self._state_sizes[state])

    def _in_partition(self, option: Option) -> SetScores:
        """As `scores`, but a job alone in a partition is no MPS client."""
        found = self.scores(option)
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
        """The kinds of partitions of all cuts, each once."""
        return list(dict.fromkeys(partition for cut in self._cuts for partition in cut.partitions))

    @cached_property
    def _allowed_states(self) -> dict[str, NDArray[np.bool_]]:
        """For each MIG profile: the states that fit in its memory and keep isolated jobs alone."""
        found = {}
        for profile in {each.profile for cut in self._cuts for each in cut.instances}:
            may = np.zeros(self.sets.states, dtype=bool)
            for option in options(PartitionKind(profile)):
                np.logical_or.at(may, self.sets.state, self.outcome(option).allowed)
            found[profile] = may
        return found


def hybrid(assignment: Assignment, jobs: Callable[[int], tuple[int, ...]]) -> Hybrid:
    """The sharing of `assignment`; `jobs` holds the job numbers of each of its sets in turn."""
    cut = assignment.cut
    parts: dict[int, list[Part]] = {}
    partitions = zip(cut.partitions, cut.instance_at, assignment.partitions, strict=True)
    for partition, at, each in partitions:
        if each.chosen:
            own = jobs(each.chosen)
            part = Part(own, each.option.of(len(own)), partition.slices)
            parts.setdefault(at, []).append(part)
    return Hybrid(tuple(Place(cut.instances[at], tuple(own)) for at, own in parts.items()))
