"""The noise floor of predictions: how much two runs of the same jobs differ."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.validate.predicted_and_measured import RunComparison
from advisor.workload.run import Run

# A workload is steady when its repeats lie within this of each other, in the median.
_STEADY = 0.05

Repeats = Iterable[tuple[Run, Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Differences of repeats with new workers and errors of the same runs; all as shares.

    Attributes:
        n: Jobs measured twice.
        median: Median absolute difference of a job between a run and its repeat.
        rmse: Root of the mean squared difference.
        error_rmse: The same of the prediction, over the runs that were repeated.
    """

    n: int
    median: float
    rmse: float
    error_rmse: float

    @property
    def excess(self) -> float:
        """What the prediction's error has beyond the difference of two runs."""
        return float(np.sqrt(max(0.0, self.error_rmse**2 - self.rmse**2)))

    @property
    def excess_over_one_run(self) -> float:
        """The same beyond the noise of one run: a difference of two holds that of both."""
        return float(np.sqrt(max(0.0, self.error_rmse**2 - self.rmse**2 / 2)))


def noise_of(runs: Sequence[RunComparison], repeats: Repeats) -> Noise | None:
    """The noise of those of `runs` that were repeated; None if none was."""
    by_id = {run.run.id: run for run in runs}
    pairs = [(first, again) for first, again in repeats if first.id in by_id]
    apart = np.array([each for pair in pairs for each in _apart(*pair)])
    if not len(apart):
        return None
    repeated = {first.id for first, _ in pairs}
    errors = np.array([job.error for name in sorted(repeated) for job in by_id[name].jobs])
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


def _apart(first: Run, again: Run) -> list[float]:
    return [
        abs(second.step_s / once.step_s - 1)
        for once, second in zip(first.tenants, again.tenants, strict=True)
    ]
