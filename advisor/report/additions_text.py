"""Which jobs may join running ones: as text, rows and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.plan.admission import Addition, Additions
from advisor.report import units
from advisor.report.documents import SCHEMA, memory_document, standing_document
from advisor.report.headline import basis_notes, estimated, with_estimates_named
from advisor.report.table_layout import answer_above_table, plain_table
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType


def additions_report(found: Additions, top: int) -> "RenderableType":
    """The best set of jobs to add, then a table of the best `top` sets."""
    due = _any_due(found)
    headings = ("add", "then all share", "work added", "slows most", "memory")
    table = plain_table("", *headings, *(["late"] if due else []))
    table.abreast, table.columns[5].no_wrap = 2, True
    for rank, each in enumerate(found.found[:top], start=1):
        mix, slows = each.prediction, f"{each.hurt_job} by {_hurt(each)}"
        table.add_row(
            str(rank), _named(each.jobs), str(mix.sharing), f"{each.added:.2f}", slows,
            units.held(mix), *([_late(each)] if due else []),
        )  # fmt: skip
    advice = with_estimates_named(found.standing, additions_advice(found))
    more = [f"{len(found.found) - top} more: --top {len(found.found)}."]
    notes = [*(more if len(found.found) > top else []), *notes_on_additions(found)]
    return answer_above_table(advice, table, notes)


def additions_advice(found: Additions) -> str:
    """Which jobs to add, in a sentence; and whether deadlines hold then, if there are any."""
    best = found.found[0]
    said = (
        f"Add {_named(best.jobs)} to {_named(found.running.jobs)}, under "
        f"{best.prediction.sharing}: nothing that runs slows by more than {_hurt(best)}"
    )
    if not _any_due(found):
        return f"{said}."
    if best.late:
        return f"{said}, but late: {', '.join(best.late)}."
    return f"{said}; {'whether deadlines hold is not known' if best.late is None else _HOLD}."


def addition_rows(found: Additions) -> list[dict[str, str]]:
    """A row for each set of jobs that may be added, in order; the keys are the columns' names."""
    return [
        {
            "add": _named(each.jobs),
            "then all share": str(each.prediction.sharing),
            "work added": f"{each.added:.2f}",
            "slows most by": _hurt(each),
            "deadlines": _late(each) if _any_due(found) else "none",
            "memory": units.held(each.prediction),
        }
        for each in found.found
    ]


def joined_rows(found: Additions, added: Addition) -> list[dict[str, str]]:
    """A row for each job once `added` have joined, the running jobs first."""
    jobs, before = [*found.running.jobs, *added.jobs], found.before.jobs
    slower = [
        *(now.step_s.p50 / was.step_s.p50 - 1
          for now, was in zip(added.prediction.jobs, before, strict=False)),
        *(job.slowdown - 1 for job in added.prediction.jobs[len(before) :]),
    ]  # fmt: skip
    return [
        {
            "job": job.name,
            "it": "runs already" if at < len(before) else "joins",
            "a step": units.seconds(mix.step_s),
            "slower by": f"{max(0.0, slower[at]):.1%}, than "
            + ("before" if at < len(before) else "alone"),
        }
        for at, (job, mix) in enumerate(zip(jobs, added.prediction.jobs, strict=True))
    ]


_HOLD = "all deadlines hold"


def _any_due(found: Additions) -> bool:
    jobs = [*found.running.jobs, *(job for each in found.found for job in each.jobs)]
    return any(job.deadline_s is not None for job in jobs)


def _late(each: Addition) -> str:
    if each.late is None:
        return "not known: no length"
    return f"late: {', '.join(each.late)}" if each.late else "all hold"


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
    return {
        "rank": rank,
        "added": [job.name for job in each.jobs],
        "sharing": str(each.prediction.sharing),
        "work_added": each.added,
        "hurt": each.hurt,
        "hurt_job": each.hurt_job,
        "late": None if each.late is None else list(each.late),
        "jobs": [asdict(job) for job in each.prediction.jobs],
        **memory_document(each.prediction),
    }


def _hurt(each: Addition) -> str:
    return f"{max(0.0, each.hurt):.1%}"


def _named(jobs: Sequence[Job]) -> str:
    names = [job.name for job in jobs]
    return ", ".join(units.collapsed([name] * names.count(name)) for name in dict.fromkeys(names))


def notes_on_additions(found: Additions) -> Iterator[str]:
    """Why jobs were left out, and how to read the figures."""
    for each in found.left_out:
        yield f"Left out: {each.sharing}: {each.why}."
    yield "Work added: of the added jobs, in the time in which one alone does 1."
    yield "Slowing is of median steps; jobs that run keep limits and instances."
    if _any_due(found):
        yield "Deadlines are judged as if all epochs of every job were still to come."
    if not found.found[0].prediction.confirmed_on_hardware:
        yield f"This is {estimated(found.found[0].prediction)}."
    yield from basis_notes(found.standing)
