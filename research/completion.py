"""Real runs of whole jobs and their simulation from the jobs' profiles alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.plan.forecast import Mixes, forecast
from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.surrogate_answers import Predicts, SurrogatePredictor
from advisor.prediction.tenant_hosts import profiles_on_host
from advisor.sharing import Arrangement, Mode, Sharing, parse_sharing
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.run import Completion, Run
from research.fewer_counters import UnseenFamilies


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionComparison:
    """One run of whole jobs; columns have shape (jobs,), in its order.

    Attributes:
        predicted_s: When each job ends, simulated.
        makespan_s: When the last one does, likewise.
        measured_s: When each ended, on the run's clock.
    """

    run: Run
    sharing: Sharing
    done: Completion
    predicted_s: tuple[Interval, ...]
    makespan_s: Interval
    measured_s: tuple[float, ...]

    @property
    def mode(self) -> Mode:
        return self.sharing.mode

    @property
    def work(self) -> tuple[tuple[str, int], ...]:
        """Of each job its workload and its steps."""
        names = (tenant.workload.name for tenant in self.run.tenants)
        return tuple(zip(names, self.done.steps, strict=True))

    @property
    def errors(self) -> tuple[float, ...]:
        """Predicted over measured end of each job, less 1."""
        pairs = zip(self.predicted_s, self.measured_s, strict=True)
        return tuple(said.p50 / measured_s - 1 for said, measured_s in pairs)

    @property
    def makespan_error(self) -> float:
        """The same of the last end."""
        return self.makespan_s.p50 / self.done.makespan_s - 1

    @property
    def inside(self) -> int:
        """Jobs that ended within their intervals."""
        pairs = zip(self.predicted_s, self.measured_s, strict=True)
        return sum(said.contains(measured_s) for said, measured_s in pairs)


class Unseen:
    """Predicts each job by a model that saw no run with its family; core speeds are known."""

    def __init__(self, by: UnseenFamilies) -> None:
        self._predictors = {name: by.predictor(name).on_known_cores() for name in by.models}

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """As `Predictor.predict`; what is said of the whole GPU is one model's of them."""
        families = [profile.workload.family for profile in profiles]
        answers = {
            family: self._predictors[family].predict(profiles, sharing) for family in set(families)
        }
        jobs = tuple(answers[family].jobs[at] for at, family in enumerate(families))
        return replace(answers[families[0]], jobs=jobs)

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:  # noqa: ARG002 - of the protocol
        """Has no surrogate."""
        return None

    def knows(self, run: Run) -> bool:
        """Whether there is a model for each tenant of `run`."""
        return all(tenant.workload.family in self._predictors for tenant in run.tenants)


def compared_completions(
    runs: Iterable[Run], profiles: Mapping[str, Profile], predictor: Predicts
) -> tuple[CompletionComparison, ...]:
    """Those of `runs` in which whole jobs ran to their ends, each simulated.

    Args:
        runs: Of any purpose; those of jobs without a profile are passed over.
        profiles: Solo profiles by name.
        predictor: Predicts how fast jobs run together.
    """
    return tuple(
        _compared(run, run.completion, profiles, predictor)
        for run in runs
        if run.completion is not None
        and run.ok
        and all(tenant.workload.name in profiles for tenant in run.tenants)
    )


def _compared(
    run: Run, done: Completion, profiles: Mapping[str, Profile], predictor: Predicts
) -> CompletionComparison:
    alone, sharing = profiles_on_host(run, profiles), parse_sharing(run.sharing)
    jobs = [job_of_steps(*each) for each in zip(alone, done.steps, strict=True)]
    simulated = forecast(Mixes(jobs, predictor), sharing)
    assert simulated.ends_s is not None  # the jobs' lengths are known
    assert simulated.makespan_interval_s is not None
    return CompletionComparison(
        run=run,
        sharing=sharing,
        done=done,
        predicted_s=simulated.ends_s,
        makespan_s=simulated.makespan_interval_s,
        measured_s=tuple(each for each in done.ended_s if each is not None),
    )


def panels(runs: Iterable[CompletionComparison]) -> list[list[CompletionComparison]]:
    """The runs of each job set that ran in several ways, one after another among them."""
    sets: dict[object, list[CompletionComparison]] = {}
    for run in runs:
        sets.setdefault(run.work, []).append(run)
    return [each for each in sets.values() if any(run.mode == "serial" for run in each)]


def job_of_steps(profile: Profile, steps: int) -> Job:
    """The job of doing so many `steps` of what was profiled."""
    workload = profile.workload
    shortened = replace(workload, examples_per_epoch=steps * workload.batch)
    return Job(replace(profile, workload=shortened))
