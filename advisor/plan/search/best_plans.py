"""The plans worth forecasting for any of some jobs on one GPU, the best of each kind first."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.plan.plan_space import Setup
from advisor.plan.search.assignment import Seating, one_after_another, seating
from advisor.plan.search.candidate_space import Question, Space
from advisor.plan.search.cost_table import options
from advisor.plan.search.partition_search import Choice, Cutting
from advisor.plan.search.partitions import WHOLE
from advisor.plan.search.phase_search import phased
from advisor.sharing import Serial, Sharing
from advisor.sharing.traversal import simplest
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that was found.

    Attributes:
        setup: Its jobs are numbered as in all that were asked for, from 1.
        cost: As if what is on instances of their own did not couple at all.
    """

    setup: Setup
    cost: float


class Solver:
    """Proposes plans for sets of `jobs`; arguments as of `Space`."""

    def __init__(self, jobs: Sequence[Job], question: Question, *, ask: bool = False) -> None:
        self.jobs = tuple(jobs)
        self.space = Space(jobs, question, ask=ask)

    def whole(self, chosen: Sequence[int]) -> list[Proposal]:
        """Naive, MPS, and MPS with equal limits: each with the best batch sizes; best first."""
        found = []
        state = self.space.sets.state_of(chosen)
        sets = np.flatnonzero(self.space.sets.state == state)
        price = self.space.price(len(chosen))
        for option in options(WHOLE):
            own = self.space.scores(option, len(chosen))
            costs, _ = price(own.most[sets], own.total[sets])
            best = int(np.argmin(costs))
            if np.isfinite(costs[best]):
                seats = seating(self.space.sets, chosen)
                group = seats.group(Choice(option, int(sets[best])))
                found.append(self._proposal(chosen, group.sharing, seats, float(costs[best])))
        return sorted(found, key=lambda each: each.cost)

    def on_instances(self, chosen: Sequence[int]) -> Iterator[Proposal]:
        """On MIG instances: every plan, cheapest first."""
        return self._cut(chosen, self.space.on_instances(self.space.sets.state_of(chosen)))

    def one_job_each(self, chosen: Sequence[int]) -> Iterator[Proposal]:
        """A MIG instance for each job: every plan, cheapest first."""
        return self._cut(chosen, self.space.one_job_each(self.space.sets.state_of(chosen)))

    def in_phases(self, chosen: Sequence[int], most: int) -> list[Proposal]:
        """Groups one after another: the best few."""
        found = []
        for each in phased(self.space, self.space.sets.state_of(chosen), most):
            seats = seating(self.space.sets, chosen)
            hows: list[Choice | Cutting] = [group.how for group in each.groups]
            sharing = one_after_another(hows, seats)
            if sharing != Serial() or seats.batches_of(chosen) != self._asked(chosen):
                found.append(self._proposal(chosen, sharing, seats, each.cost))
        return found

    def _cut(self, chosen: Sequence[int], cuttings: Iterable[Cutting]) -> Iterator[Proposal]:
        for cutting in cuttings:
            seats = seating(self.space.sets, chosen)
            sharing = simplest(seats.hybrid(cutting))
            yield self._proposal(chosen, sharing, seats, cutting.cost)

    def _proposal(
        self, chosen: Sequence[int], sharing: Sharing, seats: Seating, cost: float
    ) -> Proposal:
        batches = seats.batches_of(chosen)
        setup = Setup(
            jobs=tuple(at + 1 for at in chosen),
            sharing=sharing,
            batches=() if batches == self._asked(chosen) else batches,
        )
        return Proposal(setup, cost)

    def _asked(self, chosen: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.jobs[at].batch for at in chosen)
