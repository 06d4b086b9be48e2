"""The candidates worth forecasting for any of some jobs on one GPU, the best of each kind first."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

import numpy as np

from advisor.plan.candidates import Candidate
from advisor.plan.recommendation import LeftOut, Question
from advisor.plan.rules import first_broken, rules
from advisor.plan.search.assignment import JobNumbers, job_numbers, one_after_another
from advisor.plan.search.candidate_space import Space
from advisor.plan.search.partition_search import Assignment, Choice
from advisor.plan.search.partitions import WHOLE, options
from advisor.plan.search.phase_search import phased
from advisor.sharing import Instance, Mig, Serial, Sharing
from advisor.sharing.traversal import instance_sets, simplest
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that was found.

    Attributes:
        candidate: Its jobs are numbered as in all that were asked for, from 1.
        cost: As if what is on instances of their own did not couple at all.
    """

    candidate: Candidate
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
                numbers = job_numbers(self.space.sets, chosen)
                group = numbers.group(Choice(option, int(sets[best])))
                found.append(self._proposal(chosen, group.sharing, numbers, float(costs[best])))
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
            numbers = job_numbers(self.space.sets, chosen)
            hows: list[Choice | Assignment] = [group.how for group in each.groups]
            sharing = one_after_another(hows, numbers)
            if sharing != Serial() or numbers.batches_of(chosen) != self._asked(chosen):
                found.append(self._proposal(chosen, sharing, numbers, each.cost))
        return found

    def _cut(self, chosen: Sequence[int], assignments: Iterable[Assignment]) -> Iterator[Proposal]:
        for assignment in assignments:
            numbers = job_numbers(self.space.sets, chosen)
            sharing = simplest(numbers.hybrid(assignment))
            yield self._proposal(chosen, sharing, numbers, assignment.cost)

    def _proposal(
        self, chosen: Sequence[int], sharing: Sharing, numbers: JobNumbers, cost: float
    ) -> Proposal:
        batches = numbers.batches_of(chosen)
        candidate = Candidate(
            jobs=tuple(at + 1 for at in chosen),
            sharing=sharing,
            batches=() if batches == self._asked(chosen) else batches,
        )
        return Proposal(candidate, cost)

    def _asked(self, chosen: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.jobs[at].batch for at in chosen)


# Sets of jobs that are looked at, batch sizes aside: all those of 8 different jobs.
MOST_STATES = 256
# Plans of a kind that are forecast, and plans on MIG instances where the predictor itself is asked
# what comes of each partition: instances slow each other, which shows only then.
FORECAST, FORECAST_ASKED = 3, 12


@dataclass(frozen=True, slots=True)
class Proposed:
    """Plans to be forecast, and what was not looked at.

    Attributes:
        asked: Whether the predictor itself was asked about every set of jobs, not its surrogate;
            None: nothing was looked at.
    """

    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]
    asked: bool | None = None


def unsearched(jobs: Sequence[Job]) -> tuple[LeftOut, ...]:
    """What a ranking of plans for `jobs` never looks at; two jobs have nothing of it."""
    if len(jobs) < 3:
        return ()
    why = "limits are equal within a phase, and there are none on instances"
    return (LeftOut("unequal limits in phases and limits on MIG instances", why),)


def affordable(jobs: Sequence[Job]) -> bool:
    """Whether every set of `jobs` can be looked at; copies of a job are one with a count."""
    first = [jobs.index(job) for job in jobs]
    return prod(1 + first.count(at) for at in set(first)) <= MOST_STATES


def proposed(jobs: Sequence[Job], question: Question) -> Proposed:
    """The best on MIG instances, in phases and at other batch sizes, a few of each."""
    if len(jobs) == 1 and not jobs[0].choices:
        return Proposed((), ())
    if not affordable(jobs):
        why = f"{len(jobs)} jobs make too many sets to look at each"
        return Proposed((), (LeftOut("MIG, and phases", why),))
    everyone = range(len(jobs))
    solver = Solver(jobs, question, ask=True)
    asked = solver.space.exact
    found = [each for each in solver.whole(everyone) if asked or each.candidate.batches][:FORECAST]
    apart = list(islice(solver.one_job_each(everyone), FORECAST))
    most = FORECAST_ASKED if asked else FORECAST
    found += [*apart, *islice(filter(_cut_up, solver.on_instances(everyone)), most)]
    found += filter(_cut_up, solver.in_phases(everyone, FORECAST))
    left_out = [] if apart else [LeftOut("mig", _no_layout(jobs, question))]
    if solver.space.sets.batches_fixed:
        why = "they make too many sets to look at each"
        left_out.append(LeftOut("other batch sizes", why))
    return Proposed(tuple(each.candidate for each in found), tuple(left_out), asked)


def _cut_up(plan: Proposal) -> bool:
    """Whether jobs have more than one instance at once, all in one being the GPU with fewer SMs."""
    cut = instance_sets(plan.candidate.sharing)
    return not cut or any(len(each.partitions) > 1 for each in cut)


def _no_layout(jobs: Sequence[Job], question: Question) -> str:
    """Why no plan gives each of `jobs` a MIG instance of its own."""
    gpu = question.gpu
    if not gpu.mig:
        return f"{gpu.key} has no MIG"
    one_each = Mig((Instance(gpu.mig[0].name),) * len(jobs))
    if problem := first_broken(rules(gpu, question.conditions), jobs, one_each):
        return problem
    return f"no layout has an instance with enough memory for each of the {len(jobs)} jobs"
