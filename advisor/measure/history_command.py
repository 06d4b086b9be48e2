"""``advisor profile --from-history``: writes profiles of jobs that a cluster's monitoring saw."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from time import time

from advisor.errors import AdvisorError, InvalidInput, counted
from advisor.files.reading import DAY_S, is_file, read_bytes, user_folder
from advisor.files.writing import write_whole
from advisor.hardware.gpus import gpu_meant, gpu_of_product
from advisor.measure.history import (
    MOST_POINTS,
    Series,
    has_labels,
    read_history,
    recorded_series,
    renamed,
)
from advisor.measure.process import say
from advisor.measure.profile import write_numbers
from advisor.measure.recorded_jobs import CURE, JOB_LABELS, RecordedJob, recorded_jobs
from advisor.workload.arrivals import arrivals_text
from advisor.workload.minimal_profile import MinimalProfile

# dcgm-exporter reads its counters every 30 s by default.
_INTERVAL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTerms:
    """Terms on which a history is read; None: as it shows.

    Attributes:
        start_s: Seconds since the epoch, as `end_s`.
        by: Label by which jobs are named.
        match: Labels that series must have, with their values.
        steps_s: Seconds of a step by job; under None, of the only one.
        step_metric: Name of the jobs' own metric of their steps.
        gpu: The GPU model, which others must not be.
        name: Of the only job.
        out: Folder of the profiles.
    """

    start_s: float | None = None
    end_s: float | None = None
    interval_s: float | None = None
    by: str | None = None
    match: Mapping[str, str] = field(default_factory=dict)
    steps_s: Mapping[str | None, float] = field(default_factory=dict)
    step_metric: str | None = None
    gpu: str | None = None
    name: str | None = None
    out: Path | None = None


def write_recorded_profiles(source: str, terms: HistoryTerms) -> None:
    """Write a profile of each job in the history at `source`, a file or Prometheus's address.

    Raises:
        InvalidInput: It is no history, or has no GPU in that range.
        AdvisorError: No job of it has the numbers of a profile.
    """
    history, interval_s, timed = _history(source, terms)
    chosen = [  # an application's own metric has other labels
        each
        for each in history
        if each.quantity == "step_s" or has_labels(each.labels, terms.match)
    ]
    if not chosen:
        raise InvalidInput(
            f"{source}: no series of a GPU in this range"
            f"{' with these labels' * bool(terms.match)}. Check --start, --end and --match, and "
            "that dcgm-exporter is scraped."
        )
    labels = {name for each in chosen for name, value in each.labels.items() if value}
    by = terms.by
    jobs_named = labels & {*JOB_LABELS, *map(renamed, JOB_LABELS)}
    if by is None and not _is_address(source) and not jobs_named:
        by = "gpu"
    jobs = recorded_jobs(chosen, by, interval_s, timed=timed)
    written: list[tuple[RecordedJob, MinimalProfile]] = []
    left_out: list[tuple[str, str]] = []
    for job in _with_options(jobs, terms):
        try:
            written.append((job, _write(job, terms)))
        except InvalidInput as error:
            left_out.append((job.name, str(error)))
    for line in (*_report(written), *_arrivals(written, terms.out)):
        say(line)
    for name, why in left_out:
        say(f"left out {name}: {why.removesuffix('.')}.")
    if not written:
        raise AdvisorError("no job of this history has the numbers of a profile; see above")


def _is_address(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


def _history(source: str, terms: HistoryTerms) -> tuple[list[Series], float | None, bool]:
    """The series, seconds between their samples if known, and whether they have times."""
    if _is_address(source):
        return _of_prometheus(source, terms)
    series, timed = read_history(Path(source), terms.step_metric)
    if not timed and (terms.start_s or terms.end_s):
        raise InvalidInput(f"{source}: it has no times. Leave out --start and --end.")
    first_s, last_s = terms.start_s or 0.0, terms.end_s or inf
    within = (
        replace(each, points=[at for at in each.points if first_s <= at[0] <= last_s])
        for each in series
    )
    return [each for each in within if each.points], terms.interval_s, timed


def _of_prometheus(source: str, terms: HistoryTerms) -> tuple[list[Series], float, bool]:
    end_s = time() if terms.end_s is None else terms.end_s
    start_s = end_s - DAY_S if terms.start_s is None else terms.start_s
    if start_s >= end_s:
        raise InvalidInput("--start is not before --end. Correct one of them.")
    least_s = (end_s - start_s) / (MOST_POINTS - 1)
    interval_s = terms.interval_s or max(_INTERVAL_S, float(-(-least_s // 1)))
    if interval_s < least_s:
        raise InvalidInput(
            f"--interval {interval_s:g} makes more than {MOST_POINTS:,} samples of this range, and "
            f"Prometheus refuses those. Use {least_s:.0f} s or more, or a shorter range."
        )
    match, metric = terms.match, terms.step_metric
    series = recorded_series(source, start_s, end_s, interval_s, match, metric)
    return series, interval_s, True


def _with_options(jobs: Sequence[RecordedJob], terms: HistoryTerms) -> Iterator[RecordedJob]:
    """The jobs with the name and the steps that the user passed."""
    if terms.name is not None:
        if len(jobs) != 1:
            raise InvalidInput(f"--name is for one job, and there are {len(jobs)}. Use --match.")
        jobs = [replace(jobs[0], name=terms.name)]
    steps_s = terms.steps_s
    if None in steps_s and len(jobs) != 1:
        raise InvalidInput(f"there are {counted(len(jobs), 'job')}. Write --step-s JOB=SECONDS.")
    names = {job.name for job in jobs}
    if others := {name for name in steps_s if name is not None} - names:
        raise InvalidInput(
            f"--step-s names {', '.join(sorted(others))}, and the jobs are "
            f"{', '.join(sorted(names)[:9])}. Correct the name."
        )
    for job in jobs:
        step_s = steps_s.get(job.name, steps_s.get(None))
        yield job if step_s is None else replace(job, numbers={**job.numbers, "step_s": step_s})


def _write(job: RecordedJob, terms: HistoryTerms) -> MinimalProfile:
    """Write the profile of a job, and return it."""
    if job.problem is not None:
        raise InvalidInput(job.problem)
    card = None if job.model is None else gpu_of_product(job.model)
    if card is None and job.model is not None and terms.gpu is None:
        card = gpu_meant(job.model)
    chosen = None if terms.gpu is None else gpu_meant(terms.gpu)
    if card is not None and chosen is not None and card.key != chosen.key:
        raise InvalidInput(f"it ran on {card.key}, not on {chosen.key}")
    if (gpu := card or chosen) is None:
        raise InvalidInput("the history does not name its GPU model. Pass --gpu")
    minimal = job.minimal(gpu.key)
    write_numbers(minimal, gpu, terms.out)
    return minimal


def _report(written: Sequence[tuple[RecordedJob, MinimalProfile]]) -> Iterator[str]:
    """Yield lines with the numbers of each job, and with what is to be known of them."""
    for job, numbers in written:
        many = f"{job.gpus} x " * (job.gpus > 1)
        shown = {
            "busy {:.0%}": numbers.gpu_utilization,
            "memory busy {:.0%}": numbers.memory_utilization,
            "{:,.0f} MiB": numbers.memory_mib,
            "{:.0f} W": numbers.power_w,
            "{:g} s a step": numbers.step_s,
            "active for {:,.0f} s": job.active_s,
        }
        known = [form.format(number) for form, number in shown.items() if number is not None]
        beginning = f"{job.name}: {many}{numbers.gpu}, {counted(job.samples, 'sample')}"
        yield ", ".join([beginning, *known])
    if several := [job.name for job, _ in written if job.gpus > 1]:
        yield (
            f"The numbers of {', '.join(several)} are those of one of its GPUs: set gpus in a job "
            "file."
        )
    for job, _ in written:
        if job.doubted:
            yield (
                f"{job.name}: DCGM_FI_DEV_GPU_UTIL contradicts DCGM_FI_PROF_GR_ENGINE_ACTIVE in "
                f"{counted(job.doubted, 'sample')}, and stands for it there. {CURE}"
            )
    if any(numbers.step_s is None for _, numbers in written):
        yield (
            "A history has no step times, so nominal ones stand for them: read slowdowns and times "
            "of whole jobs. --step-s and --step-metric set steps."
        )


def _arrivals(
    written: Sequence[tuple[RecordedJob, MinimalProfile]], out: Path | None
) -> Iterator[str]:
    """Write when the jobs began into a trace, beside their profiles; yield a line about it."""
    starts = sorted(
        (job.first_s, f"{job.name}.json" if out else job.name, job.gpus)
        for job, _ in written
        if job.first_s is not None
    )
    if not starts:
        return
    text = arrivals_text((at_s - starts[0][0], name, gpus) for at_s, name, gpus in starts)
    path = (out or user_folder("profiles")) / "arrivals.csv"
    if is_file(path) and not read_bytes(path).startswith(text.partition("\n")[0].encode()):
        yield f"{path} is another table, so times of arrival are not written."
        return
    write_whole(path, text)
    yield f"{path} has the times of arrival: `advisor simulate --trace-in {path}`."
