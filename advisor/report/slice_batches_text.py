"""The largest batch of each slice of a GPU, as a sentence, a table and JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.plan.slice_batches import WHOLE, SliceBatch, SlicesForJob
from advisor.report import units
from advisor.report.documents import SCHEMA, standing_document
from advisor.report.headline import NOT_CONFIRMED, basis_notes, with_estimates_named
from advisor.report.table_layout import answer_above_table, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType


def slice_batches_report(found: SlicesForJob) -> "RenderableType":
    """Return a line for each slice with its largest batch size."""
    table = plain_table("slice", "batch", "memory")
    for held in found.slices:
        where = "whole GPU" if held.name == WHOLE else f"{held.instances} x {held.name}"
        if held.largest is None or held.memory_mib is None:
            table.add_row(where, "none fits", "")
            continue
        estimated = "" if held.largest in found.measured else "*"
        more = " or more" if held.open_ended else ""
        table.add_row(where, f"{held.largest}{estimated}{more}", units.gib(held.memory_mib))
    ends = dict.fromkeys((found.slices[0], found.slices[-1]))
    answer = " ".join(f"{_largest(each, found)}." for each in ends)
    return answer_above_table(with_estimates_named(found.standing, answer), table, _notes(found))


def slice_batches_document(found: SlicesForJob) -> dict[str, Any]:
    """Return what ``advisor batch --json`` prints."""
    return {
        "schema": SCHEMA,
        "gpu": found.gpu.key,
        "job": found.job,
        "measured_batches": list(found.measured),
        "confirmed_on_hardware": found.confirmed_on_hardware,
        **standing_document(found.standing),
        "slices": [
            {
                "slice": None if held.name == WHOLE else held.name,
                "instances": held.instances,
                "memory_capacity_mib": held.capacity_mib,
                "largest_batch": held.largest,
                "larger_may_fit": held.open_ended,
                "memory_mib": None if held.memory_mib is None else asdict(held.memory_mib),
            }
            for held in found.slices
        ],
    }


def _largest(held: SliceBatch, found: SlicesForJob) -> str:
    where = f"The whole {found.gpu.key}" if held.name == WHOLE else held.name
    if held.largest is None:
        return f"{where} does not hold {found.job} at any batch that can be estimated"
    if held.open_ended:
        return f"{where} holds {found.job} at batch {held.largest} and perhaps more"
    return f"{where} holds {found.job} up to batch {held.largest}"


def _notes(found: SlicesForJob) -> Iterator[str]:
    sizes = ", ".join(map(str, found.measured))
    yield f"Measured at batch {sizes}; * other sizes are estimated from these."
    if len(found.measured) < 2:
        yield "Measure a second batch size to learn the largest that fits."
    else:
        yield "The largest batch fits at the upper end of its memory, with its caches."
    if not found.confirmed_on_hardware:
        yield f"This is {NOT_CONFIRMED}."
    yield from basis_notes(found.standing)
