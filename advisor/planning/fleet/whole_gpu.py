"""The best way for some jobs to share a whole GPU without limits: soon said, for many groups."""

from collections.abc import Sequence

from advisor.planning.forecast import forecast
from advisor.planning.mixes import Mixes
from advisor.planning.objectives import cost, throughput
from advisor.planning.rules import FitsMemory, first_broken, rules
from advisor.planning.solver.one_gpu import Solved
from advisor.planning.solver.space import Question
from advisor.planning.space import Setup
from advisor.sharing import Mps, Naive, Serial
from advisor.workload.job import Job


class WholeGpu:
    """Time-sliced or under MPS; a job alone has the GPU.

    Args:
        jobs: All that may be asked about.
        question: What is asked of each set.
    """

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self._jobs, self._question = tuple(jobs), question
        self._rules = rules(question.gpu, question.conditions)
        self._fits = FitsMemory(question.gpu, question.conditions.memory_margin)

    def best(self, chosen: Sequence[int]) -> Solved | None:
        """The way that the rules allow, that fits, and in which most is done while all run.

        Args:
            chosen: Positions of jobs, increasing, from 0.
        """
        jobs = [self._jobs[at] for at in chosen]
        mixes = Mixes(jobs, self._question.predictor)
        ways: Sequence[Serial | Naive | Mps] = (Naive(), Mps()) if len(jobs) > 1 else (Serial(),)
        allowed = [
            each
            for each in ways
            if first_broken(self._rules, jobs, each) is None
            and self._fits.broken(mixes.whole(each)) is None
        ]
        if not allowed:
            return None
        level = self._question.level
        sharing = max(allowed, key=lambda each: throughput(mixes.whole(each), level))
        foreseen = forecast(mixes, sharing)
        price = cost(foreseen, self._question.objective)
        setup = Setup(jobs=tuple(at + 1 for at in chosen), sharing=sharing)
        return None if price is None else Solved(setup, foreseen, price)
