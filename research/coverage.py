"""How many measured steps lie inside their 90 % intervals, in every large group of jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from advisor.learn.scores import JobComparison, sharing_of
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode
from research.evaluate import Evaluation
from research.score_tables import BOUND_WORDS, MODE_WORDS, markdown
from research.scoreboard import ALL, BOUNDS, Bound, by_host, counts
from research.steps import joined

# Fewer steps tell little of coverage: with 300, two standard errors of 90 % are 3.5 points.
_FEWEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageGroup:
    """Drawn runs and panels together; shares.

    Attributes:
        mode: None: all modes.
        where: A host or a number of jobs; `ALL`: all of them.
        low, high: The 95 % interval of the share inside; see `coverage_of`.
        width: Mean width of the 90 % intervals, as a share of the predicted step.
    """

    mode: Mode | None
    bound: Bound
    where: str
    n: int
    inside: float
    low: float | None
    high: float | None
    width: float

    @property
    def words(self) -> str:
        """Name the group in a sentence."""
        mode = "" if self.mode is None else f"{MODE_WORDS[self.mode]}, "
        jobs = "all jobs" if self.bound == ALL else f"{BOUND_WORDS[self.bound]} jobs"
        return f"{mode}{jobs}" + ("" if self.where == ALL else f", {self.where}")


def coverage_groups(evaluation: Evaluation) -> tuple[CoverageGroup, ...]:
    """Return every group of at least 300 steps, least coverage first; none without intervals."""
    if not evaluation.intervals:
        return ()
    runs = (*evaluation.runs, *evaluation.advice)
    places = dict(by_host(evaluation.chosen, runs))
    degrees = {f"{n} jobs": (n,) for n in sorted({len(run.jobs) for run in runs})}
    for name, some in {**degrees, "2 to 4 jobs": (2, 3, 4)}.items():
        places[name] = [run for run in runs if len(run.jobs) in some]
    groups = []
    for where, of_place in places.items():
        for mode in (None, *SHARED_MODES):
            of_mode = [run for run in of_place if mode in (None, sharing_of(run.run).mode)]
            for bound in BOUNDS:
                jobs = [
                    job
                    for run in of_mode
                    for job in run.jobs
                    if counts(evaluation.chosen, bound, job)
                ]
                if len(jobs) >= _FEWEST:
                    groups.append(_group(mode, bound, where, jobs))
    return tuple(sorted(groups, key=lambda group: group.inside))


def _group(
    mode: Mode | None, bound: Bound, where: str, jobs: Sequence[JobComparison]
) -> CoverageGroup:
    inside, low, high = coverage_of(jobs)
    steps_s = [job.predicted_s for job in jobs]
    return CoverageGroup(
        mode=mode,
        bound=bound,
        where=where,
        n=len(jobs),
        inside=inside,
        low=low,
        high=high,
        width=mean((step.p95 - step.p05) / step.p50 for step in steps_s),
    )


_DRAWS = 2000
_SEED = 20261121


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


def worst_sentence(groups: Sequence[CoverageGroup]) -> list[str]:
    """Name the group with the least coverage, in a sentence; empty without groups."""
    if not groups:
        return []
    worst = groups[0]
    return [
        f"We counted {len(groups)} groups of at least {_FEWEST} steps, by sharing, host, number of "
        f"jobs, and GPU- or host-bound. The least covered is {worst.words}: "
        f"{percent(worst.inside)} of {worst.n} steps lie inside their 90 % intervals."
    ]


def coverage_table(groups: Sequence[CoverageGroup]) -> str:
    """Return a line for each group, in Markdown."""
    rows = [
        (
            "all" if group.mode is None else MODE_WORDS[group.mode],
            BOUND_WORDS[group.bound],
            group.where,
            str(group.n),
            percent(group.inside),
            "-" if group.low is None else f"{percent(group.low)} to {percent(group.high)}",
            percent(group.width),
        )
        for group in groups
    ]
    headings = (
        "sharing",
        "jobs",
        "host or number of jobs",
        "n",
        "in 90 % interval",
        "95 % range of that",
        "width of it",
    )
    return markdown(headings, rows)


def coverage_section(groups: Sequence[CoverageGroup]) -> str:
    """Return the table with a heading; empty without groups."""
    if not groups:
        return ""
    return joined(
        "## Do intervals hold?",
        f"Drawn runs and panels together, in each group of at least {_FEWEST} steps, least "
        "coverage first. The range is that of 2000 draws of families with replacement, because "
        "jobs of one family have similar errors.",
        coverage_table(groups),
    )
