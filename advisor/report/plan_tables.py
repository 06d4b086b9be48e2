"""Tables of plans: the ranking on a screen, in full, or as CSV."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from advisor.errors import counted
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.values import Plan, Recommendation
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.csv_tables import csv_text, range_columns
from advisor.report.format import FittedTable, FixedRow, table_of
from advisor.report.recommendation import caveats, hints, missing_ways, opening

_PLAN_HEADINGS, _PLAN_WIDTHS = ("", "epoch (shared)", "memory", "gain over serial"), (2, 26, 26, 18)


def plans_report(
    advised: Recommendation, top: int | None = None, *, command: str = "", details: bool = False
) -> RenderableType:
    """Return the answer: what to do, each way to share at its best, how to start it, what to know.

    `command` is the line that says how to start it. With `top`, the best so many plans instead of
    the ways. With `details`, every plan in full, too, and how the plans were searched.
    """
    first, *then = opening(advised)
    missing = list(missing_ways(advised))
    notes = [note for note in caveats(advised) if note not in missing]
    parts: list[RenderableType] = [Text(first, style="bold"), *map(Text, then)]
    if len(advised.jobs) > 1:
        named = list(forecast.best_of_each_way(advised).items())
        if top is not None:
            named = [(forecast.plan_name(advised, plan), plan) for plan in advised.plans[:top]]
        parts += [Text(), _ways_table(advised, named), *map(Text, missing)]
    if command:
        parts.append(Text(command))
    if details:
        letters = forecast.letters_of(advised.jobs)
        parts += [*map(Text, (*notes, *hints(advised))), Text()]
        parts += _in_full(advised, advised.plans[:top], letters)
    else:
        parts += map(Text, (f"{notes[0]} More: --details.", *hints(advised)))
    return Group(*parts)


def _ways_table(advised: Recommendation, named: Sequence[tuple[str, Plan]]) -> FittedTable:
    """A line for each plan, a mark before the best; the heading says if all are estimated."""
    by = advised.ranked_by
    measure, shown = OBJECTIVES[by].measure, forecast.shown_cost(by)
    measured = any(plan.prediction.confirmed_on_hardware for _, plan in named)
    first, rows = "" if measured else "  all estimated", []
    for name, plan in named:
        mix = plan.prediction
        mark = ">" if plan is advised.best else " "
        estimated = ", estimated" if measured and not mix.confirmed_on_hardware else ""
        rows.append(
            {
                first: f"{mark} {name}{estimated}",
                measure: shown(known_cost(plan, by)),
                **forecast.time_cell(plan, by),
                "gain": units.times(forecast.gain(advised, plan)),
                **forecast.plan_cells(plan, by),
            }
        )
    return table_of(rows)


def plans_csv(advised: Recommendation) -> str:
    """Return a table of all plans as CSV, best first."""
    return csv_text(
        {
            "rank": plan.rank,
            "way": units.way_of(plan.sharing, len(advised.jobs)),
            "sharing": str(plan.sharing),
            "power_cap_w": plan.prediction.power_cap_w,
            **range_columns("total_time", "s", plan.makespan_interval_s),
            **range_columns("gain", "", forecast.gain(advised, plan)),
            **forecast.plan_columns(plan.prediction, plan.energy_j),
            "ties_best": plan.ties_best,
        }
        for plan in advised.plans
    )


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
    note = "In parentheses: 90 % intervals."
    if not all(plan.prediction.confirmed_on_hardware for plan in advised.plans):
        note += " Estimated plans were never measured: their intervals follow from their parts."
    yield Text(
        " ".join(
            [note, *forecast.layout_needs([(advised.gpu, each) for each in shown], advised.serial)]
        )
    )
    yield Text("`advisor export --rank 1` writes the script of plan 1.")


def plan_commands(advised: Recommendation, rank: int) -> str:
    """Return the shell lines of the plan at `rank`.

    Raises:
        InvalidInput: There is no such plan.
    """
    return "\n".join(forecast.ranked_plan(advised.plans, rank).commands)
