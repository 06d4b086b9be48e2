"""Plans for the same jobs compared: as text, rows, JSON and CSV."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from rich.console import Group, RenderableType
from rich.text import Text

from advisor.plan.objectives import OBJECTIVES, holds_one, known_cost, tied
from advisor.plan.reasons import Binding, Comparison, Limit, compared, limit_in_words, named
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.csv_tables import csv_text, range_columns
from advisor.report.documents import ComparisonDocument
from advisor.report.format import table_of

_TIE = " tie"


def comparison_report(comparison: Comparison) -> RenderableType:
    """Return what ``advisor compare`` prints."""
    standing = comparison.plans[0].standing
    answer = forecast.with_estimates_named(standing, comparison_text(comparison))
    parts: list[RenderableType] = [Text(answer, style="bold"), Text()]
    parts.append(table_of(rows_of_plans(comparison)))
    for jobs, rows in rows_of_jobs(comparison):
        indented = [row | {"": f"  {row['']}"} for row in rows]
        parts += [Text(), Text(jobs, style="bold"), table_of(indented)]
    notes = [*limits_in_words(comparison), ""]
    first = plan_names(comparison)[0]
    notes.append(
        f"On {comparison.gpu.key}. tie: equal to {first} within our error; (): 90 % intervals."
    )
    caps = {plan.prediction.power_cap_w for plan in comparison.plans}
    notes += [forecast.cap_note(cap_w) for cap_w in caps if cap_w is not None]
    notes += forecast.layout_needs(comparison, comparison.plans)
    notes.append(forecast.host_note(standing))
    return Group(*parts, Text(), *map(Text, notes))


def rows_of_plans(comparison: Comparison) -> list[dict[str, str]]:
    """Return a row for each plan, a mark before the best; the keys are the columns' names."""
    by, rows = comparison.objective, []
    for name, plan in zip(plan_names(comparison), comparison.plans, strict=True):
        mix, gain = plan.prediction, comparison.gain_over_first(plan)
        unsure = plan is not comparison.plans[0] and holds_one(gain)
        row = {
            "": f"{'>' if plan is comparison.best else ' '} {name}",
            OBJECTIVES[by].measure: forecast.shown_cost(by)(known_cost(plan, by)),
            **forecast.time_cell(plan, by),
            "gain over first": units.times(gain) + (_TIE if unsure else ""),
            **forecast.plan_cells(plan, by),
            "power": units.middle(mix.power_w, units.watts),
        }
        if any(due is not None for due in plan.deadlines_s):
            late = [mix.jobs[at].job for at in sorted(plan.late("p50"))]
            row["late"] = named(late) or "none"
        rows.append(row)
    return rows


def rows_of_jobs(comparison: Comparison) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield each job with a row for each plan; copies that differ only in their ends are one."""
    equal: dict[tuple[str, ...], list[int]] = {}
    for at, job in enumerate(comparison.plans[0].prediction.jobs):
        rows = _rows_of_jobs(comparison, [at], ends=False)
        equal.setdefault((job.job, *(cell for row in rows for cell in row.values())), []).append(at)
    for (name, *_), copies in equal.items():
        yield units.collapsed([name] * len(copies)), _rows_of_jobs(comparison, copies)


def _rows_of_jobs(
    comparison: Comparison, copies: Sequence[int], *, ends: bool = True
) -> list[dict[str, str]]:
    """A row for each plan, of a job at the positions `copies`."""
    first, at, rows = comparison.plans[0], copies[0], []
    for name, plan, bound in zip(
        plan_names(comparison), comparison.plans, comparison.bindings, strict=True
    ):
        job = plan.prediction.jobs[at]
        unsure = plan is not first and holds_one(comparison.step_over_first(plan, at))
        ends_s = [plan.ends_s[copy].p50 for copy in copies] if ends and plan.ends_s else []
        rows.append(
            {
                "": name,
                "step": units.seconds(job.step_s) + (_TIE if unsure else ""),
                "slowdown": f"{units.number(job.slowdown)}x",
                "ends after": units.durations(ends_s) if ends_s else "-",
                "memory": units.gib_of(job.memory_mib),
                "why": _limit(bound, at),
            }
        )
    return rows


def limits_in_words(comparison: Comparison) -> Iterator[str]:
    """Yield what limits each plan, then why ranges are wide; a reason that has it all is enough."""
    for name, plan, bound in zip(
        plan_names(comparison), comparison.plans, comparison.bindings, strict=True
    ):
        yield f"{name}: {limit_in_words(replace(plan.prediction, wide_because=None), bound)}"
    reasons = {plan.prediction.wide_because or "" for plan in comparison.plans}
    words = set[str]()
    for because in sorted(reasons, key=len, reverse=True):
        if not words.issuperset(own := re.findall(r"\w+", because)):
            words.update(own)
            yield because[0].upper() + because[1:].replace("; ", ";\n  ") + "."


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
    "host path": "CPU-bound",
    "SMs": "limited by the SMs",
    "own instances": "limited by its MIG instance",
}


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
        "schema": forecast.SCHEMA,
        "gpu": comparison.gpu.key,
        "compared_by": by,
        "note": comparison.note,
        **forecast.standing_document(comparison.plans[0].standing),
        "text": comparison_text(comparison),
        "best": names[comparison.plans.index(best)],
        "serial": None
        if serial is None
        else {
            "sharing": str(serial.sharing),
            "cost": asdict(known_cost(serial, by)),
        },
        "plans": [
            {
                "plan": name,
                **forecast.mix_fields(plan),
                "cost": asdict(known_cost(plan, by)),
                "gain_over_first": asdict(comparison.gain_over_first(plan)),
                "ties_first": holds_one(comparison.gain_over_first(plan)),
                "ties_best": tied(plan, best, by),
                "forbidden": forbidden,
                "binding": forecast.binding_document(bound),
                "jobs": [
                    {
                        **forecast.job_document(job),
                        "ends_s": None if plan.ends_s is None else asdict(plan.ends_s[at]),
                        "step_ties_first": holds_one(comparison.step_over_first(plan, at)),
                    }
                    for at, job in enumerate(plan.prediction.jobs)
                ],
            }
            for name, plan, forbidden, bound in zip(
                names, comparison.plans, comparison.forbidden, comparison.bindings, strict=True
            )
        ],
    }


def comparison_csv(comparison: Comparison) -> str:
    """Return a row of CSV for each plan, with the slowdown of each job."""
    return csv_text(
        {
            "plan": name,
            "sharing": str(plan.sharing),
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
    )
