"""Real runs of jobs compared with their predictions: in words, and as rows of a chart."""

from statistics import median
from typing import Any

from advisor.english import counted, with_article
from advisor.validate.predicted_and_measured import JobComparison, RunComparison, sharing_of
from advisor.validate.runs_of_jobs import MeasuredRuns
from advisor.validate.score_tables import percent
from advisor.validate.validate import step_cells

_NOISE = (
    "Grey is how far two runs of the same jobs with fresh processes lie apart in the median: "
    "nothing can be predicted better."
)
_SEEN = (
    "The model learnt from the shipped runs: of jobs that it never saw, errors are larger, as "
    "README says."
)


def runs_of_jobs_text(found: MeasuredRuns, gpu: str) -> str:
    """How good predictions of the runs are, what these are, and how good they could be at all."""
    if not found.runs:
        return (
            f"No run in which just these jobs share {with_article(gpu)} was measured. `advisor "
            f"validate` runs the best plans and sets what it measures beside what was predicted."
        )
    inside = sum(job.inside for job in found.jobs)
    own = f", {len(found.own)} of them your own (diamonds)" if found.own else ""
    off = median(abs(job.error) for job in found.jobs)
    said = [
        f"{counted(len(found.runs), 'run')} of some of these jobs{own}; "
        f"{found.same or 'none'} of all of them together. Of {counted(len(found.jobs), 'step')} "
        f"{inside} lie in their 90 % intervals, which the thin lines are; the median is "
        f"{percent(off)} off."
    ]
    said += [_NOISE] if found.noise else []
    said += [_SEEN] if found.shipped else []
    return " ".join(said)


def runs_of_jobs_rows(found: MeasuredRuns) -> list[dict[str, Any]]:
    """A row for each tenant of each run; errors are in per cent of what was measured."""
    return [
        _row(found, run, job, whose)
        for runs, whose in ((found.shipped, "shipped"), (found.own, "your own"))
        for run in runs
        for job in run.jobs
    ]


def _row(found: MeasuredRuns, run: RunComparison, job: JobComparison, whose: str) -> dict[str, Any]:
    mode, step_s = sharing_of(run.run).mode, job.predicted_s
    predicted, interval, measured, _ = step_cells(step_s, job.measured_s)
    noise = found.noise.get(mode)
    return {
        "mode": mode, "job": job.job, "whose": whose,
        "low": 100 * (step_s.p05 / job.measured_s - 1),
        "error": 100 * job.error,
        "high": 100 * (step_s.p95 / job.measured_s - 1),
        "noise": None if noise is None else 100 * noise,
        "run": f"{run.run.id}: {run.run.sharing}",
        "hint": f"{predicted} ms predicted ({interval}), {measured} ms measured",
    }  # fmt: skip
