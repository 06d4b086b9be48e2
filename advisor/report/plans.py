"""The answers of `advisor recommend`: as reports with their tables, as CSV, and as records."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from advisor.documents import Inline
from advisor.errors import counted
from advisor.plan.objectives import cost, known_cost
from advisor.plan.ranking import Verdict, verdict
from advisor.plan.values import GpuPlan, Plan, Recommendation
from advisor.prediction.prediction import LEVELS, Interval, JobPrediction, around
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.format import FittedTable, csv_text, fits, range_columns, table_of
from advisor.report.recommendation import (
    answer,
    caveat,
    caveats,
    effort,
    gpu_notes,
    hints,
    missing_ways,
    opening,
)
from advisor.sharing import Group as Sharers
from advisor.sharing.groups import groups, relabelled
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.run import embedded, profile_positions, workloads_by_name
from advisor.workload.spec import Workload

_LINES, _COLUMNS = 15, 100  # of an answer without details
_WIDEST_NUMBERS = 8  # longer cells of job numbers overhang and do not indent all other rows
_WIDEST_JOBS = 62  # characters that name the jobs of a GPU


def plans_report(
    advised: Recommendation, *, command: str = "", details: bool = False
) -> RenderableType:
    """Return the answer: what to do, each way to share at its best, how to start it, and notes.

    `command` is the line that starts the best plan. With `details`, the answer also has every plan
    in full, or every job of every GPU by its number, and how the plans were searched.
    """
    first, *then = opening(advised)
    missing, many = list(missing_ways(advised)), advised.best.way is not None
    notes = [note for note in caveats(advised) if note not in missing]
    if many:
        then.append(" ".join(gpu_notes(advised)))
    parts: list[RenderableType] = [Text(first, style="bold"), *map(Text, filter(None, then))]
    if len(advised.jobs) > 1:
        parts += [Text(), _ways_table(advised), *map(Text, missing)]
    start = [Text(command)] if command else []
    if details:
        full = _fleet_in_full(advised) if many else _plans_in_full(advised)
        more = [] if many else [*map(Text, (*notes, *hints(advised)))]
        return Group(*parts, *start, *more, Text(), *full)
    known = " ".join([*notes] if many else notes[:1])
    rest = Text(f"{known} More: --details.")
    if many:
        every = Group(*parts, _few_gpus(advised), *start, rest)
        if fits(every, _LINES, _COLUMNS):
            return every
        rest = Text(f"{known} More, with the jobs of each GPU: --details.")
    return Group(*parts, *start, rest, *map(Text, hints(advised)))


def _few_gpus(advised: Recommendation) -> Table:
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
        return "unknown"
    return units.seconds(around([max(each.at(level) for each in on.ends_s) for level in LEVELS]))


_EQUAL_LIMITS = re.compile(r"=(\d+(?:\.\d+)?)(?:,\1)+(?=\[)")
_JOB_NUMBERS = re.compile(r"(?<=\[)[\d,]+(?=\])")


def _gpu_rows(advised: Recommendation) -> list[dict[str, str]]:
    """Return a row for each GPU that runs a job; the keys are the columns' names."""
    rows = []
    for on in advised.best.gpus:
        cap_w = on.prediction.power_cap_w
        own = "\n".join(map(str, relabelled(on.sharing, on.job_numbers)))
        own = _EQUAL_LIMITS.sub(r"=\1 each ", own)
        own = _JOB_NUMBERS.sub(lambda jobs: units.numbers(map(int, jobs[0].split(","))), own)
        own += "" if cap_w is None else f"\nat most {cap_w:g} W"
        rows.append(
            {
                "GPU": str(on.number) if len(advised.hosts) == 1 else f"{on.number} {on.gpu.key}",
                "jobs by number, group by group": own,
                "all done": _done(on),
                "memory": units.held(on.prediction),
            }
        )
    return rows


def _numbered_jobs(jobs: Sequence[Job]) -> Iterator[str]:
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


def _fleet_in_full(advised: Recommendation) -> Iterator[RenderableType]:
    """Every job by its number, every GPU, further figures, and how the plan was found."""
    plan, every = advised.best, table_of(_gpu_rows(advised))
    every.columns[1].overflow = "fold"
    yield from map(Text, _numbered_jobs(advised.jobs))
    yield from (Text(), every, Text())
    if (mean_s := cost(plan, "mean-completion")) is not None:
        yield Text(f"Mean completion time: {units.seconds(mean_s)}.")
    if plan.energy_j is not None:
        yield Text(f"Energy of all GPUs until the last job ends: {units.joules(plan.energy_j)}.")
    yield Text(" ".join([f"{advised.searched}.", *effort(advised)]))
    yield from (Text(forecast.cap_note(cap_w)) for cap_w in plan.power_caps_w)
    yield Text("In parentheses: 90 % intervals.")
    basis = [caveat(advised), forecast.host_note(advised.standing)]
    yield from map(Text, dict.fromkeys(basis))


def _ways_table(advised: Recommendation) -> FittedTable:
    """A line for each way at its best, the best marked; the heading says if all are estimated.

    Only the quantity by which plans are ranked, and the gain, have their ranges.
    """
    best, by = forecast.best_of_each_way(advised), advised.ranked_by
    measured = any(plan.confirmed_on_hardware for plan in best.values())
    dated = advised.best.way and any(job.deadline_s for job in advised.jobs)
    rows = []
    for name, plan in best.items():
        estimated = ", estimated" if measured and not plan.confirmed_on_hardware else ""
        mark = ">" if plan is advised.best else " "
        row = {"" if measured else "  all estimated": f"{mark} {name}{estimated}"}
        gain = {"gain": units.times(plan.gain)}
        row |= forecast.plan_cells(plan, by, known_cost(plan, by), gain)
        if plan.way is not None:
            del row["slowest job"]  # of the fullest GPU alone
        if dated:
            row["late"] = str(len(plan.late_jobs))
        rows.append(row)
    return table_of(rows)


def plans_csv(advised: Recommendation) -> str:
    """Return a table of all plans as CSV, best first."""
    return csv_text(
        {
            "rank": plan.rank,
            "way": forecast.way_name(advised, plan),
            "sharing": plan.notation,
            **range_columns("total_time", "s", plan.makespan_interval_s),
            **range_columns("gain", "", plan.gain),
            **forecast.plan_columns(plan),
            "worst_slowdown": max(job.slowdown for job in plan.predictions),  # of all GPUs
            "oom_probability": plan.oom_probability,
            "estimated": not plan.confirmed_on_hardware,
            "power_cap_w": plan.prediction.power_cap_w,
            "ties_best": plan.ties_best,
        }
        for plan in advised.plans
    )


def _plans_in_full(advised: Recommendation) -> Iterator[RenderableType]:
    letters = forecast.letters_of(advised.jobs)
    yield from (Text(f"{letter}  {job}") for letter, job in letters.values())
    for plan in advised.plans:
        yield Text(f"\n{plan.rank}  {forecast.plan_name(advised, plan)}", style="bold")
        rows = [
            {
                "": f"   {units.collapsed([letters[each.job][0] for each in same])}",
                "epoch (shared)": forecast.epoch(same[0]),
                "slowdown": units.times(forecast.slowdown(same[0])),
            }
            for same in forecast.equal_jobs(plan.prediction.jobs)
        ]
        yield table_of(rows)
        gain = units.times(plan.gain)
        yield Text(f"   memory {forecast.memory_held(plan.prediction)}; gain over serial {gain}")
        yield Padding(plan.why, (0, 0, 0, 3), style="dim", expand=False)
    yield Text()
    yield from (Text(f"Left out: {each.sharing}: {each.why}.") for each in advised.left_out)
    if advised.searched:
        yield Text(f"Searched: {advised.searched}.")
    note = "In parentheses: 90 % intervals."
    if not all(plan.confirmed_on_hardware for plan in advised.plans):
        note += " Estimated plans were never measured: their intervals follow from their parts."
    uses = [(advised.gpu, each.sharing) for each in advised.plans]
    yield Text(" ".join([note, *forecast.layout_needs(uses, advised.serial.sharing)]))
    yield Text("`advisor export --rank 1` writes the script of plan 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedJob:
    """A job of a plan: its prediction, its request, and the position of its profile in an answer.

    GPUs are counted from 0.
    """

    prediction: Annotated[JobPrediction, Inline()]
    request: Annotated[
        Job,
        Inline(
            "epochs",
            "validation_s",
            "checkpoint_s",
            "user",
            "data_parallel",
            "isolated",
            "protect",
        ),
    ]
    workload: Annotated[Workload, Inline("examples_per_epoch", "script")]
    profile: int
    on_gpus: tuple[int, ...]
    end_s: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedPlan:
    """A plan: how jobs share the GPUs, its rank, and the shell lines that apply it.

    Memory, power and activity are those of the GPU whose memory is fullest; `gpus` has each.
    """

    plan: Annotated[Plan, Inline()]
    sharing: str
    jobs: tuple[AdvisedJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The answer of `advisor recommend`, with which ``advisor run`` needs no file of a profile.

    Attributes:
       text: Recommendation in words.
       workloads: Workloads by the names of the jobs.
       profiles: Profiles of the jobs, each once.
       epochs: Epochs of each job.
    """

    advised: Annotated[Recommendation, Inline()]
    text: str
    verdict: Verdict
    workloads: dict[str, Workload]
    profiles: tuple[Profile, ...]
    epochs: tuple[float, ...]
    serial: AdvisedPlan
    plans: tuple[AdvisedPlan, ...]
    another_layout: AdvisedPlan | None


def advice(advised: Recommendation) -> Advice:
    """Return the answer as a record."""
    jobs, layout = advised.jobs, advised.another_layout
    positions = profile_positions(jobs)

    def with_jobs(plan: Plan) -> AdvisedPlan:
        gpus: dict[int, list[int]] = {}
        for on in plan.gpus:
            for number in on.job_numbers:
                gpus.setdefault(number, []).append(on.number)
        rows = zip(jobs, plan.predictions, plan.ends_s or (None,) * len(jobs), strict=True)
        members = tuple(
            AdvisedJob(
                prediction=prediction,
                request=job,
                workload=job.profile.workload,
                profile=positions[job.profile],
                on_gpus=tuple(gpus[number]),
                end_s=end_s,
            )
            for number, (job, prediction, end_s) in enumerate(rows, start=1)
        )
        return AdvisedPlan(plan=plan, sharing=plan.notation, jobs=members)

    plans = tuple(map(with_jobs, advised.plans))
    return Advice(
        advised=advised,
        text=answer(advised),
        verdict=verdict(advised),
        workloads=workloads_by_name(job.profile.workload for job in jobs),
        profiles=embedded(positions),
        epochs=tuple(job.epochs for job in jobs),
        serial=plans[advised.serial.rank - 1],
        plans=plans,
        another_layout=None if layout is None else with_jobs(layout),
    )
