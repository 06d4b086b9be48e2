"""Shows which jobs may join running ones, as a table and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.plan.admission import Addition, Additions
from advisor.report import units
from advisor.report.documents import SCHEMA, standing_document
from advisor.report.headline import calibrated_note
from advisor.report.listing_text import plain_table
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType


def additions_report(found: Additions, top: int) -> "RenderableType":
    """What may be added at best, then the best `top` sets."""
    from rich.console import Group
    from rich.text import Text

    table = plain_table("", "add", "then all share", "work added", "slows most", "memory")
    for column in table.columns:
        column.overflow = "fold"
    for rank, each in enumerate(found.found[:top], start=1):
        table.add_row(str(rank), *_cells(each))
    answer = Text(_answer(found), style="bold")
    return Group(answer, Text(), table, Text(), *map(Text, _notes(found, top)))


def additions_document(found: Additions, top: int) -> dict[str, Any]:
    """What ``advisor recommend --running ... --json`` prints."""
    return {
        "schema": SCHEMA,
        "gpu": found.gpu.key,
        **standing_document(found.standing),
        "running": {
            "jobs": [asdict(job) for job in found.before.jobs],
            "sharing": str(found.before.sharing),
            "free_mib": found.running.free_mib,
        },
        "most_hurt": found.most_hurt,
        "plans": [_addition(rank, each) for rank, each in enumerate(found.found[:top], start=1)],
        "left_out": [asdict(each) for each in found.left_out],
    }


def _addition(rank: int, each: Addition) -> dict[str, Any]:
    mix = each.prediction
    return {
        "rank": rank,
        "added": [job.name for job in each.jobs],
        "sharing": str(mix.sharing),
        "work_added": each.added,
        "hurt": each.hurt,
        "hurt_job": each.hurt_job,
        "jobs": [asdict(job) for job in mix.jobs],
        "memory_total_mib": mix.memory_total_mib,
        "memory_capacity_mib": mix.memory_capacity_mib,
        "oom_probability": mix.oom_probability,
        "confirmed_on_hardware": mix.confirmed_on_hardware,
    }


def _answer(found: Additions) -> str:
    best = found.found[0]
    return (
        f"Add {_named(best.jobs)} to {_named(found.running.jobs)}, under "
        f"{best.prediction.sharing}: nothing that runs slows by more than {_hurt(best)}."
    )


def _cells(each: Addition) -> tuple[str, ...]:
    mix = each.prediction
    memory = f"{mix.memory_total_mib / 1024:.1f} of {mix.memory_capacity_mib / 1024:.0f} GiB"
    slows = f"{each.hurt_job} by {_hurt(each)}"
    return _named(each.jobs), str(mix.sharing), f"{each.added:.2f}", slows, memory


def _hurt(each: Addition) -> str:
    return f"{max(0.0, each.hurt):.1%}"


def _named(jobs: Sequence[Job]) -> str:
    names = [job.name for job in jobs]
    return ", ".join(units.collapsed([name] * names.count(name)) for name in dict.fromkeys(names))


def _notes(found: Additions, top: int) -> Iterator[str]:
    if len(found.found) > top:
        yield f"{len(found.found) - top} more: --top {len(found.found)}."
    for each in found.left_out:
        yield f"Left out: {each.sharing}: {each.why}."
    yield "Work added: of the added jobs, in the time in which one alone does 1."
    yield "Slowing is of median steps; jobs that run keep limits and instances."
    if not found.found[0].prediction.confirmed_on_hardware:
        yield "This is estimated, not confirmed on hardware."
    if note := calibrated_note(found.standing):
        yield note
