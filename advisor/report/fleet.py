"""Many jobs on several GPUs: the plan as text, rows, CSV and JSON, and its jobs over time."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from advisor.documents import Inline, Mark
from advisor.errors import counted, with_article
from advisor.hardware.gpus import GpuCount
from advisor.launch.launch_plan import fleet_launch_plans
from advisor.launch.shell import commands, why_not_started
from advisor.plan import ObjectiveName
from advisor.plan.fleet import FleetForecast, FleetPlan, GpuPlan
from advisor.plan.fleet_search import Way
from advisor.plan.objectives import OBJECTIVES, holds_one, joint_ratio
from advisor.plan.reasons import named
from advisor.plan.values import Standing
from advisor.prediction.prediction import LEVELS, Interval, JobPrediction, MixPrediction, around
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.csv_tables import csv_text, range_columns
from advisor.report.forecast import AdvisedJob, Request
from advisor.report.format import fits, table_of
from advisor.report.simulation import Timeline, in_rows, same_times
from advisor.sharing import Group as Sharers
from advisor.sharing.groups import groups, relabelled
from advisor.simulation.simulate import SimulatedJob, Simulation
from advisor.workload.job import Job

_LINES, _COLUMNS = 14, 100  # of an answer without details
_WIDEST_NUMBERS = 8  # longer cells of job numbers overhang and do not indent all other rows
_WIDEST_JOBS = 62  # characters that name the jobs of a GPU
_RISKY = 0.01  # a smaller risk of running out of memory is not worth a sentence
_WAYS: Mapping[Way, str] = {
    "serial": "one at a time",
    "batches": "equal batches",
    "first-fit": "batches by load",
    "queue": "queues",
    "exact": "chosen groups",
}


def fleet_report(
    plan: FleetPlan, top: int | None = None, *, command: str = "", details: bool = False
) -> RenderableType:
    """Return the answer: what to do, each way to plan, each GPU, how to start it, what to know.

    `command` is the line on how to start it. With `top`, the best so many plans instead of the
    ways. With `details`, every job of every GPU by its number, and how the plan was found.
    """
    first, *then = [*_deadlines_missed(plan), f"{instruction(plan)}."]
    then += forecast.layout_needs([(on.gpu, on.forecast) for on in plan.on], None)

    def answer(*gpus: RenderableType) -> Group:
        rest = "More" if gpus else "The jobs of each GPU, and more"
        more = [_caveat(plan), *_effort(plan), f"{rest}: --details."]
        return Group(
            Text(first, style="bold"),
            *map(Text, then),
            Text(" ".join([outcome(plan), *gpu_notes(plan)])),
            table_of(plan_rows(plan, top)),
            *gpus,
            *map(Text, filter(None, [command, "" if details else " ".join(more)])),
        )

    if not details:
        few = fits(answer(_few_gpus(plan)), _LINES, _COLUMNS)
        return answer(_few_gpus(plan)) if few else answer()
    every = table_of(fleet_gpu_rows(plan))
    every.columns[1].overflow = "fold"
    lines = [*_numbered(plan.jobs), ""]
    return Group(answer(), Text(), *map(Text, lines), every, Text(), *map(Text, _more_notes(plan)))


def _deadlines_missed(plan: FleetPlan) -> Iterator[str]:
    """The deadlines that no plan keeps."""
    if all(each.late for each in plan.plans):
        ends_s = [each.ends_s for each in plan.plans]
        yield from forecast.deadlines_missed(plan.jobs, ends_s, plan.level, plan.ranked_by)


def instruction(plan: FleetForecast) -> str:
    """Return what to do, as a person says it."""
    if len(plan.jobs) == 1:
        return f"Nothing to share: run the job alone{_cap(plan)}"
    where = "" if plan.gpus == 1 else " on each"
    jobs = f"the {len(plan.jobs)} jobs on {_gpus_in_words(plan)}"
    most_in_all = max(len(on.jobs) for on in plan.on)
    most = max(
        each.at_once if isinstance(each, Sharers) else len(each.jobs)
        for on in plan.on
        for each in groups(on.sharing, len(on.jobs))
    )
    if most == 1:
        turns = "one at a time on each" if where else "one after another"
        turns = "each alone" if most_in_all == 1 else turns
        return f"Don't share: run {jobs}, {turns}{_cap(plan)}"
    if most_in_all == most:
        turns = f"up to {most} together{where}"
    elif plan.way == "queue":
        turns = f"at most {most} at once{where}, the next as one ends"
    else:
        turns = f"in {'groups' if plan.way == 'exact' else 'batches'} of up to {most}{where}"
    return f"Run {jobs}{_way(plan)}, {turns}{_cap(plan)}"


def _cap(plan: FleetForecast) -> str:
    """The power caps that the plan chooses, in words."""
    caps_w = sorted({on.power_cap_w for on in plan.on if on.power_cap_w is not None})
    if not caps_w:
        return ""
    return f", at most {' or '.join(f'{cap_w:g}' for cap_w in caps_w)} W a GPU"


def _way(plan: FleetForecast) -> str:
    """How jobs share a GPU, if all do so in one way, or that some are on MIG instances."""
    if any(on.sharing.instances for on in plan.on):
        return " on MIG instances"
    modes = {
        part.sharing.mode
        for on in plan.on
        for group in groups(on.sharing, len(on.jobs))
        for part in group.partitions
        if len(part.jobs) > 1
    }
    ways = {
        "mps": " under MPS",
        "mps-limits": " under MPS with limits",
        "naive": " by time-slicing",
    }
    return ways[modes.pop()] if len(modes) == 1 else ""


def _gpus_in_words(plan: FleetForecast) -> str:
    if plan.gpus == 1:
        return with_article(plan.pools[0].gpu.key)
    return " and ".join(
        str(GpuCount(pool.gpu.key, pool.hosts, pool.host_gpus)) for pool in plan.pools
    )


def outcome(plan: FleetPlan) -> str:
    """Return what the plan costs and gains over one job at a time, with ranges."""
    by, alone = OBJECTIVES[plan.ranked_by], _WAYS["serial"]
    if plan.gpus == 1:
        alone = "one after another"
    gain = plan.gain(plan)
    note, time = forecast.ranking_note(plan.level), ""
    if by.name not in ("makespan", "deadlines") and plan.makespan_s is not None:
        time = f"; all done in {units.duration(plan.makespan_s.p50)}"
    if by.name == "throughput":
        return f"Gain in throughput over {alone} {units.times(gain)}{time}.{note}"
    shown = units.joules if by.unit == "J" else units.seconds
    cost = shown(plan.compared)
    cost = cost if by.name in ("makespan", "deadlines") else f"{by.measure.capitalize()} {cost}"
    if plan is plan.serial:
        gains = [gain for other in plan.others if (gain := plan.gain(other)).p50 > 1]
        if not gains:
            return f"{cost}{time}.{note}"
        best = max(gains, key=lambda each: each.p50)
        return f"{cost}{time}; sharing at its best has a gain of {units.times(best)}.{note}"
    before = units.middle(plan.serial.compared, shown)
    return f"{cost} instead of {before} {alone}: gain {units.times(gain)}{time}.{note}"


def plan_rows(plan: FleetPlan, top: int | None = None) -> list[dict[str, str]]:
    """Return a row for each way to plan, the simplest first, or for the best `top` plans.

    The keys are the columns' names; a mark stands before the best. Only the quantity by which plans
    are ranked has its range.
    """
    simplest_first = sorted(plan.plans, key=lambda each: [*_WAYS].index(each.way))
    by, rows = plan.ranked_by, list[dict[str, str]]()
    for each in simplest_first if top is None else plan.plans[:top]:
        estimated = "" if each.confirmed_on_hardware else ", estimated"
        row = {"": f"{'>' if each is plan else ' '} {_WAYS[each.way]}{estimated}"}
        if (done_s := each.makespan_s) is not None:
            whole = by in ("makespan", "deadlines")
            row["total time"] = (
                units.seconds(done_s) if whole else units.middle(done_s, units.seconds)
            )
        if by == "mean-completion":
            row["mean end"] = units.seconds(each.compared)
        row |= {"gain": units.times(plan.gain(each)), "fullest GPU": units.held(each.fullest)}
        if each.energy_j is not None:
            row["energy"] = (
                units.joules(each.energy_j)
                if by == "energy"
                else units.middle(each.energy_j, units.joules)
            )
        if any(job.deadline_s is not None for job in plan.jobs):
            row["late"] = str(len(each.late))
        rows.append(row)
    return rows


def _few_gpus(plan: FleetForecast) -> Table:
    """A line for each GPU with its jobs by name; GPUs whose lines are equal share one."""
    numbers: dict[tuple[str, str, str], list[int]] = {}
    for on in plan.on:
        gpu = "" if len(plan.pools) == 1 else f" {on.gpu.key}"
        numbers.setdefault((gpu, _jobs_in_words(on), _done(on)), []).append(on.number)
    table = Table.grid(padding=(0, 2, 0, 0))
    for (gpu, jobs, done), same in numbers.items():
        table.add_row(f"GPU {units.numbers(same)}{gpu}", jobs, done)
    return table


def _jobs_in_words(on: GpuPlan) -> str:
    """Names of the jobs of a GPU in the order of their starts; of many jobs the most frequent."""
    turns = []
    for group in groups(on.sharing, len(on.jobs)):
        names = [on.members[number - 1].name for number in group.jobs]
        in_turn = isinstance(group, Sharers) and group.at_once < len(names)
        turns.append(units.in_order(names if in_turn else sorted(names)))
    if len(words := ", then ".join(turns)) <= _WIDEST_JOBS:
        return words
    counts = Counter(job.name for job in on.members).most_common()
    for kinds in range(len(counts), 0, -1):
        listed = units.in_order([name for name, count in counts[:kinds] for _ in range(count)])
        rest = sum(count for _, count in counts[kinds:])
        words = f"{listed} and {counted(rest, 'other')}" if rest else listed
        if len(words) <= _WIDEST_JOBS:
            break
    return words


def _done(on: GpuPlan) -> str:
    if on.ends_s is None:
        return "not known"
    return units.seconds(around([max(each.at(level) for each in on.ends_s) for level in LEVELS]))


def fleet_gpu_rows(plan: FleetForecast) -> list[dict[str, str]]:
    """Return a row for each GPU that runs a job; the keys are the columns' names."""
    rows = []
    for on in plan.on:
        groups = [_shortened(str(each)) for each in _groups(on)]
        groups += [] if on.power_cap_w is None else [f"at most {on.power_cap_w:g} W"]
        rows.append(
            {
                "GPU": str(on.number) if len(plan.pools) == 1 else f"{on.number} {on.gpu.key}",
                "jobs by number, group after group": "\n".join(groups),
                "all done": _done(on),
                "memory": units.held(on.forecast.prediction),
            }
        )
    return rows


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
        gpus = "" if job.gpus == 1 else f", on {job.gpus} GPUs at once"
        due = "" if job.deadline_s is None else f", due in {units.duration(job.deadline_s)}"
        yield f"{numbered:{width}}  {job.name}{epochs}{gpus}{due}"


def gpu_notes(plan: FleetPlan) -> Iterator[str]:
    """Yield what may go wrong and what stays unused: late jobs, memory, GPUs and MIG slices."""
    if plan.late:
        yield f"Late: {named([plan.jobs[number - 1].name for number in plan.late])}."
    elif any(job.deadline_s is not None for job in plan.jobs):
        yield "It keeps every deadline."
    if (risk := plan.oom_probability) > _RISKY:
        yield f"Risk of running out of memory on the fullest GPU: {units.share(risk)}."
    busy = Counter(on.gpu.key for on in plan.on)
    unused = [(pool.gpus - busy[pool.gpu.key], pool.gpu.key) for pool in plan.pools]
    if idle := " and ".join(f"{count} {key}" for count, key in unused if count):
        yield f"Unused: {idle}."
    slices: dict[int, list[int]] = {}
    for on in plan.on:
        slices.setdefault(_slices_unused(on), []).append(on.number)
    for count, gpus in slices.items():
        if count:
            yield f"Unused on GPU {units.numbers(gpus)}: {counted(count, 'MIG slice')}."
    users = {job.user for job in plan.jobs}
    if len(users) > 1:
        yield "MPS serves one user at a time: jobs of different users do not share it."
    if plan.note:
        yield f"Ranked by {plan.ranked_by}: {plan.note}."


def _slices_unused(on: GpuPlan) -> int:
    """MIG slices of a GPU without a job all the time; none if it runs a job without MIG."""
    of_profile = {each.name: each.compute_slices for each in on.gpu.mig}
    used = [
        sum(of_profile[each.profile] for each in group.instances) if group.instances else 0
        for group in groups(on.sharing, len(on.jobs))
    ]
    return max(of_profile.values()) - max(used) if all(used) else 0


def _caveat(plan: FleetPlan) -> str:
    if estimates := forecast.with_estimates_named(plan.standing, ""):
        return estimates
    if not plan.confirmed_on_hardware:
        return f"It is {forecast.NOT_CONFIRMED}."
    return forecast.host_note(plan.standing)


def _effort(plan: FleetPlan) -> Iterator[str]:
    """A hint where a longer search may find a better plan."""
    if plan.cut_short:
        yield f"--effort {4 * plan.terms.effort:g} searches longer."


def _more_notes(plan: FleetPlan) -> Iterator[str]:
    if plan.mean_completion_s is not None:
        yield f"Mean of the jobs' ends: {units.seconds(plan.mean_completion_s)}."
    if plan.energy_j is not None:
        yield f"Energy of all GPUs until then: {units.joules(plan.energy_j)}."
    yield " ".join([f"{_search_line(plan)}.", *_effort(plan)])
    caps_w = {on.forecast.prediction.power_cap_w for on in plan.on} - {None}
    yield from (forecast.cap_note(cap_w) for cap_w in sorted(cap_w for cap_w in caps_w if cap_w))
    yield "In parentheses: 90 % intervals."
    yield from dict.fromkeys([_caveat(plan), forecast.host_note(plan.standing)])


def _search_line(plan: FleetPlan) -> str:
    """How the plan was found."""
    compared, predicted = plan.groups_compared, plan.groups_predicted
    effort = f"{compared:,} groups and queues compared, {predicted} predicted in full"
    if plan.exact:
        return f"{effort}: every way to divide the jobs among the GPUs"
    return f"{effort}: the best of obvious plans, improved"


def fleet_csv(plan: FleetPlan) -> str:
    """Return a table of the plans of all ways as CSV, best first, as `plans_csv` does."""
    return csv_text(
        {
            "rank": rank,
            "way": _WAYS[each.way],
            "sharing": _sharing(each),
            **range_columns("total_time", "s", each.makespan_s),
            **range_columns("gain", "", plan.gain(each)),
            "memory_mib": each.fullest.memory_total_mib,
            "energy_j": each.energy_j and each.energy_j.p50,
            "worst_slowdown": max(
                job.slowdown for on in each.on for job in on.forecast.prediction.jobs
            ),
            "oom_probability": each.oom_probability,
            "estimated": not each.confirmed_on_hardware,
        }
        for rank, each in enumerate(plan.plans, start=1)
    )


def _sharing(plan: FleetForecast) -> str:
    """Notation of what all GPUs run, with the numbers of the jobs in the request."""
    return " | ".join(";".join(_groups(on)) for on in plan.on)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetJob:
    """A job of a plan for several GPUs; GPUs are counted from 0."""

    job: Annotated[AdvisedJob, Inline()]
    on_gpus: tuple[int, ...]
    end_s: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGpu:
    """One GPU of a plan; jobs are counted from 1 in the order of the request."""

    on: Annotated[GpuPlan, Inline()]
    job_numbers: tuple[int, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetSearch:
    """The search for a plan, and its way to group the jobs."""

    cost: float
    way: Way
    exact: bool
    compared: int
    predicted: int
    cut_short: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedFleetPlan:
    """A plan for many jobs, or for several GPUs."""

    plan: Annotated[
        FleetForecast, Inline("oom_probability", "energy_j", "late", "confirmed_on_hardware")
    ]
    fullest: Annotated[
        MixPrediction, Inline("memory_total_mib", "memory_capacity_mib", "power_cap_w")
    ]
    rank: int
    ties_best: bool
    sharing: str
    commands: tuple[str, ...]
    why: str
    jobs: tuple[FleetJob, ...]
    makespan_s: float | None
    makespan_interval_s: Interval | None
    mean_completion_s: float | None
    speedup_vs_serial: float | None
    gain: Interval
    gpus: tuple[FleetGpu, ...]
    search: FleetSearch


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAdvice:
    """The answer of `advisor recommend` for many jobs, or for several GPUs.

    Attributes:
        text: The recommendation in words.
        notes: What may go wrong, and what stays unused.
        serial: All jobs one at a time on each GPU.
    """

    gpu: str
    gpus: int
    hosts: tuple[GpuCount, ...]
    objective: ObjectiveName
    ranked_by: ObjectiveName
    note: str | None
    text: str
    notes: tuple[str, ...]
    request: Annotated[Request, Inline()]
    serial: AdvisedFleetPlan
    plans: tuple[AdvisedFleetPlan, ...]
    standing: Annotated[Standing, Mark.AT_TOP]


def fleet_advice(plan: FleetPlan, device: str | None = None, top: int | None = None) -> FleetAdvice:
    """Return the answer with the `top` plans, by default all.

    Commands for one GPU are for the first of the machine, or for that with the index `device`.

    Raises:
        InvalidInput: There is no such device.
    """
    plans = [_advised(plan, each, rank, device) for rank, each in enumerate(plan.plans, start=1)]
    words = " ".join([*_deadlines_missed(plan), f"{instruction(plan)}.", outcome(plan)])
    return FleetAdvice(
        gpu=plan.pools[0].gpu.key,
        gpus=plan.gpus,
        hosts=tuple(GpuCount(pool.gpu.key, pool.hosts, pool.host_gpus) for pool in plan.pools),
        objective=plan.terms.objective,
        ranked_by=plan.ranked_by,
        note=plan.note,
        text=forecast.with_estimates_named(plan.standing, words),
        notes=tuple(gpu_notes(plan)),
        request=forecast.request_of(plan.jobs),
        serial=next(each for each in plans if each.plan is plan.serial),
        plans=tuple(plans[:top]),
        standing=plan.standing,
    )


def _advised(
    plan: FleetPlan, each: FleetForecast, rank: int, device: str | None
) -> AdvisedFleetPlan:
    launches = fleet_launch_plans(each)
    serial_s, makespan_s, mean_s = plan.serial.makespan_s, each.makespan_s, each.mean_completion_s
    ratio = joint_ratio(each.compared, plan.compared, same_way=each is plan)
    return AdvisedFleetPlan(
        plan=each,
        fullest=each.fullest,
        rank=rank,
        ties_best=holds_one(ratio),
        sharing=_sharing(each),
        commands=() if why_not_started(launches) else commands(launches, device),
        why=_search_line(plan),
        jobs=_fleet_jobs(each),
        makespan_s=None if makespan_s is None else makespan_s.p50,
        makespan_interval_s=makespan_s,
        mean_completion_s=None if mean_s is None else mean_s.p50,
        speedup_vs_serial=serial_s.p50 / makespan_s.p50 if serial_s and makespan_s else None,
        gain=plan.gain(each),
        gpus=tuple(
            FleetGpu(
                on=on,
                job_numbers=on.jobs,
                commands=() if launch.wide else commands([launch], device),
            )
            for on, launch in zip(each.on, launches, strict=True)
        ),
        search=FleetSearch(
            each.cost,
            each.way,
            plan.exact,
            plan.groups_compared,
            plan.groups_predicted,
            plan.cut_short,
        ),
    )


def _fleet_jobs(plan: FleetForecast) -> tuple[FleetJob, ...]:
    """The jobs by number; a job on several GPUs has the prediction on the last of them."""
    ends_s, gpus = plan.ends_s or (None,) * len(plan.jobs), dict[int, list[int]]()
    predictions = dict[int, JobPrediction]()
    for on in plan.on:
        predictions.update(zip(on.jobs, on.forecast.prediction.jobs, strict=True))
        for number in on.jobs:
            gpus.setdefault(number, []).append(on.number)
    jobs = forecast.advised_jobs(plan.jobs, [predictions[each] for each in sorted(predictions)])
    return tuple(
        FleetJob(job=job, on_gpus=tuple(gpus[number]), end_s=end_s)
        for number, (job, end_s) in enumerate(zip(jobs, ends_s, strict=True), start=1)
    )


def fleet_commands(plan: FleetPlan, rank: int, device: str | None = None) -> str:
    """Return the shell lines of the plan of this rank; `device` as in `fleet_advice`.

    Raises:
        InvalidInput: There is no such plan or device, or no script can start the plan.
    """
    chosen = forecast.ranked_plan(plan.plans, rank)
    return "\n".join(commands(fleet_launch_plans(chosen), device))


JobOnGpu = tuple[int, SimulatedJob]
"""The number of a job, from 1 in the order of the request, and its run on one of several GPUs."""


def jobs_of_plan(plan: FleetPlan, simulations: Sequence[Simulation]) -> list[JobOnGpu]:
    """Return the jobs of a plan; `simulations` are those of the GPUs of `plan.on`."""
    return by_gpu(
        (number, replace(run, gpus=(on.number,)))
        for on, simulation in zip(plan.on, simulations, strict=True)
        for number, run in zip(on.jobs, simulation.jobs, strict=True)
    )


def by_gpu(jobs: Iterable[JobOnGpu]) -> list[JobOnGpu]:
    """Sort `jobs` by GPU, and on each as they start; copies next to each other."""
    return sorted(jobs, key=lambda job: (job[1].gpu, job[1].start_s, job[1].job.name, job[0]))


def lanes_of(jobs: Sequence[JobOnGpu]) -> Timeline:
    """Return a row for each job, by GPU; copies with equal times on one GPU share a row."""
    rows = []
    for (name, (gpu,), *_), equal in groupby(jobs, lambda job: same_times(job[1])):
        copies = list(equal)
        number, run = copies[0]
        rows.append((f"GPU {gpu} · {number} · {units.collapsed([name] * len(copies))}", run))
    ends = [max(run.end_s.at(level) for _, run in jobs) for level in LEVELS]
    return in_rows(rows, around(ends))
