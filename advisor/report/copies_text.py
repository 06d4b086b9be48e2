"""How many copies of a job pay, as table and JSON; shared parts of the answers about trials."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.english import counted
from advisor.plan.copies_search import PAYS, Copies, CopiesRow
from advisor.report import units
from advisor.report.documents import SCHEMA, memory_document, standing_document
from advisor.report.headline import basis_notes, with_estimates_named
from advisor.report.table_layout import answer_above_table, fits, plain_table
from advisor.sharing import Sharing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.terminal.terminal_tables import FittedTable

# Rows that are always shown: one copy, the best number, and the two next to it.
_FEWEST = 4
# The most jobs that were measured together.
_MEASURED_TOGETHER = 8


def copies_report(found: Copies, *, details: bool = False) -> "RenderableType":
    """How many copies pay and fit, then a line for each number of copies that a screen holds.

    Args:
        found: The answer to show.
        details: Whether to show every number of copies.
    """
    advice = with_estimates_named(found.standing, _advised_copies(found))
    notes = [*notes_on_numbers(found, "copies"), *basis_notes(found.standing)]
    return numbers_on_a_screen(
        found.rows, found.pay, details,
        lambda rows, more: answer_above_table(advice, _copies_table(rows), [*notes, *more]),
    )  # fmt: skip


def _copies_table(rows: Sequence[CopiesRow]) -> "FittedTable":
    table = plain_table("copies", "best under", "work of one alone", "step of each", "memory")
    for row in rows:
        mix, more = row.prediction, "" if row.gain is None else f" ({row.gain:+.1%})"
        table.add_row(
            str(row.copies), way_of(mix.sharing), f"{row.throughput:.2f}{more}",
            units.seconds(mix.jobs[0].step_s), units.held(mix),
        )  # fmt: skip
    return table


def numbers_on_a_screen(
    rows: Sequence[CopiesRow],
    best: int,
    details: bool,
    report: "Callable[[Sequence[CopiesRow], Sequence[str]], RenderableType]",
) -> "RenderableType":
    """The `report` on as many of `rows` as a screen holds, and a note on the rest.

    Rows next to the `best` number of copies are dropped last, and the row of one copy never, since
    all compare with it.
    """
    shown, more = list(rows), list[str]()
    while not details and len(shown) > _FEWEST and not fits(report(shown, more)):
        shown.remove(max(shown[1:], key=lambda row: (abs(row.copies - best), row.copies > best)))
        more = [f"{counted(len(rows) - len(shown), 'more number')}: --details."]
    return report(shown, more)


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
    """How many copies fit, pay, and are served by MPS."""
    return {
        "fit": found.fit,
        "limited_by": found.limited_by,
        "pay": found.pay,
        "mps_clients": found.mps_clients,
    }


def row_document(row: CopiesRow) -> dict[str, Any]:
    """JSON of one number of copies."""
    return {
        "copies": row.copies,
        "sharing": str(row.prediction.sharing),
        "throughput": row.throughput,
        "gain": row.gain,
        "step_s": asdict(row.prediction.jobs[0].step_s),
        **memory_document(row.prediction),
    }


def _advised_copies(found: Copies) -> str:
    if found.pay == 1:
        second = next((row.gain for row in found.rows[1:]), None)
        why = found.limited_by if second is None else f"does not pay: {second:+.1%} work"
        return f"Run {found.job.name} alone on {found.gpu.key}: a second copy {why}."
    said = f"Run {found.pay} copies of {found.job.name} at once on {found.gpu.key}"
    done = found.at_best
    way = way_of(done.prediction.sharing)
    way += "" if done.prediction.confirmed_on_hardware else ", estimated"
    return f"{said}, under {way}: {done.throughput:.2f}x the work of one alone. {found.fit} fit."


def way_of(sharing: Sharing) -> str:
    """Notation of a sharing of copies, whose limits are equal."""
    return f"mps={sharing.limits[0]:g} each" if sharing.limits else str(sharing)


def _what_pays(found: Copies) -> str:
    pay = f"{found.pay} {'pays' if found.pay == 1 else 'pay'}"
    if more := len(found.rows) - found.pay:
        return (
            f"{pay}: {'one' if more == 1 else more} more would bring less than {PAYS:.0%} more "
            f"work, too little to be sure of."
        )
    return f"{pay}, which is all that fit." if found.pay == found.fit else f"{pay}, maybe more."


def notes_on_numbers(found: Copies, what: str) -> Iterator[str]:
    """What it means that `what`, copies or trials, pay, fit, and are served by MPS."""
    yield f"{found.fit} at once at most. One more: {found.limited_by}."
    yield _what_pays(found)
    if found.mps_clients < found.fit:
        yield f"MPS serves {found.mps_clients} processes at most; more {what} would be time-sliced."
    if len(found.rows) > _MEASURED_TOGETHER:
        yield f"More than {_MEASURED_TOGETHER} jobs together were never measured."
