"""Names of plans and costs, and what their figures are based on, in words."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import counted, with_article
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.plan.values import Forecast, Plan, Recommendation, Standing
from advisor.prediction.model import OwnPace
from advisor.prediction.power import CAP_NOTE
from advisor.prediction.prediction import LEVELS, Interval, JobPrediction, MixPrediction
from advisor.report import format as units
from advisor.report.format import kind_of_mode, words_of
from advisor.sharing.groups import running_together
from advisor.workload.catalogue import how_to_measure
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.simulation.simulate import Simulation

    pass


# Up to this number of jobs are named; more are counted.
_NAMED = 3

ORIGINS = """\
**Measured** is each job alone: its step, kernels, memory and power. **Predicted** is what happens
when jobs share, by a model that learnt from real runs of that kind of sharing. **Estimated** is
what no run stands behind here: MIG, power caps, and whatever another GPU's runs say. Times until
jobs end follow from these by simulation."""
"""Where the figures of the page come from."""


def cap_note(cap_w: float) -> str:
    """What predictions under a power cap are based on."""
    return f"Under a power cap of {units.number(cap_w)} W: {CAP_NOTE}."


def basis_notes(standing: Standing) -> Iterator[str]:
    """As `cap_note` where all is under one cap, and as `host_note`."""
    if standing.power_cap_w is not None:
        yield cap_note(standing.power_cap_w)
    yield host_note(standing)


def host_note(standing: Standing) -> str:
    """How fast a host the advice assumes, and how that is known."""
    return " ".join([_checked(standing), *_paced(standing)])


def _paced(standing: Standing) -> Iterator[str]:
    """Jobs whose pace is that of the user's own runs, if there are any."""
    said = [
        f"{name} by {counted(each.runs, 'run')} ({units.number(each.slowdown)} times its profile's)"
        for name, each in standing.own_paces
        if each.runs
    ]
    if said:
        yield f"The host's part as in runs of your own: {', '.join(said)}."
    steps = [f"{name} {_beside(each)}" for name, each in standing.own_paces if each.beside]
    if steps:
        yield (
            f"Steps beside others as in runs of your own, over those from profiles alone: "
            f"{'; '.join(steps)}."
        )


def _beside(own: OwnPace) -> str:
    """Factors on steps, each with the way to share and the runs that showed it."""
    return ", ".join(
        f"{units.number(each.factor)} ({kind_of_mode(mode)}, {counted(each.runs, 'run')})"
        for mode, each in own.beside.items()
    )


def _checked(standing: Standing) -> str:
    known = standing.calibrated
    if known is None:
        why = f" ({standing.unchecked})" if standing.unchecked else ""
        return (
            f"Host not checked{why}: ranges allow for slower and faster ones (`advisor calibrate`)."
        )
    by = "Host checked just now" if known.file is None else f"Calibrated ({Path(known.file).name})"
    if standing.unchecked:
        by += f"; checking the host at hand failed: {standing.unchecked}"
    if known.host_slowdown is None:
        return f"{by}, but the profiles do not say how fast their hosts were."
    return (
        f"{by}: host work takes {units.number(known.host_slowdown)} times as long here as where "
        f"the jobs were profiled."
    )


def with_estimates_named(standing: Standing, sentence: str) -> str:
    """`sentence`, followed by what estimated profiles are estimated from."""
    between = [
        f"{each.name} is estimated from batch sizes "
        f"{', '.join(map(str, each.other_batches.batches))}."
        for each in standing.estimated
        if each.other_batches is not None
    ]
    elsewhere = [each for each in standing.estimated if each.estimated_from is not None]
    sentence = " ".join(filter(None, [sentence, *between]))
    if not elsewhere:
        return sentence
    names = [each.name for each in elsewhere]
    how = (
        "kernel by kernel" if all(each.trace for each in elsewhere) else "not all kernel by kernel"
    )
    measure = how_to_measure(names)
    named = "" if _all_in(measure, names) else f": {_listed(names)}"
    return (
        f"{sentence} Estimated from {standing.estimated_from}{named}, {how}, with the host's part "
        f"as measured there; to measure on {with_article(elsewhere[0].gpu)}: {measure}."
    ).lstrip()


def _all_in(command: str, names: Sequence[str]) -> bool:
    return {*names} <= {*command.replace("`", "").split()}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else counted(len(names), "job")


def bounds_note(advised: Recommendation) -> str:
    """What the intervals in parentheses mean."""
    note = "In parentheses: between these, nine of ten measurements should fall."
    if all(plan.prediction.confirmed_on_hardware for plan in advised.plans):
        return note
    return (
        f"{note} Of estimated plans none was measured: ranges follow from what is known of parts."
    )


def gain(advised: Recommendation, plan: Forecast) -> Interval:
    """Serial cost over cost of `plan`, by the ranking objective: above 1 is better than serial."""
    if plan.prediction is advised.serial.prediction:
        return Interval(1.0, 1.0, 1.0)
    serial, own = (known_cost(each, advised.ranked_by) for each in (advised.serial, plan))
    if plan.sharing == advised.serial.sharing and min(serial.p05, own.p05) > 0:
        return serial.over_alike(own)  # under a cap: it errs as serial without one does
    return Interval(*(serial.p50 / level for level in (own.p95, own.p50, own.p05)))


def chosen_cap_w(advised: Recommendation, plan: Forecast) -> float | None:
    """The power cap that the plan itself chose; None if it has none, or all plans share it."""
    cap_w = plan.prediction.power_cap_w
    return None if cap_w == advised.serial.prediction.power_cap_w else cap_w


def plan_name(advised: Recommendation, plan: Plan) -> str:
    """Notation of how the jobs share, and the power cap if the plan chose one."""
    cap_w = chosen_cap_w(advised, plan)
    return str(plan.sharing) if cap_w is None else f"{plan.sharing} at most {cap_w:g} W"


def plan_kind(advised: Recommendation, plan: Plan) -> str:
    """Kind of the plan, in a word or two, and the power cap if it chose one."""
    kind, cap_w = words_of(plan.sharing).kind, chosen_cap_w(advised, plan)
    return kind if cap_w is None else f"{kind} at {cap_w:g} W"


def basis(mix: MixPrediction) -> str:
    """What the figures of a plan are based on."""
    if mix.confirmed_on_hardware and mix.estimated_from is None:
        return "predicted, from real runs of this kind"
    return estimated(mix)


def short_basis(mix: MixPrediction) -> str:
    """As `basis`, for a narrow chart, where all that is from other GPUs is one."""
    return basis(mix) if mix.estimated_from is None else "estimated from other GPUs"


NOT_CONFIRMED = "estimated, not confirmed on hardware"


def estimated(mix: "MixPrediction | Simulation") -> str:
    """What the figures are estimated from, without runs of this kind on this GPU."""
    if mix.estimated_from is None:
        return NOT_CONFIRMED
    on = with_article(mix.gpu)
    return f"estimated from {mix.estimated_from}, never measured on {on}"


def caution(mix: MixPrediction) -> str | None:
    """Caution about a plan; None where real runs of its kind confirm it."""
    said = []
    if mix.estimated_from is not None or not mix.confirmed_on_hardware:
        said.append(f"{_capital(estimated(mix))}.")
    if mix.power_cap_w is not None:
        said.append(cap_note(mix.power_cap_w))
    return " ".join(said) or None


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def shown_cost(objective: ObjectiveName) -> Callable[[Interval], str]:
    """A function that writes a cost by `objective` with its unit."""
    match OBJECTIVES[objective].unit:
        case "s":
            return units.seconds
        case "J":
            return units.joules
        case "ratio":
            return units.times


def forecast_report(forecast: Forecast) -> "RenderableType":
    """What ``advisor predict`` prints: whether it fits, the mix in a few lines, and each job."""
    from rich.console import Group
    from rich.text import Text

    mix = forecast.prediction
    origin = "" if mix.confirmed_on_hardware else f", {estimated(mix)}"
    lines = (
        *([_too_big(forecast)] if mix.oom_probability > MAX_OOM_PROBABILITY else []),
        with_estimates_named(
            forecast.standing,
            f"{counted(len(mix.jobs), 'job')} under {mix.sharing} on {mix.gpu}{origin}.",
        ),
        f"until all are done  {_lasts(forecast)}",
        f"memory              {memory_held(forecast)}; "
        f"risk to run out {units.share(mix.oom_probability)}",
        f"power, energy       {units.watts(mix.power_w)}; {units.joules(forecast.energy_j)}",
        *([] if mix.power_cap_w is None else [cap_note(mix.power_cap_w)]),
        f"GPU busy            {units.share(mix.gract)}; SMs busy {units.share(mix.smact)}",
        *([] if mix.wide_because is None else [f"note                {mix.wide_because}"]),
    )
    said = [*lines, host_note(forecast.standing)]
    return Group(*map(Text, said), Text(), *map(Text, _job_lines(mix.jobs)))


def _lasts(forecast: Forecast) -> str:
    """Time until all jobs are done, compared with one after another."""
    makespan_s, faster = forecast.makespan_interval_s, forecast.speedup_vs_serial
    if makespan_s is None or faster is None:
        return "not known: the length of an epoch is not"
    return f"{units.seconds(makespan_s)}; {units.number(faster)}x as fast as one after another"


def _too_big(forecast: Forecast) -> str:
    """Warning about jobs that run out of memory."""
    return (
        f"DOES NOT FIT in memory: {memory_held(forecast)}. All below is as if there were enough. "
        f"Try fewer jobs, smaller batches, or `advisor recommend`, which leaves such plans out."
    )


def _job_lines(jobs: Sequence[JobPrediction]) -> Iterator[str]:
    for same in equal_jobs(jobs):
        job = same[0]
        slow = Interval(*map(job.slowdown_at, LEVELS))
        yield units.collapsed([each.job for each in same])
        yield f"    step    {units.seconds(job.step_s)}, {units.times(slow)} as long as alone"
        yield f"    epoch   {epoch(job)}"
        yield (
            f"    memory  {units.gib(job.memory_interval_mib)}; "
            f"{units.gib_of(job.memory_min_mib)} if capped"
        )
        if job.energy_step_j is not None:
            yield f"    energy  {_energy(job)}"


def _energy(job: JobPrediction) -> str:
    """A job's part of the GPU's energy, split by a rule, since no meter tells jobs apart."""
    amounts = ((job.energy_step_j, "a step"), (job.energy_example_j, "an example"))
    said = [f"{units.joules(value)} {per}" for value, per in amounts if value is not None]
    if job.energy_epoch_j is not None:
        said.append(f"{units.joules(job.energy_epoch_j)} an epoch")
    return "\n            ".join(
        [*said, "its part: base power split equally, the rest by what each job adds"]
    )


Letters = dict[str, tuple[str, str]]


def letters_of(jobs: Sequence[Job]) -> Letters:
    """A letter for each workload, and what is to be done of it, by name."""
    of_name: dict[str, list[Job]] = {}
    for job in jobs:
        of_name.setdefault(job.name, []).append(job)
    return {
        name: (_letter(index), _described(alike))
        for index, (name, alike) in enumerate(of_name.items())
    }


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"A{index}"


def _described(alike: Sequence[Job]) -> str:
    """Jobs of one workload: its name, and how much of it they are to do."""
    said = [
        *_least_to_most([job.epochs for job in alike], 1, "epochs"),
        *_least_to_most([job.validation_s for job in alike], 0, "s of validation an epoch"),
        *_least_to_most([job.checkpoint_s for job in alike], 0, "s of checkpoints an epoch"),
    ]
    return ", ".join([alike[0].name, *said])


def _least_to_most(amounts: Sequence[float], usual: float, unit: str) -> Iterator[str]:
    """So much of a `unit`, or from so much to so much, unless it is what is `usual` of all."""
    least, most = min(amounts), max(amounts)
    if least < most:
        yield f"{least:g} to {most:g} {unit}"
    elif least != usual:
        yield f"{least:g} {unit}"


def epoch(job: JobPrediction) -> str:
    return "length unknown" if job.epoch_s is None else units.seconds(job.epoch_s)


def memory_held(forecast: Forecast) -> str:
    """Most memory that the processes hold at once, and the GPU's memory."""
    mix = forecast.prediction
    held = [job.memory_interval_mib for job in mix.jobs]
    groups = running_together(mix.sharing, len(held))
    total = Interval(
        *(max(sum(held[job].at(level) for job in each) for each in groups) for level in LEVELS)
    )
    return f"{units.gib(total)} of {units.gib_of(mix.memory_capacity_mib)}"


def equal_jobs(jobs: Sequence[JobPrediction]) -> list[list[JobPrediction]]:
    """Predictions of jobs grouped into those of which the same is said."""
    same: dict[tuple[str, str], list[JobPrediction]] = {}
    for job in jobs:
        same.setdefault((job.job, units.seconds(job.step_s)), []).append(job)
    return list(same.values())
