"""Candidate plans for one GPU: jobs, sharing, power cap; and their forecasts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.plan.forecast import Mixes, forecast, serial_s
from advisor.plan.recommendation import Forecast, LeftOut, Question
from advisor.plan.rules import FitsMemory, first_broken, rules
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.power_cap import capped, check_cap
from advisor.prediction.surrogate_answers import Predicts, SurrogatePredictor
from advisor.sharing import Arrangement, Sharing
from advisor.sharing.traversal import check_count
from advisor.workload.job import Job
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate plan: jobs, and how they share one GPU.

    Attributes:
        jobs: Numbers of the jobs on this GPU among all jobs asked for, from 1, increasing.
        sharing: How they share; its job numbers and limits refer to positions in `jobs`, from 1.
        power_cap_w: Power cap of the GPU in watts; None: the GPU's own limit.

    Raises:
        InvalidInput: The jobs cannot share like this.
    """

    jobs: tuple[int, ...]
    sharing: Sharing
    power_cap_w: float | None = None

    def __post_init__(self) -> None:
        if not self.jobs or self.jobs[0] < 1 or list(self.jobs) != sorted(set(self.jobs)):
            raise InvalidInput(f"a GPU's jobs are numbers from 1, increasing, got {self.jobs}")
        check_count(self.sharing, len(self.jobs))

    def chosen(self, asked: Sequence[Job]) -> tuple[Job, ...]:
        """The jobs of this GPU among all that were `asked` for.

        Raises:
            InvalidInput: There is no such job.
        """
        if self.jobs[-1] > len(asked):
            raise InvalidInput(f"there is no job {self.jobs[-1]}; there are {len(asked)}")
        return tuple(asked[number - 1] for number in self.jobs)


class Forecaster:
    """Forecasts candidates for `jobs`; each mix is predicted once."""

    def __init__(self, jobs: Sequence[Job], question: Question) -> None:
        self.jobs = tuple(jobs)
        self._question = question
        self._mixes: dict[float | None, Mixes] = {}
        self._rules = rules(question.gpu, question.conditions)
        self._fits = FitsMemory(question.gpu, question.conditions.memory_margin)

    def mixes(self, candidate: Candidate) -> Mixes:
        """The jobs of `candidate`, predicted under its power cap."""
        cap_w = candidate.power_cap_w
        if cap_w not in self._mixes:
            predictor, gpu = self._question.predictor, self._question.gpu
            if cap_w is not None:
                predictor = CappedPredictor(predictor, gpu, cap_w)
            self._mixes[cap_w] = Mixes(candidate.chosen(self.jobs), predictor)
        return self._mixes[cap_w]

    def forecast(self, candidate: Candidate) -> Forecast | LeftOut:
        """Forecast of `candidate`, which holds all jobs; or why it is not allowed."""
        mixes = self.mixes(candidate)
        problem = first_broken(self._rules, mixes.jobs, candidate.sharing)
        problem = problem or self._fits.broken(mixes.whole(candidate.sharing))
        if problem:
            return LeftOut(str(candidate.sharing), problem)
        found = forecast(mixes, candidate.sharing)
        if candidate.power_cap_w is None or found.makespan_s is None:
            return found
        # A cap that a plan chooses is part of what it gains over serial, which has none.
        free_s = serial_s(self.mixes(replace(candidate, power_cap_w=None)))
        return replace(found, speedup_vs_serial=free_s / found.makespan_s)


def as_asked(jobs: int, sharing: Sharing) -> Candidate:
    """The candidate of `jobs` jobs under `sharing`."""
    return Candidate(jobs=tuple(range(1, jobs + 1)), sharing=sharing)


@dataclass(frozen=True, slots=True)
class CappedPredictor:
    """Predicts as `predictor` does, on a GPU capped at `cap_w` watts.

    The effect of a cap was learnt on other GPUs, so no answer counts as confirmed on hardware.

    Raises:
        InvalidInput: `gpu` cannot be set to that cap.
    """

    predictor: Predicts
    gpu: Gpu
    cap_w: float

    def __post_init__(self) -> None:
        check_cap(self.cap_w, self.gpu)

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """As `Predicts.predict`; raises `InvalidInput` where the power of a job is not known."""
        mix = self.predictor.predict(profiles, sharing)
        if sharing.mode == "serial":
            turns = [self.predictor.predict([profile], sharing) for profile in profiles]
            powers = [_power_w(turn) for turn in turns]
        else:
            powers = [_power_w(mix)] * len(profiles)
        return capped(mix, powers, self.cap_w, self.gpu)

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Surrogate without the cap: which limits are best hardly depends on it."""
        return self.predictor.surrogate(profiles)


def _power_w(mix: MixPrediction) -> float:
    if mix.power_w is None:
        dark = ", ".join(sorted({job.job for job in mix.jobs}))
        raise InvalidInput(
            f"a power cap needs the power of every job, which was not measured of all of {dark}. "
            "Profile them anew on a GPU that meters power, or leave the cap out."
        )
    return mix.power_w.p50
