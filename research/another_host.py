"""How far a real run on another host is from a run of the same jobs: a measurement as prediction.

Nobody predicts hosts that are not known yet, so a prediction from profiles of one host and day can
hardly be nearer to runs on others than real runs of those very jobs are to each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import mean, median

from advisor.prediction.job_features import is_gpu_bound
from advisor.sharing import SHARED_MODES, Mode
from advisor.validate.evaluate import Evaluation
from advisor.validate.predicted_and_measured import RunComparison, sharing_of
from advisor.validate.score_row import ALL, BOUNDS, Bound
from advisor.validate.score_tables import BOUND_WORDS, MODE_WORDS, markdown, percent

HEADINGS = (
    "sharing", "jobs", "n", "a real run on another host", "this model", "a real run, median",
    "this model, median",
)  # fmt: skip

# Machines were held for half an hour at most, and hosts change from lease to lease.
_LATER = timedelta(hours=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Steps of jobs that ran again on another host, by way of sharing and what binds the jobs.

    Attributes:
        n: Steps that were measured on another host too.
        apart: Mean absolute difference of the step elsewhere, as a share of the step.
        apart_median: The median of these differences.
        mape: Mean absolute error of the model's prediction of the same steps, families left out.
        median: The median of these errors.
    """

    mode: Mode
    bound: Bound
    n: int
    apart: float
    apart_median: float
    mape: float
    median: float


@dataclass(frozen=True, slots=True)
class _Step:
    mode: Mode
    gpu_bound: bool
    apart: float
    error: float


def elsewhere(evaluation: Evaluation) -> tuple[Elsewhere, ...]:
    """Of the runs that advice was judged by, each way of sharing in which jobs ran elsewhere."""
    steps = [*_steps(evaluation)]
    found = []
    for mode in SHARED_MODES:
        for bound in BOUNDS:
            those = [
                each
                for each in steps
                if each.mode == mode and (bound == ALL or each.gpu_bound == (bound == "gpu"))
            ]
            if those:
                found.append(_summed(mode, bound, those))
    return tuple(found)


def _summed(mode: Mode, bound: Bound, steps: Sequence[_Step]) -> Elsewhere:
    apart, errors = [each.apart for each in steps], [each.error for each in steps]
    return Elsewhere(
        mode=mode, bound=bound, n=len(steps), apart=mean(apart), apart_median=median(apart),
        mape=mean(errors), median=median(errors),
    )  # fmt: skip


def _steps(evaluation: Evaluation) -> Iterator[_Step]:
    """Every step beside the mean of the same jobs' runs on other hosts, taken as its prediction."""
    for one in evaluation.advice:
        others = [each for each in evaluation.advice if _again(one, each)]
        for at, job in enumerate(one.jobs if others else ()):
            there_s = mean(each.jobs[at].measured_s for each in others)
            yield _Step(
                mode=sharing_of(one.run).mode,
                gpu_bound=is_gpu_bound(evaluation.profiles[job.job]),
                apart=abs(there_s / job.measured_s - 1),
                error=abs(job.error),
            )


def _again(one: RunComparison, other: RunComparison) -> bool:
    """Whether the same jobs shared in the same way on another host."""
    alike = one.run.sharing == other.run.sharing and [job.job for job in one.jobs] == [
        job.job for job in other.jobs
    ]
    return alike and abs(_made_at(one) - _made_at(other)) >= _LATER


def _made_at(found: RunComparison) -> datetime:
    return datetime.fromisoformat(found.run.provenance.date)


def said(found: Sequence[Elsewhere]) -> tuple[str, ...]:
    """A paragraph and a table; nothing if no jobs ran on two hosts."""
    if not found:
        return ()
    rows = [
        (
            MODE_WORDS[each.mode],
            BOUND_WORDS[each.bound],
            str(each.n),
            *map(percent, (each.apart, each.mape, each.apart_median, each.median)),
        )
        for each in found
    ]
    return (
        "Job sets that ran in the same way on two hosts, at least six hours apart. Each step is "
        "compared with the real run on the other host, as if that were its prediction, and with "
        "what this model says from the profiles:",
        markdown(HEADINGS, rows),
    )


def in_short(found: Sequence[Elsewhere]) -> tuple[str, ...]:
    """A sentence on all jobs; nothing if none ran on two hosts."""
    whole = [each for each in found if each.bound == ALL]
    if not whole:
        return ()
    apart = ", ".join(f"{percent(each.apart)} ({MODE_WORDS[each.mode]})" for each in whole)
    errors = ", ".join(percent(each.mape) for each in whole)
    return (
        f"Real runs of the same jobs on two hosts differ in the mean by {apart}; predictions of "
        f"these runs are off by {errors}.",
    )
