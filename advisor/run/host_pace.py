"""The first second of a run: it predicts the rest, and by the host's factor the next run.

**The rest of the run.** A first window of 0.7 to 1 s predicts the others to 1.3 / 1.5 / 2.0 %
(naive / MPS / MPS limits, mean error), the prediction to 3.2 / 6.3 / 8.4 %: 4,108 steps of drawn
runs on an H200, families left out. A mean of both is better by at most 0.1 points.

**Runs that come later.** One factor, the host's, is inferred from all jobs, each weighted by the
share of its step that is the host's path. On 4,380 ordered pairs of runs of the same jobs on the
same host within an hour (panels of an H200 and an H100), the other run's steps are then 9.0 / 9.4 %
off under MPS and limits, instead of 9.2 / 10.2 %. The plain mean over all jobs gives 10.2 / 10.6 %;
that over host-bound jobs, applied to these, 10.5 / 10.3 %. Steps under naive sharing get better by
a factor from naive sharing (3.6 to 3.5 %), and worse by one from MPS or limits (3.7 to 4.8 %).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean

from advisor.errors import counted
from advisor.learn.scores import RunComparison
from advisor.measure.pace import mean_step_s
from advisor.prediction.host import host_path_s, is_gpu_bound
from advisor.prediction.prediction import Interval
from advisor.run.watched import around_first
from advisor.workload.profile import Profile

# Weight of "the host is as predicted" among the jobs' squared shares.
_AS_PREDICTED = 1.0


def host_share(profile: Profile, step_s: float) -> float:
    """Return the share of a step of `step_s` in a mix that the host's path alone takes."""
    return min(1.0, host_path_s(profile) / step_s)


def infer_host_factor(
    profiles: Sequence[Profile], predicted_s: Sequence[float], measured_s: Sequence[float]
) -> float:
    """Infer how many times as long the host takes as predicted; entries are of the jobs of a mix.

    Least squares over the jobs' log(measured / predicted), each proportional to its host share.
    """
    shares = list(map(host_share, profiles, predicted_s))
    weighted = sum(
        share * log(measured / predicted)
        for share, measured, predicted in zip(shares, measured_s, predicted_s, strict=True)
    )
    return exp(weighted / (sum(share**2 for share in shares) + _AS_PREDICTED))


def rest_of_run(profile: Profile, first_s: float) -> Interval:
    """Return the steps to expect of a job whose steps took `first_s` in its first second."""
    steps = around_first(first_s, gpu_bound=is_gpu_bound(profile))
    return Interval(steps.p05, steps.p50, steps.p95)


@dataclass(frozen=True, slots=True)
class RunCorrection:
    """The rest of a run as its first window shows it; entries are of its jobs.

    Attributes:
        host_factor: See `infer_host_factor`.
        rest_s: Expected by the first window, and measured in the others; empty if there are none.
        by_host_s: Predicted, and corrected by the host factor of the run before, if that had the
            same jobs; empty otherwise.
    """

    host_factor: float
    rest_s: tuple[tuple[Interval, float], ...]
    by_host_s: tuple[Interval, ...]


def corrected_by_first(
    comparisons: Sequence[RunComparison], profiles: Mapping[str, Profile]
) -> tuple[RunCorrection, ...]:
    """Correct the rest of each run by its first window, and a run by that of the one before."""
    corrections: list[RunCorrection] = []
    for at, comparison in enumerate(comparisons):
        alone = [profiles[name] for name in comparison.run.names]
        windows = [tenant.windows for tenant in comparison.run.tenants]
        first_s = [mean_step_s(each[:1]) for each in windows]
        predicted_s = [job.predicted_s for job in comparison.jobs]
        rest_s = tuple(
            (rest_of_run(profile, step_s), mean_step_s(each[1:]))
            for profile, step_s, each in zip(alone, first_s, windows, strict=True)
            if len(each) > 1
        )
        by_host_s: tuple[Interval, ...] = ()
        if at and comparison.run.names == comparisons[at - 1].run.names:
            pairs = zip(alone, predicted_s, strict=True)
            factor = corrections[-1].host_factor
            by_host_s = tuple(s.scaled(factor ** host_share(p, s.p50)) for p, s in pairs)
        factor = infer_host_factor(alone, [each.p50 for each in predicted_s], first_s)
        corrections.append(RunCorrection(factor, rest_s, by_host_s))
    return tuple(corrections)


def correction_notes(
    comparisons: Sequence[RunComparison], corrections: Sequence[RunCorrection]
) -> Iterator[str]:
    """Return how good the `corrections` of `comparisons` were, a sentence each."""
    rests = [pair for each in corrections for pair in each.rest_s]
    if rests:
        off = fmean(abs(expected.p50 / measured - 1) for expected, measured in rests)
        inside = sum(expected.contains(measured) for expected, measured in rests)
        yield (
            f"The first window of each run predicts the others: {off:.1%} off in the mean, "
            f"{inside} of {counted(len(rests), 'step')} in their intervals."
        )
    by_host = [
        (abs(job.error), abs(step_s.p50 / job.measured_s - 1))
        for run, each in zip(comparisons, corrections, strict=True)
        for job, step_s in zip(run.jobs, each.by_host_s, strict=False)
    ]
    if by_host:
        raw, corrected = (fmean(errors) for errors in zip(*by_host, strict=True))
        yield (
            f"The host factor of the run before changes the mean error of the later runs from "
            f"{raw:.1%} to {corrected:.1%}."
        )
