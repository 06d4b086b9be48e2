"""Plans as tables that fit in 80 columns, for a terminal or a file."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from advisor.english import counted, is_or_are
from advisor.errors import InvalidInput
from advisor.plan.recommendation import Forecast, Plan, Recommendation
from advisor.prediction.mix_prediction import Interval, JobPrediction
from advisor.report import units
from advisor.report.headline import (
    answer,
    bounds_note,
    cap_note,
    chosen_cap_w,
    estimated,
    gain,
    host_note,
    led,
)
from advisor.sharing import Sharing
from advisor.sharing.traversal import running_together
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.terminal.terminal_tables import Cell

_HEADINGS = ("", "plan", "an epoch of each job", "memory", "gain over serial")
_WIDTHS = (2, 15, 26, 11, 16)


def plans_report(advised: Recommendation, top: int) -> "RenderableType":
    """The answer in a sentence, the jobs, the best `top` plans and serial, what is left out."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    shown = list(advised.plans[:top])
    if advised.serial not in shown:
        shown.append(advised.serial)
    letters = _letters(advised.jobs)
    parts: list[RenderableType] = [Text(answer(advised), style="bold"), Text()]
    parts += [Text(f"{letter}  {_described(job)}") for letter, job in letters.values()]
    parts += [Text(), _row()]
    for plan in shown:
        parts.append(_row(_cells(advised, plan, letters)))
        parts.append(Padding(plan.why, (0, 0, 1, 4), style="dim", expand=False))
    parts += [Text(line) for line in _footer(advised, len(shown))]
    return Group(*parts)


def plan_commands(advised: Recommendation, rank: int) -> str:
    """The shell lines of the plan at `rank`.

    Raises:
        InvalidInput: There is no such plan.
    """
    if not 1 <= rank <= (plans := len(advised.plans)):
        raise InvalidInput(
            f"there is no plan {rank}; there {is_or_are(plans)} {counted(plans, 'plan')}."
        )
    return "\n".join(advised.plans[rank - 1].commands)


def forecast_report(forecast: Forecast) -> "RenderableType":
    """What ``advisor predict`` prints: the mix in a few lines, then its jobs."""
    from rich.console import Group
    from rich.text import Text

    mix = forecast.prediction
    faster = forecast.speedup_vs_serial
    gained = (
        units.NOT_MEASURED
        if faster is None
        else f"{units.number(faster)}x as fast as one after another"
    )
    origin = "" if mix.confirmed_on_hardware else f", {estimated(mix)}"
    lines = (
        led(
            forecast.standing,
            f"{counted(len(mix.jobs), 'job')} under {mix.sharing} on {mix.gpu}{origin}",
        ),
        f"until all are done  {units.seconds(forecast.makespan_interval_s)}; {gained}",
        f"memory              {_memory(forecast)}; "
        f"risk to run out {units.share(mix.oom_probability)}",
        f"power, energy       {units.watts(mix.power_w)}; {units.joules(forecast.energy_j)}",
        *([] if mix.power_cap_w is None else [cap_note(mix.power_cap_w)]),
        f"GPU busy            {units.share(mix.gract)}; SMs busy {units.share(mix.smact)}",
        *([] if mix.wide_because is None else [f"note                {mix.wide_because}"]),
    )
    said = [*lines, host_note(forecast.standing)]
    return Group(*map(Text, said), Text(), *map(Text, _job_lines(mix.jobs)))


def _job_lines(jobs: Sequence[JobPrediction]) -> Iterator[str]:
    for same in _equal(jobs):
        job = same[0]
        slow = Interval(*(each * job.slowdown / job.step_s.p50 for each in _levels(job.step_s)))
        yield units.collapsed([each.job for each in same])
        yield f"    step    {units.seconds(job.step_s)}, {units.times(slow)} as long as alone"
        yield f"    epoch   {_epoch(job)}"
        yield (
            f"    memory  {units.gib(job.memory_interval_mib)}; "
            f"{units.number(job.memory_min_mib / 1024)} GiB if capped"
        )
        if job.energy_step_j is not None:
            yield f"    energy  {_energy(job)}"


def _energy(job: JobPrediction) -> str:
    """A job's part of the GPU's energy, which a rule gives it: no meter tells jobs apart."""
    amounts = ((job.energy_step_j, "a step"), (job.energy_example_j, "an example"))
    said = [f"{units.joules(value)} {per}" for value, per in amounts if value is not None]
    if job.energy_epoch_j is not None:
        said.append(f"{units.joules(job.energy_epoch_j)} an epoch")
    return "\n            ".join([*said, "its part of the GPU's, by a rule"])


_Letters = dict[str, tuple[str, Job]]


def _letters(jobs: Sequence[Job]) -> _Letters:
    """A letter for each workload, by its name."""
    first = {job.name: job for job in reversed(jobs)}
    names = list(dict.fromkeys(job.name for job in jobs))
    return {name: (_letter(index), first[name]) for index, name in enumerate(names)}


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"A{index}"


def _described(job: Job) -> str:
    extras = [counted(job.epochs, "epoch")] * (job.epochs != 1)
    extras += [f"{job.validation_s:g} s of validation an epoch"] * (job.validation_s > 0)
    extras += [f"{job.checkpoint_s:g} s of checkpoints an epoch"] * (job.checkpoint_s > 0)
    return ", ".join([job.name, *extras])


def _cells(advised: Recommendation, plan: Plan, letters: _Letters) -> "tuple[Cell, ...]":
    mix = plan.prediction
    epochs = tuple(
        f"{units.collapsed([letters[each.job][0] for each in same])}  {_epoch(same[0])}"
        for same in _equal(mix.jobs)
    )
    better = units.times(gain(advised, plan)).replace(" (", "\n(", 1)
    cap_w = chosen_cap_w(advised, plan)
    capped = "" if cap_w is None else f"\nat most {cap_w:g} W"
    return (
        str(plan.rank), _folded(mix.sharing) + capped, epochs,
        _memory(plan).replace(" of ", "\nof ", 1).replace(" (", "\n(", 1), better,
    )  # fmt: skip


def _epoch(job: JobPrediction) -> str:
    return "length unknown" if job.epoch_s is None else units.seconds(job.epoch_s)


def _memory(forecast: Forecast) -> str:
    """What the processes hold at once, at most, against what there is."""
    mix = forecast.prediction
    each = [_levels(job.memory_interval_mib) for job in mix.jobs]
    sets = [[each[job] for job in group] for group in running_together(mix.sharing, len(mix.jobs))]
    totals = [tuple(map(sum, zip(*held, strict=True))) for held in sets]
    total = Interval(*map(max, zip(*totals, strict=True)))
    return f"{units.gib(total)} of {units.number(mix.memory_capacity_mib / 1024)} GiB"


def _equal(jobs: Sequence[JobPrediction]) -> list[list[JobPrediction]]:
    """Jobs of which the same is said, together."""
    same: dict[tuple[str, str], list[JobPrediction]] = {}
    for job in jobs:
        same.setdefault((job.job, units.seconds(job.step_s)), []).append(job)
    return list(same.values())


def _levels(value: Interval) -> tuple[float, float, float]:
    return value.p05, value.p50, value.p95


def _folded(sharing: Sharing) -> str:
    """The words for `sharing`, broken after commas."""
    text = str(sharing)
    if sharing.mode == "mig":
        return text.replace("=", "=\n").replace(",", ",\n")
    if sharing.mode in ("hybrid", "phases"):
        return re.sub(r"(;|/|mig=|\+(?=\d))", r"\1\n", text)
    lines = [""]
    for part in text.replace("=", "=,").replace(",", ",\0").split("\0"):
        piece = part.replace("=,", "=")
        if len(lines[-1]) + len(piece) > _WIDTHS[1]:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _row(cells: "Sequence[Cell]" = ()) -> "RenderableType":
    """One line of the table; without cells that of the headings."""
    from advisor.terminal.terminal_tables import FixedRow

    return FixedRow(cells, _HEADINGS, _WIDTHS, abreast=2)


def _footer(advised: Recommendation, shown: int) -> Iterator[str]:
    if len(advised.plans) > shown:
        yield f"{counted(len(advised.plans) - shown, 'more plan')}: --top {len(advised.plans)}."
    for each in advised.left_out:
        yield f"Left out: {each.sharing}: {each.why}."
    if advised.searched:
        yield f"Searched: {advised.searched}."
    yield bounds_note(advised)
    yield host_note(advised.standing)
    yield "`--commands 1` prints the shell commands of plan 1."
