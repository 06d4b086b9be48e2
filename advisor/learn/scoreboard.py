"""The scoreboard of an evaluation: errors, intervals and noise, by mode, degree and host."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

import numpy as np

from advisor.learn.evaluate import Drift, Evaluation, hosts_of
from advisor.learn.regret import Choices, chosen_and_drawn
from advisor.learn.scores import JobComparison, RunComparison, View, runs_of_mode
from advisor.prediction.capacity import is_gpu_bound
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.run import Run

Jobs = Literal["all", "same", "mixed"]
Bound = Literal["all", "gpu", "host"]
BOUNDS: tuple[Bound, ...] = ("all", "gpu", "host")
ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of the scoreboard; errors are shares of what was measured, None if nothing was.

    Attributes:
        view: The profiles: as they were measured, or as on the cores of each run.
        host: A campaign, and where it was; ``"all"`` if all are pooled.
        bound: The jobs that count: those that the GPU paces alone, that the host paces, or all.
        degree: Tenants in a run; None: all degrees are pooled.
        jobs: The runs: with tenants of one workload, of several, or all.
        n: Number of jobs scored; `runs` is that of the runs that they come from.
        mape: Mean absolute error of the step time; `rmse` is the root of its mean square.
        coverage90: Share of measured steps inside their 90 % interval; None without intervals.
        coverage90_low: Lower end of the 95 % interval of that share; see `coverage_of`.
        width90: Mean width of the 90 % intervals, as a share of the predicted step.
        noise_floor: Median absolute difference of a job between a run and its repeat with fresh
            workers; `noise_floor_rmse` is the root of the mean square.
        excess_error: Root of the squared error, over the repeated runs, less that of the noise.
        throughput_mape: Mean absolute error of a run's weighted speedup; None, as
            `memory_total_mape`, where not all of a run's jobs count.
        memory_mape: Mean absolute error of a process's device memory.
        baselines: Mean absolute error of each baseline's step time.
        baselines_n: Jobs for which each baseline is defined.
    """

    view: View
    host: str
    bound: Bound
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
    width90: float | None
    noise_floor: float | None
    noise_floor_rmse: float | None
    excess_error: float | None
    throughput_mape: float | None
    memory_mape: float | None
    memory_total_mape: float | None
    baselines: dict[str, float | None]
    baselines_n: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The figures of one evaluation; see `ScoreRow`, `Choices` and `Drift`.

    Attributes:
        runs: Number of runs scored.
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
        """Return rows of one host, or all: by mode all jobs, then GPU-bound and host-bound ones."""
        rows = [r for r in self.rows if (r.view, r.host, r.degree) == (view, host, None)]
        return tuple(sorted(rows, key=lambda row: SHARED_MODES.index(row.mode)))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host, in the order of the runs."""
        return tuple(dict.fromkeys(row.host for row in self.rows if row.host != ALL))

    def on_known_cores(self, row: ScoreRow) -> ScoreRow | None:
        """Return the row of the same jobs on cores whose speed is known; None without any."""
        rows = self.pooled(row.host, "core-adjusted") if row.degree is None else ()
        same = (each for each in rows if (each.mode, each.bound) == (row.mode, row.bound))
        return next(same, None)


_HEADLINE = ("raw", ALL, ALL)


def scores_of(evaluation: Evaluation) -> Scores:
    """Compute the figures of `evaluation`."""
    selection = evaluation.chosen
    chosen, drawn = chosen_and_drawn(evaluation)
    return Scores(
        gpu=selection.gpu.key,
        families=selection.families,
        runs=len(evaluation.runs),
        rows=scoreboard(evaluation),
        chosen=chosen,
        drawn=drawn,
        drift=selection.drift,
        unusable=len(selection.unusable),
    )


def scoreboard(evaluation: Evaluation) -> tuple[ScoreRow, ...]:
    """Score the runs by mode and degree, then by mode, bound and host."""
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
    """All raw runs of each mode: pooled, then each degree: all, same jobs, mixed jobs."""
    for mode in SHARED_MODES:
        if runs := runs_of_mode(evaluation.runs, mode):
            whole = _ScoredPart(runs=runs, mode=mode)
            yield whole
            for degree in sorted({len(run.jobs) for run in runs}):
                of_degree = [run for run in runs if len(run.jobs) == degree]
                part = replace(whole, runs=of_degree, degree=degree)
                yield part
                same = [run for run in of_degree if len({job.job for job in run.jobs}) == 1]
                mixed = [run for run in of_degree if len({job.job for job in run.jobs}) > 1]
                if same and mixed:
                    yield replace(part, runs=same, jobs="same")
                    yield replace(part, runs=mixed, jobs="mixed")


def _pooled(evaluation: Evaluation) -> Iterator[_ScoredPart]:
    """Each mode on all hosts and on each, by what bounds a job: raw; and with cores' speed known.

    The pooled rows of `_by_degree` are left out.
    """
    views: dict[View, Sequence[RunComparison]] = {
        "raw": evaluation.runs, "core-adjusted": evaluation.adjusted
    }  # fmt: skip
    at = hosts_of(run.run for run in evaluation.runs)
    for view, runs in views.items():
        for host in (ALL, *dict.fromkeys(at.values())):
            of_host = [run for run in runs if host in (ALL, at[run.run.id])]
            for mode in SHARED_MODES:
                of_mode = runs_of_mode(of_host, mode)
                for bound in BOUNDS:
                    part = _ScoredPart(runs=of_mode, view=view, host=host, bound=bound, mode=mode)
                    if (view, host, bound) != _HEADLINE and _jobs(evaluation, part):
                        yield part


def _counts(evaluation: Evaluation, bound: Bound, job: JobComparison) -> bool:
    return bound == ALL or is_gpu_bound(evaluation.chosen.profiles[job.job]) == (bound == "gpu")


def _jobs(evaluation: Evaluation, part: _ScoredPart) -> list[JobComparison]:
    return [job for run in part.runs for job in run.jobs if _counts(evaluation, part.bound, job)]


def _row(evaluation: Evaluation, part: _ScoredPart) -> ScoreRow:
    jobs, whole = _jobs(evaluation, part), part.runs if part.bound == ALL else ()
    errors = np.abs([job.error for job in jobs])
    steps_s = [job.predicted_s for job in jobs]
    widths = [(each.p95 - each.p05) / each.p50 for each in steps_s]
    share, low, high = coverage_of(jobs) if evaluation.intervals else (None, None, None)
    noise = noise_of(part.runs, evaluation.chosen.repeats, partial(_counts, evaluation, part.bound))
    return ScoreRow(
        view=part.view, host=part.host, bound=part.bound, mode=part.mode, degree=part.degree,
        jobs=part.jobs, n=len(jobs), runs=len(part.runs),
        mape=float(errors.mean()), median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)), rmse=float(np.sqrt(np.mean(errors**2))),
        coverage90=share, coverage90_low=low, coverage90_high=high,
        width90=float(np.mean(widths)) if evaluation.intervals else None,
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


_DRAWS = 2000
_SEED = 20261121


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
    repeats: Iterable[tuple[Run, Run]],
    counts: Callable[[JobComparison], bool] = lambda job: True,  # noqa: ARG005
) -> Noise | None:
    """Compute the noise of jobs that count, in those of `runs` with repeats; None without any."""
    by_id = {run.run.id: run for run in runs}
    pairs = [(first, again) for first, again in repeats if first.id in by_id]
    apart = np.array([
        difference
        for first, again in pairs
        for job, difference in zip(by_id[first.id].jobs, differences(first, again), strict=True)
        if counts(job)
    ])  # fmt: skip
    if not len(apart):
        return None
    repeated = sorted({first.id for first, _ in pairs})
    errors = np.array([job.error for name in repeated for job in by_id[name].jobs if counts(job)])
    return Noise(
        n=len(apart),
        median=float(np.median(apart)),
        rmse=float(np.sqrt(np.mean(apart**2))),
        error_rmse=float(np.sqrt(np.mean(errors**2))),
    )


def differences(first: Run, again: Run) -> list[float]:
    """Return by which share each tenant's step differs between a run and its repeat."""
    return [
        abs(second.step_s / once.step_s - 1)
        for once, second in zip(first.tenants, again.tenants, strict=True)
    ]


def coverage_of(jobs: Sequence[JobComparison]) -> tuple[float, float | None, float | None]:
    """Compute the share of `jobs` inside their 90 % interval, and its own 95 % interval.

    Errors within a family are correlated, so the bootstrap resamples families, not jobs; with one
    family there is no interval. The draws are the same for the same jobs.
    """
    families = sorted({job.family for job in jobs})
    inside = np.array([sum(j.inside for j in jobs if j.family == each) for each in families])
    count = np.array([sum(j.family == each for j in jobs) for each in families])
    share = float(inside.sum() / count.sum())
    if len(families) == 1:
        return share, None, None
    equal = np.full(len(families), 1 / len(families))
    draws = np.random.default_rng(_SEED).multinomial(len(families), equal, size=_DRAWS)
    low, high = np.quantile(draws @ inside / (draws @ count), (0.025, 0.975))
    return share, float(low), float(high)
