"""How many copies of a job fit and pay, as a table and as JSON."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.plan.copies_search import PAYS, Copies, CopiesRow
from advisor.report import units
from advisor.report.documents import SCHEMA, standing_document
from advisor.report.headline import calibrated_note
from advisor.report.listing_text import plain_table
from advisor.sharing import Sharing

if TYPE_CHECKING:
    from rich.console import RenderableType

# Jobs that were measured together at most.
_MEASURED_TOGETHER = 8


def copies_report(found: Copies) -> "RenderableType":
    """How many pay and how many fit, then a line for each number of copies."""
    from rich.console import Group
    from rich.text import Text

    table = plain_table("copies", "best under", "work of one alone", "step of each", "memory")
    for row in found.rows:
        table.add_row(*_cells(row))
    notes = [
        f"More than {found.fit} do not run at once: {found.limited_by}.",
        f"Copies pay that raise the throughput by more than {PAYS:.0%}.",
    ]
    if len(found.rows) > _MEASURED_TOGETHER:
        notes.append(f"More than {_MEASURED_TOGETHER} jobs together were never measured.")
    if note := calibrated_note(found.standing):
        notes.append(note)
    return Group(Text(_answer(found), style="bold"), Text(), table, Text(), *map(Text, notes))


def copies_document(found: Copies) -> dict[str, Any]:
    """What ``advisor recommend JOB:auto --json`` prints."""
    return {
        "schema": SCHEMA,
        "gpu": found.gpu.key,
        "job": found.job.name,
        **standing_document(found.standing),
        "fit": found.fit,
        "limited_by": found.limited_by,
        "pay": found.pay,
        "rows": [_row(row) for row in found.rows],
    }


def _row(row: CopiesRow) -> dict[str, Any]:
    mix = row.prediction
    return {
        "copies": row.copies,
        "sharing": str(mix.sharing),
        "throughput": row.throughput,
        "gain": row.gain,
        "step_s": asdict(mix.jobs[0].step_s),
        "memory_total_mib": mix.memory_total_mib,
        "memory_capacity_mib": mix.memory_capacity_mib,
        "oom_probability": mix.oom_probability,
        "confirmed_on_hardware": mix.confirmed_on_hardware,
    }


def _answer(found: Copies) -> str:
    if found.pay == 1:
        return f"Run {found.job.name} alone on {found.gpu.key}: a second copy does not pay."
    said = f"Run {found.pay} copies of {found.job.name} at once on {found.gpu.key}"
    done = found.rows[found.pay - 1]
    way = _way(done.prediction.sharing)
    return f"{said}, under {way}: {done.throughput:.2f}x the work of one alone. {found.fit} fit."


def _cells(row: CopiesRow) -> tuple[str, ...]:
    mix = row.prediction
    more = "" if row.gain is None else f" ({row.gain:+.1%})"
    memory = f"{mix.memory_total_mib / 1024:.1f} of {mix.memory_capacity_mib / 1024:.0f} GiB"
    return (
        str(row.copies), _way(mix.sharing), f"{row.throughput:.2f}{more}",
        units.seconds(mix.jobs[0].step_s), memory,
    )  # fmt: skip


def _way(sharing: Sharing) -> str:
    """The sharing of copies, whose limits are equal."""
    return f"mps={sharing.limits[0]:g} each" if sharing.limits else str(sharing)
