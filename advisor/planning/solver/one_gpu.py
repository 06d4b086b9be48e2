"""The best plan for any of some jobs on one GPU: asked often, worked out once for each set."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.gpu.catalogue import Gpu
from advisor.planning.forecast import forecast
from advisor.planning.mig import best_layouts
from advisor.planning.mixes import Mixes
from advisor.planning.objectives import cost
from advisor.planning.plan import Forecast, Objective, Predicts
from advisor.planning.rules import UNCONDITIONAL, Conditions, FitsMemory, first_broken, rules
from advisor.planning.space import Setup
from advisor.prediction.answer import Interval
from advisor.sharing import Mps, Naive, Serial, Sharing
from advisor.simulation.energy import Level
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of every set of jobs.

    Attributes:
        objective: What the best plan is best at.
        level: Of each cost's interval what plans are ranked by: the median, or the upper end.
    """

    gpu: Gpu
    predictor: Predicts
    objective: Objective
    level: Level = "p50"
    conditions: Conditions = UNCONDITIONAL


@dataclass(frozen=True, slots=True)
class Solved:
    """The best plan for some jobs.

    Attributes:
        setup: Its jobs are numbered as in all that were asked for, from 1.
        forecast: Of it.
        cost: By the objective: the lower, the better.
    """

    setup: Setup
    forecast: Forecast
    cost: Interval


class OneGpu:
    """Answers for sets of `jobs` on one GPU; sets of equal jobs are worked out once."""

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.jobs = tuple(jobs)
        self.question = question
        self._kinds = [self.jobs.index(job) for job in self.jobs]
        self._known: dict[tuple[int, ...], tuple[Forecast, Interval] | None] = {}

    def best(self, chosen: Sequence[int]) -> Solved | None:
        """The best plan for the jobs at the positions `chosen`, increasing, from 0.

        None where one of them is too big, or nothing that the rules allow can be priced.
        """
        kinds = tuple(self._kinds[at] for at in chosen)
        if kinds not in self._known:
            self._known[kinds] = self._solved([self.jobs[at] for at in chosen])
        if (found := self._known[kinds]) is None:
            return None
        setup = Setup(jobs=tuple(at + 1 for at in chosen), sharing=found[0].sharing)
        return Solved(setup, *found)

    def _solved(self, jobs: Sequence[Job]) -> tuple[Forecast, Interval] | None:
        asked = self.question
        mixes = Mixes(jobs, asked.predictor)
        fits = FitsMemory(asked.gpu, asked.conditions.memory_margin)
        forbidding = rules(asked.gpu, asked.conditions)
        ways: list[Sharing] = [Serial(), Naive(), Mps()]
        ways += best_layouts(mixes, asked.gpu, asked.objective, 1)
        allowed = [
            each for each in ways
            if first_broken(forbidding, jobs, each) is None
            and fits.broken(mixes.whole(each)) is None
        ]  # fmt: skip
        forecasts = [forecast(mixes, each) for each in allowed]
        priced = [(each, cost(each, asked.objective)) for each in forecasts]
        known = [(each, price) for each, price in priced if price is not None]
        return min(known, key=lambda each: float(getattr(each[1], asked.level)), default=None)
