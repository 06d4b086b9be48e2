"""The answers of `advisor recommend`: as reports with their tables, as CSV, and as records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from advisor.documents import Inline, Mark
from advisor.hardware.gpus import GpuCount
from advisor.launch.launch_plan import fleet_launch_plans
from advisor.launch.shell import commands, why_not_started
from advisor.plan import ObjectiveName
from advisor.plan.fleet import FleetForecast, FleetPlan, GpuPlan
from advisor.plan.fleet_search import Way
from advisor.plan.objectives import OBJECTIVES, holds_one, joint_ratio, known_cost
from advisor.plan.ranking import Verdict, verdict
from advisor.plan.values import Plan, Recommendation, Standing
from advisor.prediction.prediction import Interval, JobPrediction, MixPrediction
from advisor.report import fleet, forecast
from advisor.report import format as units
from advisor.report.recommendation import answer, caveats, hints, missing_ways, opening
from advisor.report.tables import FittedTable, csv_text, fits, range_columns, table_of
from advisor.workload.job import Job
from advisor.workload.plan_document import embedded, profile_positions, workloads_by_name
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload

_LINES, _COLUMNS = 14, 100  # of an answer without details


def plans_report(
    advised: Recommendation, *, command: str = "", details: bool = False
) -> RenderableType:
    """Return the answer: what to do, each way to share at its best, how to start it, what to know.

    `command` is the line that says how to start it. With `details`, every plan in full, too, and
    how the plans were searched.
    """
    first, *then = opening(advised)
    missing = list(missing_ways(advised))
    notes = [note for note in caveats(advised) if note not in missing]
    parts: list[RenderableType] = [Text(first, style="bold"), *map(Text, then)]
    if len(advised.jobs) > 1:
        parts += [Text(), _ways_table(_ways(advised), slowest=True), *map(Text, missing)]
    if command:
        parts.append(Text(command))
    if details:
        parts += [*map(Text, (*notes, *hints(advised))), Text(), *_in_full(advised)]
    else:
        parts += map(Text, (f"{notes[0]} More: --details.", *hints(advised)))
    return Group(*parts)


def fleet_report(plan: FleetPlan, *, command: str = "", details: bool = False) -> RenderableType:
    """Return the answer: what to do, each way to plan, each GPU, how to start it, what to know.

    `command` is the line on how to start it. With `details`, every job of every GPU by its number,
    and how the plan was found.
    """
    first, *then = [*fleet.deadlines_missed(plan), f"{fleet.instruction(plan)}."]
    then += forecast.layout_needs([(on.gpu, on.forecast) for on in plan.on], None)

    def answer(*gpus: RenderableType) -> Group:
        rest = "More" if gpus else "The jobs of each GPU, and more"
        more = [fleet.caveat(plan), *fleet.effort(plan), f"{rest}: --details."]
        return Group(
            Text(first, style="bold"),
            *map(Text, then),
            Text(" ".join([fleet.outcome(plan), *fleet.gpu_notes(plan)])),
            _ways_table(_fleet_ways(plan), slowest=False),
            *gpus,
            *map(Text, filter(None, [command, "" if details else " ".join(more)])),
        )

    if not details:
        few = fits(answer(fleet.few_gpus(plan)), _LINES, _COLUMNS)
        return answer(fleet.few_gpus(plan)) if few else answer()
    every = table_of(fleet.gpu_rows(plan))
    every.columns[1].overflow = "fold"
    lines = [*fleet.numbered_jobs(plan.jobs), ""]
    return Group(
        answer(), Text(), *map(Text, lines), every, Text(), *map(Text, fleet.more_notes(plan))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A plan as a line of a table.

    Attributes:
        measure: What `cost`, which has a unit, measures.
        worst_slowdown: Of all jobs.
        late: Number of jobs that miss their deadlines; None: no job has one.
    """

    name: str
    sharing: str
    is_best: bool
    measure: str
    cost: str
    makespan_s: Interval | None
    gain: Interval
    fullest: MixPrediction
    energy_j: Interval | None
    worst_slowdown: float
    oom_probability: float
    confirmed: bool
    late: int | None = None


def _ways(advised: Recommendation) -> list[_Way]:
    """Each way to share one GPU at its best."""
    best = forecast.best_of_each_way(advised)
    return [_way(advised, plan, name) for name, plan in best.items()]


def _way(advised: Recommendation, plan: Plan, name: str) -> _Way:
    by, mix = advised.ranked_by, plan.prediction
    return _Way(
        name=name,
        sharing=str(plan.sharing),
        is_best=plan is advised.best,
        measure=OBJECTIVES[by].measure,
        cost=forecast.shown_cost(by)(known_cost(plan, by)),
        makespan_s=plan.makespan_interval_s,
        gain=forecast.gain(advised, plan),
        fullest=mix,
        energy_j=plan.energy_j,
        worst_slowdown=max(job.slowdown for job in mix.jobs),
        oom_probability=mix.oom_probability,
        confirmed=mix.confirmed_on_hardware,
    )


def _fleet_ways(plan: FleetPlan) -> list[_Way]:
    """Each way to plan several GPUs or many jobs, the simplest first."""
    ways = [_fleet_way(plan, each) for each in plan.plans]
    return sorted(ways, key=lambda each: [*fleet.WAYS.values()].index(each.name))


def _fleet_way(plan: FleetPlan, each: FleetForecast) -> _Way:
    by = OBJECTIVES[plan.ranked_by]
    shown = units.joules if by.unit == "J" else units.seconds
    known = by.name in ("energy", "mean-completion")
    jobs = [job for on in each.on for job in on.forecast.prediction.jobs]
    return _Way(
        name=fleet.WAYS[each.way],
        sharing=fleet.sharing_of(each),
        is_best=each is plan,
        measure=by.measure if known else OBJECTIVES["makespan"].measure,
        cost=shown(each.compared) if known else units.seconds(each.makespan_s),
        makespan_s=each.makespan_s,
        gain=plan.gain(each),
        fullest=each.fullest,
        energy_j=each.energy_j,
        worst_slowdown=max(job.slowdown for job in jobs),
        oom_probability=each.oom_probability,
        confirmed=each.confirmed_on_hardware,
        late=len(each.late) if any(job.deadline_s for job in plan.jobs) else None,
    )


def _ways_table(ways: Sequence[_Way], *, slowest: bool) -> FittedTable:
    """A line for each plan, a mark before the best; the heading says if all are estimated.

    Only the quantity by which plans are ranked, and the gain, have their ranges.
    """
    measured = any(way.confirmed for way in ways)
    first, rows = "" if measured else "  all estimated", []
    for way in ways:
        estimated = ", estimated" if measured and not way.confirmed else ""
        row = {first: f"{'>' if way.is_best else ' '} {way.name}{estimated}", way.measure: way.cost}
        if way.makespan_s is not None:
            row.setdefault(
                OBJECTIVES["makespan"].measure, units.middle(way.makespan_s, units.seconds)
            )
        row |= {"gain": units.times(way.gain), "memory": units.gib_of(way.fullest.memory_total_mib)}
        if way.measure != OBJECTIVES["energy"].measure:
            row["energy"] = units.middle(way.energy_j, units.joules)
        if slowest:
            row["slowest job"] = f"{units.number(way.worst_slowdown)}x"
        if way.late is not None:
            row["late"] = str(way.late)
        rows.append(row)
    return table_of(rows)


def plans_csv(advised: Recommendation) -> str:
    """Return a table of all plans as CSV, best first."""
    jobs = len(advised.jobs)
    return csv_text(
        _columns(rank, _way(advised, plan, units.way_of(plan.sharing, jobs)))
        | {"power_cap_w": plan.prediction.power_cap_w, "ties_best": plan.ties_best}
        for rank, plan in enumerate(advised.plans, start=1)
    )


def fleet_csv(plan: FleetPlan) -> str:
    """Return a table of the plans of all ways as CSV, best first, as `plans_csv` does."""
    return csv_text(
        _columns(rank, _fleet_way(plan, each)) for rank, each in enumerate(plan.plans, start=1)
    )


def _columns(rank: int, way: _Way) -> dict[str, object]:
    return {
        "rank": rank,
        "way": way.name,
        "sharing": way.sharing,
        **range_columns("total_time", "s", way.makespan_s),
        **range_columns("gain", "", way.gain),
        "memory_mib": way.fullest.memory_total_mib,
        "energy_j": way.energy_j and way.energy_j.p50,
        "power_w": way.fullest.power_w and way.fullest.power_w.p50,
        "worst_slowdown": way.worst_slowdown,
        "oom_probability": way.oom_probability,
        "estimated": not way.confirmed,
    }


def _in_full(advised: Recommendation) -> Iterator[RenderableType]:
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
        gain = units.times(forecast.gain(advised, plan))
        yield Text(f"   memory {forecast.memory_held(plan)}; gain over serial {gain}")
        yield Padding(plan.why, (0, 0, 0, 3), style="dim", expand=False)
    yield Text()
    yield from (Text(f"Left out: {each.sharing}: {each.why}.") for each in advised.left_out)
    if advised.searched:
        yield Text(f"Searched: {advised.searched}.")
    note = "In parentheses: 90 % intervals."
    if not all(plan.prediction.confirmed_on_hardware for plan in advised.plans):
        note += " Estimated plans were never measured: their intervals follow from their parts."
    plans = [(advised.gpu, each) for each in advised.plans]
    yield Text(" ".join([note, *forecast.layout_needs(plans, advised.serial)]))
    yield Text("`advisor export --rank 1` writes the script of plan 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedJob:
    """The prediction of a job, its request, and the position of its profile in an answer."""

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


def advised_jobs(
    jobs: Sequence[Job], predictions: Sequence[JobPrediction]
) -> tuple[AdvisedJob, ...]:
    """Return `jobs` with their `predictions`."""
    profiles = profile_positions(jobs)
    return tuple(
        AdvisedJob(
            prediction=prediction,
            request=job,
            workload=job.profile.workload,
            profile=profiles[job.profile],
        )
        for job, prediction in zip(jobs, predictions, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Request:
    """The jobs of an answer, with which ``advisor run`` runs a plan without their profiles.

    Attributes:
        workloads: By the jobs' names.
        profiles: Those of the jobs, each once.
        epochs: Of each job.
    """

    workloads: dict[str, Workload]
    profiles: tuple[Profile, ...]
    epochs: tuple[float, ...]


def request_of(jobs: Sequence[Job]) -> Request:
    """Return what an answer has of its `jobs` besides predictions."""
    return Request(
        workloads_by_name(job.profile.workload for job in jobs),
        embedded(profile_positions(jobs)),
        tuple(job.epochs for job in jobs),
    )


@dataclass(frozen=True, slots=True)
class AdvisedPlan:
    """A plan: how jobs share a GPU, its rank, and the shell lines that apply it."""

    plan: Annotated[Plan, Inline()]
    jobs: tuple[AdvisedJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The answer of `advisor recommend` for jobs that start together on one GPU.

    Attributes:
        text: The recommendation in words.
    """

    advised: Annotated[Recommendation, Inline()]
    text: str
    verdict: Verdict
    request: Annotated[Request, Inline()]
    serial: AdvisedPlan
    plans: tuple[AdvisedPlan, ...]
    another_layout: AdvisedPlan | None


def advice(advised: Recommendation) -> Advice:
    """Return the answer as a record."""

    def plan(each: Plan) -> AdvisedPlan:
        return AdvisedPlan(each, advised_jobs(advised.jobs, each.prediction.jobs))

    layout = advised.another_layout
    return Advice(
        advised=advised,
        text=answer(advised),
        verdict=verdict(advised),
        request=request_of(advised.jobs),
        serial=plan(advised.serial),
        plans=tuple(map(plan, advised.plans)),
        another_layout=None if layout is None else plan(layout),
    )


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


def fleet_advice(plan: FleetPlan) -> FleetAdvice:
    """Return the answer as a record; commands for one GPU are for the first of the machine."""
    plans = [_advised(plan, each, rank) for rank, each in enumerate(plan.plans, start=1)]
    words = " ".join(
        [*fleet.deadlines_missed(plan), f"{fleet.instruction(plan)}.", fleet.outcome(plan)]
    )
    return FleetAdvice(
        gpu=plan.pools[0].gpu.key,
        gpus=plan.gpus,
        hosts=tuple(GpuCount(pool.gpu.key, pool.hosts, pool.host_gpus) for pool in plan.pools),
        objective=plan.terms.objective,
        ranked_by=plan.ranked_by,
        note=plan.note,
        text=forecast.with_estimates_named(plan.standing, words),
        notes=tuple(fleet.gpu_notes(plan)),
        request=request_of(plan.jobs),
        serial=next(each for each in plans if each.plan is plan.serial),
        plans=tuple(plans),
        standing=plan.standing,
    )


def _advised(plan: FleetPlan, each: FleetForecast, rank: int) -> AdvisedFleetPlan:
    launches = fleet_launch_plans(each)
    serial_s, makespan_s, mean_s = plan.serial.makespan_s, each.makespan_s, each.mean_completion_s
    ratio = joint_ratio(each.compared, plan.compared, same_way=each is plan)
    return AdvisedFleetPlan(
        plan=each,
        fullest=each.fullest,
        rank=rank,
        ties_best=holds_one(ratio),
        sharing=fleet.sharing_of(each),
        commands=() if why_not_started(launches) else commands(launches),
        why=fleet.search_line(plan),
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
                commands=() if launch.wide else commands([launch]),
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
    jobs = advised_jobs(plan.jobs, [predictions[each] for each in sorted(predictions)])
    return tuple(
        FleetJob(job=job, on_gpus=tuple(gpus[number]), end_s=end_s)
        for number, (job, end_s) in enumerate(zip(jobs, ends_s, strict=True), start=1)
    )
