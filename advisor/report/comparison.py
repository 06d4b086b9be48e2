"""Two plans side by side, as text and as JSON: the answer, what limits them, and each job."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.reasons import (
    Binding,
    Comparison,
    Difference,
    JobChange,
    Limit,
    compared,
    limit_in_words,
)
from advisor.plan.values import Forecast
from advisor.prediction.prediction import LEVELS, Interval, JobPrediction
from advisor.report import format as units
from advisor.report.documents import SCHEMA, binding_document, standing_document
from advisor.report.forecast import basis, cap_note, host_note, shown_cost, with_estimates_named

if TYPE_CHECKING:
    from rich.console import RenderableType

    pass


_WIDTHS = (12, 25, 25, 8)
_SAME = "same"
# Smaller differences would be written as 0 %.
_SEEN = 0.005


def comparison_text(found: Comparison) -> str:
    """The answer in a sentence or two, independent of the order of the plans."""
    pairs = sorted(
        zip(plan_names(found), _costs(found), found.forbidden, strict=True),
        key=lambda pair: (pair[1].p50, pair[0]),
    )
    (better, less, _), (worse, more, _) = pairs
    measure = shown_cost(found.objective)
    numbers = f"({OBJECTIVES[found.objective].measure}: {measure(less)} and {measure(more)})"
    ahead = f"{more.p50 / less.p50 - 1:.0%} ahead of {worse}"
    if change_text(found.cost) == _SAME:
        said = [f"{better} and {worse} come out the same {numbers}."]
    elif found.alike and not found.cost.within_error:
        said = [f"{better} is {ahead}, since both err alike {numbers}."]
    elif not found.cost.within_error:
        said = [f"{better} is {ahead}, more than our error {numbers}."]
    else:
        said = [f"{better} looks {ahead}, within our error: they may be equal {numbers}."]
    if any(not plan.prediction.confirmed_on_hardware for plan in found.plans):
        said[0] = f"Estimated: {said[0]}"
    said += _over_serial(found)
    said += [f"{name} is no plan: {why}." for name, _, why in pairs if why]
    if found.note:
        said.append(f"Compared by {found.objective}: {found.note}.")
    return " ".join(said)


def _over_serial(found: Comparison) -> Iterator[str]:
    """Whether each plan is worth it: what it costs beside one after another."""
    if found.serial is None:
        return
    alone = known_cost(found.serial, found.objective)
    over = [
        f"{name} is {compared(cost, alone, 'that', 'p50')}"
        for name, cost in zip(plan_names(found), _costs(found), strict=True)
    ]
    yield f"One after another takes {shown_cost(found.objective)(alone)}: {'; '.join(over)}."


def change_text(value: Difference) -> str:
    """Difference in per cent, with ``?`` where it is within our error."""
    if abs(value.change) < _SEEN:
        return _SAME
    return f"{value.change:+.0%}" + (" ?" if value.within_error else "")


def job_reason(found: Comparison, change: JobChange) -> str:
    """Why a job's pace changes, or that it does not; independent of the order of the plans."""
    said = [_limit(bound, change.number - 1) for bound in found.bindings]
    pairs = list(zip(plan_names(found), said, strict=True))
    less = change.step_s.less
    if less is not None:
        pairs = [pairs[1 - less], pairs[less]]
        faster = change.slowdown[1 - less] / change.slowdown[less]
        lead = f"{units.number(faster)}x as fast under {pairs[1][0]}"
    else:
        pairs.sort(key=lambda pair: pair[0])
        lead = "no difference in pace beyond our error"
    return "; ".join([lead, *(f"{name}: {limit}" for name, limit in pairs)])


def plan_names(found: Comparison) -> tuple[str, str]:
    """Names of the two plans: how they share, and their power caps."""
    first, second = map(_name, found.plans)
    return first, second


def comparison_report(found: Comparison) -> "RenderableType":
    """What ``advisor explain`` prints."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    names = plan_names(found)
    answer = with_estimates_named(found.plans[0].standing, comparison_text(found))
    parts: list[RenderableType] = [Text(answer, style="bold"), Text()]
    for name, plan, bound in zip(names, found.plans, found.bindings, strict=True):
        parts.append(Text(f"{name}: {limit_in_words(plan.prediction, bound)}"))
    parts += [Text(), _text_row(names), *(_text_row(names, row) for row in _whole_rows(found))]
    for title, rows, reason in _jobs(found):
        parts += [Text(), Text(title), *(_text_row(names, row) for row in rows)]
        parts.append(Padding(reason, (0, 0, 0, 4), style="dim", expand=False))
    parts += [Text(), *(Text(line) for line in _notes(found))]
    return Group(*parts)


def comparison_document(found: Comparison) -> dict[str, Any]:
    """What ``advisor explain --json`` prints; pairs are of the first plan and of the second."""
    less = found.cost.less
    return {
        "schema": SCHEMA,
        "gpu": found.gpu.key,
        "compared_by": found.objective,
        "note": found.note,
        **standing_document(found.plans[0].standing),
        "text": comparison_text(found),
        "better": None if less is None else plan_names(found)[less],
        "cost": _difference(found.cost),
        "serial": None
        if found.serial is None
        else {
            "sharing": str(found.serial.sharing),
            "cost": asdict(known_cost(found.serial, found.objective)),
        },
        "plans": [_plan(found, number) for number in (0, 1)],
        "power_w": _difference(found.power_w),
        "jobs": [_job(found, change) for change in found.jobs],
    }


def _plan(found: Comparison, number: int) -> dict[str, Any]:
    prediction = found.plans[number].prediction
    return {
        "sharing": str(prediction.sharing),
        "power_cap_w": prediction.power_cap_w,
        "confirmed_on_hardware": prediction.confirmed_on_hardware,
        "estimated_from": prediction.estimated_from,
        "forbidden": found.forbidden[number],
        "binding": binding_document(found.bindings[number]),
    }


def _job(found: Comparison, change: JobChange) -> dict[str, Any]:
    return {
        "number": change.number,
        "job": change.job,
        "step_s": _difference(change.step_s),
        "ends_s": _difference(change.ends_s),
        "memory_mib": _difference(change.memory_mib),
        "energy_step_j": _difference(change.energy_step_j),
        "slowdown": list(change.slowdown),
        "oom_probability": list(change.oom_probability),
        "limits": list(change.limits),
        "reason": job_reason(found, change),
    }


def _difference(value: Difference | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {
        "first": asdict(value.first),
        "second": asdict(value.second),
        "change": value.change,
        "within_error": value.within_error,
    }


def _name(plan: Forecast) -> str:
    cap_w = plan.prediction.power_cap_w
    return str(plan.sharing) + ("" if cap_w is None else f" at {units.number(cap_w)} W")


def _costs(found: Comparison) -> tuple[Interval, Interval]:
    return found.cost.first, found.cost.second


def _limit(bound: Binding, job: int) -> str:
    limit, use = bound.limit_of(job), bound.use_of(job)
    alone = "alone, " if job in bound.alone else ""
    if limit is None:
        return f"{alone}nothing is full"
    used = "" if use is None else f" ({use:.0%})"
    return f"{alone}held back by {_WORDS.get(limit, limit)}{used}"


_WORDS: dict[Limit, str] = {
    "host path": "its host path",
    "SMs": "the SMs",
    "own instances": "its instance",
    "MPS limits": "MPS limits",
}


def _whole_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    yield _text_cells("in all", found.cost, shown_cost(found.objective))
    if found.power_w is not None:
        yield _text_cells("power", found.power_w, units.watts)


def _jobs(found: Comparison) -> Iterator[tuple[str, tuple[tuple[str, ...], ...], str]]:
    """Title, rows and reason for each job; jobs of which the same is said share one."""
    same: dict[tuple[str, tuple[tuple[str, ...], ...], str], int] = {}
    for change in found.jobs:
        key = change.job, tuple(_job_rows(change)), job_reason(found, change)
        same[key] = same.get(key, 0) + 1
    for (job, rows, reason), count in same.items():
        yield units.collapsed([job] * count), rows, reason


def _job_rows(change: JobChange) -> Iterator[tuple[str, ...]]:
    yield _text_cells("step", change.step_s, units.seconds)
    yield ("slowdown", *(f"{units.number(each)}x" for each in change.slowdown), "")
    if change.ends_s is not None:
        yield _text_cells("ends after", change.ends_s, units.seconds)
    yield _text_cells("memory", change.memory_mib, units.gib)
    if change.energy_step_j is not None:
        yield _text_cells("energy/step", change.energy_step_j, units.joules)
    yield ("risk of OOM", *(units.share(each) for each in change.oom_probability), "")


def _text_cells(label: str, value: Difference, shown: Callable[[Interval], str]) -> tuple[str, ...]:
    return label, shown(value.first), shown(value.second), change_text(value)


def _text_row(names: tuple[str, str], cells: tuple[str, ...] = ()) -> "RenderableType":
    """A line of the table; without `cells` the line of headings."""
    from advisor.report.format import FixedRow

    return FixedRow(cells, ("", *names, "change"), _WIDTHS)


def _notes(found: Comparison) -> Iterator[str]:
    yield "?: within our error. In parentheses: nine of ten measurements should fall there."
    caps = {plan.prediction.power_cap_w for plan in found.plans}
    yield from (cap_note(cap_w) for cap_w in caps if cap_w is not None)
    yield host_note(found.plans[0].standing)


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
