"""Batch sizes on slices of a GPU, as sentences, table and JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.plan.slice_batches import WHOLE, BatchOnSlice, OfAnExample, SliceBatches, SlicesForJob
from advisor.prediction.interval import Interval
from advisor.report import units
from advisor.report.documents import SCHEMA, interval_document, standing_document
from advisor.report.headline import NOT_CONFIRMED, basis_notes, with_estimates_named
from advisor.report.table_layout import answer_above_table, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_MORE = "Every size that was looked at, with memory's range and energy: --details."
_NANO = 1e9
_PARTS = (("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9))


def slice_batches_report(found: SlicesForJob, *, details: bool = False) -> "RenderableType":
    """A line for each slice with its largest batch size; with `details` every size looked at."""
    table = _every_size(found) if details else _largest_sizes(found)
    notes = [*_notes(found), *([] if details else [_MORE])]
    return answer_above_table(with_estimates_named(found.standing, _answer(found)), table, notes)


def _largest_sizes(found: SlicesForJob) -> "Table":
    table = plain_table("slice", "batch", "memory", "client: an example", "provider: an example")
    for held in found.slices:
        row = _largest_row(held)
        if row is None or row.client is None or row.provider is None:
            table.add_row(_where(held), "none fits", "", "", "")
            continue
        table.add_row(
            _where(held), f"{_size(row)}{' or more' if held.open_ended else ''}",
            units.gib_of(row.memory_mib.p50),
            _small(row.client.example_s, "s"), _small(row.provider.example_s, "s"),
        )  # fmt: skip
    return table


def _largest_row(held: SliceBatches) -> BatchOnSlice | None:
    """Of the largest batch that `held` holds, else of the largest that fits at all."""
    fitting = [each for each in held.rows if each.fits]
    largest = [each for each in fitting if each.batch == held.largest]
    return next(reversed(largest or fitting), None)


def _every_size(found: SlicesForJob) -> "Table":
    table = plain_table(
        "slice", "batch", "memory", "client: an example", "its energy",
        "provider: an example", "its energy",
    )  # fmt: skip
    for held in found.slices:
        for row in held.rows:
            table.add_row(_where(held), _size(row), units.gib(row.memory_mib), *_cells(row))
    return table


def slice_batches_document(found: SlicesForJob) -> dict[str, Any]:
    """What ``advisor batch --json`` prints; times in ns, energy in nJ."""
    return {
        "schema": SCHEMA,
        "gpu": found.gpu.key,
        "job": found.job,
        "measured_batches": list(found.measured),
        "confirmed_on_hardware": found.confirmed_on_hardware,
        **standing_document(found.standing),
        "slices": [_slice_document(each) for each in found.slices],
    }


def _slice_document(held: SliceBatches) -> dict[str, Any]:
    return {
        "slice": None if held.name == WHOLE else held.name,
        "instances": held.instances,
        "memory_capacity_mib": held.capacity_mib,
        "largest_batch": held.largest,
        "larger_may_fit": held.open_ended,
        "batches": [
            {
                "batch": row.batch,
                "estimated_from_batches": list(row.estimated_from),
                "fits": row.fits,
                "memory_mib": asdict(row.memory_mib),
                "client": _example_document(row.client),
                "provider": _example_document(row.provider),
            }
            for row in held.rows
        ],
    }


def _example_document(each: OfAnExample | None) -> dict[str, Any] | None:
    if each is None:
        return None
    energy = None if each.example_j is None else each.example_j.scaled(_NANO)
    return {
        "example_ns": interval_document(each.example_s.scaled(_NANO)),
        "example_nj": interval_document(energy),
    }


def _where(held: SliceBatches) -> str:
    return "whole GPU" if held.name == WHOLE else f"{held.instances} x {held.name}"


def _size(row: BatchOnSlice) -> str:
    return f"{row.batch}{'*' if row.estimated_from else ''}"


def _cells(row: BatchOnSlice) -> Iterator[str]:
    for each in (row.client, row.provider):
        if each is None:
            yield from ("does not fit", "")
        else:
            yield _small(each.example_s, "s")
            yield units.NOT_MEASURED if each.example_j is None else _small(each.example_j, "J")


def _small(value: Interval, unit: str) -> str:
    """A small value in the part of its unit that reads best."""
    part, size = next((each for each in _PARTS if value.p50 >= each[1]), _PARTS[-1])
    return units.with_ends(value, lambda each: units.number(each / size), f" {part}{unit}")


def _answer(found: SlicesForJob) -> str:
    """What the smallest and the largest slice hold, in a sentence."""
    ends = found.slices[:1] if len(found.slices) == 1 else (found.slices[0], found.slices[-1])
    return " ".join(f"{_largest(each, found)}." for each in ends)


def _largest(held: SliceBatches, found: SlicesForJob) -> str:
    where = f"The whole {found.gpu.key}" if held.name == WHOLE else held.name
    if held.largest is None:
        return f"{where} does not hold {found.job} at any batch that can be told"
    if held.open_ended:
        return f"{where} holds {found.job} at batch {held.largest} and perhaps more"
    return f"{where} holds {found.job} up to batch {held.largest}"


def _notes(found: SlicesForJob) -> Iterator[str]:
    sizes = ", ".join(map(str, found.measured))
    yield f"Measured at batch {sizes}; * other sizes are estimated from these."
    if len(found.measured) < 2:
        yield (
            "A second batch size, measured too, would tell what an example adds, and the largest "
            "that fits."
        )
    else:
        yield "The largest batch is one that fits at the upper end of what it takes, caches kept."
    yield "Client: one slice, and the rest of the GPU idle. Provider: all slices of that kind busy;"
    yield "time and energy of the whole GPU over the examples of all of them."
    if not found.confirmed_on_hardware:
        yield f"This is {NOT_CONFIRMED}."
    yield from basis_notes(found.standing)
