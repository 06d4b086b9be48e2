"""A candidate: one GPU, its jobs and how they share it; and what comes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.plan.forecast import CappedPredictor, Mixes, forecast, serial_s
from advisor.plan.recommendation import Forecast, LeftOut
from advisor.plan.rules import FitsMemory, first_broken, rules
from advisor.plan.search.candidate_space import Question
from advisor.sharing import Sharing
from advisor.sharing.traversal import check_count
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One GPU: its jobs, and how they share it.

    Attributes:
        jobs: Numbers of its jobs among all that were asked for, from 1, increasing.
        sharing: Its numbers and limits count in `jobs`: 1 is the first of them.
        batches: Examples a step of each of `jobs`; empty: each as it was asked for.
        power_cap_w: What the GPU may draw at most; None: its own limit.

    Raises:
        InvalidInput: These jobs cannot share so, or the batches are for more or fewer.
    """

    jobs: tuple[int, ...]
    sharing: Sharing
    batches: tuple[int, ...] = ()
    power_cap_w: float | None = None

    def __post_init__(self) -> None:
        if not self.jobs or self.jobs[0] < 1 or list(self.jobs) != sorted(set(self.jobs)):
            raise InvalidInput(f"a GPU's jobs are numbers from 1, increasing, got {self.jobs}")
        check_count(self.sharing, len(self.jobs))
        if self.batches and len(self.batches) != len(self.jobs):
            raise InvalidInput(
                f"{counted(len(self.batches), 'batch size')} for {counted(len(self.jobs), 'job')}"
            )

    def chosen(self, asked: Sequence[Job]) -> tuple[Job, ...]:
        """The jobs of this GPU, each at the batch size that is chosen.

        Args:
            asked: All jobs, in the order in which they were asked for.

        Raises:
            InvalidInput: There is no such job, or it does not allow that batch size.
        """
        if self.jobs[-1] > len(asked):
            raise InvalidInput(f"there is no job {self.jobs[-1]}; there are {len(asked)}")
        own = [asked[number - 1] for number in self.jobs]
        batches = self.batches or tuple(job.batch for job in own)
        return tuple(map(_at_batch, own, batches))


def _at_batch(job: Job, batch: int) -> Job:
    for variant in job.variants:
        if variant.batch == batch:
            return variant
    allowed = ", ".join(str(each.batch) for each in job.variants)
    raise InvalidInput(f"{job.name} has no profile at batch size {batch}. It may have {allowed}.")


class Forecaster:
    """Forecasts plans for `jobs`; what was predicted of a mix is remembered."""

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.jobs = tuple(jobs)
        self._question = question
        self._mixes: dict[tuple[tuple[int, ...], float | None], Mixes] = {}
        self._rules = rules(question.gpu, question.conditions)
        self._fits = FitsMemory(question.gpu, question.conditions.memory_margin)

    def mixes(self, candidate: Candidate) -> Mixes:
        """Of the jobs at the batch sizes of `candidate`, and under its power cap."""
        key = candidate.batches, candidate.power_cap_w
        if key not in self._mixes:
            predictor, gpu = self._question.predictor, self._question.gpu
            if candidate.power_cap_w is not None:
                predictor = CappedPredictor(predictor, gpu, candidate.power_cap_w)
            self._mixes[key] = Mixes(candidate.chosen(self.jobs), predictor)
        return self._mixes[key]

    def forecast(self, candidate: Candidate) -> Forecast | LeftOut:
        """What comes of `candidate`, which is of all jobs."""
        mixes = self.mixes(candidate)
        problem = first_broken(self._rules, mixes.jobs, candidate.sharing)
        problem = problem or self._fits.broken(mixes.whole(candidate.sharing))
        if problem:
            return LeftOut(str(candidate.sharing), problem)
        found = replace(forecast(mixes, candidate.sharing), batches=candidate.batches)
        if candidate.power_cap_w is None or found.makespan_s is None:
            return found
        # A cap that a plan chooses is part of what it gains over serial, which has none.
        free_s = serial_s(self.mixes(replace(candidate, power_cap_w=None)))
        return replace(found, speedup_vs_serial=free_s / found.makespan_s)


def as_asked(jobs: int, sharing: Sharing) -> Candidate:
    """All of so many jobs under `sharing`, at the batch sizes asked for."""
    return Candidate(jobs=tuple(range(1, jobs + 1)), sharing=sharing)


def chosen_for(jobs: Sequence[Job], plan: Forecast) -> tuple[Job, ...]:
    """`jobs` at the batch sizes that `plan` takes."""
    return replace(as_asked(len(jobs), plan.sharing), batches=plan.batches).chosen(jobs)
