"""How many trials of a hyper-parameter search to run at once, in words and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.plan.copies_search import CopiesRow
from advisor.plan.trials import Study, Trials
from advisor.prediction.mix_prediction import Interval
from advisor.report import units
from advisor.report.copies_text import (
    notes_on_numbers,
    numbers_of_copies,
    numbers_on_a_screen,
    row_document,
    way_of,
)
from advisor.report.documents import SCHEMA, standing_document
from advisor.report.headline import host_note, with_estimates_named
from advisor.report.table_layout import answer_above_table, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.terminal.terminal_tables import FittedTable


# A trial this short is made long by what its process starts with: 9 to 11 s in a study of 24 trials
# on an H200 (benchmarks/study-of-trials).
_SHORT_S = 60.0


def trials_report(found: Trials, *, details: bool = False) -> "RenderableType":
    """How many trials to run at once and how, and a line for each number that a screen holds.

    Args:
        found: The answer to show.
        details: Whether to show every number of trials.
    """
    advice, notes = with_estimates_named(found.standing, trials_advice(found)), [*_notes(found)]
    return numbers_on_a_screen(
        found.copies.rows, found.at_once, details,
        lambda rows, more: answer_above_table(advice, _table(found, rows), [*notes, *more]),
    )  # fmt: skip


def _table(found: Trials, rows: Sequence[CopiesRow]) -> "FittedTable":
    table = plain_table("at once", "best under", "trials per hour", "one trial", "memory")
    for row in rows:
        table.add_row(
            str(row.copies), way_of(row.prediction.sharing), _rate(found.per_hour(row)),
            units.seconds(found.trial_s(row)), units.held(row.prediction),
        )  # fmt: skip
    return table


def trials_document(found: Trials) -> dict[str, Any]:
    """What ``advisor trials --json`` prints."""
    study = found.study
    return {
        "schema": SCHEMA,
        "gpu": found.copies.gpu.key,
        "job": found.copies.job.name,
        **standing_document(found.standing),
        **numbers_of_copies(found.copies),
        "steps": found.steps,
        "at_once": found.at_once,
        "sharing": str(found.row.prediction.sharing),
        "trial_s": asdict(found.trial_s(found.row)),
        "trials_per_hour": asdict(found.per_hour(found.row)),
        "study": None if study is None else asdict(study),
        "rows": [_row(found, at) for at in range(len(found.copies.rows))],
    }


def _row(found: Trials, at: int) -> dict[str, Any]:
    row = found.copies.rows[at]
    rates = {"trial_s": found.trial_s(row), "trials_per_hour": found.per_hour(row)}
    return row_document(row) | {name: asdict(each) for name, each in rates.items()}


def trials_advice(found: Trials) -> str:
    """How many trials to run at once and what that achieves, in a sentence or two."""
    name, gpu = found.copies.job.name, found.copies.gpu.key
    rate = f"{_rate(found.per_hour(found.row))} trials of {found.steps:,.0f} steps an hour"
    if found.at_once == 1:
        said = f"Run trials of {name} one after another on {gpu}: {rate}."
    else:
        way = way_of(found.row.prediction.sharing)
        way += "" if found.row.prediction.confirmed_on_hardware else ", estimated"
        said = (
            f"Run {found.at_once} trials of {name} at once on {gpu}, a process each, under {way}: "
            f"{rate}, {found.row.throughput:.2f}x as many as one after another."
        )
    if found.trial_s(found.row).p50 < _SHORT_S:
        said += " That is training alone: a process takes about 10 s to start, each time."
    return said if found.study is None else f"{said} {_of_study(found.study)}"


def _of_study(study: Study) -> str:
    return (
        f"All {study.trials} take {units.seconds(study.wall_s)}; one after another "
        f"{units.seconds(study.one_by_one_s)}."
    )


def _rate(value: Interval) -> str:
    return units.with_ends(value, units.number)


def _notes(found: Trials) -> Iterator[str]:
    yield from notes_on_numbers(found.copies, "trials")
    if found.trial_s(found.row).p50 >= _SHORT_S:
        yield "Counted are training steps; that processes start and models are built comes on top."
    yield host_note(found.standing)
