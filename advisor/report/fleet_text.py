"""Plans for many jobs on equal GPUs, as a table and as JSON."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.launch.commands import commands, commands_at_once, commands_on, side_by_side
from advisor.launch.launch_plan import LaunchPlan, launch_plan
from advisor.plan.fleet_plan import FleetPlan, GpuPlan
from advisor.plan.search.fleet.group_pool import MOST_TOGETHER
from advisor.report import units
from advisor.report.documents import (
    SCHEMA,
    forecast_document,
    interval_document,
    standing_document,
)
from advisor.report.headline import cap_note, host_note, led
from advisor.report.listing_text import plain_table
from advisor.sharing.traversal import relabelled
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType

# A gap below this is rounding, and one above that says nothing about the plan: it is of the bound.
_ROUNDING, _TELLING = 0.002, 0.5


def fleet_report(found: FleetPlan) -> "RenderableType":
    """The answer in a sentence, the jobs by number, what each GPU runs, and how good that is."""
    from rich.console import Group
    from rich.text import Text

    table = plain_table(*_HEADINGS)
    table.columns[1].overflow = "fold"
    for each in found.on:
        table.add_row(*_cells(each))
    return Group(
        Text(fleet_answer(found), style="bold"), Text(), *map(Text, _numbered(found.jobs)),
        Text(), table, Text(), *map(Text, fleet_notes(found)),
    )  # fmt: skip


def fleet_document(found: FleetPlan, device: str | None = None) -> dict[str, Any]:
    """What ``advisor recommend --json`` prints of many jobs, or of several GPUs.

    Args:
        found: The plan.
        device: The GPU that its commands are for, where it is for one; None: the first.

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
        "workloads": {job.name: asdict(job.profile.workload) for job in found.jobs},
        "serial": {"sharing": "serial", "makespan_s": found.serial_s},
        "plans": [_plan(found, device)],
        "left_out": [],
    }


def fleet_commands(found: FleetPlan, rank: int, device: str | None = None) -> str:
    """The shell lines of the only plan; arguments as of `fleet_document`.

    Raises:
        InvalidInput: There is no such plan, or no such device.
    """
    if rank != 1:
        raise InvalidInput(f"there is no plan {rank}; of many jobs there is one, plan 1.")
    return "\n".join(_commands(_launch_plans(found), device))


def search_line(found: FleetPlan) -> str:
    """How good the plan is, in one line of numbers."""
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


def _plan(found: FleetPlan, device: str | None) -> dict[str, Any]:
    makespan_s, plans = found.makespan_s, _launch_plans(found)
    return {
        "rank": 1,
        "ties_best": True,
        "sharing": " | ".join(_words(each) for each in found.on),
        "commands": _commands(plans, device),
        "why": search_line(found),
        "jobs": _jobs(found),
        "makespan_s": None if makespan_s is None else makespan_s.p50,
        "makespan_interval_s": interval_document(makespan_s),
        "mean_completion_s": found.mean_completion_s,
        "speedup_vs_serial": _faster(found),
        "energy_j": interval_document(found.energy_j),
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
    """What each job does, in the order asked for, on which GPU, and when it ends."""
    ends_s = found.ends_s or (None,) * len(found.jobs)
    lived = {
        number: asdict(job) | {"on_gpu": on.number, "end_s": interval_document(ends_s[number - 1])}
        for on in found.on
        for number, job in zip(on.candidate.jobs, on.forecast.prediction.jobs, strict=True)
    }
    return [lived[number] for number in sorted(lived)]


def _launch_plans(found: FleetPlan) -> tuple[LaunchPlan, ...]:
    """What each GPU runs, in the order of `FleetPlan.on`."""
    plans = {
        each.number: launch_plan(
            each.candidate.chosen(found.jobs), found.gpu, each.forecast.prediction
        )
        for each in found.on
    }
    return side_by_side(plans, {each.number: each.candidate.jobs for each in found.on})


def _commands(plans: Sequence[LaunchPlan], device: str | None) -> list[str]:
    if len(plans) > 1:
        return list(commands_at_once(plans))
    return list(_alone(plans[0], device))


def _alone(plan: LaunchPlan, device: str | None) -> Sequence[str]:
    return commands(plan) if device is None else commands_on(plan, device)


def fleet_gpu_rows(found: FleetPlan) -> list[dict[str, str]]:
    """A row for each GPU that runs anything; a column's name is its key."""
    return [dict(zip(_HEADINGS, _cells(each), strict=True)) for each in found.on]


_HEADINGS = ("GPU", "jobs by number, groups one after another", "all done", "memory")


def fleet_answer(found: FleetPlan) -> str:
    """The answer in a sentence, after what it is estimated from."""
    return led(found.standing, _answer(found))


def _answer(found: FleetPlan) -> str:
    jobs, gpus = counted(len(found.jobs), "job"), counted(found.terms.gpus, "GPU")
    said = f"Run the {jobs} on {gpus} in the groups below"
    faster = _faster(found)
    if found.makespan_s is None or faster is None:
        return f"{said}: the length of a job is not known, so no time is."
    done = f"all done in {units.seconds(found.makespan_s)}"
    return f"{said}: {done}, {units.number(faster)}x as fast as one after another on as many."


def _faster(found: FleetPlan) -> float | None:
    if found.makespan_s is None or found.serial_s is None:
        return None
    return found.serial_s / found.makespan_s.p50


def _numbered(jobs: Sequence[Job]) -> Iterator[str]:
    """Each job once, with the numbers of its copies."""
    distinct = [job for at, job in enumerate(jobs) if jobs.index(job) == at]
    for job in distinct:
        numbers = [number for number, other in enumerate(jobs, start=1) if other == job]
        epochs = "" if job.epochs == 1 else f", {counted(job.epochs, 'epoch')}"
        due = "" if job.deadline_s is None else f", due in {units.duration(job.deadline_s)}"
        yield f"{units.numbers(numbers)}  {job.name}{epochs}{due}"


def _cells(each: GpuPlan) -> tuple[str, ...]:
    mix = each.forecast.prediction
    done = units.seconds(each.forecast.makespan_interval_s)
    cap_w = each.candidate.power_cap_w
    capped = "" if cap_w is None else f"\nat most {cap_w:g} W"
    return (
        str(each.number),
        _folded(_words(each)).replace(";", "\n") + capped,
        done,
        units.held(mix),
    )


def _words(each: GpuPlan) -> str:
    """Its groups, of jobs numbered as they were asked for."""
    return ";".join(map(str, relabelled(each.candidate.sharing, each.candidate.jobs)))


def _folded(words: str) -> str:
    """Ways to share with limits that are equal said once, and numbers that follow as their ends."""
    once = re.sub(r"=(\d+(?:\.\d+)?)(?:,\1)+(?=\[)", r"=\1 each ", words)
    return re.sub(
        r"\[([\d,]+)\]", lambda found: f"[{units.numbers(map(int, found[1].split(',')))}]", once
    )


def fleet_notes(found: FleetPlan) -> Iterator[str]:
    """What else to know of the plan, and how good it is."""
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
