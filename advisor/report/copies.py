"""Copies of a job, trials, jobs to add and batch sizes of slices: as text, rows and JSON."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from advisor.errors import counted, in_percent
from advisor.plan.admission import Addition, Additions
from advisor.plan.copies import MIN_GAIN, Copies, CopiesRow
from advisor.plan.reasons import named
from advisor.plan.slices import WHOLE, SlicesForJob, SliceSpeed
from advisor.plan.trials import Search, Trials, TrialsOnGpus, TrialsRow
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.format import answer_above_table, fits, plain_table, table_of
from advisor.sharing import Sharing
from advisor.workload.job import Job
from advisor.workload.profile import Profile

_FEWEST_ROWS = 4  # one copy, the best number, and the two next to it
_MEASURED_TOGETHER = 8  # the most jobs that were measured together

_rate = partial(units.with_ends, shown=units.number)


def copies_report(copies: Copies, *, details: bool = False) -> RenderableType:
    """Return how many copies are worthwhile and fit, and a line for each number of copies.

    A screen does not hold all lines; with `details` all are shown.
    """
    best, job, gpu = copies.at_best, copies.job.name, copies.gpu.key
    if copies.worthwhile == 1:
        second = next(map(copies.gain, copies.rows[1:]), None)
        why = (
            copies.limited_by
            if second is None
            else f"is not worthwhile: {100 * second:+.1f} % work"
        )
        advice = f"Run {job} alone on {gpu}: a second copy {why}."
    else:
        advice = (
            f"Run {copies.worthwhile} copies of {job} at once on {gpu}, under {_marked(best)}: "
            f"{best.throughput:.2f}x the work of one alone. {copies.fit} fit."
        )

    advice += forecast.ranking_note(copies.level)

    def cells(row: CopiesRow) -> dict[str, str]:
        gain = copies.gain(row)
        more = "" if gain is None else f" ({100 * gain:+.1f} %)"
        return {
            "copies": str(row.copies),
            "best under": _notation(row.prediction.sharing),
            "work of one alone": f"{row.throughput:.2f}{more}",
            "step of each": units.seconds(row.prediction.jobs[0].step_s),
            "memory": units.held(row.prediction),
        }

    notes = [
        *forecast.loader_notes(copies.one_loader),
        *_notes_on_numbers(copies, "copies", "work"),
        *forecast.basis_notes(copies.standing),
    ]
    answer = forecast.with_estimates_named(copies.standing, advice)
    return _report(copies, answer, cells, notes, details=details)


def _report(
    copies: Copies,
    answer: str,
    cells: Callable[[CopiesRow], dict[str, str]],
    notes: Sequence[str],
    *,
    details: bool,
) -> RenderableType:
    """The answer, a row of `cells` for as many numbers of copies as a screen holds, and `notes`.

    Rows next to the worthwhile number are dropped last, and the row of one copy never, because all
    are compared with it.
    """
    rows, best = copies.rows, copies.worthwhile
    nearest = sorted(rows[1:], key=lambda row: (abs(row.copies - best), row.copies > best))

    def report(others: int) -> RenderableType:
        shown = rows[0], *sorted(nearest[:others], key=lambda row: row.copies)
        left = len(nearest) - others
        more = [f"--details prints {counted(left, 'more number')}."] if left else []
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
    more = copies.rows[-1].copies - copies.worthwhile
    if gained is not None and more:
        yield (
            f"More than {copies.worthwhile} {unit} are not worthwhile: "
            f"{'one' if more == 1 else more} more would bring less than "
            f"{in_percent(MIN_GAIN)} more {gained}, which is within the error."
        )
    elif gained is not None:
        yield (
            f"All {copies.fit} copies that fit are worthwhile."
            if copies.worthwhile == copies.fit
            else f"At least {copies.worthwhile} are worthwhile."
        )
    if copies.mps_clients < copies.fit:
        yield (
            f"MPS serves at most {copies.mps_clients} processes; more {unit} would be time-sliced."
        )
    if copies.rows[-1].copies > _MEASURED_TOGETHER:
        yield f"More than {_MEASURED_TOGETHER} jobs together were never measured."


def trials_report(search: Search, *, details: bool = False) -> RenderableType:
    """Return how many trials to run at once, and a line for each number, with `details` for all.

    For several models of GPU there is a line for each model, and the numbers only with `details`.
    """
    models = {on.trials.copies.gpu.key: on for on in search.hosts}
    notes, trials = list(notes_on_trials(search)), search.hosts[0].trials
    answer = forecast.with_estimates_named(search.standing, trials_advice(search))
    if len(models) == 1:
        rows = dict(zip(trials.copies.rows, map(_cells_of_trials, trials.rows), strict=True))
        return _report(trials.copies, answer, rows.__getitem__, notes, details=details)
    table = table_of(
        [
            {
                "GPUs": f"{on.busy_gpus} {gpu}",
                "trials": "" if on.count is None else str(on.count),
                "at once": str(on.trials.at_once),
                "under": _notation(row.shared.prediction.sharing),
                "an hour on each": _rate(row.trials_per_hour),
                "training of one": units.seconds(row.trial_s),
                "all done": "" if study is None else units.seconds(study.wall_s),
                "memory": units.held(row.shared.prediction),
            }
            for gpu, on in models.items()
            for row, study in [(on.trials.row, on.trials.study)]
        ]
    )
    if not details:
        return answer_above_table(answer, table, [*notes, "--details prints every number at once."])
    parts: list[RenderableType] = [answer_above_table(answer, table, notes)]
    for gpu, on in models.items():
        parts.append(Text(f"\nOne {gpu}:", style="bold"))
        parts.append(table_of([*map(_cells_of_trials, on.trials.rows)]))
    return Group(*parts)


def notes_on_trials(search: Search) -> Iterator[str]:
    """Yield which numbers of trials fit and are worthwhile, what starts take, and the basis."""
    several, trials = len(search.hosts) > 1, search.hosts[0].trials

    def of_each(notes_of: Callable[[Trials], Iterator[str]]) -> Iterator[str]:
        for on in search.hosts:
            first = f"{on.trials.copies.gpu.key}: " if several else ""
            yield from (f"{first}{note}" for note in notes_of(on.trials))

    yield from forecast.loader_notes(search.one_loader)
    gained = None if search.count else "trials an hour"
    yield from of_each(lambda each: _notes_on_numbers(each.copies, "trials", gained))
    if search.idle:
        yield (
            "GPUs without a trial: "
            f"{', '.join((f'{gpus} {gpu}' for gpu, gpus in search.idle.items()))}."
        )
    if trials.start_s:
        note = f"Trials an hour include a start of {trials.start_s:g} s for each (--start-up)"
        if not several and search.hosts[0].gpus > 1:
            note += "; the table is for one GPU"
        yield f"{note}."
        yield from of_each(_notes_on_starts)
    else:
        yield "Trials an hour count training steps only, and no starts of processes."
    yield from forecast.basis_notes(search.standing)


def _notes_on_starts(trials: Trials) -> Iterator[str]:
    """Starts of processes that wait for cores, or take most of the time."""
    starts_s, trial_s = trials.row.starts_s, trials.row.trial_s
    if starts_s.p50 > trials.start_s:
        yield (
            f"{trials.at_once} processes that start at once take {units.seconds(starts_s)}, "
            f"because they share {trials.row.shared.prediction.host_cores or 0:g} cores of the "
            f"host. Each start needs {trials.start_cpu_s:g} s of a core, which is not measured "
            "(--start-cpu)."
        )
    if starts_s.p50 > trial_s.p50:
        share = starts_s.p50 / (starts_s.p50 + trial_s.p50)
        yield (
            f"Starts take {in_percent(share)} of the time. They were not measured here, so ranges "
            f"are wide."
        )


def rows_of_trials(trials: Trials) -> list[dict[str, Any]]:
    """Return a row for each number of trials at once, with numbers; the keys name the columns."""
    return [
        {
            "at once": row.shared.copies,
            "trials an hour": row.trials_per_hour.p50,
            "from": row.trials_per_hour.p05,
            "to": row.trials_per_hour.p95,
            "training of one, min": row.trial_s.p50 / 60,
            "memory, GiB": row.shared.prediction.memory_total_mib / units.MIB_PER_GIB,
            "share by": str(row.shared.prediction.sharing),
        }
        for row in trials.rows
    ]


def _cells_of_trials(row: TrialsRow) -> dict[str, str]:
    mix = row.shared.prediction
    return {
        "at once": str(row.shared.copies),
        "best under": _notation(mix.sharing),
        "trials an hour": _rate(row.trials_per_hour),
        "training of one": units.seconds(row.trial_s),
        "memory": units.held(mix),
    }


def trials_advice(search: Search) -> str:
    """Return how many trials to run at once, the time of all, and the gain, a line each."""
    first = search.hosts[0]
    name, gpus = first.trials.copies.job.name, sum(on.busy_gpus for on in search.hosts)
    in_turn = "one after another" if gpus == 1 else "one at a time on each GPU"
    most = max(on.trials.at_once for on in search.hosts)
    rate = f"{_rate(search.trials_per_hour)} trials of {first.trials.steps:,.0f} steps an hour"
    if len(search.hosts) > 1:
        ways = [
            f"{on.trials.at_once} at once under {_marked(on.trials.row.shared)}, on each of "
            f"{_gpus(on)}"
            if on.trials.at_once > 1
            else f"one after another on each of {_gpus(on)}"
            for on in search.hosts
        ]
        lines = [f"Run trials of {name}, a process each, {'; '.join(ways)}."]
    elif most == 1:
        lines = [f"Run trials of {name} one after another on {_gpus(first, 'each of ')}."]
    else:
        lines = [
            f"Run {most} trials of {name} at once on {_gpus(first, 'each of ')}, a process each, "
            f"under {_marked(first.trials.row.shared)}."
        ]
    if most > 1:
        faster = search.trials_per_hour.p50 / search.one_by_one_per_hour.p50
        rate += f", {faster:.2f}x as many as {in_turn}"
    if search.wall_s is not None and search.one_by_one_s is not None:
        whole = f"All {counted(search.count or 0, 'trial')}: {units.seconds(search.wall_s)}"
        if most > 1:
            whole += f" instead of {units.seconds(search.one_by_one_s)} {in_turn}"
        study = first.trials.study
        if len(search.hosts) == 1 and study and most < study.trials:
            whole += f", in {counted(study.rounds, 'round')}. With more at once they would "
            whole += f"end at most {in_percent(MIN_GAIN)} sooner"
        lines.append(f"{whole}.")
    return "\n".join([*lines, f"{rate}.{forecast.ranking_note(first.trials.copies.level)}"])


def _gpus(on: TrialsOnGpus, several: str = "") -> str:
    gpu = on.trials.copies.gpu.key
    return gpu if on.busy_gpus == 1 else f"{several}{on.busy_gpus} {gpu}"


def additions_report(additions: Additions, top: int) -> RenderableType:
    """Return the best set of jobs to add, then a table of the best `top` sets."""
    sets, due = additions.plans, _any_due(additions)
    headings = ["add", "then all share", "work added", "slowed job", "memory"]
    several = len(additions.running) > 1
    table = plain_table("", *(["GPU"] if several else []), *headings, *(["late"] if due else []))
    table.abreast, table.columns[5 + several].no_wrap = 2, True
    for rank, added in enumerate(sets[:top], start=1):
        mix, slows = added.prediction, f"{added.slowed_job} by {_slowing(added)}"
        late = f"late: {', '.join(added.late)}" if added.late else "all kept"
        late = "unknown: no length" if added.late is None else late
        table.add_row(
            str(rank),
            *([str(added.gpu_number)] if several else []),
            _names(added.added),
            str(mix.sharing),
            f"{added.work_added:.2f}",
            slows,
            units.held(mix),
            *([late] if due else []),
        )
    advice = forecast.with_estimates_named(additions.standing, additions_advice(additions))
    more = [f"--top {len(sets)} prints {len(sets) - top} more."] if len(sets) > top else []
    return answer_above_table(advice, table, [*more, *notes_on_additions(additions)])


def rows_of_additions(additions: Additions, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return a row for each set of jobs to add, of all jobs with these `names`, with numbers."""
    short = units.short_names(names)
    return [
        {
            "add": ", ".join(short[job.name] for job in each.added),
            "work added": each.work_added,
            "slowed job": short[each.slowed_job],
            "slowed by, %": 100 * each.slowed_by,
            "memory, GiB": each.prediction.memory_total_mib / units.MIB_PER_GIB,
            "late": ", ".join(each.late or ()),
            "share by": str(each.prediction.sharing),
        }
        for each in additions.plans
    ]


def additions_advice(additions: Additions) -> str:
    """Return which jobs to add, and whether deadlines are kept then, if there are any."""
    best = additions.plans[0]
    there = additions.running[best.gpu_number].jobs
    where = f"GPU {best.gpu_number}, " if len(additions.running) > 1 else ""
    text = (
        f"Add {_names(best.added)} to {_names(there)} on {where}{best.prediction.gpu}, "
        f"under {best.prediction.sharing}: no running job slows by more than {_slowing(best)}"
    )
    if not _any_due(additions):
        return f"{text}."
    if best.late:
        return f"{text}, but late: {', '.join(best.late)}."
    if best.late is None:
        return f"{text}. Deadlines may be missed: the length of a job is unknown."
    return f"{text}; all deadlines are kept."


def _any_due(additions: Additions) -> bool:
    there = (job for each in additions.running for job in each.jobs)
    jobs = [*there, *(job for each in additions.plans for job in each.added)]
    return any(job.deadline_s is not None for job in jobs)


def _slowing(added: Addition) -> str:
    return in_percent(max(0.0, added.slowed_by), 1)


def _names(jobs: Sequence[Job]) -> str:
    return named([job.name for job in jobs])


def notes_on_additions(additions: Additions) -> Iterator[str]:
    """Yield why jobs were left out, and how to read the figures."""
    yield from (f"Left out: {each.sharing}: {each.why}." for each in additions.left_out)
    yield "Work added: the pace of the added jobs together; 1 is the pace of one of them alone."
    yield "Slowed job: by its median step. Running jobs keep their limits and instances."
    if len(additions.running) > 1:
        yield "GPU: counted from 0, in the order of --running."
    if _any_due(additions):
        yield "Deadlines assume that every job has all of its epochs left."
    if not additions.plans[0].prediction.confirmed_on_hardware:
        yield f"This is {forecast.estimated(additions.plans[0].prediction)}."
    yield from forecast.basis_notes(additions.standing)


def slice_speed_text(speeds: Sequence[SliceSpeed], profiles: Sequence[Profile]) -> str:
    """Return the meaning and basis of the chart of `profiles`, and which jobs do not fit."""
    subject = "This is" if any(each.is_estimate for each in profiles) else "On instances this is"
    text = [
        "Speed alone on an instance of each size, over the median speed on the whole GPU. Grey "
        "ticks are the instance's share of the compute slices; thin lines are 90 % intervals on "
        f"the host of the profile. {subject} {forecast.NOT_CONFIRMED}."
    ]
    lacks: dict[str, list[str]] = {}
    for job, where in ((each.job, each.where) for each in speeds if each.speed is None):
        lacks.setdefault(job, []).append(where)
    text += [f"{job} does not fit {', '.join(where)}." for job, where in lacks.items()]
    return " ".join(text)


def batches_answer(batches: SlicesForJob) -> str:
    """Return the largest batch of the smallest slice and of the whole GPU, a sentence each."""
    sentences = []
    for batch in dict.fromkeys((batches.slices[0], batches.slices[-1])):
        where = f"The whole {batches.gpu.key}" if batch.name == WHOLE else batch.name
        if batch.largest is None:
            why = "at any batch that can be estimated."
            sentences.append(f"{where} does not hold {batches.job} {why}")
        else:
            more = f"at batch {batch.largest} and perhaps more"
            most = more if batch.open_ended else f"up to batch {batch.largest}"
            sentences.append(f"{where} holds {batches.job} {most}.")
    return " ".join(sentences)


def notes_on_batches(batches: SlicesForJob) -> Iterator[str]:
    """Yield the basis of the figures."""
    sizes = ", ".join(map(str, batches.measured))
    if len(batches.measured) < 2:
        yield (
            f"Measured at batch {sizes}. Measure a second batch size to estimate the largest that "
            "fits."
        )
    else:
        yield f"Measured at batch {sizes}; * other sizes are estimated from these."
        yield "The largest batch fits with its caches, at the upper end of its memory interval."
    if not batches.confirmed_on_hardware:
        yield f"This is {forecast.NOT_CONFIRMED}."
    yield from forecast.basis_notes(batches.standing)


def rows_of_batches(batches: SlicesForJob) -> list[dict[str, Any]]:
    """Return a row for each slice with its largest batch size, with numbers."""
    return [
        {
            "slice": "whole GPU" if each.name == WHOLE else each.name,
            "of them": each.instances,
            "largest batch": each.largest or 0,
            "perhaps more": each.open_ended,
            "memory, GiB": each.memory_mib and each.memory_mib.p50 / units.MIB_PER_GIB,
            "of GiB": each.capacity_mib / units.MIB_PER_GIB,
        }
        for each in batches.slices
    ]


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
    answer = forecast.with_estimates_named(batches.standing, batches_answer(batches))
    return answer_above_table(answer, table, notes_on_batches(batches))
