"""The candidates worth forecasting for some jobs on one GPU, the best of each kind first."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, prod

import numpy as np

from advisor.plan.candidates import Candidate, Forecaster, as_asked
from advisor.plan.objectives import cost
from advisor.plan.recommendation import Forecast, LeftOut, Question
from advisor.plan.rules import first_broken, rules
from advisor.plan.search.candidate_space import Space, hybrid
from advisor.plan.search.partition_search import Assignment, Choice
from advisor.plan.search.partitions import WHOLE, options
from advisor.plan.search.phase_search import phased
from advisor.sharing import Concurrent, Group, Hybrid, Instance, Mig, Serial
from advisor.sharing.in_turn import in_turn
from advisor.sharing.traversal import instance_sets, simplest
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate of a search, with its estimated cost.

    Attributes:
        candidate: Candidate of all jobs.
        cost: Cost if MIG instances do not slow each other.
    """

    candidate: Candidate
    cost: float


class Solver:
    """Searches candidates for all of `jobs`; arguments as of `Space`."""

    def __init__(self, jobs: Sequence[Job], question: Question, *, ask: bool = False) -> None:
        self.jobs = tuple(jobs)
        self.space = Space(jobs, question, ask=ask)
        self._everyone = self.space.sets.states - 1

    def whole(self) -> list[Proposal]:
        """Naive, MPS, and MPS with equal limits, best first."""
        found = []
        sets = np.flatnonzero(self.space.sets.state == self._everyone)
        price = self.space.price(len(self.jobs))
        for option in options(WHOLE):
            own = self.space.scores(option)
            costs, _ = price(own.most[sets], own.total[sets])
            best = int(np.argmin(costs))
            if np.isfinite(costs[best]):
                choice = Choice(option, int(sets[best]))
                found.append(self._proposal(float(costs[best]), [choice]))
        return sorted(found, key=lambda each: each.cost)

    def on_instances(self) -> Iterator[Proposal]:
        """All plans on MIG instances, cheapest first."""
        found = self.space.hybrids(len(self.jobs)).in_order(self._everyone)
        return (self._proposal(each.cost, [each]) for each in found)

    def one_job_each(self) -> Iterator[Proposal]:
        """All plans with a MIG instance for each job, cheapest first."""
        return (self._proposal(each.cost, [each]) for each in self.space.one_job_each())

    def in_phases(self, most: int) -> list[Proposal]:
        """The best few plans in phases."""
        every = phased(self.space, most)
        found = [
            self._proposal(each.cost, [group.placement for group in each.groups]) for each in every
        ]
        return [each for each in found if each.candidate.sharing != Serial()]

    def _proposal(self, cost: float, placements: Sequence[Choice | Assignment]) -> Proposal:
        """A plan of groups in turn; of equal jobs, the first one is in the first group."""
        sets = self.space.sets
        free = [list(own) for own in sets.positions]

        def numbers(chosen: int) -> tuple[int, ...]:
            return tuple(sorted(free[kind].pop(0) + 1 for kind in sets.tenants[chosen]))

        def group(placement: Choice | Assignment) -> Group | Hybrid:
            if isinstance(placement, Assignment):
                return hybrid(placement, numbers)
            own = numbers(placement.chosen)
            return Group(own, placement.option.of(len(own)) if len(own) > 1 else Serial())

        first, *others = groups = [group(each) for each in placements]
        plain = simplest(first) if isinstance(first, Hybrid) and not others else in_turn(groups)
        return Proposal(as_asked(len(self.jobs), plain), cost)


# The most sets of jobs that are searched: those of 8 jobs.
MOST_STATES = 256
# How many plans of each kind are forecast; and how many on MIG instances if the predictor itself is
# asked about each partition. How instances slow each other shows only in the forecast.
FORECAST, FORECAST_ASKED = 3, 12


@dataclass(frozen=True, slots=True)
class Proposed:
    """Candidates to forecast, and what was not looked at.

    Attributes:
        asked: Whether the predictor itself was asked about every set of jobs, not its surrogate;
            None: no set was looked at.
    """

    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]
    asked: bool | None = None


def unsearched(jobs: Sequence[Job]) -> tuple[LeftOut, ...]:
    """Kinds of plans for `jobs` that are never searched; for two jobs there are none."""
    if len(jobs) < 3:
        return ()
    why = "limits are equal within a phase, and there are none on instances"
    return (LeftOut("unequal limits in phases and limits on MIG instances", why),)


def affordable(jobs: Sequence[Job]) -> bool:
    """Whether every subset of `jobs` can be looked at; copies of a job count as one kind."""
    first = [jobs.index(job) for job in jobs]
    return prod(1 + first.count(at) for at in set(first)) <= MOST_STATES


def proposed(jobs: Sequence[Job], question: Question) -> Proposed:
    """The best few plans on MIG instances and in phases."""
    if len(jobs) == 1:
        return Proposed((), ())
    if not affordable(jobs):
        why = f"{len(jobs)} jobs make too many sets to look at each"
        return Proposed((), (LeftOut("MIG, and phases", why),))
    solver = Solver(jobs, question, ask=True)
    asked = solver.space.exact
    found = solver.whole()[:FORECAST] if asked else []
    apart = list(islice(solver.one_job_each(), FORECAST))
    most = FORECAST_ASKED if asked else FORECAST
    found += [*apart, *islice(filter(_cut_up, solver.on_instances()), most)]
    found += filter(_cut_up, solver.in_phases(FORECAST))
    left_out = [] if apart else [LeftOut("mig", _no_layout(jobs, question))]
    return Proposed(tuple(each.candidate for each in found), tuple(left_out), asked)


def _cut_up(plan: Proposal) -> bool:
    """Whether jobs use more than one partition at once; all in one is just a smaller GPU."""
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


# The most plans on MIG instances, or in phases, that are forecast: where their costs are estimates;
# and where they are lower bounds, so that the search normally ends earlier.
ESTIMATED_FORECAST, MOST_FORECAST = 4, 1000


class OneGpuSolver:
    """Finds the best plan for any of `jobs` on one GPU; equal sets of jobs are solved once."""

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.jobs = tuple(jobs)
        self.question = question
        self._kinds = [self.jobs.index(job) for job in self.jobs]
        self._known: dict[tuple[int, ...], Forecast | None] = {}

    def best(self, chosen: Sequence[int]) -> Forecast | None:
        """The best plan for the jobs at the positions `chosen`, increasing, from 0.

        None where a job is too big, or where no allowed plan has a known cost.
        """
        kinds = tuple(self._kinds[at] for at in chosen)
        if kinds not in self._known:
            self._known[kinds] = self._solved([self.jobs[at] for at in chosen])
        return self._known[kinds]

    def _solved(self, jobs: Sequence[Job]) -> Forecast | None:
        """Forecast proposals, cheapest first, until none can be better than the best so far."""
        forecaster, best, least = Forecaster(jobs, self.question), None, inf
        for proposals, exact in self._kinds_of_plans(jobs):
            for each in proposals:
                if exact and each.cost >= least:
                    break
                found, paid = _priced(each.candidate, forecaster, self.question)
                if paid < least:
                    best, least = found, paid
        return best

    def _kinds_of_plans(self, jobs: Sequence[Job]) -> Iterator[tuple[Iterable[Proposal], bool]]:
        """Proposals, and whether their costs are lower bounds."""
        yield [Proposal(as_asked(len(jobs), Serial()), 0.0)], False
        if len(jobs) > 1:
            solver = Solver(jobs, self.question)
            exact = solver.space.exact
            most = MOST_FORECAST if exact else ESTIMATED_FORECAST
            yield solver.whole(), exact
            yield islice(solver.on_instances(), most), exact
            yield solver.in_phases(most), exact


class WholeGpuSolver:
    """As `OneGpuSolver`, with all jobs under `sharing`; a job alone has the whole GPU."""

    def __init__(self, jobs: Sequence[Job], question: Question, sharing: Concurrent) -> None:
        self._jobs, self._question, self._sharing = tuple(jobs), question, sharing

    def best(self, chosen: Sequence[int]) -> Forecast | None:
        jobs = [self._jobs[at] for at in chosen]
        plan = as_asked(len(jobs), self._sharing if len(jobs) > 1 else Serial())
        return _priced(plan, Forecaster(jobs, self._question), self._question)[0]


def _priced(
    candidate: Candidate, forecaster: Forecaster, question: Question
) -> tuple[Forecast | None, float]:
    """Forecast and cost of a candidate; None and infinite where it is not allowed."""
    found = forecaster.forecast(candidate)
    if isinstance(found, LeftOut) or (paid := cost(found, question.objective)) is None:
        return None, inf
    return found, paid.at(question.level)
