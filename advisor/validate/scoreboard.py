"""The scoreboard: errors of predictions by mode and degree, same jobs and mixes apart."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from advisor.sharing import SHARED_MODES, Mode
from advisor.validate.coverage import coverage_of
from advisor.validate.evaluate import Evaluation
from advisor.validate.noise import noise_of
from advisor.validate.predicted_and_measured import JobComparison, RunComparison, sharing_of
from advisor.validate.regret import regret_document
from advisor.validate.selection import SPLIT
from advisor.workload.run import Run

Jobs = Literal["all", "same", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of the scoreboard; errors are shares of what was measured.

    Attributes:
        degree: Tenants a run; None if all degrees are pooled.
        jobs: Whether the tenants are of one workload, of several, or all runs are taken.
        n: Jobs scored.
        runs: Runs that they come from.
        mape: Mean absolute error of the step time.
        rmse: Root of its mean square.
        coverage90: Share of measured steps inside their 90 % interval; None without intervals.
        coverage90_low: Lower end of the 95 % interval of that share, by a bootstrap of families;
            None for one family.
        coverage90_high: Upper end of that interval.
        noise_floor: Median absolute difference of a job between a run and its repeat with fresh
            workers; None if no run was repeated.
        noise_floor_rmse: Root of the mean square of those differences; None as `noise_floor`.
        excess_error: Root of the squared error, over the repeated runs, less that of the noise.
        throughput_mape: Mean absolute error of a run's weighted speedup.
        memory_mape: Mean absolute error of a process's device memory; None if not measured.
        memory_total_mape: The same for all processes of a run together.
        baselines: Mean absolute error of each baseline's step time; None if not defined.
        baselines_n: Jobs for which each baseline is defined.
    """

    mode: Mode
    degree: int | None
    jobs: Jobs
    n: int
    runs: int
    mape: float
    median: float
    p90: float
    rmse: float
    coverage90: float | None
    coverage90_low: float | None
    coverage90_high: float | None
    noise_floor: float | None
    noise_floor_rmse: float | None
    excess_error: float | None
    throughput_mape: float
    memory_mape: float | None
    memory_total_mape: float | None
    baselines: dict[str, float | None]
    baselines_n: dict[str, int]


def scoreboard(evaluation: Evaluation) -> tuple[ScoreRow, ...]:
    """For each mode one row over everything, then each degree: all, same jobs, mixed jobs."""
    return tuple(
        _row(evaluation, mode, degree, jobs, group)
        for mode in SHARED_MODES
        for degree, jobs, group in _groups(runs_of_mode(evaluation.runs, mode))
    )


def evaluation_document(evaluation: Evaluation) -> dict[str, Any]:
    """What ``advisor evaluate --json`` prints: shares, not per cent.

    `rows` has one entry for each mode and degree, and one with degree null for each mode; same
    jobs and mixes apart are in `rows_by_jobs`.
    """
    rows = scoreboard(evaluation)
    return {
        "schema": 1,
        "gpu": evaluation.gpu,
        "split": SPLIT,
        "families": list(evaluation.families),
        "rows": [asdict(row) for row in rows if row.jobs == "all"],
        "regret": regret_document(evaluation),
        "rows_by_jobs": [asdict(row) for row in rows if row.jobs != "all"],
        "drift": None if evaluation.drift is None else asdict(evaluation.drift),
        "unusable_runs": list(evaluation.unusable),
    }


def runs_of_mode(runs: Iterable[RunComparison], mode: Mode) -> list[RunComparison]:
    """Those of `runs` that shared in `mode`."""
    return [run for run in runs if sharing_of(run.run).mode == mode]


_Group = tuple[int | None, Jobs, list[RunComparison]]


def _groups(runs: Sequence[RunComparison]) -> Iterator[_Group]:
    if not runs:
        return
    yield None, "all", list(runs)
    for degree in sorted({len(run.jobs) for run in runs}):
        of_degree = [run for run in runs if len(run.jobs) == degree]
        yield degree, "all", of_degree
        same = [run for run in of_degree if _same(run.run)]
        mixed = [run for run in of_degree if not _same(run.run)]
        if same and mixed:
            yield degree, "same", same
            yield degree, "mixed", mixed


def _same(run: Run) -> bool:
    return len({tenant.workload.name for tenant in run.tenants}) == 1


def _row(
    evaluation: Evaluation,
    mode: Mode,
    degree: int | None,
    kind: Jobs,
    group: Sequence[RunComparison],
) -> ScoreRow:
    jobs = [job for run in group for job in run.jobs]
    errors = np.abs([job.error for job in jobs])
    names = jobs[0].baselines_s
    covered = coverage_of(jobs) if evaluation.intervals else None
    noise = noise_of(group, evaluation.repeats)
    return ScoreRow(
        mode=mode,
        degree=degree,
        jobs=kind,
        n=len(jobs),
        runs=len(group),
        mape=float(errors.mean()),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        rmse=float(np.sqrt(np.mean(errors**2))),
        coverage90=covered.share if covered else None,
        coverage90_low=covered.low if covered else None,
        coverage90_high=covered.high if covered else None,
        noise_floor=noise.median if noise else None,
        noise_floor_rmse=noise.rmse if noise else None,
        excess_error=noise.excess if noise else None,
        throughput_mape=float(
            np.mean([abs(run.predicted_speedup / run.measured_speedup - 1) for run in group])
        ),
        memory_mape=_mape((job.memory_mib, job.measured_memory_mib) for job in jobs),
        memory_total_mape=_mape(
            (run.memory_total_mib, run.measured_memory_total_mib) for run in group
        ),
        baselines={name: _baseline_mape(jobs, name) for name in names},
        baselines_n={name: len(_baseline_errors(jobs, name)) for name in names},
    )


def _mape(pairs: Iterator[tuple[float | None, float | None]]) -> float | None:
    errors = [
        abs(predicted / measured - 1)
        for predicted, measured in pairs
        if measured and predicted is not None
    ]
    return float(np.mean(errors)) if errors else None


def _baseline_errors(jobs: Sequence[JobComparison], name: str) -> list[float]:
    return [abs(error) for job in jobs if (error := job.baseline_error(name)) is not None]


def _baseline_mape(jobs: Sequence[JobComparison], name: str) -> float | None:
    errors = _baseline_errors(jobs, name)
    return float(np.mean(errors)) if errors else None
