"""Many jobs on several GPUs: the plan as text, rows, CSV and JSON, and its jobs over time."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from advisor.errors import counted, with_article
from advisor.hardware.gpus import GpuCount
from advisor.launch.launch_plan import fleet_launch_plans
from advisor.launch.shell import commands
from advisor.plan.fleet import FleetForecast, FleetPlan, GpuPlan
from advisor.plan.fleet_search import Way
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.reasons import named
from advisor.prediction.prediction import LEVELS, around
from advisor.report import forecast
from advisor.report import format as units
from advisor.sharing import Group as Sharers
from advisor.sharing.groups import groups, relabelled
from advisor.workload.job import Job

_WIDEST_NUMBERS = 8  # longer cells of job numbers overhang and do not indent all other rows
_WIDEST_JOBS = 62  # characters that name the jobs of a GPU
_RISKY = 0.01  # a smaller risk of running out of memory is not worth a sentence
WAYS: Mapping[Way, str] = {
    "serial": "one at a time",
    "batches": "equal batches",
    "first-fit": "batches by load",
    "queue": "queues",
    "exact": "chosen groups",
}


def deadlines_missed(plan: FleetPlan) -> Iterator[str]:
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
    by, gain = OBJECTIVES[plan.ranked_by], plan.gain(plan)
    time = ""
    if by.name not in ("makespan", "deadlines") and plan.makespan_s is not None:
        time = f"; all done in {units.duration(plan.makespan_s.p50)}"
    alone = "one after another" if plan.gpus == 1 else WAYS["serial"]
    alone = f"over {alone}" if by.name == "throughput" else alone
    shown = units.joules if by.unit == "J" else units.seconds
    whole = by.name in ("makespan", "deadlines")
    words = forecast.gain_in_words(
        "" if whole else by.measure,
        shown(plan.compared),
        None if plan is plan.serial else units.middle(plan.serial.compared, shown),
        gain,
        alone,
        time,
        [plan.gain(other) for other in plan.others],
    )
    return words + forecast.ranking_note(plan.level)


def few_gpus(plan: FleetForecast) -> Table:
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


def gpu_rows(plan: FleetForecast) -> list[dict[str, str]]:
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


def numbered_jobs(jobs: Sequence[Job]) -> Iterator[str]:
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


def caveat(plan: FleetPlan) -> str:
    if estimates := forecast.with_estimates_named(plan.standing, ""):
        return estimates
    if not plan.confirmed_on_hardware:
        return f"It is {forecast.NOT_CONFIRMED}."
    return forecast.host_note(plan.standing)


def effort(plan: FleetPlan) -> Iterator[str]:
    """A hint where a longer search may find a better plan."""
    if plan.cut_short:
        yield f"--effort {4 * plan.terms.effort:g} searches longer."


def more_notes(plan: FleetPlan) -> Iterator[str]:
    if plan.mean_completion_s is not None:
        yield f"Mean of the jobs' ends: {units.seconds(plan.mean_completion_s)}."
    if plan.energy_j is not None:
        yield f"Energy of all GPUs until then: {units.joules(plan.energy_j)}."
    yield " ".join([f"{search_line(plan)}.", *effort(plan)])
    caps_w = {on.forecast.prediction.power_cap_w for on in plan.on} - {None}
    yield from (forecast.cap_note(cap_w) for cap_w in sorted(cap_w for cap_w in caps_w if cap_w))
    yield "In parentheses: 90 % intervals."
    yield from dict.fromkeys([caveat(plan), forecast.host_note(plan.standing)])


def search_line(plan: FleetPlan) -> str:
    """How the plan was found."""
    compared, predicted = plan.groups_compared, plan.groups_predicted
    effort = f"{compared:,} groups and queues compared, {predicted} predicted in full"
    if plan.exact:
        return f"{effort}: every way to divide the jobs among the GPUs"
    return f"{effort}: the best of obvious plans, improved"


def sharing_of(plan: FleetForecast) -> str:
    """Notation of what all GPUs run, with the numbers of the jobs in the request."""
    return " | ".join(";".join(_groups(on)) for on in plan.on)


def fleet_commands(plan: FleetForecast) -> str:
    """Return the shell lines of a plan.

    Raises:
        InvalidInput: No script can start the plan.
    """
    return "\n".join(commands(fleet_launch_plans(plan)))
