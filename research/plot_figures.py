"""The data of the plots: every scored job as a point, and the coverage of intervals by level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from advisor.sharing import SHARED_MODES
from advisor.validate.evaluate import Evaluation
from advisor.validate.predicted_and_measured import JobComparison, runs_of_mode

_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The scored jobs of one mode in the order of the runs; columns have shape (jobs,).

    Attributes:
        measured_s: Their steps.
        predicted_s: Predicted seconds of a step.
        busy_share: Share of its solo step for which each keeps the GPU, 0..1; None if it was
            not measured.
        inside: By nominal level of the interval, lowest first: the level, and the share of steps
            that lie inside; empty without intervals.
    """

    measured_s: tuple[float, ...]
    predicted_s: tuple[float, ...]
    busy_share: tuple[float | None, ...]
    inside: tuple[tuple[float, float], ...]


def points(evaluation: Evaluation) -> Mapping[str, Points]:
    """By mode; modes without a scored job have empty columns."""
    jobs = {mode: [job for run in runs_of_mode(evaluation.runs, mode) for job in run.jobs]
            for mode in SHARED_MODES}  # fmt: skip
    return {mode: _points(each, evaluation.intervals) for mode, each in jobs.items()}


def _points(jobs: Sequence[JobComparison], intervals: bool) -> Points:
    levels = _LEVELS if intervals and jobs else ()
    return Points(
        measured_s=tuple(job.measured_s for job in jobs),
        predicted_s=tuple(job.predicted_s.p50 for job in jobs),
        busy_share=tuple(job.busy_share for job in jobs),
        inside=tuple((level, _inside(jobs, level)) for level in levels),
    )


def _inside(jobs: Sequence[JobComparison], level: float) -> float:
    """Share of `jobs` inside, each half of the 90 % interval scaled in log to `level`."""
    stretch = NormalDist().inv_cdf((1 + level) / 2) / NormalDist().inv_cdf(0.95)
    inside = 0
    for job in jobs:
        off = np.log(job.measured_s / job.predicted_s.p50)
        low = np.log(job.predicted_s.p05 / job.predicted_s.p50)
        high = np.log(job.predicted_s.p95 / job.predicted_s.p50)
        inside += bool(stretch * low <= off <= stretch * high)
    return inside / len(jobs)
