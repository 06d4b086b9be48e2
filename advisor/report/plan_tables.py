"""Tables of plans: the ranking on a screen or in full, and two plans compared."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from csv import writer
from dataclasses import asdict
from io import StringIO
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from advisor.errors import InvalidInput, counted, is_or_are
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.reasons import (
    Binding,
    Comparison,
    Difference,
    JobChange,
    Limit,
    compared,
    difference,
    limit_in_words,
)
from advisor.plan.values import Forecast, Plan, Recommendation
from advisor.prediction.prediction import LEVELS, Interval, all_known
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.format import FittedTable, FixedRow, plain_table
from advisor.report.recommendation import caveats, hints, instruction, outcome
from advisor.sharing import Mode
from advisor.sharing.groups import kind_of

_PLAN_HEADINGS, _PLAN_WIDTHS = ("", "epoch (shared)", "memory", "gain over serial"), (2, 26, 26, 18)
_COMPARISON_WIDTHS = (12, 25, 25, 8)
# The ways to share, each with the modes of its plans, the simplest first.
WAYS: Mapping[str, Sequence[Mode]] = {
    "one after another": ("serial",), "time slicing": ("naive",), "MPS": ("mps",),
    "in a queue": ("queue",), "MPS with limits": ("mps-limits",), "groups in turn": ("phases",),
    "MIG": ("mig", "hybrid"),
}  # fmt: skip


def plans_report(
    advised: Recommendation, top: int | None = None, *, command: str = "", details: bool = False
) -> RenderableType:
    """Return the answer: what to do, each way to share at its best, how to start it, what to know.

    `command` is the line that says how to start it. With `top`, the best so many plans instead of
    the ways. With `details`, every plan in full, too, and how the plans were searched.
    """
    first = f"{instruction(advised.best, [job.name for job in advised.jobs])}."
    notes = list(caveats(advised))
    parts: list[RenderableType] = [Text(first, style="bold"), Text(outcome(advised))]
    if len(advised.jobs) > 1:
        named = best_of_ways(advised)
        if top is not None:
            named = [(forecast.plan_name(advised, plan), plan) for plan in advised.plans[:top]]
        parts += [Text(), _ways_table(advised, named)]
    if command:
        parts.append(Text(command))
    if details:
        letters = forecast.letters_of(advised.jobs)
        parts += [*map(Text, (*notes, *hints(advised))), Text()]
        parts += _in_full(advised, advised.plans[:top], letters)
    else:
        parts += map(Text, (f"{notes[0]} More: --details.", *hints(advised)))
    return Group(*parts)


def best_of_ways(advised: Recommendation) -> list[tuple[str, Plan]]:
    """Return the best plan of each way to share that has one, the simplest way first."""
    best = []
    for way, modes in WAYS.items():
        own = (plan for plan in advised.plans if kind_of(plan.sharing) in modes)
        if (plan := next(own, None)) is not None:
            best.append((way, plan))
    return best


def _ways_table(advised: Recommendation, named: Sequence[tuple[str, Plan]]) -> FittedTable:
    """A line for each plan, a mark before the best; the heading says if all are estimated."""
    measure = OBJECTIVES[advised.ranked_by].measure
    measured = any(plan.prediction.confirmed_on_hardware for _, plan in named)
    first = "" if measured else "  all estimated"
    table = plain_table(first, measure, "gain", "memory", "energy", "slowest job")
    for name, plan in named:
        mix, energy_j = plan.prediction, plan.energy_j
        mark = ">" if plan is advised.best else " "
        estimated = ", estimated" if measured and not mix.confirmed_on_hardware else ""
        table.add_row(
            f"{mark} {name}{estimated}", _cost(advised, plan),
            units.times(forecast.gain(advised, plan)), units.gib_of(mix.memory_total_mib),
            "-" if energy_j is None else units.joules(Interval(*[energy_j.p50] * 3)),
            f"{units.number(max(job.slowdown for job in mix.jobs))}x",
        )  # fmt: skip
    return table


def plans_csv(advised: Recommendation) -> str:
    """Return a table of all plans as CSV, best first."""
    ways = {mode: way for way, modes in WAYS.items() for mode in modes}
    return csv_of_plans(
        (
            plan.rank, ways[kind_of(plan.sharing)], str(plan.sharing), plan.makespan_interval_s,
            forecast.gain(advised, plan), plan.prediction.memory_total_mib,
            None if plan.energy_j is None else plan.energy_j.p50,
            max(job.slowdown for job in plan.prediction.jobs), plan.prediction.oom_probability,
            not plan.prediction.confirmed_on_hardware,
        )
        for plan in advised.plans
    )  # fmt: skip


CsvRow = tuple[
    int, str, str, Interval | None, Interval, float, float | None, float, float, bool
]  # fmt: skip
"""Rank, way, sharing, total time, gain, memory, energy, worst slowdown, memory risk, estimated."""


def csv_of_plans(plans: Iterable[CsvRow]) -> str:
    """Return a row of CSV for each of `plans`; times are seconds, shares 0..1."""
    levels = [f"{name}_{level}" for name in ("total_time_s", "gain") for level in LEVELS]
    file = StringIO()
    table = writer(file, lineterminator="\n")
    table.writerow((
        "rank", "way", "sharing", *levels, "memory_mib", "energy_j", "worst_slowdown",
        "oom_probability", "estimated",
    ))  # fmt: skip
    for rank, way, sharing, total_s, gain, *others in plans:
        ends_s = [None if total_s is None else total_s.at(level) for level in LEVELS]
        table.writerow((rank, way, sharing, *ends_s, *map(gain.at, LEVELS), *others))
    return file.getvalue()


def _cost(advised: Recommendation, plan: Plan) -> str:
    by = advised.ranked_by
    return forecast.shown_cost(by)(known_cost(plan, by))


def _in_full(
    advised: Recommendation, shown: Sequence[Plan], letters: forecast.Letters
) -> Iterator[RenderableType]:
    yield from (Text(f"{letter}  {job}") for letter, job in letters.values())
    yield Text()
    yield FixedRow((), _PLAN_HEADINGS, _PLAN_WIDTHS)
    for plan in shown:
        yield Text(f"{plan.rank}  {forecast.plan_name(advised, plan)}", style="bold")
        epochs = tuple(
            f"{units.collapsed([letters[each.job][0] for each in same])}  {forecast.epoch(same[0])}"
            for same in forecast.equal_jobs(plan.prediction.jobs)
        )
        memory = forecast.memory_held(plan).replace(" of ", "\nof ", 1)
        cells = ("", epochs, memory, units.times(forecast.gain(advised, plan)))
        yield FixedRow(cells, _PLAN_HEADINGS, _PLAN_WIDTHS)
        yield Padding(plan.why, (0, 0, 1, 4), style="dim", expand=False)
    if len(advised.plans) > len(shown):
        more = counted(len(advised.plans) - len(shown), "more plan")
        yield Text(f"{more}: --top {len(advised.plans)}.")
    yield from (Text(f"Left out: {each.sharing}: {each.why}.") for each in advised.left_out)
    if advised.searched:
        yield Text(f"Searched: {advised.searched}.")
    yield Text(forecast.bounds_note(advised))
    yield Text("`--commands 1` prints the shell commands of plan 1.")


def plan_commands(advised: Recommendation, rank: int) -> str:
    """Return the shell lines of the plan at `rank`.

    Raises:
        InvalidInput: There is no such plan.
    """
    if not 1 <= rank <= (plans := len(advised.plans)):
        raise InvalidInput(
            f"there is no plan {rank}; there {is_or_are(plans)} {counted(plans, 'plan')}."
        )
    return "\n".join(advised.plans[rank - 1].commands)


def comparison_report(comparison: Comparison) -> RenderableType:
    """Return what ``advisor explain`` prints."""
    names, shown = plan_names(comparison), forecast.shown_cost(comparison.objective)

    def row(cells: Sequence[str] = ()) -> FixedRow:
        return FixedRow(cells, ("", *names, "change"), _COMPARISON_WIDTHS)

    standing = comparison.plans[0].standing
    answer = forecast.with_estimates_named(standing, comparison_text(comparison))
    parts: list[RenderableType] = [Text(answer, style="bold"), Text()]
    for name, plan, bound in zip(names, comparison.plans, comparison.bindings, strict=True):
        parts.append(Text(f"{name}: {limit_in_words(plan.prediction, bound)}"))
    parts += [Text(), row(), row(_cells("in all", shown, comparison.cost))]
    if comparison.power_w is not None:
        parts.append(row(_cells("power", units.watts, comparison.power_w)))
    copies = Counter(
        (job.job, tuple(_rows_of_job(job)), job_reason(comparison, job)) for job in comparison.jobs
    )
    for (job, rows, reason), count in copies.items():
        parts += [Text(), Text(units.collapsed([job] * count)), *map(row, rows)]
        parts.append(Padding(reason, (0, 0, 0, 4), style="dim", expand=False))
    notes = [f"On {comparison.plans[0].prediction.gpu}. ?: within our error; (): 90 % intervals."]
    caps = {plan.prediction.power_cap_w for plan in comparison.plans}
    notes += [forecast.cap_note(cap_w) for cap_w in caps if cap_w is not None]
    notes.append(forecast.host_note(standing))
    return Group(*parts, Text(), *map(Text, notes))


def comparison_text(comparison: Comparison) -> str:
    """Return the answer in a sentence or two, independent of the order of the plans."""
    cost, measure = comparison.cost, forecast.shown_cost(comparison.objective)
    names, costs = plan_names(comparison), (comparison.cost.first, comparison.cost.second)
    pairs = sorted(
        zip(names, costs, comparison.forbidden, strict=True),
        key=lambda pair: (pair[1].p50, pair[0]),
    )
    (better, less, _), (worse, more, _) = pairs
    numbers = f"({OBJECTIVES[comparison.objective].measure}: {measure(less)} and {measure(more)})"
    ahead = f"{more.p50 / less.p50 - 1:.0%} ahead of {worse}"
    if change_text(cost) == _SAME:
        text = f"{better} and {worse} come out the same {numbers}."
    elif cost.within_error:
        text = f"{better} looks {ahead}, within our error: they are statistically tied {numbers}."
    else:
        why = "because both have the same error" if comparison.same_way else "more than our error"
        text = f"{better} is {ahead}, {why} {numbers}."
    if any(not plan.prediction.confirmed_on_hardware for plan in comparison.plans):
        text = f"Estimated: {text}"
    if comparison.serial is not None:
        serial, by = comparison.serial, comparison.objective
        alone = known_cost(serial, by)
        over = (
            f"{name} is {compared(plan, serial, 'that', by, 'p50')}"
            for name, plan in zip(names, comparison.plans, strict=True)
        )
        text += f" One after another takes {measure(alone)}: {'; '.join(over)}."
    text += "".join(f" {name} is no plan: {why}." for name, _, why in pairs if why)
    if comparison.note:
        text += f" Compared by {comparison.objective}: {comparison.note}."
    return text


_SAME = "same"
_LEAST_CHANGE = 0.005  # smaller differences would be written as 0 %


def change_text(value: Difference) -> str:
    """Return the difference in per cent, with ``?`` if it is within our error."""
    if abs(value.change) < _LEAST_CHANGE:
        return _SAME
    return f"{value.change:+.0%}" + (" ?" if value.within_error else "")


def job_reason(comparison: Comparison, change: JobChange) -> str:
    """Return why a job's pace changes, or that it does not, independent of the plans' order."""
    limits = [_limit(bound, change.number - 1) for bound in comparison.bindings]
    pairs = list(zip(plan_names(comparison), limits, strict=True))
    less = change.step_s.less
    if less is not None:
        pairs = [pairs[1 - less], pairs[less]]
        faster = change.slowdown[1 - less] / change.slowdown[less]
        lead = f"{units.number(faster)}x as fast under {pairs[1][0]}"
    else:
        pairs.sort(key=lambda pair: pair[0])
        lead = "no difference in pace beyond our error"
    return "; ".join([lead, *(f"{name}: {limit}" for name, limit in pairs)])


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


def plan_names(comparison: Comparison) -> tuple[str, str]:
    """Return the names of the two plans: how they share, and their power caps."""

    def name(plan: Forecast) -> str:
        cap_w = plan.prediction.power_cap_w
        return str(plan.sharing) + ("" if cap_w is None else f" at {units.number(cap_w)} W")

    return name(comparison.plans[0]), name(comparison.plans[1])


Cells = tuple[str, str, str, str]
"""Name of a row, cells of the first and the second plan, and the change."""


def _cells(name: str, shown: Callable[[Interval], str], value: Difference) -> Cells:
    return name, shown(value.first), shown(value.second), change_text(value)


def _rows_of_job(change: JobChange) -> Iterator[Cells]:
    yield _cells("step", units.seconds, change.step_s)
    first, second = change.slowdown
    yield "slowdown", f"{units.number(first)}x", f"{units.number(second)}x", ""
    if change.ends_s is not None:
        yield _cells("ends after", units.seconds, change.ends_s)
    yield _cells("memory", units.gib, change.memory_mib)
    if change.energy_step_j is not None:
        yield _cells("energy/step", units.joules, change.energy_step_j)
    first, second = change.oom_probability
    yield "risk of OOM", units.share(first), units.share(second), ""


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return what ``advisor explain --json`` prints; pairs are first plan, second plan."""
    less, serial = comparison.cost.less, comparison.serial
    return {
        "schema": forecast.SCHEMA, "gpu": comparison.gpu.key, "compared_by": comparison.objective,
        "note": comparison.note, **forecast.standing_document(comparison.plans[0].standing),
        "text": comparison_text(comparison),
        "better": None if less is None else plan_names(comparison)[less],
        "cost": _difference(comparison.cost),
        "serial": None if serial is None else {
            "sharing": str(serial.sharing),
            "cost": asdict(known_cost(serial, comparison.objective)),
        },
        "plans": [
            {
                "sharing": str(plan.prediction.sharing), "power_cap_w": plan.prediction.power_cap_w,
                "confirmed_on_hardware": plan.prediction.confirmed_on_hardware,
                "estimated_from": plan.prediction.estimated_from, "forbidden": forbidden,
                "binding": forecast.binding_document(bound),
            }
            for plan, forbidden, bound in zip(
                comparison.plans, comparison.forbidden, comparison.bindings, strict=True
            )
        ],
        "power_w": _difference(comparison.power_w),
        "jobs": [
            {
                "number": change.number, "job": change.job, "step_s": _difference(change.step_s),
                "ends_s": _difference(change.ends_s), "memory_mib": _difference(change.memory_mib),
                "energy_step_j": _difference(change.energy_step_j),
                "slowdown": list(change.slowdown), "oom_probability": list(change.oom_probability),
                "limits": list(change.limits), "reason": job_reason(comparison, change),
            }
            for change in comparison.jobs
        ],
    }  # fmt: skip


def _difference(value: Difference | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {
        "first": asdict(value.first), "second": asdict(value.second), "change": value.change,
        "within_error": value.within_error,
    }  # fmt: skip


ComparisonSection = tuple[str, str, tuple[Cells, ...]]
"""A job or all jobs, the differences between two plans for it with their reasons, and its rows."""


def side_by_side(comparison: Comparison) -> list[ComparisonSection]:
    """Return a section for all jobs, then one for each job; copies with equal cells share one."""
    (first, second), same_way = comparison.plans, comparison.same_way

    def row(name: str, shown: Callable[[Interval | None], str], *values: Interval | None) -> Cells:
        pair, change = all_known(values), ""
        if pair is not None:
            change = change_text(difference(pair[0], pair[1], same_way=same_way))
        return name, shown(values[0]), shown(values[1]), change

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
    for change, one, other in zip(comparison.jobs, first_mix.jobs, second_mix.jobs, strict=True):
        slower = difference(forecast.slowdown(one), forecast.slowdown(other), same_way=same_way)
        cells = [_cells("times as long as alone", units.times, slower)]
        if change.ends_s is not None:
            cells.append(_cells("ends after", units.seconds, change.ends_s))
        cells.append(_cells("memory", units.gib, change.memory_mib))
        parts.append((change.job, f"{job_reason(comparison, change)}.", tuple(cells)))
    return [("All jobs", comparison_text(comparison), tuple(rows)), *dict.fromkeys(parts)]


def _late(plan: Forecast) -> str:
    late = [plan.prediction.jobs[at].job for at in sorted(plan.late("p50"))]
    return f"missed by {', '.join(late)}" if late else "all kept"
