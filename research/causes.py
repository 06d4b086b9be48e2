"""The jobs with the largest errors, and what their records show.

What is said can be seen in the data: unsteady windows, a repeat that differs, solo runs off the
profile, a host that sets the pace, an interval that was wide already, a profile beyond those of
all other families.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from advisor.prediction.job_features import is_gpu_bound
from advisor.validate.evaluate import Evaluation
from advisor.validate.predicted_and_measured import JobComparison, RunComparison
from advisor.validate.score_tables import percent
from advisor.workload.profile import Profile
from advisor.workload.run import Tenant

HEADINGS = ("run", "sharing", "job", "predicted, ms", "measured, ms", "error", "what the data say")

# A difference below this is within what host cores vary from run to run.
_TELLING = 0.10
_WIDE = 1.3


@dataclass(frozen=True, slots=True)
class _Case:
    run: RunComparison
    place: int
    evaluation: Evaluation

    @property
    def job(self) -> JobComparison:
        return self.run.jobs[self.place]

    @property
    def tenant(self) -> Tenant:
        return self.run.run.tenants[self.place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """One of the jobs predicted worst.

    Attributes:
        run: The run's id.
        sharing: As the run has it.
        error: Predicted over measured step, less 1.
        said: What the records say of it.
    """

    run: str
    sharing: str
    job: str
    predicted_s: float
    measured_s: float
    error: float
    said: tuple[str, ...]


def worst(evaluation: Evaluation, count: int = 10) -> tuple[Worst, ...]:
    """The `count` scored jobs with the largest errors, the largest first."""
    cases = [
        _Case(run, place, evaluation) for run in evaluation.runs for place in range(len(run.jobs))
    ]
    cases.sort(key=lambda case: (-abs(case.job.error), case.run.run.id, case.place))
    return tuple(_told(case) for case in cases[:count])


def worst_rows(found: Iterable[Worst]) -> list[tuple[str, ...]]:
    """A line under `HEADINGS` for each of `found`."""
    return [
        (
            each.run,
            each.sharing,
            each.job,
            f"{1000 * each.predicted_s:,.2f}",
            f"{1000 * each.measured_s:,.2f}",
            percent(each.error),
            "; ".join(each.said) or "nothing unusual",
        )
        for each in found
    ]


def _told(case: _Case) -> Worst:
    return Worst(
        run=case.run.run.id,
        sharing=case.run.run.sharing,
        job=case.job.job,
        predicted_s=case.job.predicted_s.p50,
        measured_s=case.job.measured_s,
        error=case.job.error,
        said=tuple(_said(case)),
    )


def _said(case: _Case) -> Iterator[str]:
    profile = case.evaluation.profiles[case.job.job]
    pace = [window.step_s for window in case.tenant.windows]
    if max(pace) / min(pace) - 1 > _TELLING:
        yield f"its windows differ by {percent(max(pace) / min(pace) - 1)}"
    yield from _repeat(case)
    if not is_gpu_bound(profile) and profile.busy_share is not None:
        yield f"the host sets its pace, the GPU is busy {percent(profile.busy_share)} of a step"
        yield from _alone(case, profile)
    yield from _unsure(case)
    yield from _beyond(case, profile)
    replay = case.job.baseline_error("replay") if "replay" in case.job.baselines_s else None
    if replay is not None:
        yield f"replay alone is {percent(replay)} off"


def _repeat(case: _Case) -> Iterator[str]:
    for first, again in case.evaluation.repeats:
        if first.id == case.run.run.id:
            apart = again.tenants[case.place].step_s / case.job.measured_s - 1
            if abs(apart) > _TELLING / 2:
                yield f"its repeat lies {percent(apart)} off"


def _alone(case: _Case, profile: Profile) -> Iterator[str]:
    """How far solo runs of the same workload lie from its profile."""
    steps = [
        tenant.step_s
        for run in case.evaluation.alone
        for tenant in run.tenants
        if tenant.workload.name == case.job.job
    ]
    if steps and abs(median(steps) / profile.step_s - 1) > _TELLING / 2:
        yield (
            f"alone between the shared runs it took {percent(median(steps) / profile.step_s - 1)} "
            "more than in its profile"
        )


def _unsure(case: _Case) -> Iterator[str]:
    if not case.evaluation.intervals:
        return
    mode = case.run.run.sharing.partition("=")
    alike = [
        _width(job)
        for run in case.evaluation.runs
        if run.run.sharing.partition("=")[:2] == mode[:2]
        for job in run.jobs
    ]
    wider = _width(case.job) / median(alike)
    if wider > _WIDE:
        yield f"the model was unsure: its interval is {wider:.1f} times the usual"
    if case.job.inside:
        yield "the interval holds it"


def _width(job: JobComparison) -> float:
    return float(np.log(job.predicted_s.p95 / job.predicted_s.p05))


def _kernel_us(profile: Profile) -> float | None:
    return float(np.mean(profile.trace.duration_us)) if profile.trace else None


def _share_while_busy(counter: str) -> Callable[[Profile], float | None]:
    def share(profile: Profile) -> float | None:
        value = getattr(profile.counters, counter, None)
        return None if value is None or not profile.busy_share else value / profile.busy_share

    return share


_TRAITS: Mapping[str, Callable[[Profile], float | None]] = {
    "mean kernel time": _kernel_us,
    "DRAM activity": _share_while_busy("dram_active"),
    "occupancy": _share_while_busy("sm_occupancy"),
    "SM activity": _share_while_busy("sm_active"),
    "step time": lambda profile: profile.step_s,
}


def _beyond(case: _Case, profile: Profile) -> Iterator[str]:
    """Traits in which no profile of another family reaches this one's."""
    others = [p for p in case.evaluation.profiles.values() if p.workload.family != case.job.family]
    for name, trait in _TRAITS.items():
        own, known = trait(profile), _known(map(trait, others))
        if own is not None and known and own > max(known):
            yield f"its {name} is above that of every other family"
        elif own is not None and known and own < min(known):
            yield f"its {name} is below that of every other family"


def _known(values: Iterable[float | None]) -> list[float]:
    return [each for each in values if each is not None]
