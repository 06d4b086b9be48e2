"""Errors by family, and by how busy a job alone keeps the GPU."""

from collections.abc import Iterable, Sequence

import numpy as np

from advisor.validation.comparison import JobComparison
from advisor.validation.evaluate import Evaluation
from advisor.validation.noise import noise_of
from advisor.validation.scoreboard import MODES, Row, runs_of_mode, scoreboard
from advisor.validation.words import MODE_WORDS, percent

_BINS = ((0.0, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, float("inf")))

_ERRORS = ("n", "MAPE", "median", "P90", "in 90 % interval")
_BY_MODE = tuple(f"{MODE_WORDS[mode]} MAPE" for mode in MODES)
FAMILY_HEADINGS = ("family", *_ERRORS, *_BY_MODE)
BUSY_HEADINGS = ("GPU busy alone", *_ERRORS, *_BY_MODE)
NOISE_HEADINGS = (
    "sharing", "jobs measured twice", "noise floor", "noise RMSE", "error RMSE", "excess error",
    "excess over one run's noise",
)  # fmt: skip
COVERAGE_HEADINGS = ("sharing", "jobs", "n", "in 90 % interval", "95 % range of that", "holds 90 %")


def family_rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """A line under `FAMILY_HEADINGS` for each family that was left out."""
    return [
        _line(family, evaluation, [job for job in _jobs(evaluation) if job.family == family])
        for family in evaluation.families
    ]


def busy_rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """A line under `BUSY_HEADINGS` for each stretch of the GPU-busy share that has jobs."""
    lines = []
    for low, high in _BINS:
        jobs = [j for j in _jobs(evaluation) if j.busy_share and low < j.busy_share <= high]
        words = f"{100 * low:.0f} to {100 * min(1.0, high):.0f} %"
        lines += [_line(words, evaluation, jobs)] if jobs else []
    return lines


def noise_rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """A line under `NOISE_HEADINGS` for each mode in which runs were repeated."""
    lines = []
    for mode in MODES:
        if noise := noise_of(runs_of_mode(evaluation.runs, mode), evaluation.repeats):
            shares = (noise.median, noise.rmse, noise.error_rmse, noise.excess)
            shown = map(percent, (*shares, noise.excess_over_one_run))
            lines.append((MODE_WORDS[mode], str(noise.n), *shown))
    return lines


def coverage_rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
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
        for row in scoreboard(evaluation)
        if row.jobs == "all" and row.coverage90 is not None
    ]


def _range(row: Row) -> str:
    if row.coverage90_low is None:
        return "-"
    return f"{percent(row.coverage90_low)} to {percent(row.coverage90_high)}"


def _verdict(row: Row) -> str:
    if row.coverage90_low is None or row.coverage90_high is None:
        return "-"
    return "yes" if row.coverage90_low <= 0.9 <= row.coverage90_high else "no"


def _jobs(evaluation: Evaluation) -> Iterable[JobComparison]:
    return (job for run in evaluation.runs for job in run.jobs)


def _line(word: str, evaluation: Evaluation, jobs: Sequence[JobComparison]) -> tuple[str, ...]:
    errors = np.abs([job.error for job in jobs])
    inside = float(np.mean([job.inside for job in jobs])) if evaluation.intervals else None
    told = (float(errors.mean()), float(np.median(errors)), float(np.quantile(errors, 0.9)), inside)
    chosen = {id(job) for job in jobs}
    by_mode = [
        [abs(job.error) for run in runs_of_mode(evaluation.runs, mode) for job in run.jobs
         if id(job) in chosen]
        for mode in MODES
    ]  # fmt: skip
    means = (float(np.mean(each)) if each else None for each in by_mode)
    return (word, str(len(jobs)), *map(percent, told), *map(percent, means))
