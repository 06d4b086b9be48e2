"""Copies of a job, trials, jobs to add and batch sizes of slices: as text, rows and JSON."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from rich.console import RenderableType

from advisor.errors import counted
from advisor.plan.admission import Addition, Additions
from advisor.plan.copies import PAYS, Copies, CopiesRow, Trials
from advisor.plan.reasons import named
from advisor.plan.slices import WHOLE, SliceBatch, SlicesForJob, SliceSpeed
from advisor.prediction.prediction import Interval
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.documents import (
    AdditionsDocument,
    BatchesDocument,
    CopiesDocument,
    CopiesFields,
    CopiesRowFields,
    TrialRates,
    TrialsDocument,
)
from advisor.report.format import answer_above_table, fits, plain_table, table_of
from advisor.sharing import Sharing
from advisor.workload.job import Job
from advisor.workload.profile import Profile

_FEWEST_ROWS = 4  # one copy, the best number, and the two next to it
_MEASURED_TOGETHER = 8  # the most jobs that were measured together


def copies_report(copies: Copies, *, details: bool = False) -> RenderableType:
    """Return how many copies are worthwhile and fit, and a line for each number of copies.

    A screen does not hold all lines; with `details` all are shown.
    """
    best, job, gpu = copies.at_best, copies.job.name, copies.gpu.key
    if copies.pay == 1:
        second = next(map(copies.gain, copies.rows[1:]), None)
        why = copies.limited_by if second is None else f"is not worthwhile: {second:+.1%} work"
        advice = f"Run {job} alone on {gpu}: a second copy {why}."
    else:
        advice = (
            f"Run {copies.pay} copies of {job} at once on {gpu}, under {_marked(best)}: "
            f"{best.throughput:.2f}x the work of one alone. {copies.fit} fit."
        )

    def cells(row: CopiesRow) -> dict[str, str]:
        gain = copies.gain(row)
        more = "" if gain is None else f" ({gain:+.1%})"
        return {
            "copies": str(row.copies), "best under": _notation(row.prediction.sharing),
            "work of one alone": f"{row.throughput:.2f}{more}",
            "step of each": units.seconds(row.prediction.jobs[0].step_s),
            "memory": units.held(row.prediction),
        }  # fmt: skip

    notes = [*_notes_on_numbers(copies, "copies", "work"), *forecast.basis_notes(copies.standing)]
    return _report(copies, copies.pay, advice, cells, notes, details=details)


def _report(
    copies: Copies, best: int, advice: str, cells: Callable[[CopiesRow], dict[str, str]],
    notes: Sequence[str], *, details: bool,
) -> RenderableType:  # fmt: skip
    """The advice, a row of `cells` for as many numbers of copies as a screen holds, and `notes`.

    Rows next to the `best` number are dropped last, and the row of one copy never, because all are
    compared with it.
    """
    answer, rows = forecast.with_estimates_named(copies.standing, advice), copies.rows
    nearest = sorted(rows[1:], key=lambda row: (abs(row.copies - best), row.copies > best))

    def report(others: int) -> RenderableType:
        shown = rows[0], *sorted(nearest[:others], key=lambda row: row.copies)
        left = len(nearest) - others
        more = [f"{counted(left, 'more number')}: --details."] if left else []
        return answer_above_table(answer, table_of([*map(cells, shown)]), [*notes, *more])

    larger = range(min(_FEWEST_ROWS, len(rows)), len(rows))
    fit = bisect_left(larger, True, key=lambda others: not fits(report(others)))
    return report(len(nearest) if details else larger.start - 1 + fit)


def _notation(sharing: Sharing) -> str:
    """The notation of a sharing of copies, whose limits are equal."""
    return f"mps={sharing.limits[0]:g} each" if sharing.limits else str(sharing)


def _marked(row: CopiesRow) -> str:
    mark = "" if row.prediction.confirmed_on_hardware else ", estimated"
    sharing = row.prediction.sharing
    words = {"mps": "MPS", "naive": "time-slicing"}.get(str(sharing), str(sharing))
    if sharing.limits:
        words = f"MPS with an SM limit of {sharing.limits[0]:g} % each"
    return f"{words}{mark}"


def _notes_on_numbers(copies: Copies, unit: str, gained: str | None) -> Iterator[str]:
    """The numbers of copies or trials, the `unit`, that fit, are worthwhile, and MPS serves.

    `gained` is what more would bring; None: the answer has that already.
    """
    yield f"{copies.fit} fit at once. One more: {copies.limited_by}."
    more = copies.rows[-1].copies - copies.pay
    if gained is not None and more:
        yield (
            f"More than {copies.pay} {unit} are not worthwhile: {'one' if more == 1 else more} "
            f"more would bring less than {PAYS:.0%} more {gained}, which is within the error."
        )
    elif gained is not None:
        yield (
            f"All {copies.fit} that fit are worthwhile." if copies.pay == copies.fit
            else f"{copies.pay} are worthwhile, perhaps more."
        )  # fmt: skip
    if copies.mps_clients < copies.fit:
        yield (
            f"MPS serves {copies.mps_clients} processes at most; more {unit} would be time-sliced."
        )
    if copies.rows[-1].copies > _MEASURED_TOGETHER:
        yield f"More than {_MEASURED_TOGETHER} jobs together were never measured."


def copies_document(copies: Copies) -> CopiesDocument:
    """Return what ``advisor recommend JOB:auto --json`` prints."""
    return {
        **_document_head(copies), "rows": [_row_document(copies, row) for row in copies.rows]
    }  # fmt: skip


def _document_head(copies: Copies) -> CopiesFields:
    return {
        "schema": forecast.SCHEMA, "gpu": copies.gpu.key, "job": copies.job.name,
        **forecast.standing_document(copies.standing), "fit": copies.fit,
        "limited_by": copies.limited_by, "pay": copies.pay, "mps_clients": copies.mps_clients,
    }  # fmt: skip


def _row_document(copies: Copies, row: CopiesRow) -> CopiesRowFields:
    return {
        "copies": row.copies, "sharing": str(row.prediction.sharing), "throughput": row.throughput,
        "gain": copies.gain(row), "step_s": asdict(row.prediction.jobs[0].step_s),
        **forecast.memory_document(row.prediction),
    }  # fmt: skip


def trials_report(trials: Trials, *, details: bool = False) -> RenderableType:
    """Return how many trials to run at once, and a line for each number, with `details` for all."""
    start = (
        f"Trials an hour include {trials.start_s:g} s for each to start (--start-up); training "
        f"alone is {_rate(trials.trained_per_hour(trials.row))} an hour."
    )
    if not trials.start_s:
        start = "Only training steps are counted, not the start of processes and models."
    notes = [
        *_notes_on_numbers(trials.copies, "trials", None if trials.study else "trials an hour"),
        start,
        *forecast.basis_notes(trials.standing),
    ]

    def cells(row: CopiesRow) -> dict[str, str]:
        return {
            "at once": str(row.copies), "best under": _notation(row.prediction.sharing),
            "trials an hour": _rate(trials.per_hour(row)),
            "training of one": units.seconds(trials.trial_s(row)),
            "memory": units.held(row.prediction),
        }  # fmt: skip

    advice = trials_advice(trials)
    return _report(trials.copies, trials.at_once, advice, cells, notes, details=details)


def _rate(value: Interval) -> str:
    return units.with_ends(value, units.number)


def trials_advice(trials: Trials) -> str:
    """Return how many trials to run at once, the time of all, and the gain, a line each."""
    copies, study = trials.copies, trials.study
    name, gpu, per_hour = copies.job.name, copies.gpu.key, trials.per_hour(trials.row)
    rate = f"{_rate(per_hour)} trials of {trials.steps:,.0f} steps an hour"
    if trials.at_once == 1:
        lines = [f"Run trials of {name} one after another on {gpu}.", f"{rate}."]
    else:
        faster = per_hour.p50 / trials.per_hour(copies.rows[0]).p50
        lines = [
            f"Run {trials.at_once} trials of {name} at once on {gpu}, a process each, under "
            f"{_marked(trials.row)}.",
            f"{rate}, {faster:.2f}x as many as one after another.",
        ]
    if study is not None:
        whole = f"All {counted(study.trials, 'trial')}: {units.seconds(study.wall_s)}"
        if trials.at_once > 1:
            whole += f" instead of {units.seconds(study.one_by_one_s)} one after another"
        if trials.at_once < study.trials:
            whole += (
                f", in {counted(study.rounds, 'round')}; more at once end at most {PAYS:.0%} sooner"
            )
        lines.insert(1, f"{whole}.")
    return "\n".join(lines)


def trials_document(trials: Trials) -> TrialsDocument:
    """Return what ``advisor trials --json`` prints."""

    def rates(row: CopiesRow) -> TrialRates:
        return {
            "trial_s": asdict(trials.trial_s(row)),
            "trials_per_hour": asdict(trials.per_hour(row)),
            "trained_per_hour": asdict(trials.trained_per_hour(row)),
        }

    return {
        **_document_head(trials.copies), "steps": trials.steps, "start_s": trials.start_s,
        "at_once": trials.at_once, "sharing": str(trials.row.prediction.sharing),
        **rates(trials.row), "study": None if trials.study is None else asdict(trials.study),
        "rows": [
            {**_row_document(trials.copies, row), **rates(row)} for row in trials.copies.rows
        ],
    }  # fmt: skip


def additions_report(additions: Additions, top: int) -> RenderableType:
    """Return the best set of jobs to add, then a table of the best `top` sets."""
    sets, due = additions.sets, _any_due(additions)
    headings = ("add", "then all share", "work added", "slows most", "memory")
    table = plain_table("", *headings, *(["late"] if due else []))
    table.abreast, table.columns[5].no_wrap = 2, True
    for rank, added in enumerate(sets[:top], start=1):
        mix, slows = added.prediction, f"{added.slowed_job} by {_slowing(added)}"
        late = f"late: {', '.join(added.late)}" if added.late else "all kept"
        late = "not known: no length" if added.late is None else late
        table.add_row(
            str(rank), _names(added.jobs), str(mix.sharing), f"{added.added:.2f}", slows,
            units.held(mix), *([late] if due else []),
        )  # fmt: skip
    advice = forecast.with_estimates_named(additions.standing, additions_advice(additions))
    more = [f"{len(sets) - top} more: --top {len(sets)}."] if len(sets) > top else []
    return answer_above_table(advice, table, [*more, *notes_on_additions(additions)])


def additions_advice(additions: Additions) -> str:
    """Return which jobs to add, and whether deadlines are kept then, if there are any."""
    best = additions.sets[0]
    text = (
        f"Add {_names(best.jobs)} to {_names(additions.running.jobs)} on {best.prediction.gpu}, "
        f"under {best.prediction.sharing}: no running job slows by more than {_slowing(best)}"
    )
    if not _any_due(additions):
        return f"{text}."
    if best.late:
        return f"{text}, but late: {', '.join(best.late)}."
    if best.late is None:
        return f"{text}; whether deadlines are kept is not known."
    return f"{text}; all deadlines are kept."


def _any_due(additions: Additions) -> bool:
    jobs = [*additions.running.jobs, *(job for each in additions.sets for job in each.jobs)]
    return any(job.deadline_s is not None for job in jobs)


def _slowing(added: Addition) -> str:
    return f"{max(0.0, added.slowing):.1%}"


def _names(jobs: Sequence[Job]) -> str:
    return named([job.name for job in jobs])


def notes_on_additions(additions: Additions) -> Iterator[str]:
    """Yield why jobs were left out, and how to read the figures."""
    yield from (f"Left out: {each.sharing}: {each.why}." for each in additions.left_out)
    yield "Work added: the pace of the added jobs together; 1 is that of one of them alone."
    yield "Slows most: by median steps. Running jobs keep their limits and instances."
    if _any_due(additions):
        yield "Deadlines are judged as if every job had yet to run all of its epochs."
    if not additions.sets[0].prediction.confirmed_on_hardware:
        yield f"This is {forecast.estimated(additions.sets[0].prediction)}."
    yield from forecast.basis_notes(additions.standing)


def additions_document(additions: Additions, top: int) -> AdditionsDocument:
    """Return what ``advisor recommend --running ... --json`` prints."""
    return {
        "schema": forecast.SCHEMA, "gpu": additions.gpu.key,
        **forecast.standing_document(additions.standing),
        "running": {
            "jobs": [asdict(job) for job in additions.before.jobs],
            "sharing": str(additions.before.sharing), "free_mib": additions.running.free_mib,
        },
        "most_hurt": additions.most_slowing,
        "plans": [
            {
                "rank": rank, "added": [job.name for job in added.jobs],
                "sharing": str(added.prediction.sharing), "work_added": added.added,
                "hurt": added.slowing, "hurt_job": added.slowed_job,
                "late": None if added.late is None else list(added.late),
                "jobs": [asdict(job) for job in added.prediction.jobs],
                **forecast.memory_document(added.prediction),
            }
            for rank, added in enumerate(additions.sets[:top], start=1)
        ],
        "left_out": [asdict(each) for each in additions.left_out],
    }  # fmt: skip


def slice_speed_text(speeds: Sequence[SliceSpeed], profiles: Sequence[Profile]) -> str:
    """Return the meaning and basis of the chart of `profiles`, and which jobs do not fit."""
    subject = "This is" if any(each.is_estimate for each in profiles) else "On instances this is"
    text = [
        "Speed alone on an instance of each size, over the median on the whole GPU; the grey ticks "
        "are the instance's share of the compute slices, and the thin lines 90 % intervals on the "
        f"host of the profile. {subject} {forecast.NOT_CONFIRMED}."
    ]
    lacks: dict[str, list[str]] = {}
    for job, where in ((each.job, each.where) for each in speeds if each.speed is None):
        lacks.setdefault(job, []).append(where)
    text += [f"{job} does not fit {', '.join(where)}." for job, where in lacks.items()]
    return " ".join(text)


def slice_batches_report(batches: SlicesForJob) -> RenderableType:
    """Return a line for each slice with its largest batch size."""
    table = plain_table("slice", "batch", "memory")
    for batch in batches.slices:
        where = "whole GPU" if batch.name == WHOLE else f"{batch.instances} x {batch.name}"
        if batch.largest is None or batch.memory_mib is None:
            table.add_row(where, "none fits", "")
            continue
        mark = "" if batch.largest in batches.measured else "*"
        more = " or more" if batch.open_ended else ""
        table.add_row(where, f"{batch.largest}{mark}{more}", units.gib(batch.memory_mib))
    sizes = ", ".join(map(str, batches.measured))
    if len(batches.measured) < 2:
        notes = [f"Measured at batch {sizes}. Measure a second one to learn the largest that fits."]
    else:
        notes = [f"Measured at batch {sizes}; * other sizes are estimated from these."]
        notes.append("The largest batch fits at the upper end of its memory, with its caches.")
    if not batches.confirmed_on_hardware:
        notes.append(f"This is {forecast.NOT_CONFIRMED}.")
    notes += forecast.basis_notes(batches.standing)
    ends = dict.fromkeys((batches.slices[0], batches.slices[-1]))
    answer = " ".join(f"{_largest_batch(batch, batches)}." for batch in ends)
    return answer_above_table(forecast.with_estimates_named(batches.standing, answer), table, notes)


def _largest_batch(batch: SliceBatch, batches: SlicesForJob) -> str:
    where = f"The whole {batches.gpu.key}" if batch.name == WHOLE else batch.name
    if batch.largest is None:
        return f"{where} does not hold {batches.job} at any batch that can be estimated"
    most = f"at batch {batch.largest} and perhaps more" if batch.open_ended else None
    return f"{where} holds {batches.job} {most or f'up to batch {batch.largest}'}"


def slice_batches_document(batches: SlicesForJob) -> BatchesDocument:
    """Return what ``advisor batch --json`` prints."""
    return {
        "schema": forecast.SCHEMA, "gpu": batches.gpu.key, "job": batches.job,
        "measured_batches": list(batches.measured),
        "confirmed_on_hardware": batches.confirmed_on_hardware,
        **forecast.standing_document(batches.standing),
        "slices": [
            {
                "slice": None if each.name == WHOLE else each.name, "instances": each.instances,
                "memory_capacity_mib": each.capacity_mib, "largest_batch": each.largest,
                "larger_may_fit": each.open_ended,
                "memory_mib": None if each.memory_mib is None else asdict(each.memory_mib),
            }
            for each in batches.slices
        ],
    }  # fmt: skip
