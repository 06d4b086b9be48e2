"""Plans for many jobs on equal GPUs, as a table."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.errors import InvalidInput, counted
from advisor.launch.commands import commands, commands_at_once, commands_on, fleet_launch_plans
from advisor.launch.launch_plan import LaunchPlan
from advisor.plan.fleet import FleetPlan, GpuPlan
from advisor.plan.group_pool import MOST_TOGETHER
from advisor.report import format as units
from advisor.report.documents import (
    SCHEMA,
    asked_document,
    forecast_document,
    interval_document,
    standing_document,
    workloads_document,
)
from advisor.report.forecast import cap_note, host_note, with_estimates_named
from advisor.report.format import fits, plain_table
from advisor.sharing.groups import relabelled
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType

    pass


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


def fleet_document(found: FleetPlan, device: str | None = None) -> dict[str, Any]:
    """What ``advisor recommend --json`` prints for many jobs, or for several GPUs.

    Args:
        found: The plan.
        device: Index of the GPU that the commands are for, for a plan of one GPU; None: the first.

    Raises:
        InvalidInput: There is no such device.
    """
    return {
        "schema": SCHEMA,
        "gpu": found.gpu.key,
        "gpus": found.terms.gpus,
        "objective": found.terms.objective,
        "ranked_by": found.ranked_by,
        "note": found.note,
        **standing_document(found.standing),
        "workloads": workloads_document(found.jobs),
        "epochs": [job.epochs for job in found.jobs],
        "serial": {"sharing": "serial", "makespan_s": found.serial_s},
        "plans": [_plan(found, device)],
        "left_out": [],
    }


def fleet_commands(found: FleetPlan, rank: int, device: str | None = None) -> str:
    """Shell lines of the plan, of which there is one; arguments as of `fleet_document`.

    Raises:
        InvalidInput: There is no such plan, or no such device.
    """
    if rank != 1:
        raise InvalidInput(f"there is no plan {rank}; of many jobs there is one, plan 1.")
    return "\n".join(_commands(fleet_launch_plans(found), device))


def _plan(found: FleetPlan, device: str | None) -> dict[str, Any]:
    makespan_s, plans = found.makespan_s, fleet_launch_plans(found)
    return {
        "rank": 1,
        "ties_best": True,
        "sharing": " | ".join(fleet_words(each) for each in found.on),
        "commands": _commands(plans, device),
        "why": search_line(found),
        "jobs": _jobs(found),
        "makespan_s": None if makespan_s is None else makespan_s.p50,
        "makespan_interval_s": interval_document(makespan_s),
        "mean_completion_s": found.mean_completion_s,
        "speedup_vs_serial": fleet_faster(found),
        "energy_j": interval_document(found.energy_j),
        "power_cap_w": found.on[0].forecast.prediction.power_cap_w,  # of the question, so of all
        "late": list(found.late),
        "gpus": [
            {"number": each.number, "job_numbers": list(each.candidate.jobs)}
            | {"commands": list(_alone(plan, device))}
            | forecast_document(each.forecast)
            for each, plan in zip(found.on, plans, strict=True)
        ],
        "search": {name: getattr(found.search, name) for name in _OF_SEARCH},
    }


_OF_SEARCH = ("groups", "predicted", "seconds", "cost", "bound", "gap", "complete", "in_time")


def _jobs(found: FleetPlan) -> list[dict[str, Any]]:
    """Each job in the order asked for: its prediction, what was asked of it, its GPU and end."""
    ends_s = found.ends_s or (None,) * len(found.jobs)
    lived = {
        number: asdict(job)
        | asked_document(asked)
        | {"on_gpu": on.number, "end_s": interval_document(ends_s[number - 1])}
        for on in found.on
        for number, job, asked in zip(
            on.candidate.jobs,
            on.forecast.prediction.jobs,
            on.candidate.chosen(found.jobs),
            strict=True,
        )
    }
    return [lived[number] for number in sorted(lived)]


def _commands(plans: Sequence[LaunchPlan], device: str | None) -> list[str]:
    if len(plans) > 1:
        return list(commands_at_once(plans))
    return list(_alone(plans[0], device))


def _alone(plan: LaunchPlan, device: str | None) -> Sequence[str]:
    return commands(plan) if device is None else commands_on(plan, device)
