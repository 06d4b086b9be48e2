"""Plans for the same jobs compared: as text, rows, JSON and CSV."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from advisor.plan.objectives import OBJECTIVES, holds_one
from advisor.plan.reasons import (
    ComparedPlan,
    Comparison,
    Limit,
    compared,
    limit_in_words,
    named,
)
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.format import csv_text, range_columns, share, table_of

_TIE, _ENDS = " tie", "ends after"
_LIMITED_BY: dict[Limit, str] = {
    "host path": "CPU-bound",
    "data loader": "limited by its data loader",
    "SMs": "limited by the SMs",
    "own instances": "limited by its MIG instance",
}


def comparison_report(comparison: Comparison) -> RenderableType:
    """Return what ``advisor compare`` prints."""
    standing, plans = comparison.standing, comparison.plans
    answer = forecast.with_estimates_named(standing, comparison_text(comparison))
    parts: list[RenderableType] = [Text(answer, style="bold"), Text()]
    parts.append(table_of(rows_of_plans(comparison)))
    for jobs, rows in rows_of_jobs(comparison):
        indented = [row | {"": f"  {row['']}"} for row in rows]
        parts += [Text(), Text(jobs, style="bold"), table_of(indented)]
    notes = [*limits_in_words(comparison), ""]
    notes.append(
        f"On {comparison.gpu.key}. tie: equal to {plans[0].plan} within the error. In "
        "parentheses: 90 % intervals."
    )
    caps = {each.forecast.prediction.power_cap_w for each in plans}
    notes += [forecast.cap_note(cap_w) for cap_w in caps if cap_w is not None]
    serial = None if comparison.serial is None else comparison.serial.forecast.sharing
    uses = [(comparison.gpu, each.forecast.sharing) for each in plans]
    notes += forecast.layout_needs(uses, serial)
    notes.append(forecast.host_note(standing))
    return Group(*parts, Text(), *map(Text, notes))


def rows_of_plans(comparison: Comparison) -> list[dict[str, str]]:
    """Return a row for each plan, a mark before the best; the keys are the columns' names."""
    by, rows = comparison.objective, []
    for each in comparison.plans:
        plan = each.forecast
        unsure = each is not comparison.plans[0] and each.ties_first
        gain = units.times(each.gain_over_first) + (_TIE if unsure else "")
        row = {
            "": f"{'>' if each is comparison.best else ' '} {each.plan}",
            **forecast.plan_cells(plan, by, each.cost, {"gain over first": gain}),
            "power": units.middle(plan.prediction.power_w, units.watts),
        }
        if any(due is not None for due in plan.deadlines_s):
            late = [plan.prediction.jobs[at].job for at in sorted(plan.late("p50"))]
            row["late"] = named(late) or "none"
        rows.append(row)
    return rows


def rows_of_jobs(comparison: Comparison) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield each job with a row for each plan; copies that differ only in their ends share one."""
    equal: dict[tuple[str, ...], list[int]] = {}
    for at, job in enumerate(comparison.plans[0].forecast.prediction.jobs):
        rows = _rows_of_jobs(comparison, [at])
        cells = [row[column] for row in rows for column in row if column != _ENDS]
        equal.setdefault((job.job, *cells), []).append(at)
    for (name, *_), copies in equal.items():
        yield units.collapsed([name] * len(copies)), _rows_of_jobs(comparison, copies)


def _rows_of_jobs(comparison: Comparison, copies: Sequence[int]) -> list[dict[str, str]]:
    """A row for each plan, of a job at the positions `copies`."""
    at, rows = copies[0], []
    for each in comparison.plans:
        job, ends_s = each.forecast.prediction.jobs[at], each.forecast.ends_s
        unsure = each is not comparison.plans[0] and holds_one(each.step_over_first[at])
        bound, why = each.binding, "no resource saturated"
        if (limit := bound.limit_of(at)) is not None:
            why = _LIMITED_BY.get(limit, f"limited by {limit}")
            why += "" if (use := bound.use_of(at)) is None else f" ({share(use)})"
        shown_s = [ends_s[copy].p50 for copy in copies] if ends_s else []
        rows.append(
            {
                "": each.plan,
                "step": units.seconds(job.step_s) + (_TIE if unsure else ""),
                "slowdown": f"{units.number(job.slowdown)}x",
                _ENDS: units.durations(shown_s) if shown_s else "-",
                "memory": units.gib_of(job.memory_mib),
                "why": f"{'alone, ' if at in bound.alone else ''}{why}",
            }
        )
    return rows


def limits_in_words(comparison: Comparison) -> Iterator[str]:
    """Yield the limit of each plan, then the reasons for wide ranges without repetition."""
    mixes = [each.forecast.prediction for each in comparison.plans]
    for each, mix in zip(comparison.plans, mixes, strict=True):
        yield f"{each.plan}: {limit_in_words(replace(mix, wide_because=None), each.binding)}"
    reasons = {mix.wide_because or "" for mix in mixes}
    words = set[str]()
    for because in sorted(reasons, key=len, reverse=True):
        if not words.issuperset(own := re.findall(r"\w+", because)):
            words.update(own)
            yield because[0].upper() + because[1:].replace("; ", ";\n  ") + "."


def comparison_text(comparison: Comparison) -> str:
    """Return the answer in a few sentences, independent of the order of the plans."""
    by, best = comparison.objective, comparison.best
    measure = forecast.shown_cost(by)
    others = sorted(
        (each for each in comparison.plans if each is not best),
        key=lambda each: (each.cost.p50, each.plan),
    )
    unsure = any(each.ties_best for each in others)
    text = f"{best.plan} {'looks' if unsure else 'is'} best: {OBJECTIVES[by].measure} "
    text += f"{measure(best.cost)}."
    if any(not each.forecast.prediction.confirmed_on_hardware for each in comparison.plans):
        text = f"Estimated: {text}"

    def behind(other: ComparedPlan) -> str:
        return compared(other.forecast, best.forecast, best.plan, by, "p50")

    text += f" {'; '.join(f'{each.plan}: {behind(each)}' for each in others)}."
    if (serial := comparison.serial) is not None:
        text += f" One after another: {measure(serial.cost)}, {behind(serial)}."
    ruled_out = [each for each in (best, *others) if each.forbidden]
    text += "".join(f" {each.plan} is not possible: {each.forbidden}." for each in ruled_out)
    if comparison.note:
        text += f" Compared by {by}: {comparison.note}."
    return text


def comparison_csv(comparison: Comparison) -> str:
    """Return a row of CSV for each plan, with the slowdown of each job."""
    return csv_text(
        {
            "plan": each.plan,
            "sharing": str(each.forecast.sharing),
            "power_cap_w": each.forecast.prediction.power_cap_w,
            **range_columns("total_time", "s", each.forecast.makespan_interval_s),
            **range_columns("gain_over_first", "", each.gain_over_first),
            **forecast.plan_columns(each.forecast),
            **{
                f"slowdown_{number}": job.slowdown
                for number, job in enumerate(each.forecast.prediction.jobs, start=1)
            },
        }
        for each in comparison.plans
    )
