"""Errors of step times: by family, by GPU-busy share, by host, and beside runs on another host."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np

from advisor.learn.scores import JobComparison, RunComparison, sharing_of
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.run import Run
from research.evaluate import Evaluation, hours_apart
from research.score_tables import (
    BOUND_WORDS,
    HEADINGS,
    MODE_HEADINGS,
    MODE_WORDS,
    markdown,
    remarks,
    score_cells,
)
from research.scoreboard import ALL, BOUNDS, PARTS, Bound, Part, Scores, counts, differences

_BUSY_BINS = ((0.0, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, float("inf")))
_ERRORS = ("n", "MAPE", "median", "P90", "in 90 % interval")
_BY_MODE = tuple(f"{MODE_WORDS[mode]} MAPE" for mode in SHARED_MODES)
_ELSEWHERE_HEADINGS = (
    "sharing",
    "jobs",
    "n",
    "a real run on another host",
    "this model",
    "a real run, median",
    "this model, median",
)

# A workload is steady when its repeats lie within this of each other, in the median.
_STEADY = 0.05

# Hours between runs that are on different hosts: a machine was held for half an hour at most.
_OTHER_HOST = 6.0


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
    groups, profiles = [], evaluation.chosen.profiles
    for low, high in _BUSY_BINS:
        jobs = [j for j in _jobs(evaluation) if low < (profiles[j.job].busy_share or 0) <= high]
        if jobs:
            name = f"{100 * low:.0f} to {100 * min(1.0, high):.0f} %"
            groups.append(_group(name, evaluation, jobs))
    return tuple(groups)


def other_hosts(evaluation: Evaluation) -> tuple[OtherHost, ...]:
    """Compare each step of a job set with real runs of the same jobs on other hosts.

    A prediction from profiles of one host can hardly be closer to a run on another host than a
    real run of the same jobs is.
    """
    rows: list[tuple[Mode, JobComparison, float]] = []  # with the difference
    for run in evaluation.advice:
        others = [other for other in evaluation.advice if _repeated_elsewhere(run, other)]
        for place, job in enumerate(run.jobs if others else ()):
            elsewhere_s = mean(other.jobs[place].measured_s for other in others)
            rows.append((sharing_of(run.run).mode, job, abs(elsewhere_s / job.measured_s - 1)))
    results = []
    for mode in SHARED_MODES:
        for bound in BOUNDS:
            kept = [
                (apart, abs(job.error))
                for of_mode, job, apart in rows
                if of_mode == mode and counts(evaluation.chosen, bound, job)
            ]
            if kept:
                apart, errors = zip(*kept, strict=True)
                results.append(
                    OtherHost(
                        mode=mode,
                        bound=bound,
                        n=len(kept),
                        apart=mean(apart),
                        apart_median=median(apart),
                        mape=mean(errors),
                        median=median(errors),
                    )
                )
    return tuple(results)


def _repeated_elsewhere(one: RunComparison, other: RunComparison) -> bool:
    if one.run.sharing != other.run.sharing:
        return False
    if [job.job for job in one.jobs] != [job.job for job in other.jobs]:
        return False
    return hours_apart(one.run, other.run) >= _OTHER_HOST


def coverage_on(scores: Scores, host: str, part: Part = "drawn") -> float | None:
    """Return the share of all jobs on `host` inside their 90 % intervals, in any mode."""
    rows = [row for row in scores.pooled(host, part) if row.bound == ALL]
    shares = [(row.coverage90, row.n) for row in rows if row.coverage90 is not None]
    return sum(share * n for share, n in shares) / sum(n for _, n in shares) if shares else None


def families_section(scores: Scores) -> str:
    """Return the scoreboard by mode, by degree and by host, of drawn runs and of panels."""
    words: dict[Part, str] = {"drawn": "Drawn runs:", "panels": "Panels:"}
    tables = []
    for part in PARTS:
        paced = [row for row in scores.pooled(part=part) if row.bound != ALL]
        if rows := score_cells([*scores.by_degree(part), *paced]):
            tables += [words[part], markdown(HEADINGS, rows)]
    return joined(
        "## Families left out",
        *tables,
        "We score every run drawn by a fixed seed and every run of a panel, from profiles as they "
        "were measured, on any host and day, as users have them. A GPU-bound job keeps the GPU "
        "busy for 90 % of a step alone or more. The width of an interval is a share of the "
        "predicted step. Noise is the mean absolute difference of a job between two runs with new "
        "processes; the MAPE there is that of the same jobs.",
        *remarks(scores),
        "## By host",
        hosts_table(scores),
        "MAPE of all jobs, and in parentheses of GPU-bound ones. A host is a campaign, split if "
        "the campaign ran on several processors or days. Most profiles were made on the host of "
        f"the campaign {scores.home}.",
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
    for part in PARTS:
        for host in scores.hosts(part):
            by_key = {(row.mode, row.bound): row for row in scores.pooled(host, part)}
            cells = []
            for mode in SHARED_MODES:
                whole, busy = by_key.get((mode, "all")), by_key.get((mode, "gpu"))
                suffix = f" ({percent(busy.mape)})" if busy else ""
                cells.append(percent(whole.mape) + suffix if whole else "-")
            n = sum(row.n for row in by_key.values() if row.bound == ALL)
            rows.append((host, part, str(n), *cells, percent(coverage_on(scores, host, part))))
    modes = (MODE_WORDS[mode] for mode in SHARED_MODES)
    return markdown(("host", "runs", "n", *modes, "in 90 % interval"), rows)


def other_hosts_section(rows: Sequence[OtherHost]) -> str:
    """Return the table with a heading; empty if no jobs ran on two hosts."""
    if not rows:
        return ""
    cells = [
        (
            MODE_WORDS[row.mode],
            BOUND_WORDS[row.bound],
            str(row.n),
            *map(percent, (row.apart, row.mape, row.apart_median, row.median)),
        )
        for row in rows
    ]
    return joined(
        "## The same jobs on two hosts",
        "Some job sets ran in the same way on two hosts, at least six hours apart. We compare each "
        "step with the real run on the other host, as if that were its prediction, and with this "
        "model's prediction from the profiles:",
        markdown(_ELSEWHERE_HEADINGS, cells),
    )


def other_hosts_sentence(rows: Sequence[OtherHost]) -> list[str]:
    """Return one sentence on all jobs; empty if no jobs ran on two hosts."""
    whole = [row for row in rows if row.bound == ALL]
    if not whole:
        return []
    apart = ", ".join(
        f"{percent(row.apart)} ({MODE_HEADINGS[MODE_WORDS[row.mode]]})" for row in whole
    )
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
    by_mode: dict[Mode, list[float]] = {mode: [] for mode in SHARED_MODES}
    for run in evaluation.runs:
        by_mode[sharing_of(run.run).mode] += [
            abs(job.error) for job in run.jobs if id(job) in chosen
        ]
    return GroupErrors(
        name=name,
        n=len(jobs),
        mape=float(errors.mean()),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        coverage90=float(np.mean([j.inside for j in jobs])) if evaluation.intervals else None,
        mape_by_mode={mode: float(np.mean(values)) for mode, values in by_mode.items() if values},
    )
