"""What comes of a plan, with everything that couples; or why it is none."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.plan.forecast import forecast, serial_s
from advisor.plan.plan_space import Setup
from advisor.plan.prediction_cache import Mixes
from advisor.plan.recommendation import Forecast, LeftOut
from advisor.plan.rules import FitsMemory, first_broken, rules
from advisor.plan.search.candidate_space import Question
from advisor.plan.under_cap import UnderCap
from advisor.sharing import Sharing
from advisor.workload.job import Job


class Judge:
    """Forecasts plans for `jobs`; what was predicted of a mix is remembered."""

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.jobs = tuple(jobs)
        self._question = question
        self._mixes: dict[tuple[tuple[int, ...], float | None], Mixes] = {}
        self._rules = rules(question.gpu, question.conditions)
        self._fits = FitsMemory(question.gpu, question.conditions.memory_margin)

    def mixes(self, setup: Setup) -> Mixes:
        """Of the jobs at the batch sizes of `setup`, and under its power cap."""
        key = setup.batches, setup.power_cap_w
        if key not in self._mixes:
            predictor, gpu = self._question.predictor, self._question.gpu
            if setup.power_cap_w is not None:
                predictor = UnderCap(predictor, gpu, setup.power_cap_w)
            self._mixes[key] = Mixes(setup.chosen(self.jobs), predictor)
        return self._mixes[key]

    def foreseen(self, setup: Setup) -> Forecast | LeftOut:
        """What comes of `setup`, which is of all jobs."""
        mixes = self.mixes(setup)
        problem = first_broken(self._rules, mixes.jobs, setup.sharing)
        problem = problem or self._fits.broken(mixes.whole(setup.sharing))
        if problem:
            return LeftOut(str(setup.sharing), problem)
        found = replace(forecast(mixes, setup.sharing), batches=setup.batches)
        if setup.power_cap_w is None or found.makespan_s is None:
            return found
        # A cap that a plan chooses is part of what it gains over serial, which has none.
        free_s = serial_s(self.mixes(replace(setup, power_cap_w=None)))
        return replace(found, speedup_vs_serial=free_s / found.makespan_s)


def as_asked(jobs: int, sharing: Sharing) -> Setup:
    """All of so many jobs under `sharing`, at the batch sizes asked for."""
    return Setup(jobs=tuple(range(1, jobs + 1)), sharing=sharing)


def chosen_for(jobs: Sequence[Job], plan: Forecast) -> tuple[Job, ...]:
    """`jobs` at the batch sizes that `plan` takes."""
    return replace(as_asked(len(jobs), plan.sharing), batches=plan.batches).chosen(jobs)
