"""Plans for the same jobs compared: as text, JSON, CSV, and two side by side."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from advisor.plan.objectives import OBJECTIVES, holds_one, known_cost, tied
from advisor.plan.reasons import (
    Binding,
    Comparison,
    Difference,
    Limit,
    compared,
    difference,
    limit_in_words,
)
from advisor.plan.values import Forecast
from advisor.prediction.prediction import Interval, all_known
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.csv_tables import csv_text, range_columns
from advisor.report.documents import ComparisonDocument
from advisor.report.format import plain_table

_TIE = " tie"


def comparison_report(comparison: Comparison) -> RenderableType:
    """Return what ``advisor compare`` prints."""
    names, standing = plan_names(comparison), comparison.plans[0].standing
    answer = forecast.with_estimates_named(standing, comparison_text(comparison))
    parts: list[RenderableType] = [Text(answer, style="bold"), Text(), _plans_table(comparison)]
    jobs = Counter(
        (job.job, tuple(_rows_of_job(comparison, at)))
        for at, job in enumerate(comparison.plans[0].prediction.jobs)
    )
    for (job, rows), count in jobs.items():
        table = plain_table("", "step", "slowdown", "ends after", "memory", "why")
        for row in rows:
            table.add_row(*row)
        parts += [Text(), Text(units.collapsed([job] * count), style="bold"), table]
    parts.append(Text())
    for name, plan, bound in zip(names, comparison.plans, comparison.bindings, strict=True):
        parts.append(Text(f"{name}: {limit_in_words(plan.prediction, bound)}"))
    notes = [
        f"On {comparison.gpu.key}. tie: equal to {names[0]} within our error; (): 90 % intervals."
    ]
    caps = {plan.prediction.power_cap_w for plan in comparison.plans}
    notes += [forecast.cap_note(cap_w) for cap_w in caps if cap_w is not None]
    notes.append(forecast.host_note(standing))
    return Group(*parts, Text(), *map(Text, notes))


def _plans_table(comparison: Comparison) -> RenderableType:
    """A line for each plan, a mark before the best."""
    by = comparison.objective
    table = plain_table(
        "", OBJECTIVES[by].measure, "gain over first", "memory", "energy", "power", "slowest job"
    )
    for name, plan in zip(plan_names(comparison), comparison.plans, strict=True):
        mix, gain = plan.prediction, comparison.gain_over_first(plan)
        unsure = plan is not comparison.plans[0] and holds_one(gain)
        table.add_row(
            f"{'>' if plan is comparison.best else ' '} {name}",
            forecast.shown_cost(by)(known_cost(plan, by)),
            units.times(gain) + (_TIE if unsure else ""), units.gib_of(mix.memory_total_mib),
            units.middle(plan.energy_j, units.joules), units.middle(mix.power_w, units.watts),
            f"{units.number(max(job.slowdown for job in mix.jobs))}x",
        )  # fmt: skip
    return table


def _rows_of_job(comparison: Comparison, at: int) -> Iterator[tuple[str, ...]]:
    """A row for each plan: the job at the position `at` under it."""
    names, first = plan_names(comparison), comparison.plans[0]
    for name, plan, bound in zip(names, comparison.plans, comparison.bindings, strict=True):
        job = plan.prediction.jobs[at]
        unsure = plan is not first and comparison.step_over_first(plan, at).within_error
        ends_s = None if plan.ends_s is None else plan.ends_s[at]
        yield (
            f"  {name}", units.seconds(job.step_s) + (_TIE if unsure else ""),
            f"{units.number(job.slowdown)}x", units.middle(ends_s, units.seconds),
            units.gib_of(job.memory_mib), _limit(bound, at),
        )  # fmt: skip


def comparison_text(comparison: Comparison) -> str:
    """Return the answer in a few sentences, independent of the order of the plans."""
    by, best = comparison.objective, comparison.best
    measure, names = forecast.shown_cost(by), plan_names(comparison)
    ranked = sorted(
        zip(names, comparison.plans, comparison.forbidden, strict=True),
        key=lambda each: (each[1] is not best, known_cost(each[1], by).p50, each[0]),
    )
    (name, *_), *others = ranked
    unsure = any(tied(plan, best, by) for _, plan, _ in others)
    text = f"{name} {'looks' if unsure else 'is'} best: {OBJECTIVES[by].measure} "
    text += f"{measure(known_cost(best, by))}."
    if any(not plan.prediction.confirmed_on_hardware for plan in comparison.plans):
        text = f"Estimated: {text}"
    behind = [f"{other} is {compared(plan, best, 'it', by, 'p50')}" for other, plan, _ in others]
    text += f" {'; '.join(behind)}."
    if (serial := comparison.serial) is not None:
        text += (
            f" One after another takes {measure(known_cost(serial, by))}, "
            f"{compared(serial, best, 'it', by, 'p50')}."
        )
    text += "".join(f" {other} is no plan: {why}." for other, _, why in ranked if why)
    if comparison.note:
        text += f" Compared by {by}: {comparison.note}."
    return text


_LIMITED_BY: dict[Limit, str] = {
    "host path": "CPU-bound", "SMs": "limited by the SMs",
    "own instances": "limited by its MIG instance",
}  # fmt: skip


def _limit(bound: Binding, job: int) -> str:
    limit, use = bound.limit_of(job), bound.use_of(job)
    alone = "alone, " if job in bound.alone else ""
    if limit is None:
        return f"{alone}no resource saturated"
    used = "" if use is None else f" ({use:.0%})"
    return f"{alone}{_LIMITED_BY.get(limit, f'limited by {limit}')}{used}"


def plan_names(comparison: Comparison) -> tuple[str, ...]:
    """Return the names of the plans: how they share, and their power caps."""
    caps_w = (plan.prediction.power_cap_w for plan in comparison.plans)
    return tuple(
        str(plan.sharing) + ("" if cap_w is None else f" at {units.number(cap_w)} W")
        for plan, cap_w in zip(comparison.plans, caps_w, strict=True)
    )


def comparison_document(comparison: Comparison) -> ComparisonDocument:
    """Return what ``advisor compare --json`` prints."""
    by, best, serial = comparison.objective, comparison.best, comparison.serial
    names = plan_names(comparison)
    return {
        "schema": forecast.SCHEMA, "gpu": comparison.gpu.key, "compared_by": by,
        "note": comparison.note, **forecast.standing_document(comparison.plans[0].standing),
        "text": comparison_text(comparison), "best": names[comparison.plans.index(best)],
        "serial": None if serial is None else {
            "sharing": str(serial.sharing), "cost": asdict(known_cost(serial, by)),
        },
        "plans": [
            {
                "plan": name, **forecast.mix_fields(plan),
                "cost": asdict(known_cost(plan, by)),
                "gain_over_first": asdict(comparison.gain_over_first(plan)),
                "ties_first": holds_one(comparison.gain_over_first(plan)),
                "ties_best": tied(plan, best, by), "forbidden": forbidden,
                "binding": forecast.binding_document(bound),
                "jobs": [
                    {
                        **forecast.job_document(job),
                        "ends_s": None if plan.ends_s is None else asdict(plan.ends_s[at]),
                        "step_ties_first": comparison.step_over_first(plan, at).within_error,
                    }
                    for at, job in enumerate(plan.prediction.jobs)
                ],
            }
            for name, plan, forbidden, bound in zip(
                names, comparison.plans, comparison.forbidden, comparison.bindings, strict=True
            )
        ],
    }  # fmt: skip


def comparison_csv(comparison: Comparison) -> str:
    """Return a row of CSV for each plan, with the slowdown of each job."""
    return csv_text(
        {
            "plan": name, "sharing": str(plan.sharing),
            "power_cap_w": plan.prediction.power_cap_w,
            **range_columns("total_time", "s", plan.makespan_interval_s),
            **range_columns("gain_over_first", "", comparison.gain_over_first(plan)),
            **forecast.plan_columns(plan.prediction, plan.energy_j),
            **{
                f"slowdown_{number}": job.slowdown
                for number, job in enumerate(plan.prediction.jobs, start=1)
            },
        }
        for name, plan in zip(plan_names(comparison), comparison.plans, strict=True)
    )  # fmt: skip


Cells = tuple[str, str, str, str]
"""Name of a row, cells of the first and the second plan, and the change."""

ComparisonSection = tuple[str, str, tuple[Cells, ...]]
"""A job or all jobs, the differences between two plans for it with their reasons, and its rows."""

_LEAST_CHANGE = 0.005  # smaller differences would be written as 0 %


def side_by_side(comparison: Comparison) -> list[ComparisonSection]:
    """Return a section for all jobs, then one for each job; copies with equal cells share one."""
    first, second = comparison.plans
    same_way = first.sharing == second.sharing

    def row(name: str, shown: Callable[[Interval], str], *values: Interval | None) -> Cells:
        if (pair := all_known(values)) is None:
            one, other = ("" if each is None else shown(each) for each in values)
            return name, one or units.NOT_MEASURED, other or units.NOT_MEASURED, ""
        change = difference(pair[0], pair[1], same_way=same_way)
        return name, shown(pair[0]), shown(pair[1]), _change_text(change)

    first_mix, second_mix = first.prediction, second.prediction
    rows = [
        row("total time", units.seconds, first.makespan_interval_s, second.makespan_interval_s),
        ("memory", units.held(first_mix), units.held(second_mix), ""),
        row("power", units.watts, first_mix.power_w, second_mix.power_w),
        row("energy until then", units.joules, first.energy_j, second.energy_j),
    ]
    if any(due is not None for due in first.deadlines_s):
        rows.append(("deadlines", _late(first), _late(second), ""))
    rows.append(("based on", forecast.basis(first_mix), forecast.basis(second_mix), ""))
    parts = []
    for at, (one, other) in enumerate(zip(first_mix.jobs, second_mix.jobs, strict=True)):
        slowdowns = forecast.slowdown(one), forecast.slowdown(other)
        cells = [row("times as long as alone", units.times, *slowdowns)]
        if first.ends_s is not None and second.ends_s is not None:
            cells.append(row("ends after", units.seconds, first.ends_s[at], second.ends_s[at]))
        cells.append(row("memory", units.gib, one.memory_interval_mib, other.memory_interval_mib))
        parts.append((one.job, f"{job_reason(comparison, at)}.", tuple(cells)))
    return [("All jobs", comparison_text(comparison), tuple(rows)), *dict.fromkeys(parts)]


def _late(plan: Forecast) -> str:
    late = [plan.prediction.jobs[at].job for at in sorted(plan.late("p50"))]
    return f"missed by {', '.join(late)}" if late else "all kept"


def _change_text(value: Difference) -> str:
    """The difference in per cent, with ``?`` if it is within our error."""
    if abs(value.change) < _LEAST_CHANGE:
        return "same"
    return f"{value.change:+.0%}" + (" ?" if value.within_error else "")


def job_reason(comparison: Comparison, job: int) -> str:
    """Return why the pace of a job differs between two plans, independent of their order."""
    step_s = comparison.step_over_first(comparison.plans[1], job)
    limits = [_limit(bound, job) for bound in comparison.bindings]
    pairs = list(zip(plan_names(comparison), limits, strict=True))
    if step_s.less is None:
        pairs.sort()
        lead = "no difference in pace beyond our error"
    else:
        if step_s.less == 0:
            pairs.reverse()
        faster = max(step_s.first.p50 / step_s.second.p50, step_s.second.p50 / step_s.first.p50)
        lead = f"{units.number(faster)}x as fast under {pairs[1][0]}"
    return "; ".join([lead, *(f"{name}: {limit}" for name, limit in pairs)])
