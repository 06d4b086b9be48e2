"""The scoreboard: errors of predictions by view, host, what paces jobs, mode and degree."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from advisor.prediction.job_features import is_gpu_bound
from advisor.sharing import SHARED_MODES, Mode
from advisor.validate.evaluate import Drift, Evaluation
from advisor.validate.noise_and_coverage import coverage_of, mean_width, noise_of
from advisor.validate.predicted_and_measured import (
    JobComparison,
    RunComparison,
    View,
    runs_of_mode,
)
from advisor.validate.regret import Choices, chosen_and_drawn
from advisor.validate.score_row import ALL, BOUNDS, Bound, Jobs, ScoreRow
from advisor.validate.selection import hosts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The figures of one evaluation; see `ScoreRow`, `Choices` and `Drift`.

    Attributes:
        gpu: Catalogue key.
        families: Families left out one after another.
        runs: Number of runs scored.
        rows: The scoreboard.
        chosen: Job sets that were run in several ways to be chosen from.
        drawn: The same among the scored runs.
        drift: None if no solo run lies between the shared ones.
        unusable: Drawn runs that could not be scored.
    """

    gpu: str
    families: tuple[str, ...]
    runs: int
    rows: tuple[ScoreRow, ...]
    chosen: Choices
    drawn: Choices
    drift: Drift | None
    unusable: int

    @property
    def by_degree(self) -> tuple[ScoreRow, ...]:
        """All hosts and jobs, raw: for each mode all degrees pooled, then each of them."""
        return tuple(row for row in self.rows if (row.view, row.host, row.bound) == _HEADLINE)

    def pooled(self, host: str = ALL, view: View = "raw") -> tuple[ScoreRow, ...]:
        """Of one host, or all: for each mode all jobs, then GPU-bound and host-bound ones."""
        rows = [r for r in self.rows if (r.view, r.host, r.degree) == (view, host, None)]
        return tuple(sorted(rows, key=lambda row: SHARED_MODES.index(row.mode)))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host, in the order of the runs."""
        return tuple(dict.fromkeys(row.host for row in self.rows if row.host != ALL))

    def on_known_cores(self, row: ScoreRow) -> ScoreRow | None:
        """The row of the same jobs on cores whose speed is known; None if there are none."""
        rows = self.pooled(row.host, "core-adjusted") if row.degree is None else ()
        alike = [each for each in rows if (each.mode, each.bound) == (row.mode, row.bound)]
        return alike[0] if alike else None


_HEADLINE = ("raw", ALL, ALL)


def scores_of(evaluation: Evaluation) -> Scores:
    """The figures of `evaluation`."""
    chosen, drawn = chosen_and_drawn(evaluation)
    return Scores(
        gpu=evaluation.gpu,
        families=evaluation.families,
        runs=len(evaluation.runs),
        rows=scoreboard(evaluation),
        chosen=chosen,
        drawn=drawn,
        drift=evaluation.drift,
        unusable=len(evaluation.unusable),
    )


def scoreboard(evaluation: Evaluation) -> tuple[ScoreRow, ...]:
    """All raw runs of each mode: pooled, then each degree: all, same jobs, mixed jobs.

    Then pooled rows of each mode: raw, for GPU-bound and host-bound jobs and for each host; and
    the same of the runs whose cores' speed is known.
    """
    return tuple(_row(evaluation, part) for part in (*_by_degree(evaluation), *_pooled(evaluation)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoredPart:
    """Some of the scored runs, and which of their jobs count."""

    runs: Sequence[RunComparison]
    view: View = "raw"
    host: str = ALL
    bound: Bound = ALL
    mode: Mode
    degree: int | None = None
    jobs: Jobs = ALL


def _by_degree(evaluation: Evaluation) -> Iterator[_ScoredPart]:
    for mode in SHARED_MODES:
        if runs := runs_of_mode(evaluation.runs, mode):
            everything = _ScoredPart(runs=runs, mode=mode)
            yield everything
            for degree in sorted({len(run.jobs) for run in runs}):
                of_degree = [run for run in runs if len(run.jobs) == degree]
                part = replace(everything, runs=of_degree, degree=degree)
                yield part
                same = [run for run in of_degree if len({job.job for job in run.jobs}) == 1]
                mixed = [run for run in of_degree if len({job.job for job in run.jobs}) > 1]
                if same and mixed:
                    yield replace(part, runs=same, jobs="same")
                    yield replace(part, runs=mixed, jobs="mixed")


def _pooled(evaluation: Evaluation) -> Iterator[_ScoredPart]:
    views: dict[View, Sequence[RunComparison]] = {
        "raw": evaluation.runs, "core-adjusted": evaluation.adjusted
    }  # fmt: skip
    at = hosts_of(run.run for run in evaluation.runs)
    for view, runs in views.items():
        for host in (ALL, *dict.fromkeys(at.values())):
            there = [run for run in runs if host in (ALL, at[run.run.id])]
            for mode in SHARED_MODES:
                part = _ScoredPart(runs=runs_of_mode(there, mode), view=view, host=host, mode=mode)
                for bound in BOUNDS:
                    wanted = replace(part, bound=bound)
                    if (view, host, bound) != _HEADLINE and _jobs(evaluation, wanted):
                        yield wanted


def _counts(evaluation: Evaluation, bound: Bound, job: JobComparison) -> bool:
    return bound == ALL or is_gpu_bound(evaluation.profiles[job.job]) == (bound == "gpu")


def _jobs(evaluation: Evaluation, part: _ScoredPart) -> list[JobComparison]:
    return [job for run in part.runs for job in run.jobs if _counts(evaluation, part.bound, job)]


def _row(evaluation: Evaluation, part: _ScoredPart) -> ScoreRow:
    jobs, whole = _jobs(evaluation, part), part.runs if part.bound == ALL else ()
    errors = np.abs([job.error for job in jobs])
    covered = coverage_of(jobs) if evaluation.intervals else None
    noise = noise_of(part.runs, evaluation.repeats, partial(_counts, evaluation, part.bound))
    return ScoreRow(
        view=part.view, host=part.host, bound=part.bound, mode=part.mode, degree=part.degree,
        jobs=part.jobs, n=len(jobs), runs=len(part.runs),
        mape=float(errors.mean()), median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)), rmse=float(np.sqrt(np.mean(errors**2))),
        coverage90=covered.share if covered else None,
        coverage90_low=covered.low if covered else None,
        coverage90_high=covered.high if covered else None,
        width90=mean_width(jobs) if covered else None,
        noise_floor=noise.median if noise else None, noise_floor_rmse=noise.rmse if noise else None,
        excess_error=noise.excess if noise else None,
        throughput_mape=_mape((run.predicted_speedup, run.measured_speedup) for run in whole),
        memory_mape=_mape((job.memory_mib, job.measured_memory_mib) for job in jobs),
        memory_total_mape=_mape((r.memory_total_mib, r.measured_memory_total_mib) for r in whole),
        baselines={each: _mape((j.baselines_s[each], j.measured_s) for j in jobs)
                   for each in jobs[0].baselines_s},
        baselines_n={each: sum(j.baselines_s[each] is not None for j in jobs)
                     for each in jobs[0].baselines_s},
    )  # fmt: skip


def _mape(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    errors = [
        abs(predicted / measured - 1)
        for predicted, measured in pairs
        if measured and predicted is not None
    ]
    return float(np.mean(errors)) if errors else None
