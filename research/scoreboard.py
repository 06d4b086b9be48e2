"""The scoreboard of an evaluation: errors, intervals and noise, by mode, degree and host."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final, Literal

import numpy as np

from advisor.learn.scores import JobComparison, RunComparison, sharing_of
from advisor.prediction.host import is_gpu_bound
from advisor.prediction.prediction import all_known
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.run import Run
from research.evaluate import Evaluation, Selection, View
from research.regret import Choices, chosen_and_drawn

Part = Literal["drawn", "panels"]
Jobs = Literal["all", "same", "mixed"]
Bound = Literal["all", "gpu", "host"]
PARTS: tuple[Part, ...] = ("drawn", "panels")
BOUNDS: tuple[Bound, ...] = ("all", "gpu", "host")
ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of the scoreboard; errors are shares of what was measured, None if nothing was.

    Attributes:
        part: Runs drawn by a seed, or the panels from which plans are chosen.
        view: The profiles: as they were measured, or as on the cores of each run.
        host: A campaign, and where it was; `ALL`: all hosts pooled.
        bound: The jobs that count: those that the GPU paces alone, that the host paces, or all.
        degree: Tenants in a run; None: all degrees are pooled.
        jobs: The runs: with tenants of one workload, of several, or all.
        mape, median, p90: Mean, median and 90 % quantile of the absolute errors of `n` steps.
        coverage90: Share of measured steps inside their 90 % interval; None without intervals.
        width90: Mean width of the 90 % intervals, as a share of the predicted step.
        noise: Mean absolute difference of a job between a run and its repeat with fresh workers.
        noise_n: Jobs measured twice.
        noise_mape: Mean absolute error of the predictions of these jobs.
        throughput_mape: Mean absolute error of a run's weighted speedup; None if not all of a run's
            jobs count.
        baselines: Mean absolute error of each baseline's step time; None if it does not cover all
            of the jobs.
    """

    part: Part
    view: View
    host: str = ALL
    bound: Bound
    mode: Mode
    degree: int | None = None
    jobs: Jobs = ALL
    n: int
    mape: float
    median: float
    p90: float
    coverage90: float | None
    width90: float | None
    noise: float | None
    noise_n: int
    noise_mape: float | None
    throughput_mape: float | None
    baselines: dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The figures of one evaluation; see `ScoreRow` and `Choices`.

    Attributes:
        home: See `Selection.home`.
        runs, unusable: Number of drawn runs that are scored, and that could not be.
        chosen, drawn: Job sets that were run to be chosen from, and those of drawn runs.
    """

    gpu: str
    families: tuple[str, ...]
    home: str | None
    runs: int
    rows: tuple[ScoreRow, ...]
    chosen: Choices
    drawn: Choices
    unusable: int

    def by_degree(self, part: Part = "drawn") -> tuple[ScoreRow, ...]:
        """Return for each mode all jobs pooled, then those of each degree."""
        key = (part, "raw", ALL, ALL)
        return tuple(r for r in self.rows if (r.part, r.view, r.host, r.bound) == key)

    def pooled(
        self, host: str = ALL, part: Part = "drawn", view: View = "raw"
    ) -> tuple[ScoreRow, ...]:
        """Return rows of one host, or all: by mode all jobs, then GPU-bound and host-bound ones."""
        key = (part, view, host, None)
        rows = [r for r in self.rows if (r.part, r.view, r.host, r.degree) == key]
        return tuple(sorted(rows, key=lambda row: SHARED_MODES.index(row.mode)))

    def hosts(self, part: Part = "drawn") -> tuple[str, ...]:
        """Return every host, in the order of the runs."""
        hosts = (row.host for row in self.rows if row.part == part and row.host != ALL)
        return tuple(dict.fromkeys(hosts))


def scores_of(evaluation: Evaluation) -> Scores:
    """Compute the figures of `evaluation`."""
    selection = evaluation.chosen
    chosen, drawn = chosen_and_drawn(evaluation)
    return Scores(
        gpu=selection.gpu.key,
        families=selection.families,
        home=selection.home,
        runs=len(evaluation.runs),
        rows=tuple(scoreboard(evaluation)),
        chosen=chosen,
        drawn=drawn,
        unusable=len(selection.unusable),
    )


def scoreboard(evaluation: Evaluation) -> Iterator[ScoreRow]:
    """Score drawn runs and panels by mode, bound and host, then by mode and degree."""
    parts: list[tuple[Part, View, Sequence[RunComparison]]] = [
        ("drawn", "raw", evaluation.runs),
        ("panels", "raw", evaluation.advice),
        ("drawn", "host-checked", evaluation.host_checked),
    ]
    for (part, view, runs), mode in product(parts, SHARED_MODES):
        of_mode = [run for run in runs if sharing_of(run.run).mode == mode]
        score = partial(_scored, evaluation, part=part, view=view, mode=mode)
        for host, of_host in by_host(evaluation.chosen, of_mode).items():
            for bound in BOUNDS:
                yield from score(of_host, bound, host=host)
        for degree in sorted({len(run.jobs) for run in of_mode} if view == "raw" else ()):
            of_degree = [run for run in of_mode if len(run.jobs) == degree]
            yield from score(of_degree, degree=degree)
            same = [run for run in of_degree if len({job.job for job in run.jobs}) == 1]
            if 0 < len(same) < len(of_degree):
                mixed = [run for run in of_degree if len({job.job for job in run.jobs}) > 1]
                yield from score(same, degree=degree, jobs="same")
                yield from score(mixed, degree=degree, jobs="mixed")


def by_host(chosen: Selection, runs: Sequence[RunComparison]) -> dict[str, Sequence[RunComparison]]:
    """Return `runs` of all hosts and of each, by name."""
    at = chosen.hosts
    hosts: dict[str, list[RunComparison]] = {}
    for run in runs:
        hosts.setdefault(at[run.run.id], []).append(run)
    return {ALL: runs, **hosts}


def counts(chosen: Selection, bound: Bound, job: JobComparison) -> bool:
    """Return whether `job` is among those of `bound`."""
    return bound == ALL or is_gpu_bound(chosen.profiles[job.job]) == (bound == "gpu")


def _scored(
    evaluation: Evaluation, runs: Sequence[RunComparison], bound: Bound = ALL, **key: Any
) -> Iterator[ScoreRow]:
    """Yield the scores of the jobs of `runs` that count, as the row with that `key`, if any do."""
    chosen = evaluation.chosen
    jobs = [job for run in runs for job in run.jobs if counts(chosen, bound, job)]
    if not jobs:
        return
    errors = np.abs([job.error for job in jobs])
    widths = [(job.predicted_s.p95 - job.predicted_s.p05) / job.predicted_s.p50 for job in jobs]
    by_id = {run.run.id: run for run in runs}
    again = [
        pair
        for first, second in chosen.repeats
        if first.id in by_id
        for pair in zip(by_id[first.id].jobs, differences(first, second), strict=True)
        if counts(chosen, bound, pair[0])
    ]
    whole = runs if bound == ALL else ()
    yield ScoreRow(
        **key,
        bound=bound,
        n=len(jobs),
        mape=float(errors.mean()),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        coverage90=_mean(job.inside for job in jobs) if evaluation.intervals else None,
        width90=_mean(widths) if evaluation.intervals else None,
        noise=_mean(difference for _, difference in again),
        noise_n=len(again),
        noise_mape=_mean(abs(job.error) for job, _ in again),
        throughput_mape=_mean(abs(r.predicted_speedup / r.measured_speedup - 1) for r in whole),
        baselines={name: _baseline_mape(name, jobs) for name in jobs[0].baselines_s},
    )


def _baseline_mape(name: str, jobs: Iterable[JobComparison]) -> float | None:
    """The error of the named rule; None if it does not cover all of `jobs`."""
    pairs = [(job.baselines_s[name], job.measured_s) for job in jobs]
    errors = all_known(s and abs(s / measured_s - 1) for s, measured_s in pairs)
    return None if errors is None else _mean(errors)


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return float(np.mean(numbers)) if numbers else None


def differences(first: Run, again: Run) -> list[float]:
    """Return by which share each tenant's step differs between a run and its repeat."""
    return [
        abs(second.step_s / once.step_s - 1)
        for once, second in zip(first.tenants, again.tenants, strict=True)
    ]
