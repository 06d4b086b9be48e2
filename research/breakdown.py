"""Errors by family, and by how busy a job alone keeps the GPU."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.sharing import SHARED_MODES
from advisor.validate.evaluate import Evaluation
from advisor.validate.noise_and_coverage import Noise, noise_of
from advisor.validate.predicted_and_measured import JobComparison, runs_of_mode
from advisor.validate.score_row import ALL, ScoreRow
from advisor.validate.score_tables import MODE_WORDS, percent
from advisor.validate.scoreboard import Scores

_BINS = ((0.0, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, float("inf")))

_ERRORS = ("n", "MAPE", "median", "P90", "in 90 % interval")
_BY_MODE = tuple(f"{MODE_WORDS[mode]} MAPE" for mode in SHARED_MODES)
FAMILY_HEADINGS = ("family", *_ERRORS, *_BY_MODE)
BUSY_HEADINGS = ("GPU busy alone", *_ERRORS, *_BY_MODE)
HOST_HEADINGS = ("host", "n", *(MODE_WORDS[mode] for mode in SHARED_MODES), "in 90 % interval")
NOISE_HEADINGS = (
    "sharing", "jobs measured twice", "noise floor", "noise RMSE", "error RMSE", "excess error",
    "excess over one run's noise",
)  # fmt: skip
COVERAGE_HEADINGS = ("sharing", "jobs", "n", "in 90 % interval", "95 % range of that", "holds 90 %")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """Scored jobs that have something in common; errors are shares of the measured step.

    Attributes:
        name: What they have in common, in words.
        n: Jobs.
        mape: Mean absolute error.
        coverage90: Share of measured steps inside their 90 % interval; None without intervals.
        mape_by_mode: Mean absolute error in each mode in which there are such jobs.
    """

    name: str
    n: int
    mape: float
    median: float
    p90: float
    coverage90: float | None
    mape_by_mode: Mapping[str, float]


def by_family(evaluation: Evaluation) -> tuple[ScoredGroup, ...]:
    """The jobs of each family that was left out."""
    return tuple(
        _group(family, evaluation, [job for job in _jobs(evaluation) if job.family == family])
        for family in evaluation.families
    )


def by_busy_share(evaluation: Evaluation) -> tuple[ScoredGroup, ...]:
    """The jobs in each stretch of the GPU-busy share that has any."""
    found = []
    for low, high in _BINS:
        jobs = [j for j in _jobs(evaluation) if j.busy_share and low < j.busy_share <= high]
        words = f"{100 * low:.0f} to {100 * min(1.0, high):.0f} %"
        found += [_group(words, evaluation, jobs)] if jobs else []
    return tuple(found)


def noise_by_mode(evaluation: Evaluation) -> Mapping[str, Noise]:
    """Of each mode in which runs were repeated."""
    return {
        mode: noise
        for mode in SHARED_MODES
        if (noise := noise_of(runs_of_mode(evaluation.runs, mode), evaluation.repeats))
    }


def group_rows(groups: Iterable[ScoredGroup]) -> list[tuple[str, ...]]:
    """A line under `FAMILY_HEADINGS` or `BUSY_HEADINGS` for each of `groups`."""
    return [
        (
            each.name,
            str(each.n),
            *map(percent, (each.mape, each.median, each.p90, each.coverage90)),
            *(percent(each.mape_by_mode.get(mode)) for mode in SHARED_MODES),
        )
        for each in groups
    ]


def noise_rows(found: Mapping[str, Noise]) -> list[tuple[str, ...]]:
    """A line under `NOISE_HEADINGS` for each mode in which runs were repeated."""
    lines = []
    for mode, noise in found.items():
        shares = (noise.median, noise.rmse, noise.error_rmse, noise.excess)
        shown = map(percent, (*shares, noise.excess_over_one_run))
        lines.append((MODE_WORDS[mode], str(noise.n), *shown))
    return lines


def coverage_on(scores: Scores, host: str) -> float | None:
    """Share of all jobs on `host` inside their 90 % intervals, whatever the mode."""
    rows = [row for row in scores.pooled(host) if row.bound == ALL]
    known = [(row.coverage90, row.n) for row in rows if row.coverage90 is not None]
    return sum(share * n for share, n in known) / sum(n for _, n in known) if known else None


def host_rows(scores: Scores) -> list[tuple[str, ...]]:
    """A line under `HOST_HEADINGS` for each host: MAPE of all jobs, and of the GPU-bound ones."""
    lines = []
    for host in scores.hosts:
        rows = {(row.mode, row.bound): row for row in scores.pooled(host)}
        shown = []
        for mode in SHARED_MODES:
            whole, busy = rows.get((mode, "all")), rows.get((mode, "gpu"))
            some = f" ({percent(busy.mape)})" if busy else ""
            shown.append(percent(whole.mape) + some if whole else "-")
        n = sum(row.n for row in rows.values() if row.bound == ALL)
        lines.append((host, str(n), *shown, percent(coverage_on(scores, host))))
    return lines


def coverage_rows(rows: Iterable[ScoreRow]) -> list[tuple[str, ...]]:
    """A line under `COVERAGE_HEADINGS` for each mode, then for each degree."""
    return [
        (
            MODE_WORDS[row.mode],
            "all" if row.degree is None else str(row.degree),
            str(row.n),
            percent(row.coverage90),
            _range(row),
            _verdict(row),
        )
        for row in rows
        if row.jobs == "all" and row.coverage90 is not None
    ]


def _range(row: ScoreRow) -> str:
    if row.coverage90_low is None:
        return "-"
    return f"{percent(row.coverage90_low)} to {percent(row.coverage90_high)}"


def _verdict(row: ScoreRow) -> str:
    if row.coverage90_low is None or row.coverage90_high is None:
        return "-"
    return "yes" if row.coverage90_low <= 0.9 <= row.coverage90_high else "no"


def _jobs(evaluation: Evaluation) -> Iterable[JobComparison]:
    return (job for run in evaluation.runs for job in run.jobs)


def _group(name: str, evaluation: Evaluation, jobs: Sequence[JobComparison]) -> ScoredGroup:
    errors = np.abs([job.error for job in jobs])
    chosen = {id(job) for job in jobs}
    by_mode = {
        mode: [abs(job.error) for run in runs_of_mode(evaluation.runs, mode) for job in run.jobs
               if id(job) in chosen]
        for mode in SHARED_MODES
    }  # fmt: skip
    return ScoredGroup(
        name=name,
        n=len(jobs),
        mape=float(errors.mean()),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        coverage90=float(np.mean([j.inside for j in jobs])) if evaluation.intervals else None,
        mape_by_mode={mode: float(np.mean(each)) for mode, each in by_mode.items() if each},
    )
