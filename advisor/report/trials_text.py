"""How many trials of a hyper-parameter search to run at once, in words and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.english import counted
from advisor.plan.copies_search import PAYS, CopiesRow
from advisor.plan.trials import Study, Trials
from advisor.prediction.interval import Interval
from advisor.report import units
from advisor.report.copies_text import (
    notes_on_numbers,
    numbers_of_copies,
    numbers_on_a_screen,
    row_document,
    way_of,
)
from advisor.report.documents import SCHEMA, standing_document
from advisor.report.headline import basis_notes, with_estimates_named
from advisor.report.table_layout import answer_above_table, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.terminal.terminal_tables import FittedTable


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
    table = plain_table("at once", "best under", "trained per hour", "one trial", "memory")
    for row in rows:
        table.add_row(
            str(row.copies), way_of(row.prediction.sharing), _rate(found.trained_per_hour(row)),
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
        "start_s": found.start_s,
        "at_once": found.at_once,
        "sharing": str(found.row.prediction.sharing),
        "trial_s": asdict(found.trial_s(found.row)),
        "trials_per_hour": asdict(found.per_hour(found.row)),
        "trained_per_hour": asdict(found.trained_per_hour(found.row)),
        "study": None if study is None else asdict(study),
        "rows": [_row(found, at) for at in range(len(found.copies.rows))],
    }


def _row(found: Trials, at: int) -> dict[str, Any]:
    row = found.copies.rows[at]
    rates = {
        "trial_s": found.trial_s(row), "trials_per_hour": found.per_hour(row),
        "trained_per_hour": found.trained_per_hour(row),
    }  # fmt: skip
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
            f"{rate}, {_times_as_many(found):.2f}x as many as one after another."
        )
    if found.start_s:
        said += (
            f" That counts {found.start_s:g} s for each process to start; training alone is "
            f"{_rate(found.trained_per_hour(found.row))} an hour."
        )
    return said if found.study is None else f"{said} {_of_study(found, found.study)}"


def _times_as_many(found: Trials) -> float:
    """Trials an hour over those of one after another."""
    return found.per_hour(found.row).p50 / found.per_hour(found.copies.rows[0]).p50


def _of_study(found: Trials, study: Study) -> str:
    said = (
        f"All {study.trials} take {units.seconds(study.wall_s)}; one after another "
        f"{units.seconds(study.one_by_one_s)}."
    )
    if found.at_once >= (most := min(found.copies.pay, study.trials)):
        return said
    rounds = counted(study.rounds, "round")
    return (
        f"{said} {found.at_once} at once and not the {most} that pay: in {rounds} all end as soon, "
        f"within {PAYS:.0%}."
    )


def _rate(value: Interval) -> str:
    return units.with_ends(value, units.number)


def _notes(found: Trials) -> Iterator[str]:
    yield from notes_on_numbers(found.copies, "trials")
    if found.start_s:
        yield f"The table is training alone, without {found.start_s:g} s for a start (--start-up)."
    else:
        yield "Counted are training steps; that processes start and models are built comes on top."
    yield from basis_notes(found.standing)
