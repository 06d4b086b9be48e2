"""How accurate predictions could be at best, and how often their intervals are right.

The noise floor is how much two runs of the same jobs differ. Coverage is the share of measured
steps inside their intervals; errors within a family are correlated, so the bootstrap that says how
certain it is resamples families, not jobs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from advisor.validate.predicted_and_measured import JobComparison, RunComparison
from advisor.workload.profile import Profile
from advisor.workload.run import Run

# A workload is steady when its repeats lie within this of each other, in the median.
_STEADY = 0.05

_DRAWS = 2000
_SEED = 20261121
_FEWEST_FAMILIES = 2

Repeats = Iterable[tuple[Run, Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Differences between repeats with new workers, and errors of the same runs, as shares.

    Attributes:
        n: Jobs measured twice.
        median: Median absolute difference of a job between a run and its repeat.
        rmse: Root of the mean squared difference.
        error_rmse: Root mean squared error of the prediction, over the repeated runs.
    """

    n: int
    median: float
    rmse: float
    error_rmse: float

    @property
    def excess(self) -> float:
        """Error of the prediction beyond the difference of two runs."""
        return float(np.sqrt(max(0.0, self.error_rmse**2 - self.rmse**2)))

    @property
    def excess_over_one_run(self) -> float:
        """Error beyond the noise of one run; a difference of two contains that of both."""
        return float(np.sqrt(max(0.0, self.error_rmse**2 - self.rmse**2 / 2)))


def noise_of(
    runs: Sequence[RunComparison],
    repeats: Repeats,
    counts: Callable[[JobComparison], bool] = lambda job: True,  # noqa: ARG005
) -> Noise | None:
    """The noise of the jobs that count, in those of `runs` that were repeated; None without any."""
    by_id = {run.run.id: run for run in runs}
    pairs = [(first, again) for first, again in repeats if first.id in by_id]
    apart = np.array([
        difference
        for first, again in pairs
        for job, difference in zip(by_id[first.id].jobs, _apart(first, again), strict=True)
        if counts(job)
    ])  # fmt: skip
    if not len(apart):
        return None
    repeated = {first.id for first, _ in pairs}
    jobs = [job for name in sorted(repeated) for job in by_id[name].jobs if counts(job)]
    errors = np.array([job.error for job in jobs])
    return Noise(
        n=len(apart),
        median=float(np.median(apart)),
        rmse=float(np.sqrt(np.mean(apart**2))),
        error_rmse=float(np.sqrt(np.mean(errors**2))),
    )


@dataclass(frozen=True, slots=True)
class RepeatSummary:
    """How many workloads repeat well.

    Attributes:
        workloads: That were in a run which was repeated.
        steady: Those whose repeats lie within 5 % of each other in the median.
    """

    workloads: int
    steady: int


def steadiness(repeats: Repeats) -> RepeatSummary:
    """How many workloads of the repeated runs repeat within 5 %."""
    apart: dict[str, list[float]] = {}
    for first, again in repeats:
        for tenant, difference in zip(first.tenants, _apart(first, again), strict=True):
            apart.setdefault(tenant.workload.name, []).append(difference)
    steady = sum(float(np.median(each)) <= _STEADY for each in apart.values())
    return RepeatSummary(len(apart), steady)


def throughput_noise(repeats: Repeats, profiles: Mapping[str, Profile]) -> float | None:
    """Median share by which two runs of the same jobs differ in throughput; None without any."""

    def throughput(run: Run) -> float:
        return sum(profiles[each.workload.name].step_s / each.step_s for each in run.tenants)

    apart = [abs(throughput(again) / throughput(first) - 1) for first, again in repeats]
    return median(apart) if apart else None


def _apart(first: Run, again: Run) -> list[float]:
    return [
        abs(second.step_s / once.step_s - 1)
        for once, second in zip(first.tenants, again.tenants, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of jobs inside their 90 % interval.

    Attributes:
        low: Lower end of its 95 % interval under a bootstrap over families; None if there is
            one family only.
        high: Upper end.
    """

    share: float
    low: float | None
    high: float | None


def coverage_of(jobs: Sequence[JobComparison]) -> Coverage:
    """Coverage of `jobs`, each of which has an interval; the same draws for the same jobs."""
    families = sorted({job.family for job in jobs})
    inside = np.array([sum(j.inside for j in jobs if j.family == each) for each in families])
    count = np.array([sum(j.family == each for j in jobs) for each in families])
    share = float(inside.sum() / count.sum())
    if len(families) < _FEWEST_FAMILIES:
        return Coverage(share, None, None)
    equal = np.full(len(families), 1 / len(families))
    draws = np.random.default_rng(_SEED).multinomial(len(families), equal, size=_DRAWS)
    shares = draws @ inside / (draws @ count)
    low, high = np.quantile(shares, (0.025, 0.975))
    return Coverage(share, float(low), float(high))


def mean_width(jobs: Sequence[JobComparison]) -> float:
    """Mean over `jobs` of the interval's width, as a share of the predicted step."""
    return float(np.mean([(j.predicted_s.p95 - j.predicted_s.p05) / j.predicted_s.p50
                          for j in jobs]))  # fmt: skip
