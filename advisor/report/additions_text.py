"""What may be added to a GPU: jobs that join running ones, or copies of one job."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.plan.admission import Addition, Additions
from advisor.plan.copies_search import PATIENCE, PAYS, Copies, CopiesRow
from advisor.prediction.mix_prediction import MixPrediction
from advisor.report import units
from advisor.report.documents import SCHEMA, standing_document
from advisor.report.headline import estimated, host_note, led
from advisor.report.listing_text import answer_above_table, plain_table
from advisor.sharing import Sharing
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType

# Jobs that were measured together at most.
_MEASURED_TOGETHER = 8


def additions_report(found: Additions, top: int) -> "RenderableType":
    """What may be added at best, then the best `top` sets."""
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
    advice = led(found.standing, additions_advice(found))
    more = [f"{len(found.found) - top} more: --top {len(found.found)}."]
    notes = [*(more if len(found.found) > top else []), *notes_on_additions(found)]
    return answer_above_table(advice, table, notes)


def additions_advice(found: Additions) -> str:
    """What to add at best, in a sentence; and whether deadlines hold then, where there are any."""
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
    """A row for each set that may be added, in order; a column's name is its key."""
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
    """A row for each job that runs then, those that run already first."""
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


def copies_report(found: Copies) -> "RenderableType":
    """How many pay and how many fit, then a line for each number of copies."""
    table = plain_table("copies", "best under", "work of one alone", "step of each", "memory")
    for row in found.rows:
        mix, more = row.prediction, "" if row.gain is None else f" ({row.gain:+.1%})"
        table.add_row(
            str(row.copies), way_of(mix.sharing), f"{row.throughput:.2f}{more}",
            units.seconds(mix.jobs[0].step_s), units.held(mix),
        )  # fmt: skip
    return answer_above_table(
        led(found.standing, _advised_copies(found)), table, _notes_on_copies(found)
    )


def copies_document(found: Copies) -> dict[str, Any]:
    """What ``advisor recommend JOB:auto --json`` prints."""
    return {
        "schema": SCHEMA,
        "gpu": found.gpu.key,
        "job": found.job.name,
        **standing_document(found.standing),
        **numbers_of_copies(found),
        "rows": [row_document(row) for row in found.rows],
    }


def numbers_of_copies(found: Copies) -> dict[str, Any]:
    """How many fit, pay, and are served by MPS."""
    return {
        "fit": found.fit,
        "limited_by": found.limited_by,
        "pay": found.pay,
        "mps_clients": found.mps_clients,
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
        **_memory(each.prediction),
    }


def row_document(row: CopiesRow) -> dict[str, Any]:
    """What comes of so many copies at once."""
    return {
        "copies": row.copies,
        "sharing": str(row.prediction.sharing),
        "throughput": row.throughput,
        "gain": row.gain,
        "step_s": asdict(row.prediction.jobs[0].step_s),
        **_memory(row.prediction),
    }


def _memory(mix: MixPrediction) -> dict[str, Any]:
    return {
        "memory_total_mib": mix.memory_total_mib,
        "memory_capacity_mib": mix.memory_capacity_mib,
        "oom_probability": mix.oom_probability,
        "confirmed_on_hardware": mix.confirmed_on_hardware,
    }


def _advised_copies(found: Copies) -> str:
    if found.pay == 1:
        return f"Run {found.job.name} alone on {found.gpu.key}: a second copy does not pay."
    said = f"Run {found.pay} copies of {found.job.name} at once on {found.gpu.key}"
    done = found.at_best
    way = way_of(done.prediction.sharing)
    return f"{said}, under {way}: {done.throughput:.2f}x the work of one alone. {found.fit} fit."


def way_of(sharing: Sharing) -> str:
    """The sharing of copies, whose limits are equal."""
    return f"mps={sharing.limits[0]:g} each" if sharing.limits else str(sharing)


def _hurt(each: Addition) -> str:
    return f"{max(0.0, each.hurt):.1%}"


def _named(jobs: Sequence[Job]) -> str:
    names = [job.name for job in jobs]
    return ", ".join(units.collapsed([name] * names.count(name)) for name in dict.fromkeys(names))


def notes_on_additions(found: Additions) -> Iterator[str]:
    """What may not be added and why, and how the figures are meant."""
    for each in found.left_out:
        yield f"Left out: {each.sharing}: {each.why}."
    yield "Work added: of the added jobs, in the time in which one alone does 1."
    yield "Slowing is of median steps; jobs that run keep limits and instances."
    if _any_due(found):
        yield "Deadlines are judged as if all epochs of every job were still to come."
    if not found.found[0].prediction.confirmed_on_hardware:
        yield f"This is {estimated(found.found[0].prediction)}."
    yield host_note(found.standing)


def _notes_on_copies(found: Copies) -> Iterator[str]:
    yield from notes_on_numbers(found, "copies")
    yield host_note(found.standing)


def notes_on_numbers(found: Copies, what: str) -> Iterator[str]:
    """By what rules `what`, copies or trials, pay, fit, and are served by MPS: three numbers."""
    yield f"More than {found.fit} do not run at once: {found.limited_by}."
    yield (
        f"{found.pay} pay: more are added while up to {PATIENCE} at a time bring over {PAYS:.0%} "
        "more work; less is within the error of such a comparison."
    )
    yield f"MPS serves {found.mps_clients} processes at most; more {what} would be time-sliced."
    if len(found.rows) > _MEASURED_TOGETHER:
        yield f"More than {_MEASURED_TOGETHER} jobs together were never measured."
