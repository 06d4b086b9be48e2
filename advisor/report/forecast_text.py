"""One forecast as text, and how its jobs are written everywhere."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from advisor.english import counted
from advisor.plan.recommendation import Forecast
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.prediction.interval import LEVELS, Interval
from advisor.prediction.mix_prediction import JobPrediction
from advisor.report import units
from advisor.report.headline import cap_note, estimated, host_note, with_estimates_named
from advisor.sharing.traversal import running_together
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType


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
