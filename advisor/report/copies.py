"""Which jobs may join running ones: as text, rows and JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.errors import counted
from advisor.plan.admission import Addition, Additions
from advisor.plan.copies import (
    PAYS,
    WHOLE,
    Copies,
    CopiesRow,
    SliceBatch,
    SlicesForJob,
    Study,
    Trials,
)
from advisor.prediction.prediction import Interval
from advisor.report import format as units
from advisor.report.documents import SCHEMA, memory_document, standing_document
from advisor.report.forecast import NOT_CONFIRMED, basis_notes, estimated, with_estimates_named
from advisor.report.format import answer_above_table, fits, plain_table
from advisor.sharing import Sharing
from advisor.workload.job import Job

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.report.format import FittedTable

    pass


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
    return answer_above_table(
        with_estimates_named(found.standing, answer), table, _batch_notes(found)
    )


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


def _batch_notes(found: SlicesForJob) -> Iterator[str]:
    sizes = ", ".join(map(str, found.measured))
    yield f"Measured at batch {sizes}; * other sizes are estimated from these."
    if len(found.measured) < 2:
        yield "Measure a second batch size to learn the largest that fits."
    else:
        yield "The largest batch fits at the upper end of its memory, with its caches."
    if not found.confirmed_on_hardware:
        yield f"This is {NOT_CONFIRMED}."
    yield from basis_notes(found.standing)
