"""A plan for many jobs or several GPUs in words: what to do, each GPU, and what to know."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table

from advisor.errors import counted, with_article
from advisor.plan.objectives import cost
from advisor.plan.reasons import named
from advisor.plan.values import GpuPlan, Plan, Recommendation
from advisor.prediction.prediction import LEVELS, around
from advisor.report import forecast
from advisor.report import format as units
from advisor.sharing import Group as Sharers
from advisor.sharing.groups import groups, relabelled
from advisor.workload.job import Job

_WIDEST_NUMBERS = 8  # longer cells of job numbers overhang and do not indent all other rows
_WIDEST_JOBS = 62  # characters that name the jobs of a GPU
_RISKY = 0.01  # a smaller risk of running out of memory is not worth a sentence


def instruction(advised: Recommendation) -> str:
    """Return what to do, as a person says it."""
    plan = advised.best
    if len(advised.jobs) == 1:
        return f"Nothing to share: run the job alone{_cap(plan)}"
    where = "" if advised.gpus == 1 else " on each"
    jobs = f"the {len(advised.jobs)} jobs on {_gpus_in_words(advised)}"
    most_in_all = max(len(on.members) for on in plan.gpus)
    most = max(
        each.at_once if isinstance(each, Sharers) else len(each.jobs)
        for on in plan.gpus
        for each in groups(on.sharing, len(on.members))
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


def _cap(plan: Plan) -> str:
    """The power caps of the plan, in words."""
    caps_w = " or ".join(f"{cap_w:g}" for cap_w in plan.power_caps_w)
    return f", at most {caps_w} W a GPU" if caps_w else ""


def _way(plan: Plan) -> str:
    """How jobs share a GPU, if all do so in one way, or that some are on MIG instances."""
    if any(on.sharing.instances for on in plan.gpus):
        return " on MIG instances"
    modes = {
        part.sharing.mode
        for on in plan.gpus
        for group in groups(on.sharing, len(on.members))
        for part in group.partitions
        if len(part.jobs) > 1
    }
    ways = {
        "mps": " under MPS",
        "mps-limits": " under MPS with limits",
        "naive": " by time-slicing",
    }
    return ways[modes.pop()] if len(modes) == 1 else ""


def _gpus_in_words(advised: Recommendation) -> str:
    if advised.gpus == 1:
        return with_article(advised.gpu.key)
    return " and ".join(map(str, advised.hosts))


def few_gpus(advised: Recommendation) -> Table:
    """A line for each GPU with its jobs by name; GPUs whose lines are equal share one."""
    numbers: dict[tuple[str, str, str], list[int]] = {}
    for on in advised.best.gpus:
        gpu = "" if len(advised.hosts) == 1 else f" {on.gpu.key}"
        numbers.setdefault((gpu, _jobs_in_words(on), _done(on)), []).append(on.number)
    table = Table.grid(padding=(0, 2, 0, 0))
    for (gpu, jobs, done), same in numbers.items():
        table.add_row(f"GPU {units.numbers(same)}{gpu}", jobs, done)
    return table


def _jobs_in_words(on: GpuPlan) -> str:
    """Names of the jobs of a GPU in the order of their starts; of many jobs the most frequent."""
    turns = []
    for group in groups(on.sharing, len(on.members)):
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


def gpu_rows(advised: Recommendation) -> list[dict[str, str]]:
    """Return a row for each GPU that runs a job; the keys are the columns' names."""
    rows = []
    for on in advised.best.gpus:
        cap_w = on.prediction.power_cap_w
        groups = [_shortened(str(each)) for each in relabelled(on.sharing, on.job_numbers)]
        groups += [] if cap_w is None else [f"at most {cap_w:g} W"]
        rows.append(
            {
                "GPU": str(on.number) if len(advised.hosts) == 1 else f"{on.number} {on.gpu.key}",
                "jobs by number, group after group": "\n".join(groups),
                "all done": _done(on),
                "memory": units.held(on.prediction),
            }
        )
    return rows


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


def gpu_notes(advised: Recommendation) -> Iterator[str]:
    """Yield what may go wrong and what stays unused: late jobs, memory, GPUs and MIG slices."""
    plan = advised.best
    if plan.late_jobs:
        yield f"Late: {named([advised.jobs[number - 1].name for number in plan.late_jobs])}."
    elif any(job.deadline_s is not None for job in advised.jobs):
        yield "It keeps every deadline."
    if (risk := plan.oom_probability) > _RISKY:
        yield f"Risk of running out of memory on the fullest GPU: {units.share(risk)}."
    busy = Counter(on.gpu.key for on in plan.gpus)
    unused = [(count.gpus - busy[str(count.gpu)], count.gpu) for count in advised.hosts]
    if idle := " and ".join(f"{count} {key}" for count, key in unused if count):
        yield f"Unused: {idle}."
    slices: dict[int, list[int]] = {}
    for on in plan.gpus:
        slices.setdefault(_slices_unused(on), []).append(on.number)
    for count, gpus in slices.items():
        if count:
            yield f"Unused on GPU {units.numbers(gpus)}: {counted(count, 'MIG slice')}."
    users = {job.user for job in advised.jobs}
    if len(users) > 1:
        yield "MPS serves one user at a time: jobs of different users do not share it."
    if advised.note:
        yield f"Ranked by {advised.ranked_by}: {advised.note}."


def _slices_unused(on: GpuPlan) -> int:
    """MIG slices of a GPU without a job all the time; none if it runs a job without MIG."""
    of_profile = {each.name: each.compute_slices for each in on.gpu.mig}
    used = [
        sum(of_profile[each.profile] for each in group.instances) if group.instances else 0
        for group in groups(on.sharing, len(on.members))
    ]
    return max(of_profile.values()) - max(used) if all(used) else 0


def caveat(advised: Recommendation) -> str:
    """Return what to know first of the best plan."""
    if estimates := forecast.with_estimates_named(advised.standing, ""):
        return estimates
    if not advised.best.confirmed_on_hardware:
        return f"It is {forecast.NOT_CONFIRMED}."
    return forecast.host_note(advised.standing)


def effort(advised: Recommendation) -> Iterator[str]:
    """Yield a hint where a longer search may find a better plan."""
    if advised.longer_effort is not None:
        yield f"--effort {advised.longer_effort:g} searches longer."


def more_notes(advised: Recommendation) -> Iterator[str]:
    """Yield further figures of the best plan, how it was found, and what it rests on."""
    plan = advised.best
    if (mean_s := cost(plan, "mean-completion")) is not None:
        yield f"Mean of the jobs' ends: {units.seconds(mean_s)}."
    if plan.energy_j is not None:
        yield f"Energy of all GPUs until then: {units.joules(plan.energy_j)}."
    yield " ".join([f"{advised.searched}.", *effort(advised)])
    yield from map(forecast.cap_note, plan.power_caps_w)
    yield "In parentheses: 90 % intervals."
    yield from dict.fromkeys([caveat(advised), forecast.host_note(advised.standing)])
