"""Plans for many jobs on equal GPUs, as a table."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from advisor.english import counted
from advisor.plan.fleet_plan import FleetPlan, GpuPlan
from advisor.plan.search.fleet.group_pool import MOST_TOGETHER
from advisor.report import units
from advisor.report.headline import cap_note, host_note, with_estimates_named
from advisor.report.table_layout import fits, plain_table
from advisor.sharing.traversal import relabelled
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType

# Smaller gaps are rounding; larger ones are due to a loose bound, and say nothing about the plan.
_ROUNDING, _TELLING = 0.002, 0.5
# Longer cells of job numbers overhang, rather than indent all other rows.
_WIDEST_NUMBERS = 8


def fleet_report(found: FleetPlan, *, details: bool = False) -> "RenderableType":
    """The answer, the jobs by number, the plan of each GPU, and how good the plan is.

    Args:
        found: The plan.
        details: Whether to give each group a line even if a screen does not hold them. Who runs
            where is always shown, on more lines than a screen has if need be.
    """
    whole = _report(found, "\n")
    return whole if details or fits(whole) else _report(found, "; ")


def _report(found: FleetPlan, between: str) -> "RenderableType":
    """The report, with the text `between` two groups of a GPU."""
    from rich.console import Group
    from rich.text import Text

    table = plain_table(*_HEADINGS)
    table.columns[1].overflow = "fold"
    for each in found.on:
        table.add_row(*_cells(each, between))
    return Group(
        Text(fleet_answer(found), style="bold"), Text(), *map(Text, _numbered(found.jobs)),
        Text(), table, Text(), *map(Text, fleet_notes(found)),
    )  # fmt: skip


def search_line(found: FleetPlan) -> str:
    """How good the plan is compared with the bound, in one line of numbers."""
    search = found.search
    looked = (
        f"{counted(search.groups, 'group')} of jobs compared, {search.predicted} of them predicted "
        f"in full"
    )
    best = f"{looked}: best found in {units.duration(search.seconds)}"
    if search.gap is None or search.gap > _TELLING:
        return best
    others = f"no plan with up to {MOST_TOGETHER} jobs at once on a GPU"
    if search.complete:
        others += ", without limits and MIG,"
    if search.gap < _ROUNDING:
        return f"{looked}: {others} is better"
    return f"{best}, and {others} saves more than {search.gap:.0%}"


def fleet_gpu_rows(found: FleetPlan) -> list[dict[str, str]]:
    """A row for each GPU that runs a job; the keys are the columns' names."""
    return [dict(zip(_HEADINGS, _cells(each), strict=True)) for each in found.on]


_HEADINGS = ("GPU", "jobs by number, group after group", "all done", "memory")


def fleet_answer(found: FleetPlan) -> str:
    """The answer in a sentence, and before it what it is estimated from."""
    return with_estimates_named(found.standing, _answer(found))


def _answer(found: FleetPlan) -> str:
    jobs, gpus = counted(len(found.jobs), "job"), counted(found.terms.gpus, "GPU")
    said = f"Run the {jobs} on {gpus} in the groups below"
    faster = fleet_faster(found)
    if found.makespan_s is None or faster is None:
        return f"{said}: the length of a job is not known, so no time is."
    done = f"all done in {units.seconds(found.makespan_s)}"
    each = "one after another" if found.terms.gpus == 1 else "one at a time on each"
    return f"{said}: {done}, {units.number(faster)}x as fast as {each}."


def fleet_faster(found: FleetPlan) -> float | None:
    """Makespan with one job at a time on each GPU over that of the plan; None: not known."""
    if found.makespan_s is None or found.serial_s is None:
        return None
    return found.serial_s / found.makespan_s.p50


def _numbered(jobs: Sequence[Job]) -> Iterator[str]:
    """Each different job with the numbers of its copies."""
    distinct = [job for at, job in enumerate(jobs) if jobs.index(job) == at]
    numbers = [
        units.numbers([number for number, other in enumerate(jobs, start=1) if other == job])
        for job in distinct
    ]
    width = min(max(map(len, numbers)), _WIDEST_NUMBERS)
    for job, numbered in zip(distinct, numbers, strict=True):
        epochs = "" if job.epochs == 1 else f", {counted(job.epochs, 'epoch')}"
        due = "" if job.deadline_s is None else f", due in {units.duration(job.deadline_s)}"
        yield f"{numbered:{width}}  {job.name}{epochs}{due}"


def _cells(each: GpuPlan, between: str = "\n") -> tuple[str, ...]:
    """Cells of a GPU's row, with the text `between` two of its groups."""
    done = units.seconds(each.forecast.makespan_interval_s)
    cap_w = each.candidate.power_cap_w
    capped = [] if cap_w is None else [f"at most {cap_w:g} W"]
    groups = between.join([*map(_folded, _groups(each)), *capped])
    return str(each.number), groups, done, units.held(each.forecast.prediction)


def fleet_words(each: GpuPlan) -> str:
    """How a GPU is shared, with job numbers as they were asked for."""
    return ";".join(_groups(each))


def _groups(each: GpuPlan) -> list[str]:
    """Its groups, of jobs numbered as they were asked for."""
    return [str(group) for group in relabelled(each.candidate.sharing, each.candidate.jobs)]


def _folded(words: str) -> str:
    """Notation of sharings, shortened: equal limits once, runs of job numbers as ranges."""
    once = re.sub(r"=(\d+(?:\.\d+)?)(?:,\1)+(?=\[)", r"=\1 each ", words)
    return re.sub(
        r"\[([\d,]+)\]", lambda found: f"[{units.numbers(map(int, found[1].split(',')))}]", once
    )


def fleet_notes(found: FleetPlan) -> Iterator[str]:
    """Notes on the plan, and how good it is."""
    if found.mean_completion_s is not None:
        yield f"A job ends after {units.duration(found.mean_completion_s)} on the average."
    if found.energy_j is not None:
        yield f"Energy of all GPUs until then: {units.joules(found.energy_j)}."
    if found.late:
        yield f"Late: job {', '.join(map(str, found.late))}."
    if found.note:
        yield f"Ranked by {found.ranked_by}: {found.note}."
    yield f"{search_line(found)}."
    caps_w = {each.forecast.prediction.power_cap_w for each in found.on} - {None}
    yield from (cap_note(cap_w) for cap_w in sorted(cap_w for cap_w in caps_w if cap_w))
    yield host_note(found.standing)
