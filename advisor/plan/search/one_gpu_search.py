"""The best plan for any of some jobs on one GPU: asked often, worked out once for each set."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf

from advisor.plan.candidates import Candidate, Forecaster, as_asked
from advisor.plan.objectives import cost
from advisor.plan.recommendation import Forecast, LeftOut, Question
from advisor.plan.search.proposals import Proposal, Solver
from advisor.prediction.mix_prediction import Interval
from advisor.sharing import Mps, Naive, Serial
from advisor.workload.job import Job

__all__ = ["BestCandidate", "OneGpuSolver", "Question"]

# Plans on MIG instances, and in phases, that are forecast at most: where costs are estimates, and
# where they are lower bounds, so that the search ends before.
ESTIMATED_FORECAST, MOST_FORECAST = 4, 1000


@dataclass(frozen=True, slots=True)
class BestCandidate:
    """The best plan for some jobs.

    Attributes:
        candidate: Its jobs are numbered as in all that were asked for, from 1.
        forecast: Of it, with all that couples.
        cost: By the objective: the lower, the better.
    """

    candidate: Candidate
    forecast: Forecast
    cost: Interval


class OneGpuSolver:
    """Answers for sets of `jobs` on one GPU; sets of equal jobs are worked out once.

    Args:
        jobs: All that may be asked about.
        question: What is asked of each set.
    """

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.jobs = tuple(jobs)
        self.question = question
        self._kinds = [self.jobs.index(job) for job in self.jobs]
        self._known: dict[tuple[int, ...], tuple[Candidate, Forecast, Interval] | None] = {}

    def best(self, chosen: Sequence[int]) -> BestCandidate | None:
        """The best plan for the jobs at the positions `chosen`, increasing, from 0.

        None where one of them is too big, or nothing that the rules allow can be priced.
        """
        kinds = tuple(self._kinds[at] for at in chosen)
        if kinds not in self._known:
            self._known[kinds] = self._solved([self.jobs[at] for at in chosen])
        if (found := self._known[kinds]) is None:
            return None
        candidate, predicted, paid = found
        jobs = tuple(at + 1 for at in chosen)
        return BestCandidate(
            Candidate(jobs=jobs, sharing=candidate.sharing, batches=candidate.batches),
            predicted,
            paid,
        )

    def _solved(self, jobs: Sequence[Job]) -> tuple[Candidate, Forecast, Interval] | None:
        everyone = range(len(jobs))
        search = _Search(Forecaster(jobs, self.question), self.question)
        search.offer([Proposal(as_asked(len(jobs), Serial()), 0.0)], exact=False)
        if len(jobs) > 1:
            solver = Solver(jobs, self.question)
            exact = solver.space.exact
            most = MOST_FORECAST if exact else ESTIMATED_FORECAST
            search.offer(solver.whole(everyone), exact=exact)
            search.offer(islice(solver.on_instances(everyone), most), exact=exact)
            search.offer(solver.in_phases(everyone, most), exact=exact)
        return search.best


@dataclass(slots=True)
class _Search:
    forecaster: Forecaster
    question: Question
    best: tuple[Candidate, Forecast, Interval] | None = None

    def offer(self, proposals: Iterable[Proposal], *, exact: bool) -> None:
        """Forecast `proposals` until none can be better than the best.

        Args:
            proposals: Cheapest first.
            exact: Whether none costs less than it says.
        """
        for each in proposals:
            if exact and each.cost >= self._least:
                return
            found = self.forecaster.forecast(each.candidate)
            paid = None if isinstance(found, LeftOut) else cost(found, self.question.objective)
            if paid is not None and self._price(paid) < self._least:
                assert isinstance(found, Forecast), "what is left out has no cost"
                self.best = each.candidate, found, paid

    @property
    def _least(self) -> float:
        return inf if self.best is None else self._price(self.best[2])

    def _price(self, paid: Interval) -> float:
        return paid.at(self.question.level)


class WholeGpuSolver:
    """Jobs that all share under `sharing`; a job alone has the GPU.

    Args:
        jobs: All that may be asked about.
        question: What is asked of each set.
        sharing: Of two jobs and more.
    """

    def __init__(self, jobs: Sequence[Job], question: Question, sharing: Naive | Mps) -> None:
        self._jobs, self._question, self._sharing = tuple(jobs), question, sharing

    def best(self, chosen: Sequence[int]) -> BestCandidate | None:
        """What comes of it; None where the rules forbid it, or it does not fit.

        Args:
            chosen: Positions of jobs, increasing, from 0.
        """
        jobs = [self._jobs[at] for at in chosen]
        sharing = self._sharing if len(jobs) > 1 else Serial()
        found = Forecaster(jobs, self._question).forecast(as_asked(len(jobs), sharing))
        paid = None if isinstance(found, LeftOut) else cost(found, self._question.objective)
        if paid is None or isinstance(found, LeftOut):
            return None
        candidate = Candidate(jobs=tuple(at + 1 for at in chosen), sharing=sharing)
        return BestCandidate(candidate, found, paid)
