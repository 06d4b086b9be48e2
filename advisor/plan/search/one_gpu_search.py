"""The best plan for any of some jobs on one GPU: asked often, worked out once for each set."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf

from advisor.plan.candidates import Judge, Setup, as_asked
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives.table import cost
from advisor.plan.recommendation import Forecast, LeftOut
from advisor.plan.rules import FitsMemory, first_broken, rules
from advisor.plan.search.candidate_space import Question
from advisor.plan.search.proposals import Proposal, Solver
from advisor.prediction.mix_prediction import Interval
from advisor.sharing import Mps, Naive, Serial
from advisor.workload.job import Job

__all__ = ["OneGpu", "Question", "Solved"]

# Plans on MIG instances, and in phases, that are forecast at most: where costs are rough, and where
# they are a lower bound, so that the search ends before.
ROUGHLY_FORECAST, MOST_FORECAST = 4, 1000


@dataclass(frozen=True, slots=True)
class Solved:
    """The best plan for some jobs.

    Attributes:
        setup: Its jobs are numbered as in all that were asked for, from 1.
        forecast: Of it, with all that couples.
        cost: By the objective: the lower, the better.
    """

    setup: Setup
    forecast: Forecast
    cost: Interval


class OneGpu:
    """Answers for sets of `jobs` on one GPU; sets of equal jobs are worked out once.

    Args:
        jobs: All that may be asked about.
        question: What is asked of each set.
    """

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.jobs = tuple(jobs)
        self.question = question
        self._kinds = [self.jobs.index(job) for job in self.jobs]
        self._known: dict[tuple[int, ...], tuple[Setup, Forecast, Interval] | None] = {}

    def best(self, chosen: Sequence[int]) -> Solved | None:
        """The best plan for the jobs at the positions `chosen`, increasing, from 0.

        None where one of them is too big, or nothing that the rules allow can be priced.
        """
        kinds = tuple(self._kinds[at] for at in chosen)
        if kinds not in self._known:
            self._known[kinds] = self._solved([self.jobs[at] for at in chosen])
        if (found := self._known[kinds]) is None:
            return None
        setup, foreseen, paid = found
        jobs = tuple(at + 1 for at in chosen)
        return Solved(
            Setup(jobs=jobs, sharing=setup.sharing, batches=setup.batches), foreseen, paid
        )

    def _solved(self, jobs: Sequence[Job]) -> tuple[Setup, Forecast, Interval] | None:
        everyone = range(len(jobs))
        search = _Search(Judge(jobs, self.question), self.question)
        search.hear([Proposal(as_asked(len(jobs), Serial()), 0.0)], exact=False)
        if len(jobs) > 1:
            solver = Solver(jobs, self.question)
            exact = solver.space.exact
            most = MOST_FORECAST if exact else ROUGHLY_FORECAST
            search.hear(solver.whole(everyone), exact=exact)
            search.hear(islice(solver.on_instances(everyone), most), exact=exact)
            search.hear(solver.in_phases(everyone, most), exact=exact)
        return search.best


@dataclass(slots=True)
class _Search:
    judge: Judge
    question: Question
    best: tuple[Setup, Forecast, Interval] | None = None

    def hear(self, proposals: Iterable[Proposal], *, exact: bool) -> None:
        """Forecast `proposals` until none can be better than the best.

        Args:
            proposals: Cheapest first.
            exact: Whether none costs less than it says.
        """
        for each in proposals:
            if exact and each.cost >= self._least:
                return
            found = self.judge.foreseen(each.setup)
            paid = None if isinstance(found, LeftOut) else cost(found, self.question.objective)
            if paid is not None and self._price(paid) < self._least:
                assert isinstance(found, Forecast), "what is left out has no cost"
                self.best = each.setup, found, paid

    @property
    def _least(self) -> float:
        return inf if self.best is None else self._price(self.best[2])

    def _price(self, paid: Interval) -> float:
        return paid.at(self.question.level)


class WholeGpu:
    """Jobs that all share under `sharing`; a job alone has the GPU.

    Args:
        jobs: All that may be asked about.
        question: What is asked of each set.
        sharing: Of two jobs and more.
    """

    def __init__(self, jobs: Sequence[Job], question: Question, sharing: Naive | Mps) -> None:
        self._jobs, self._question, self._sharing = tuple(jobs), question, sharing
        self._rules = rules(question.gpu, question.conditions)
        self._fits = FitsMemory(question.gpu, question.conditions.memory_margin)

    def best(self, chosen: Sequence[int]) -> Solved | None:
        """What comes of it; None where the rules forbid it, or it does not fit.

        Args:
            chosen: Positions of jobs, increasing, from 0.
        """
        jobs = [self._jobs[at] for at in chosen]
        sharing = self._sharing if len(jobs) > 1 else Serial()
        if first_broken(self._rules, jobs, sharing) is not None:
            return None
        mixes = Mixes(jobs, self._question.predictor)
        if self._fits.broken(mixes.whole(sharing)) is not None:
            return None
        foreseen = forecast(mixes, sharing)
        price = cost(foreseen, self._question.objective)
        setup = Setup(jobs=tuple(at + 1 for at in chosen), sharing=sharing)
        return None if price is None else Solved(setup, foreseen, price)
