"""Many jobs on several equal GPUs: the plan as text, rows and JSON, and its jobs over time."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any

from rich.console import Group
from rich.text import Text

from advisor.errors import InvalidInput, counted
from advisor.launch.commands import commands, commands_at_once, fleet_launch_plans
from advisor.launch.launch_plan import LaunchPlan
from advisor.plan.fleet import FleetPlan, GpuPlan
from advisor.prediction.prediction import LEVELS, Interval, around
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.format import fits, plain_table
from advisor.report.simulation import Timeline, in_rows, same_times
from advisor.sharing.groups import relabelled
from advisor.simulation.simulate import SimulatedJob, Simulation
from advisor.workload.job import Job

_WIDEST_NUMBERS = 8  # longer cells of job numbers overhang and do not indent all other rows
_HEADINGS = ("GPU", "jobs by number, group after group", "all done", "memory")


def fleet_report(plan: FleetPlan, *, details: bool = False) -> Group:
    """Return the answer, the jobs by number, the plan of each GPU, and the plan's quality.

    With `details`, or if a screen holds them, each group has a line.
    """

    def report(between: str) -> Group:
        table = plain_table(*_HEADINGS)
        table.columns[1].overflow = "fold"
        for on in plan.on:
            table.add_row(*_cells(on, between))
        return Group(
            Text(fleet_answer(plan), style="bold"), Text(), *map(Text, _numbered(plan.jobs)),
            Text(), table, Text(), *map(Text, fleet_notes(plan)),
        )  # fmt: skip

    return report("\n") if details or fits(report("\n")) else report("; ")


def fleet_gpu_rows(plan: FleetPlan) -> list[dict[str, str]]:
    """Return a row for each GPU that runs a job; the keys are the columns' names."""
    return [dict(zip(_HEADINGS, _cells(on, "\n"), strict=True)) for on in plan.on]


def _cells(on: GpuPlan, between: str) -> tuple[str, ...]:
    """Cells of a GPU's row, with the text `between` two of its groups."""
    cap_w = on.power_cap_w
    groups = [_shortened(str(each)) for each in _groups(on)]
    groups += [] if cap_w is None else [f"at most {cap_w:g} W"]
    done = units.seconds(on.forecast.makespan_interval_s)
    return str(on.number), between.join(groups), done, units.held(on.forecast.prediction)


def _groups(on: GpuPlan) -> list[str]:
    """Notation of the groups of a GPU, with the numbers of the jobs in the request."""
    return [str(group) for group in relabelled(on.sharing, on.jobs)]


def _shortened(notation: str) -> str:
    """Notation with equal limits once and runs of job numbers as ranges."""
    once = re.sub(r"=(\d+(?:\.\d+)?)(?:,\1)+(?=\[)", r"=\1 each ", notation)
    return re.sub(
        r"\[([\d,]+)\]", lambda jobs: f"[{units.numbers(map(int, jobs[1].split(',')))}]", once
    )


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


def fleet_answer(plan: FleetPlan) -> str:
    """Return the answer in a sentence, and the sources of estimated profiles."""
    jobs = counted(len(plan.jobs), "job")
    gpus = " and ".join(f"{pool.gpus} {pool.gpu.key}" for pool in plan.pools)
    text = f"Run the {jobs} on {gpus} in the groups below"
    faster = _speedup(plan)
    if plan.makespan_s is None or faster is None:
        text += ": the total time is not known, because the length of a job is not."
    else:
        alone = "one after another" if plan.gpus == 1 else "one at a time on each"
        done = units.seconds(plan.makespan_s)
        text += f": all done in {done}, {units.number(faster)}x as fast as {alone}."
    return forecast.with_estimates_named(plan.standing, text)


def _speedup(plan: FleetPlan) -> float | None:
    """Makespan with one job at a time on each GPU over that of the plan; None: not known."""
    if plan.makespan_s is None or plan.serial_s is None:
        return None
    return plan.serial_s / plan.makespan_s.p50


def fleet_notes(plan: FleetPlan) -> Iterator[str]:
    """Yield notes on the plan and its quality."""
    if plan.mean_completion_s is not None:
        yield f"Mean completion time of a job: {units.duration(plan.mean_completion_s)}."
    if plan.energy_j is not None:
        yield f"Energy of all GPUs until then: {units.joules(plan.energy_j)}."
    if plan.late:
        yield f"Late: job {', '.join(map(str, plan.late))}."
    if plan.note:
        yield f"Ranked by {plan.ranked_by}: {plan.note}."
    yield f"{_search_line(plan)}."
    caps_w = {on.forecast.prediction.power_cap_w for on in plan.on} - {None}
    yield from (forecast.cap_note(cap_w) for cap_w in sorted(cap_w for cap_w in caps_w if cap_w))
    yield forecast.host_note(plan.standing)


def _search_line(plan: FleetPlan) -> str:
    """How the plan was found."""
    search = plan.search
    effort = f"{search.compared:,} groups and queues compared, {search.predicted} predicted in full"
    if search.exact:
        return f"{effort}: every way to divide the jobs among the GPUs"
    return f"{effort}: the best of obvious plans, improved. --effort 4 searches longer"


def fleet_document(plan: FleetPlan, device: str | None = None) -> dict[str, Any]:
    """Return what ``advisor recommend --json`` prints for many jobs, or for several GPUs.

    Commands for one GPU are for the first of the machine, or for that with the index `device`.

    Raises:
        InvalidInput: There is no such device.
    """
    makespan_s, launches = plan.makespan_s, fleet_launch_plans(plan)
    search = ("cost", "way", "exact", "compared", "predicted")
    ends_s, jobs = plan.ends_s or (None,) * len(plan.jobs), dict[int, dict[str, Any]]()
    for on in plan.on:
        for number, job in zip(on.jobs, on.forecast.prediction.jobs, strict=True):
            end_s = forecast.interval_document(ends_s[number - 1])
            request = forecast.request_document(plan.jobs[number - 1])
            jobs[number] = asdict(job) | request | {"on_gpu": on.number, "end_s": end_s}
    document = {
        "rank": 1, "ties_best": True,
        "sharing": " | ".join(";".join(_groups(on)) for on in plan.on),
        "commands": _commands(launches, device), "why": _search_line(plan),
        "jobs": [jobs[number] for number in sorted(jobs)],
        "makespan_s": None if makespan_s is None else makespan_s.p50,
        "makespan_interval_s": forecast.interval_document(makespan_s),
        "mean_completion_s": plan.mean_completion_s, "speedup_vs_serial": _speedup(plan),
        "energy_j": forecast.interval_document(plan.energy_j),
        "power_cap_w": plan.on[0].forecast.prediction.power_cap_w,  # the same on all
        "late": list(plan.late),
        "gpus": [
            {"number": on.number, "job_numbers": list(on.jobs), "waits_s": list(on.waits_s)}
            | {"commands": _commands([launch], device)}
            | forecast.forecast_document(on.forecast)
            for on, launch in zip(plan.on, launches, strict=True)
        ],
        "search": {name: getattr(plan.search, name) for name in search},
    }  # fmt: skip
    return {
        "schema": forecast.SCHEMA, "gpu": plan.pools[0].gpu.key, "gpus": plan.gpus,
        "objective": plan.terms.objective, "ranked_by": plan.ranked_by, "note": plan.note,
        **forecast.standing_document(plan.standing),
        "workloads": forecast.workloads_document(plan.jobs),
        "epochs": [job.epochs for job in plan.jobs],
        "serial": {"sharing": "serial", "makespan_s": plan.serial_s}, "plans": [document],
        "left_out": [],
    }  # fmt: skip


def fleet_commands(plan: FleetPlan, rank: int, device: str | None = None) -> str:
    """Return the shell lines of the plan, which has rank 1; `device` as in `fleet_document`.

    Raises:
        InvalidInput: There is no such plan, or no such device.
    """
    if rank != 1:
        raise InvalidInput(f"there is no plan {rank}; of many jobs there is one, plan 1.")
    return "\n".join(_commands(fleet_launch_plans(plan), device))


def _commands(launches: Sequence[LaunchPlan], device: str | None) -> list[str]:
    if len(launches) > 1:
        return list(commands_at_once(launches))
    return list(commands(launches[0], device))


JobOnGpu = tuple[int, SimulatedJob]
"""The number of a job, from 1 in the order of the request, and its run on one of several GPUs."""


def jobs_of_queue(simulation: Simulation) -> list[JobOnGpu]:
    """Return the jobs of a simulated queue that feeds several GPUs."""
    return _in_order(enumerate(simulation.jobs, start=1))


def jobs_of_plan(plan: FleetPlan, simulations: Sequence[Simulation]) -> list[JobOnGpu]:
    """Return the jobs of a plan; `simulations` are those of the GPUs of `plan.on`."""
    return _in_order(
        (number, replace(run, gpu=on.number))
        for on, simulation in zip(plan.on, simulations, strict=True)
        for number, run in zip(on.jobs, simulation.jobs, strict=True)
    )


def _in_order(jobs: Iterable[JobOnGpu]) -> list[JobOnGpu]:
    """`jobs` by GPU, and on each as they start; copies next to each other."""
    return sorted(jobs, key=lambda job: (job[1].gpu, job[1].start_s, job[1].job.name, job[0]))


def lanes_of(jobs: Sequence[JobOnGpu]) -> Timeline:
    """Return a row for each job, by GPU; copies with equal times on one GPU share a row."""
    rows = []
    for (name, gpu, *_), equal in groupby(jobs, lambda job: same_times(job[1])):
        copies = list(equal)
        number, run = copies[0]
        rows.append((f"GPU {gpu} · {number} · {units.collapsed([name] * len(copies))}", run))
    ends = [max(run.end_s.at(level) for _, run in jobs) for level in LEVELS]
    return in_rows(rows, around(ends))


def job_rows_of(jobs: Sequence[JobOnGpu]) -> list[dict[str, str]]:
    """Return a row for each job, in order; the keys are the columns' names."""
    rows = []
    for number, run in jobs:
        due_s, end_s = run.job.deadline_s, run.end_s.p50
        others = sorted(
            other for other, its in jobs
            if other != number and its.gpu == run.gpu
            and run.start_s < its.end_s.p50 and its.start_s < end_s
        )  # fmt: skip
        late = "late" if due_s is not None and end_s > due_s else "kept"
        rows.append({
            "GPU": str(run.gpu),
            "job": f"{number} · {run.job.name}",
            "shares with": ", ".join(map(str, others)) or "none",
            "starts after": units.duration(run.start_s) if run.start_s else "0 s",
            "ends after": units.seconds(run.end_s),
            "deadline": "none" if due_s is None else late,
        })  # fmt: skip
    return rows


def gains_of(
    makespan_s: Interval, one_gpu_s: float | None, one_job_each_s: float | None
) -> list[tuple[str, str, str]]:
    """Return figures by medians: title, value, and a value to compare with; None: not known.

    Total time on the GPUs is compared with that on one GPU, and with one job at a time on each.
    """
    low, high = units.duration(makespan_s.p05), units.duration(makespan_s.p95)
    cards = [("Total time", units.duration(makespan_s.p50), f"from {low} to {high}")]
    for name, other_s in (("one GPU", one_gpu_s), ("one job per GPU", one_job_each_s)):
        if other_s is not None:
            gain = f"{units.number(other_s / makespan_s.p50)}x"
            cards.append((f"Gain over {name}", gain, f"{name}: {units.duration(other_s)}"))
    return cards
