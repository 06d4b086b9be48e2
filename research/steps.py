"""Errors of step times: by family, by GPU-busy share, by host, and beside runs on another host."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import mean, median

import numpy as np

from advisor.learn.evaluate import Evaluation
from advisor.learn.scoreboard import (
    ALL,
    BOUNDS,
    Bound,
    Noise,
    ScoreRow,
    Scores,
    differences,
    noise_of,
)
from advisor.learn.scores import JobComparison, RunComparison, runs_of_mode, sharing_of
from advisor.prediction.capacity import is_gpu_bound
from advisor.report.scores import (
    BOUND_WORDS,
    HEADINGS,
    MODE_WORDS,
    markdown,
    percent,
    remarks,
    score_cells,
)
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.run import Run

_BUSY_BINS = ((0.0, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, float("inf")))
_ERRORS = ("n", "MAPE", "median", "P90", "in 90 % interval")
_BY_MODE = tuple(f"{MODE_WORDS[mode]} MAPE" for mode in SHARED_MODES)
_NOISE_HEADINGS = (
    "sharing", "jobs measured twice", "noise floor", "noise RMSE", "error RMSE", "excess error",
    "excess over one run's noise",
)  # fmt: skip
_COVERAGE_HEADINGS = (
    "sharing", "jobs", "n", "in 90 % interval", "95 % range of that", "holds 90 %"
)  # fmt: skip
_ELSEWHERE_HEADINGS = (
    "sharing", "jobs", "n", "a real run on another host", "this model", "a real run, median",
    "this model, median",
)  # fmt: skip

# A workload is steady when its repeats lie within this of each other, in the median.
_STEADY = 0.05

# A machine was held for half an hour at most, so runs this far apart are on different hosts.
_OTHER_HOST = timedelta(hours=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupErrors:
    """Errors of scored jobs that have something in common, as shares of the measured step.

    Attributes:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherHost:
    """Steps of jobs that ran again on another host.

    Attributes:
        n: Steps that were measured on another host too.
        apart: Mean absolute difference from the step on the other host, as a share.
        apart_median: Median of these differences.
        mape: Mean absolute error of the model for the same steps, families left out.
        median: Median of these errors.
    """

    mode: Mode
    bound: Bound
    n: int
    apart: float
    apart_median: float
    mape: float
    median: float


@dataclass(frozen=True, slots=True)
class RepeatSummary:
    """How many workloads repeat well.

    Attributes:
        workloads: That were in a run which was repeated.
        steady: Those whose repeats lie within 5 % of each other in the median.
    """

    workloads: int
    steady: int


def steadiness(repeats: Iterable[tuple[Run, Run]]) -> RepeatSummary:
    """Count the workloads of the repeated runs that repeat within 5 %."""
    apart: dict[str, list[float]] = {}
    for first, again in repeats:
        for tenant, difference in zip(first.tenants, differences(first, again), strict=True):
            apart.setdefault(tenant.workload.name, []).append(difference)
    steady = sum(float(np.median(values)) <= _STEADY for values in apart.values())
    return RepeatSummary(len(apart), steady)


def errors_by_family(evaluation: Evaluation) -> tuple[GroupErrors, ...]:
    """Return the errors of each family that was left out."""
    return tuple(
        _group(family, evaluation, [job for job in _jobs(evaluation) if job.family == family])
        for family in evaluation.chosen.families
    )


def errors_by_busy_share(evaluation: Evaluation) -> tuple[GroupErrors, ...]:
    """Return the errors of the jobs in each range of the GPU-busy share."""
    groups = []
    for low, high in _BUSY_BINS:
        jobs = [j for j in _jobs(evaluation) if j.busy_share and low < j.busy_share <= high]
        if jobs:
            name = f"{100 * low:.0f} to {100 * min(1.0, high):.0f} %"
            groups.append(_group(name, evaluation, jobs))
    return tuple(groups)


def noise_by_mode(evaluation: Evaluation) -> Mapping[str, Noise]:
    """Return how far two runs of the same jobs differ, by mode."""
    return {
        mode: noise
        for mode in SHARED_MODES
        if (noise := noise_of(runs_of_mode(evaluation.runs, mode), evaluation.chosen.repeats))
    }


def other_hosts(evaluation: Evaluation) -> tuple[OtherHost, ...]:
    """Compare each step of a job set with real runs of the same jobs on other hosts.

    A prediction from profiles of one host can hardly be closer to a run on another host than a
    real run of the same jobs is.
    """
    rows: list[tuple[Mode, bool, float, float]] = []  # mode, GPU-bound, difference, model's error
    for run in evaluation.advice:
        others = [other for other in evaluation.advice if _repeated_elsewhere(run, other)]
        for place, job in enumerate(run.jobs if others else ()):
            elsewhere_s = mean(other.jobs[place].measured_s for other in others)
            gpu_bound = is_gpu_bound(evaluation.chosen.profiles[job.job])
            difference = abs(elsewhere_s / job.measured_s - 1)
            rows.append((sharing_of(run.run).mode, gpu_bound, difference, abs(job.error)))
    results = []
    for mode in SHARED_MODES:
        for bound in BOUNDS:
            kept = [
                (apart, error)
                for of_mode, gpu_bound, apart, error in rows
                if of_mode == mode and (bound == ALL or gpu_bound == (bound == "gpu"))
            ]
            if kept:
                apart, errors = zip(*kept, strict=True)
                results.append(
                    OtherHost(
                        mode=mode, bound=bound, n=len(kept), apart=mean(apart),
                        apart_median=median(apart), mape=mean(errors), median=median(errors),
                    )
                )  # fmt: skip
    return tuple(results)


def _repeated_elsewhere(one: RunComparison, other: RunComparison) -> bool:
    if one.run.sharing != other.run.sharing:
        return False
    if [job.job for job in one.jobs] != [job.job for job in other.jobs]:
        return False
    dates = [datetime.fromisoformat(run.run.provenance.date) for run in (one, other)]
    return abs(dates[0] - dates[1]) >= _OTHER_HOST


def coverage_on(scores: Scores, host: str) -> float | None:
    """Return the share of all jobs on `host` inside their 90 % intervals, in any mode."""
    rows = [row for row in scores.pooled(host) if row.bound == ALL]
    shares = [(row.coverage90, row.n) for row in rows if row.coverage90 is not None]
    return sum(share * n for share, n in shares) / sum(n for _, n in shares) if shares else None


def families_section(scores: Scores) -> str:
    """Return the scoreboard by mode, by degree and by host, in Markdown."""
    paced = [row for row in scores.pooled() if row.bound != ALL]
    rows = score_cells(scores, [*scores.by_degree, *paced])
    hosts = [
        [host, *row] for host in scores.hosts for row in score_cells(scores, scores.pooled(host))
    ]
    return joined(
        "## Families left out",
        markdown(HEADINGS, rows),
        "We score every run drawn by a fixed seed, from profiles as they were measured, on any "
        "host and day, as users have them. The column `core speeds known` is the MAPE of the runs "
        "that recorded how fast each core was, with profiles corrected for it, which needs the "
        "run itself. A GPU-bound job keeps the GPU busy for 90 % of a step alone or more. The "
        "width of an interval is a share of the predicted step.",
        *remarks(scores),
        "## By host",
        markdown(("host", *HEADINGS), hosts),
        "A host is a campaign, split if the campaign ran on several processors or days.",
        "## Choices made with all data in view",
        "Constants, the regression's kernel, and the interval ends and their level are fitted "
        "without the family that is scored. We chose the following by looking at errors of all "
        "families, so expect slightly larger errors elsewhere: the columns of the model; replay of "
        "four steps or 80,000 events (a quarter of that made MPS answers for 3 to 8 jobs 0.8 "
        "points worse, twice as much no better); the values searched for constants and kernels; "
        "and how far a core check is trusted.",
    )


def intervals_section(scores: Scores) -> str:
    """Return coverage of the intervals with its own uncertainty; empty without intervals."""
    rows = [
        (MODE_WORDS[row.mode], "all" if row.degree is None else str(row.degree), str(row.n),
         percent(row.coverage90), *_coverage_range(row))
        for row in scores.by_degree
        if row.jobs == "all" and row.coverage90 is not None
    ]  # fmt: skip
    if not rows:
        return ""
    holds = [row[-1] for row in rows if row[1] != "all"]
    return joined(
        "## Do intervals hold?",
        markdown(_COVERAGE_HEADINGS, rows),
        f"For {holds.count('yes')} of {len(holds)} numbers of jobs the range contains 90 %. The "
        "range is that of 2000 draws of families with replacement, because jobs of one family have "
        "similar errors.",
    )


def _coverage_range(row: ScoreRow) -> tuple[str, str]:
    low, high = row.coverage90_low, row.coverage90_high
    if low is None or high is None:
        return "-", "-"
    return f"{percent(low)} to {percent(high)}", "yes" if low <= 0.9 <= high else "no"


def noise_section(noises: Mapping[str, Noise], steadiness: RepeatSummary) -> str:
    """Return how far two runs of the same jobs differ; empty without repeats."""
    if not noises:
        return ""
    rows = [
        (
            MODE_WORDS[mode],
            str(noise.n),
            *map(percent, (noise.median, noise.rmse, noise.error_rmse, noise.excess)),
            percent(noise.excess_over_one_run),
        )
        for mode, noise in noises.items()
    ]
    return joined(
        "## Noise, and error beyond it",
        markdown(_NOISE_HEADINGS, rows),
        "Runs were repeated with new processes. The noise floor is the median absolute difference "
        "of a job between the two runs. Excess error is the root of error RMSE^2 - noise RMSE^2, "
        "over the repeated runs. A difference of two runs contains the noise of both; the last "
        "column subtracts that of one run only.",
        f"{steadiness.steady} of {steadiness.workloads} workloads repeat within 5 % in the median.",
    )


def groups_section(families: Iterable[GroupErrors], busy: Iterable[GroupErrors]) -> str:
    """Return the errors by family and by GPU-busy share, in Markdown."""
    return joined(
        "## By family",
        markdown(("family", *_ERRORS, *_BY_MODE), _group_rows(families)),
        "## By GPU-busy share of a job alone",
        markdown(("GPU busy alone", *_ERRORS, *_BY_MODE), _group_rows(busy)),
    )


def hosts_table(scores: Scores) -> str:
    """Return the MAPE on each host, of all jobs and of the GPU-bound ones."""
    rows = []
    for host in scores.hosts:
        by_key = {(row.mode, row.bound): row for row in scores.pooled(host)}
        cells = []
        for mode in SHARED_MODES:
            whole, busy = by_key.get((mode, "all")), by_key.get((mode, "gpu"))
            suffix = f" ({percent(busy.mape)})" if busy else ""
            cells.append(percent(whole.mape) + suffix if whole else "-")
        n = sum(row.n for row in by_key.values() if row.bound == ALL)
        rows.append((host, str(n), *cells, percent(coverage_on(scores, host))))
    headings = ("host", "n", *(MODE_WORDS[mode] for mode in SHARED_MODES), "in 90 % interval")
    return markdown(headings, rows)


def other_hosts_text(rows: Sequence[OtherHost]) -> list[str]:
    """Return a paragraph and a table; empty if no jobs ran on two hosts."""
    if not rows:
        return []
    cells = [
        (MODE_WORDS[row.mode], BOUND_WORDS[row.bound], str(row.n),
         *map(percent, (row.apart, row.mape, row.apart_median, row.median)))
        for row in rows
    ]  # fmt: skip
    return [
        "Some job sets ran in the same way on two hosts, at least six hours apart. We compare each "
        "step with the real run on the other host, as if that were its prediction, and with this "
        "model's prediction from the profiles:",
        markdown(_ELSEWHERE_HEADINGS, cells),
    ]


def other_hosts_sentence(rows: Sequence[OtherHost]) -> list[str]:
    """Return one sentence on all jobs; empty if no jobs ran on two hosts."""
    whole = [row for row in rows if row.bound == ALL]
    if not whole:
        return []
    apart = ", ".join(f"{percent(row.apart)} ({MODE_WORDS[row.mode]})" for row in whole)
    errors = ", ".join(percent(row.mape) for row in whole)
    return [
        f"Real runs of the same jobs on two hosts differ by {apart} on average; predictions of "
        f"these runs have errors of {errors}."
    ]


def joined(*parts: str) -> str:
    """Return the paragraphs, with blank lines between them."""
    return "\n\n".join(parts)


def _group_rows(groups: Iterable[GroupErrors]) -> Iterator[tuple[str, ...]]:
    for group in groups:
        errors = (group.mape, group.median, group.p90, group.coverage90)
        by_mode = (group.mape_by_mode.get(mode) for mode in SHARED_MODES)
        yield (group.name, str(group.n), *map(percent, errors), *map(percent, by_mode))


def _jobs(evaluation: Evaluation) -> Iterable[JobComparison]:
    return (job for run in evaluation.runs for job in run.jobs)


def _group(name: str, evaluation: Evaluation, jobs: Sequence[JobComparison]) -> GroupErrors:
    errors = np.abs([job.error for job in jobs])
    chosen = {id(job) for job in jobs}
    by_mode = {
        mode: [
            abs(job.error)
            for run in runs_of_mode(evaluation.runs, mode)
            for job in run.jobs
            if id(job) in chosen
        ]
        for mode in SHARED_MODES
    }
    return GroupErrors(
        name=name,
        n=len(jobs),
        mape=float(errors.mean()),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        coverage90=float(np.mean([j.inside for j in jobs])) if evaluation.intervals else None,
        mape_by_mode={mode: float(np.mean(values)) for mode, values in by_mode.items() if values},
    )
