"""Two plans side by side: a table for the whole GPU and one for each job, with what differs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from advisor.plan.comparison import Comparison, Difference, JobChange
from advisor.plan.recommendation import Forecast
from advisor.prediction.interval import LEVELS, Interval
from advisor.prediction.mix_prediction import JobPrediction
from advisor.report import units
from advisor.report.comparison_text import change_text, comparison_text, job_reason
from advisor.report.headline import basis

Cells = tuple[str, str, str, str]
"""What a row is of, under the first plan, under the second, and the change."""


@dataclass(frozen=True, slots=True)
class ComparisonSection:
    """What changes between two plans for all jobs, or for one job or its copies.

    Attributes:
        title: Whom the section is about.
        said: What differs and why, in words.
    """

    title: str
    said: str
    rows: tuple[Cells, ...]


def side_by_side(found: Comparison) -> list[ComparisonSection]:
    """A section for all jobs, then one for each job; copies of which the same is said share one."""
    mixes = zip(*(each.prediction.jobs for each in found.plans), strict=True)
    parts = [
        ComparisonSection(job.job, f"{job_reason(found, job)}.", tuple(_of_job(found, job, both)))
        for job, both in zip(found.jobs, mixes, strict=True)
    ]
    whole = ComparisonSection("All jobs", comparison_text(found), tuple(_whole(found)))
    return [whole, *dict.fromkeys(parts)]


def _whole(found: Comparison) -> Iterator[Cells]:
    (first, second), row = found.plans, partial(_row, alike=found.alike)
    yield row("until all are done", units.seconds, first.makespan_interval_s,
              second.makespan_interval_s)  # fmt: skip
    yield "memory", units.held(first.prediction), units.held(second.prediction), ""
    yield row("power", units.watts, first.prediction.power_w, second.prediction.power_w)
    yield row("energy until then", units.joules, first.energy_j, second.energy_j)
    if any(due is not None for due in first.deadlines_s):
        yield "deadlines", _late(first), _late(second), ""
    yield "stands on", basis(first.prediction), basis(second.prediction), ""


def _late(plan: Forecast) -> str:
    late = [plan.prediction.jobs[at].job for at in sorted(plan.late("p50"))]
    return f"missed by {', '.join(late)}" if late else "all kept"


def _of_job(
    found: Comparison, job: JobChange, both: tuple[JobPrediction, JobPrediction]
) -> Iterator[Cells]:
    first, second = (Interval(*map(each.slowdown_at, LEVELS)) for each in both)
    yield _cells("times as long as alone", units.times, Difference(first, second, found.alike))
    if job.ends_s is not None:
        yield _cells("ends after", units.seconds, job.ends_s)
    yield _cells("memory", units.gib, job.memory_mib)


def _row(
    name: str,
    shown: Callable[[Interval | None], str],
    first: Interval | None,
    second: Interval | None,
    *,
    alike: bool,
) -> Cells:
    if first is None or second is None:
        return name, shown(first), shown(second), ""
    return _cells(name, shown, Difference(first, second, alike))


def _cells(name: str, shown: Callable[[Interval], str], found: Difference) -> Cells:
    return name, shown(found.first), shown(found.second), change_text(found)
