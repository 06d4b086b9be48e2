"""A forecast of one plan: its name, figures and basis in words, as rows of the page and as JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Group
from rich.text import Text

from advisor.errors import InvalidInput, counted, is_or_are, with_article
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES, joint_ratio, most_gain
from advisor.plan.values import Forecast, OneLoader, Plan, Recommendation, Standing, Way
from advisor.prediction.power import CAP_NOTE
from advisor.prediction.prediction import LEVELS, Interval, JobPrediction, Level, MixPrediction
from advisor.report import format as units
from advisor.sharing import Sharing
from advisor.sharing.groups import groups, lines_of, one_by_one
from advisor.simulation.results import SimulatedJob, Simulation
from advisor.workload.catalogue import how_to_measure
from advisor.workload.job import Job
from advisor.workload.minimal_profile import NOMINAL_STEP_S

_Ranked = TypeVar("_Ranked")
NOT_CONFIRMED = "estimated, not confirmed on hardware"
_MOST_NAMED = 3  # jobs; more are counted
_NO_RESET = 9  # major compute capability from which MIG mode needs no reset of the GPU


def cap_note(cap_w: float) -> str:
    """Return the basis of predictions under a power cap."""
    return f"Under a power cap of {units.number(cap_w)} W: {CAP_NOTE}."


def basis_notes(standing: Standing) -> Iterator[str]:
    """Yield the `cap_note` of a cap on everything, and the `host_note`."""
    if standing.power_cap_w is not None:
        yield cap_note(standing.power_cap_w)
    yield host_note(standing)


def host_note(standing: Standing) -> str:
    """Return the speed of the host that predictions assume, and its source."""
    basis = []
    if (check := standing.host_check) is not None:
        at = datetime.fromtimestamp(check.made_at).astimezone()
        basis.append(f"checked at {at:%H:%M} with {counted(check.busy, 'busy process')}")
    if standing.host_solo:
        basis.append(f"last runs alone of {', '.join(standing.host_solo)}")
    if not basis:
        notes = ["Host not checked: intervals allow for slower and faster hosts (--check-host)."]
    elif standing.host_factor is None:
        notes = [f"Host {basis[0]}, but the profiles do not record how fast their hosts were."]
    else:
        notes = [
            f"CPU work takes {units.number(standing.host_factor)} times as long here as on the "
            f"hosts of the profiles ({'; '.join(basis)})."
        ]
    if standing.calibrated is not None:
        notes.append(f"Calibrated by {Path(standing.calibrated).name}.")
    paces, factors = [], []
    for name, pace in standing.own_paces.items():
        if pace.runs:
            slower = units.number(pace.slowdown)
            paces.append(f"{name} ({counted(pace.runs, 'run')}: {slower}x its profile)")
        by_mode = [
            f"{units.number(each.factor)}x ({mode}, {counted(each.runs, 'run')})"
            for mode, each in pace.beside.items()
        ]
        factors += [f"{name} {', '.join(by_mode)}"] if by_mode else []
    if paces:
        notes.append(f"CPU time corrected by your own runs: {', '.join(paces)}.")
    if factors:
        notes.append(f"Steps of co-located jobs corrected by your own runs: {'; '.join(factors)}.")
    return " ".join(notes)


def with_estimates_named(standing: Standing, sentence: str) -> str:
    """Return `sentence`, then a line for each source of estimated profiles and nominal steps."""
    sentences = [sentence] if sentence else []
    for profile in standing.estimated:
        if profile.other_batches is not None:
            sizes = ", ".join(map(str, profile.other_batches.batches))
            sentences.append(f"{profile.name} is estimated from batch sizes {sizes}.")
    one_source = standing.host_from == standing.estimated_from
    if standing.host_from is not None and not one_source:
        sentences.append(
            f"CPU time is that of the host of the {standing.host_from} profiles, for all GPU "
            "models of this question."
        )
    if elsewhere := [each for each in standing.estimated if each.estimated_from is not None]:
        names = [each.name for each in elsewhere]
        traced = all(each.trace for each in elsewhere)
        how = "kernel by kernel" if traced else "partly by whole steps"
        there = ", with the CPU time measured there" if one_source else ""
        measure, listed = how_to_measure(names), ""
        if not {*names} <= {*measure.replace("`", "").split()}:
            few = len(names) <= _MOST_NAMED
            listed = f": {', '.join(names) if few else counted(len(names), 'job')}"
        sentences.append(
            f"Estimated from {standing.estimated_from}{listed}, {how}{there}. To measure on "
            f"{with_article(elsewhere[0].gpu)}: {measure}."
        )
    if nominal := standing.nominal:
        few = len(nominal) <= _MOST_NAMED
        listed = ", ".join(nominal) if few else counted(len(nominal), "job")
        sentences.append(
            f"The step of {listed} is nominal, {1000.0 * NOMINAL_STEP_S:g} ms, because only the "
            "duration is known. Read slowdowns and times of whole jobs, not steps."
        )
    return "\n".join(sentences)


WAYS: Mapping[Way, str] = {
    "serial": "one at a time",
    "batches": "equal batches",
    "first-fit": "batches by load",
    "mig": "lines on MIG instances",
    "queue": "queues",
    "exact": "chosen groups",
}
"""How jobs are grouped on several GPUs, in words."""


def way_name(advised: Recommendation, plan: Plan) -> str:
    """Return how `plan` groups the jobs, or how they share the only GPU, in words."""
    return WAYS[plan.way] if plan.way else units.way_of(plan.sharing, len(advised.jobs))


def best_of_each_way(advised: Recommendation) -> dict[str, Plan]:
    """Return the best plan of each way that has one, the simplest way first."""
    best: dict[str, Plan] = {}
    for plan in advised.plans:
        best.setdefault(way_name(advised, plan), plan)
    return {way: best[way] for way in (*units.WAYS, *WAYS.values()) if way in best}


def layout_needs(uses: Iterable[tuple[Gpu, Sharing]], serial: Sharing | None) -> Iterator[str]:
    """Yield the requirements for MIG instances that a plan has to make.

    Plans make none if `serial`, one job after another, uses instances: these exist.
    """
    gpus = [gpu for gpu, sharing in uses if sharing.instances]
    if gpus and not (serial and serial.instances):
        no_reset = all(int(each.compute_capability.split(".")[0]) >= _NO_RESET for each in gpus)
        takes = " and an idle GPU" if no_reset else ", an idle GPU and its reset"
        yield f"Making MIG instances needs root{takes}."


def ranked_plan(plans: Sequence[_Ranked], rank: int) -> _Ranked:
    """Return the plan at `rank`, from 1.

    Raises:
        InvalidInput: There is no such plan.
    """
    if not 1 <= rank <= (count := len(plans)):
        raise InvalidInput(
            f"plan {rank} not found: there {is_or_are(count)} {counted(count, 'plan')}."
        )
    return plans[rank - 1]


def plan_name(advised: Recommendation, plan: Plan) -> str:
    """Return the notation of how the jobs share, and the power caps if the plan chose some."""
    if plan.power_caps_w in ((), advised.serial.power_caps_w):
        return plan.notation
    return f"{plan.notation} at most {' or '.join(f'{cap_w:g}' for cap_w in plan.power_caps_w)} W"


def basis(mix: MixPrediction) -> str:
    """Return the basis of the figures of a plan."""
    if mix.confirmed_on_hardware and mix.estimated_from is None:
        return "predicted from real runs of this kind"
    return estimated(mix)


def short_basis(mix: MixPrediction) -> str:
    """Return the `basis` for a narrow chart, with one name for all other GPUs."""
    return basis(mix) if mix.estimated_from is None else "estimated from other GPUs"


def estimated(mix: MixPrediction | Simulation) -> str:
    """Return the source of figures without runs of this kind on this GPU."""
    if mix.estimated_from is None:
        return NOT_CONFIRMED
    others = [key for key in mix.gpu.split(" and ") if key != mix.estimated_from]
    where = " and ".join(map(with_article, others))
    return f"estimated from {mix.estimated_from}, never measured on {where}"


def slowdown(job: JobPrediction) -> Interval:
    """Return the shared step over the step alone."""
    return Interval(*map(job.slowdown_at, LEVELS))


def deadlines_missed(advised: Recommendation) -> Iterator[str]:
    """Yield a sentence on the deadlines that even the best plan misses, and by how much.

    The best plan has the least ratio of a job's end to its deadline.
    """
    if not all(plan.late_jobs for plan in advised.plans):
        return

    def of_time(plan: Plan) -> list[float]:
        pairs = zip(plan.ends_s or (), advised.jobs, strict=True)
        return [
            end_s.at(advised.level) / job.deadline_s if job.deadline_s else 0.0
            for end_s, job in pairs
        ]

    tightest = min((max(of_time(plan)), of_time(plan)) for plan in advised.plans)[1]
    late = {
        job.name: f"{job.name} ends {units.duration((part - 1) * job.deadline_s)} after its "
        f"deadline of {units.duration(job.deadline_s)}"
        for part, job in sorted(zip(tightest, advised.jobs, strict=True), key=lambda pair: pair[0])
        if job.deadline_s and part > 1
    }
    if late:
        worst = list(late.values())[::-1]
        more = len(worst) - _MOST_NAMED
        rest = f"; {counted(more, 'other job')} late" if more > 0 else ""
        best = f"{'; '.join(worst[:_MOST_NAMED])}{rest}"
        how = "" if advised.ranked_by == "deadlines" else " Rank by that: --objective deadlines."
        yield f"No plan keeps every deadline. At best, {best}.{how}"


def ranking_note(level: Level) -> str:
    """Return by what plans are ranked, where it is not by medians."""
    return "" if level == "p50" else " Ranked by the upper ends of the 90 % intervals."


def best_gain(advised: Recommendation) -> str:
    """Return the gain of the best sharing, for a recommendation not to share."""
    gains = [plan.gain for plan in advised.plans if not plan.one_by_one]
    if not gains:
        return ""
    best = max(gains, key=lambda each: each.p50)
    return f"the best sharing has a gain of {units.times(best)}"


def shown_cost(objective: ObjectiveName) -> Callable[[Interval], str]:
    """Return the function that writes a cost by `objective` with its unit."""
    if objective == "throughput":  # more is better: the work in the time of one after another
        return lambda cost: units.times(Interval(1 / cost.p95, 1 / cost.p50, 1 / cost.p05))
    by_unit = {"s": units.seconds, "J": units.joules, "ratio": units.times}
    return by_unit[OBJECTIVES[objective].unit]


def forecast_report(forecast: Forecast) -> Group:
    """Return what ``advisor predict`` prints: whether it fits, the mix, and each job."""
    mix, memory = forecast.prediction, memory_held(forecast.prediction)
    total = "unknown, because the length of an epoch is unknown"
    done_s, serial_s = forecast.makespan_interval_s, forecast.serial_interval_s
    if done_s is not None and serial_s is not None:
        total = units.seconds(done_s)
        if not one_by_one(forecast.sharing):
            faster = joint_ratio(serial_s, done_s, same_way=False)
            faster = faster.held_in(0.0, most_gain(forecast, "makespan"))
            total += f"; {units.times(faster)} as fast as one after another"
    origin = "" if mix.confirmed_on_hardware else f", {estimated(mix)}"
    if any(each.estimated_from for each in forecast.standing.estimated):
        origin = ", estimated"  # the next line has the source
    heading = f"{counted(len(mix.jobs), 'job')} under {mix.sharing} on {mix.gpu}{origin}."
    lines = [
        with_estimates_named(forecast.standing, heading),
        f"total time      {total}",
        f"memory          {memory}; out-of-memory risk {units.share(mix.oom_probability)}",
        f"power, energy   {units.watts(mix.power_w)}; {units.joules(forecast.energy_j)}",
        *([] if mix.power_cap_w is None else [cap_note(mix.power_cap_w)]),
        f"GPU busy        {units.share(mix.gract)}; SMs busy {units.share(mix.smact)}",
        *([] if mix.wide_because is None else [f"note            {mix.wide_because}"]),
        host_note(forecast.standing),
    ]
    if not forecast.fits:
        text = (
            f"DOES NOT FIT in memory: {memory}. All figures below assume enough memory. "
            f"Try fewer jobs, smaller batches, or `advisor recommend`, which omits such plans."
        )
        lines = [text, *lines]
    return Group(*map(Text, lines), Text(), *map(Text, _job_lines(mix.jobs)))


def _job_lines(jobs: Sequence[JobPrediction]) -> Iterator[str]:
    for same in equal_jobs(jobs):
        job = same[0]
        yield units.collapsed([each.job for each in same])
        slower = units.times(slowdown(job))
        yield f"    step    {units.seconds(job.step_s)}, {slower} as long as alone"
        yield f"    epoch   {epoch(job)}"
        capped = units.gib_of(job.memory_min_mib)
        yield f"    memory  {units.gib(job.memory_interval_mib)}; {capped} if capped"
        energies = {
            "a step": job.energy_step_j,
            "an example": job.energy_example_j,
            "an epoch": job.energy_epoch_j,
        }
        amounts = [f"{units.joules(j)} {of}" for of, j in energies.items() if j is not None]
        if amounts:  # no meter separates jobs
            amounts.append(
                "share of this job: base power in equal parts, the rest by what each job adds"
            )
            yield "    energy  " + "\n            ".join(amounts)


def letters_of(jobs: Sequence[Job]) -> dict[str, tuple[str, str]]:
    """Return a letter and the amount of work for each workload, by name."""
    letters = {}
    for index, name in enumerate(dict.fromkeys(job.name for job in jobs)):
        copies = [job for job in jobs if job.name == name]
        words = [
            name,
            *_range([job.epochs for job in copies], 1, "epochs"),
            *_range([job.validation_s for job in copies], 0, "s of validation an epoch"),
            *_range([job.checkpoint_s for job in copies], 0, "s of checkpoints an epoch"),
            *_range([job.start_s for job in copies], 0, "s to start"),
        ]
        letter = chr(ord("A") + index) if index < 26 else f"A{index}"
        letters[name] = letter, ", ".join(words)
    return letters


def _range(amounts: Sequence[float], usual: float, unit: str) -> Iterator[str]:
    """Least and most of a `unit`; nothing if all have the `usual` amount."""
    least, most = min(amounts), max(amounts)
    if least < most:
        yield f"{least:g} to {most:g} {unit}"
    elif least != usual:
        yield f"{least:g} {unit}"


def epoch(job: JobPrediction) -> str:
    """Return the time of an epoch."""
    return "length unknown" if job.epoch_s is None else units.seconds(job.epoch_s)


def memory_held(mix: MixPrediction) -> str:
    """Return the most memory that the processes hold at once, and the GPU's memory."""
    held = [job.memory_interval_mib for job in mix.jobs]
    in_turn = [lines_of(group) for group in groups(mix.sharing, len(held))]
    total = Interval(
        *(
            max(
                sum(
                    sum(nlargest(at_once, (held[number - 1].at(level) for number in numbers)))
                    for numbers, at_once in lines
                )
                for lines in in_turn
            )
            for level in LEVELS
        )
    )
    return f"{units.gib(total)} of {units.gib_of(mix.memory_capacity_mib)}"


def equal_jobs(jobs: Sequence[JobPrediction]) -> list[list[JobPrediction]]:
    """Return predictions of jobs in groups that share name and step as written."""
    same: dict[tuple[str, str], list[JobPrediction]] = {}
    for job in jobs:
        same.setdefault((job.job, units.seconds(job.step_s)), []).append(job)
    return list(same.values())


def plan_cells(
    plan: Plan | Forecast, by: ObjectiveName, cost: Interval, gain: Mapping[str, str]
) -> dict[str, str]:
    """Return the cells that tables of plans share; the keys are the columns' names.

    Plans are ranked `by` the `cost`. `gain` is a cell of the calling table.
    """
    mix, total_s, cells = plan.prediction, plan.makespan_interval_s, dict[str, str]()
    if by != "throughput":  # of which the gain has all
        cells[OBJECTIVES[by].measure] = shown_cost(by)(cost)
    if by != "makespan" and total_s is not None:
        cells["total time"] = units.middle(total_s, units.seconds)
    cells |= {**gain, "memory": units.gib_of(mix.memory_total_mib)}
    if by != "energy":
        cells["energy"] = units.middle(plan.energy_j, units.joules)
    return cells | {"slowest job": f"{units.number(max(job.slowdown for job in mix.jobs))}x"}


def plan_columns(plan: Plan | Forecast) -> dict[str, object]:
    """Return the columns that tables of plans as CSV share."""
    mix = plan.prediction
    return {
        "memory_mib": mix.memory_total_mib,
        "energy_j": plan.energy_j and plan.energy_j.p50,
        "power_w": mix.power_w and mix.power_w.p50,
        "worst_slowdown": max(job.slowdown for job in mix.jobs),
        "oom_probability": mix.oom_probability,
        "estimated": not mix.confirmed_on_hardware,
    }


def plan_rows(advised: Recommendation) -> list[dict[str, Any]]:
    """Return a row for each plan, best first, with numbers; the keys are the columns' names."""
    return [
        {
            "rank": plan.rank,
            "plan": units.shortened(plan_name(advised, plan)),
            "way": way_name(advised, plan),
            "total time, min": plan.makespan_s and plan.makespan_s / 60,
            "gain": plan.gain.p50,
            "from": plan.gain.p05,
            "to": plan.gain.p95,
            "tie": plan.ties_best,
            "memory, GiB": plan.prediction.memory_total_mib / units.MIB_PER_GIB,
            "energy, Wh": plan.energy_j and plan.energy_j.p50 / units.J_PER_WH,
            "estimated": not plan.confirmed_on_hardware,
            "why": plan.why,
        }
        for plan in advised.plans
    ]


def job_rows(advised: Recommendation, plan: Plan) -> list[dict[str, Any]]:
    """Return a row for each job under `plan`, with numbers; the keys are the columns' names."""
    ends_s = plan.ends_s or [None] * len(advised.jobs)
    return [
        {
            "job": job.job,
            "slowdown": job.slowdown,
            "step, ms": 1e3 * job.step_s.p50,
            "ends after, min": None if end_s is None else end_s.p50 / 60,
            "memory, GiB": job.memory_mib / units.MIB_PER_GIB,
            "out-of-memory risk, %": 100 * job.oom_probability,
            "energy a step, J": job.energy_step_j and job.energy_step_j.p50,
            "profile": "estimated" if request.profile.is_estimate else "measured",
        }
        for request, job, end_s in zip(advised.jobs, plan.predictions, ends_s, strict=True)
    ]


def placed_rows(placed: Iterable[tuple[int, SimulatedJob]]) -> list[dict[str, Any]]:
    """Return a row for each numbered job and its time on a GPU; the keys are the columns' names."""
    return [
        {
            "GPU": run.gpu,
            "job": f"{number} · {run.job.name}",
            "starts, min": run.start_s / 60,
            "ends, min": run.end_s.p50 / 60,
            "from": run.end_s.p05 / 60,
            "to": run.end_s.p95 / 60,
            "late": run.job.deadline_s is not None and run.end_s.p50 > run.job.deadline_s,
        }
        for number, run in placed
    ]


def loader_notes(better: OneLoader | None) -> Iterator[str]:
    """Yield the gain of one data loader for all jobs, and its needs; None: nothing."""
    if better is None:
        return
    words = "time-slicing" if better.sharing.mode == "naive" else "MPS"
    if better.sharing.limits:
        limits = sorted(set(better.sharing.limits))
        words += f" with limits of {' and '.join(f'{each:g}' for each in limits)} %"
    then, now = (f"{each or 0:.2g}" for each in (better.cores, better.cores_now))
    cores = "" if then == now else f" with {then} busy cores instead of {now}"
    yield (
        f"One data loader for {better.jobs} jobs at once would give {better.gain:.2f}x the work "
        f"of this plan{cores}, under {words}: --share-loader. Your script needs two lines for it."
    )
