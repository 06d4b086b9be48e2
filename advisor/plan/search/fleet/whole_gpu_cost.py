"""What some jobs come to that share a whole GPU in one way without limits: soon said."""

from collections.abc import Sequence

from advisor.plan.forecast import forecast
from advisor.plan.objectives.table import cost
from advisor.plan.plan_space import Setup
from advisor.plan.prediction_cache import Mixes
from advisor.plan.rules import FitsMemory, first_broken, rules
from advisor.plan.search.candidate_space import Question
from advisor.plan.search.one_gpu_search import Solved
from advisor.sharing import Mps, Naive, Serial
from advisor.workload.job import Job


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
