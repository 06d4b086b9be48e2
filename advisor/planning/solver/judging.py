"""What comes of a plan, with everything that couples; or why it is none."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.planning.forecast import forecast
from advisor.planning.mixes import Mixes
from advisor.planning.plan import Forecast, LeftOut
from advisor.planning.rules import FitsMemory, first_broken, rules
from advisor.planning.solver.space import Question
from advisor.planning.space import Setup
from advisor.sharing import Sharing
from advisor.workload.job import Job


class Judge:
    """Forecasts plans for `jobs`; what was predicted of a mix is remembered."""

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.jobs = tuple(jobs)
        self._predictor = question.predictor
        self._mixes: dict[tuple[int, ...], Mixes] = {}
        self._rules = rules(question.gpu, question.conditions)
        self._fits = FitsMemory(question.gpu, question.conditions.memory_margin)

    def mixes(self, setup: Setup) -> Mixes:
        """Of the jobs at the batch sizes of `setup`."""
        if setup.batches not in self._mixes:
            self._mixes[setup.batches] = Mixes(setup.chosen(self.jobs), self._predictor)
        return self._mixes[setup.batches]

    def foreseen(self, setup: Setup) -> Forecast | LeftOut:
        """What comes of `setup`, which is of all jobs."""
        mixes = self.mixes(setup)
        problem = first_broken(self._rules, mixes.jobs, setup.sharing)
        problem = problem or self._fits.broken(mixes.whole(setup.sharing))
        if problem:
            return LeftOut(str(setup.sharing), problem)
        return replace(forecast(mixes, setup.sharing), batches=setup.batches)


def as_asked(jobs: int, sharing: Sharing) -> Setup:
    """All of so many jobs under `sharing`, at the batch sizes asked for."""
    return Setup(jobs=tuple(range(1, jobs + 1)), sharing=sharing)
