"""``advisor profile --from-history``: profiles of jobs whose GPUs monitoring recorded.

Counters are of a whole GPU, so a job's numbers are from the moments in which it was alone there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any

from advisor.errors import AdvisorError, InvalidInput, counted, in_percent
from advisor.files.reading import is_file, read_bytes, user_folder
from advisor.files.writing import write_whole
from advisor.hardware.gpus import Gpu, gpu_meant, gpu_of_product
from advisor.measure.history import (
    HOSTS,
    PROFILED,
    Labels,
    Quantity,
    Series,
    has_labels,
    read_history,
    recorded_series,
    renamed,
)
from advisor.measure.process import say
from advisor.measure.profile import write_numbers
from advisor.workload.arrivals import arrivals_text
from advisor.workload.minimal_profile import MinimalProfile, idle

# Labels of a job in the order of preference, with those of its namespace.
_JOB_LABELS = {"pod": "namespace", "hpc_job": ""}

_CURE = "A profiling counter that is stuck counts again after `dcgmi dmon -e 1001` on its host."

LEAST_SAMPLES = 10
"""A profile needs so many samples in which the job was active and alone."""

_EXPORTER = "dcgm-exporter"
_NAMELESS = (
    "no series names a job in its labels exported_pod, pod or hpc_job. Name the label with --by; "
    "--by gpu counts all processes of a GPU as one job."
)

# Below, a GPU idles: while its job loads, evaluates on the CPU or waits.
_LEAST_BUSY = 0.01
# The profiling counter can stick while the GPU is at work, mostly at 0 (dcgm-exporter issue 662).
# The driver's utilisation contradicts a counter below `_LEAST_BUSY` if it is `_CLEARLY_BUSY`; and
# one that repeats a value `_REPEATS` times if it is `_FAR` from that value, or changes by more than
# `_CHANGING` and is so far from it. It is itself wrong if it is 0 above `_BUSY_W` watts.
_CLEARLY_BUSY, _REPEATS, _FAR, _CHANGING, _BUSY_W = 0.1, 10, 0.5, 0.2, 250.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """A job as the history shows it.

    Attributes:
        name: Its pod, Slurm job or GPU, with the namespace before it if several have that name.
        model: Its GPU, as the driver names it; None: the history does not say.
        gpus: The most GPUs that it had at once.
        samples: Samples in which it was active and alone on its GPU.
        numbers: Medians in those samples, by the names of `MinimalProfile`; of power the mean, of
            memory the most. A number that the history lacks is absent.
        active_s: Time for which it had a GPU that worked, as far as it can be seen; None without
            times.
        first_s: Time of its first sample; None without times.
        doubted: Samples in which the driver's utilisation contradicted the profiling counter.
        problem: Why it has no profile.
    """

    name: str
    model: str | None = None
    gpus: int = 1
    samples: int = 0
    numbers: Mapping[str, float] = field(default_factory=dict)
    active_s: float | None = None
    first_s: float | None = None
    doubted: int = 0
    problem: str | None = None


_Job = tuple[str, str]  # namespace and name
_Place = tuple[str, float]  # a GPU at a moment
_Row = Mapping[Quantity, float]


class _Samples:
    """The samples of one job: its numbers at each place, and the labels of its GPUs."""

    def __init__(self) -> None:
        self.at: dict[_Place, dict[Quantity, float]] = defaultdict(dict)
        self.models: set[str] = set()
        self.slices: set[str] = set()
        self.steps_s: list[float] = []

    def add(self, series: Series) -> None:
        labels, gpu = series.labels, series.gpu
        self.models.update(filter(None, [labels.get("modelName")]))
        self.slices.update(filter(None, [labels.get("GPU_I_PROFILE") or labels.get("GPU_I_ID")]))
        for at_s, value in series.points:
            self.at[gpu, at_s][series.quantity] = value


def recorded_jobs(
    history: Sequence[Series],
    by: str | None,
    interval_s: float | None = None,
    *,
    timed: bool = True,
) -> list[RecordedJob]:
    """Return the jobs in `history` by name; `by` is the label that names them, or None.

    Samples lie `interval_s` apart; None: as far as their times do, if they are `timed`.

    Raises:
        InvalidInput: No label names jobs.
    """
    of_gpus = [each for each in history if each.quantity != "step_s"]
    label, space = _label_of_jobs(of_gpus, by)
    jobs: dict[_Job, _Samples] = defaultdict(_Samples)
    owners: dict[_Place, set[_Job]] = defaultdict(set)
    for series in of_gpus:
        name = series.labels.get(label, "")
        if name and not (label == "pod" and _EXPORTER in name):  # its own pod, of an idle GPU
            job, gpu = (series.labels.get(space, ""), name), series.gpu
            jobs[job].add(series)
            for at_s, _ in series.points:
                owners[gpu, at_s].add(job)
    if not jobs:
        raise InvalidInput(_NAMELESS)
    for series in history:
        for (_, name), samples in jobs.items() if series.quantity == "step_s" else ():
            if name in (series.labels.get(label), series.labels.get("pod")):
                samples.steps_s += [value for _, value in series.points]
    uses, kind = Counter(name for _, name in jobs), "gpu" if label == "gpu" else ""
    names = {
        (space, name): f"{space}.{kind}{name}" if uses[name] > 1 and space else f"{kind}{name}"
        for space, name in jobs
    }
    if interval_s is None and timed:  # the median between two samples of a GPU
        interval_s = _middle(
            after - before
            for (gpu, before), (next_gpu, after) in pairwise(sorted(owners))
            if gpu == next_gpu
        )
    recorded = (_recorded(names, job, jobs[job], owners, interval_s) for job in jobs)
    jobs_seen = recorded if timed else (replace(each, first_s=None) for each in recorded)
    return sorted(jobs_seen, key=lambda each: each.name)


def _label_of_jobs(history: Iterable[Series], by: str | None) -> tuple[str, str]:
    """The label that names jobs, and that of their namespace; empty: none."""
    present = {name for each in history for name, value in each.labels.items() if value}
    if by is not None:
        if renamed(by) in present:
            return renamed(by), ""
        if by not in present:
            raise InvalidInput(
                f"no series has the label {by}. They have {', '.join(sorted(present))}."
            )
        return by, next((host for host in HOSTS if host in present), "") if by == "gpu" else ""
    for label, space in _JOB_LABELS.items():
        if renamed(label) in present:  # `label` is then the exporter's own
            return renamed(label), space and renamed(space)
        if label in present:
            return label, space
    raise InvalidInput(_NAMELESS)


def _recorded(
    names: Mapping[_Job, str],
    job: _Job,
    samples: _Samples,
    owners: Mapping[_Place, set[_Job]],
    interval_s: float | None,
) -> RecordedJob:
    """The numbers of `job`, or why there are none."""
    alone: dict[_Place, _Row] = {
        place: row for place, row in samples.at.items() if owners[place] == {job}
    }
    doubted = _contradicted(alone)
    for place in doubted:  # all counters of DCGM's profiling module are stuck at once
        kept = {*alone[place]} - {"gract", *PROFILED}
        alone[place] = {name: alone[place][name] for name in kept}
    rows = [*alone.values()]
    watched = [row for row in rows if _busy(row) is not None]
    active = [row for row in watched if (_busy(row) or 0.0) >= _LEAST_BUSY]
    counting = [row for row in active if row.get("sm_active") != 0]  # 0 of a busy GPU is stuck
    times = Counter(at_s for _, at_s in samples.at)
    run_s = None if interval_s is None else interval_s * len(times)
    numbers: dict[str, float | None] = {
        "gpu_utilization": _middle(_busy(row) or 0.0 for row in active),
        "memory_utilization": _middle(_numbers(active, "memory_utilization")),
        **{name: _middle(_numbers(counting, name)) for name in PROFILED},
        "memory_mib": max(_numbers(rows, "memory_mib"), default=None),
        "power_w": fmean(watts) if (watts := _numbers(active, "power_w")) else None,
        "step_s": _middle(samples.steps_s),
    }
    recorded = RecordedJob(
        name=names[job],
        model=next(iter(samples.models), None),
        gpus=max(times.values()),
        samples=len(active),
        numbers={name: number for name, number in numbers.items() if number is not None},
        # Of moments that it shared, only the length is known.
        active_s=None if run_s is None or not watched else run_s * len(active) / len(watched),
        first_s=min(times),
        doubted=len(doubted),
    )
    others = {names[other] for place in samples.at for other in owners[place]} - {names[job]}
    return replace(recorded, problem=next(_problems(recorded, samples, rows, sorted(others)), None))


def _contradicted(rows: Mapping[_Place, _Row]) -> set[_Place]:
    """The places at which the driver's utilisation shows that the profiling counter is stuck."""
    places: set[_Place] = set()

    def value_on_gpu(place: _Place) -> tuple[str, float]:
        value = rows[place]["gract"]
        return place[0], 0.0 if value < _LEAST_BUSY else value

    both = sorted(at for at, row in rows.items() if {"gract", "gpu_utilization"} <= row.keys())
    for (_, value), run in groupby(both, value_on_gpu):
        coarse = {
            place: rows[place]["gpu_utilization"]
            for place in run
            if rows[place]["gpu_utilization"] or rows[place].get("power_w", 0.0) < _BUSY_W
        }
        shares = coarse.values()
        if len(coarse) >= _REPEATS:
            changing = max(shares) - min(shares) > _CHANGING
            apart = _CLEARLY_BUSY if value == 0 else _CHANGING if changing else _FAR
            if abs(fmean(shares) - value) > apart:
                places |= coarse.keys()
        if value == 0:
            places |= {place for place, share in coarse.items() if share >= _CLEARLY_BUSY}
    return places


def _problems(
    job: RecordedJob, samples: _Samples, alone: Sequence[_Row], others: Sequence[str]
) -> Iterator[str]:
    if samples.slices:
        yield (
            f"it ran on a MIG instance ({', '.join(sorted(samples.slices))}), whose counters are "
            "of that slice. Run it on a whole GPU once"
        )
    if len(samples.models) > 1:
        yield f"it ran on GPUs of several models: {', '.join(sorted(samples.models))}"
    if not alone:
        listed = ", ".join(others[:3]) + (" and others" if len(others) > 3 else "")
        yield (
            f"it always shared its GPU, with {listed}, and counters are of the whole GPU. Run it "
            "alone once"
        )
    if all(_busy(row) is None for row in alone):
        yield "the history lacks its GPU utilisation, e.g. DCGM_FI_DEV_GPU_UTIL"
    memory_mib = job.numbers.get("memory_mib")
    if memory_mib is None:
        yield "the history lacks its GPU memory, e.g. DCGM_FI_DEV_FB_USED"
    if not job.samples and memory_mib:
        watts = max(_numbers(alone, "power_w"), default=None)
        power = "" if watts is None else f" and takes up to {watts:.0f} W"
        yield f"{idle(memory_mib, power)}. Choose a range in which it trains. {_CURE}"
    if job.samples < LEAST_SAMPLES:
        yield (
            f"it was active and alone in {counted(job.samples, 'sample')}, and at least "
            f"{LEAST_SAMPLES} are needed. Choose a longer range, or a shorter --interval"
        )


def _busy(row: _Row) -> float | None:
    """Share of time in which a kernel ran: of the whole time if known, else of the last moments."""
    return row.get("gract", row.get("gpu_utilization"))


def _numbers(rows: Iterable[_Row], quantity: Quantity) -> list[float]:
    return [row[quantity] for row in rows if quantity in row]


def _middle(values: Iterable[float]) -> float | None:
    return median(numbers) if (numbers := [*values]) else None


def jobs_in(
    source: str,
    by: str | None,
    start_s: float | None,
    end_s: float | None,
    interval_s: float | None,
    match: Labels,
    step_metric: str | None,
) -> list[RecordedJob]:
    """Return the jobs in the history at `source`, a file or Prometheus's address, by name.

    Args:
        source: The path or the address.
        by: Label by which jobs are named.
        start_s: Earlier samples are left out, seconds since the epoch; later than `end_s` too.
        end_s: See `start_s`.
        interval_s: Seconds between samples; None: as they show.
        match: Labels that series must have, with their values.
        step_metric: Name of the jobs' own metric of their steps.

    Raises:
        InvalidInput: It is no history, or has no GPU in that range, or no label names jobs.
        AdvisorError: Prometheus does not answer.
    """
    timed, of_server = True, source.lower().startswith(("http://", "https://"))
    if of_server:
        history, interval_s = recorded_series(
            source, start_s, end_s, interval_s, match, step_metric
        )
    else:
        history, timed = read_history(Path(source), step_metric)
        if not timed and (start_s or end_s):
            raise InvalidInput(f"{source}: it has no times. Leave out --start and --end.")
        first_s, last_s = start_s or 0.0, end_s or inf
        for number, each in enumerate(history):
            within = [point for point in each.points if first_s <= point[0] <= last_s]
            history[number] = replace(each, points=within)
    chosen = [  # an application's own metric has other labels
        each
        for each in history
        if each.points and (each.quantity == "step_s" or has_labels(each.labels, match))
    ]
    if not chosen:
        raise InvalidInput(
            f"{source}: no series of a GPU in this range{' with these labels' * bool(match)}. "
            "Check --start, --end and --match, and that dcgm-exporter is scraped."
        )
    labels = {name for each in chosen for name, value in each.labels.items() if value}
    if by is None and not of_server and not labels & {*_JOB_LABELS, *map(renamed, _JOB_LABELS)}:
        by = "gpu"
    return recorded_jobs(chosen, by, interval_s, timed=timed)


def write_recorded_profiles(
    jobs: Sequence[RecordedJob],
    name: str | None,
    steps_s: Mapping[str | None, float],
    gpu: str | None,
    out: Path | None,
) -> None:
    """Write a profile of each of `jobs` to the folder `out`, and when they began.

    Args:
        jobs: From `jobs_in`.
        name: Of the only job.
        steps_s: Seconds of a step by job; under None, of the only one.
        gpu: The GPU model, which others must not be.
        out: None: the user's own folder.

    Raises:
        InvalidInput: `name` or a step is not for these jobs.
        AdvisorError: No job has the numbers of a profile.
    """
    if name is not None:
        if len(jobs) != 1:
            raise InvalidInput(f"--name is for one job, and there are {len(jobs)}. Use --match.")
        jobs = [replace(jobs[0], name=name)]
    if None in steps_s and len(jobs) != 1:
        raise InvalidInput(f"there are {counted(len(jobs), 'job')}. Write --step-s JOB=SECONDS.")
    names = {job.name for job in jobs}
    if others := {str(job) for job in steps_s.keys() - names - {None}}:
        raise InvalidInput(
            f"--step-s names {', '.join(sorted(others))}, and the jobs are "
            f"{', '.join(sorted(names)[:9])}. Correct the name."
        )
    written: list[tuple[RecordedJob, MinimalProfile]] = []
    left_out: list[str] = []
    for job in jobs:
        step_s = steps_s.get(job.name, steps_s.get(None))
        own = {} if step_s is None else {"step_s": step_s}
        try:
            minimal, card = _minimal(replace(job, numbers={**job.numbers, **own}), gpu)
            write_numbers(minimal, card, out)
            written.append((job, minimal))
        except InvalidInput as error:
            left_out.append(f"left out {job.name}: {str(error).removesuffix('.')}.")
    for line in (*_report(written), *_arrivals([job for job, _ in written], out), *left_out):
        say(line)
    if not written:
        raise AdvisorError("no job of this history has enough numbers for a profile; see above")


def _minimal(job: RecordedJob, gpu: str | None) -> tuple[MinimalProfile, Gpu]:
    """The numbers of `job`, and its GPU model, which must be `gpu` if that is passed."""
    if job.problem is not None:
        raise InvalidInput(job.problem)
    card = None if job.model is None else gpu_of_product(job.model)
    if card is None and job.model is not None and gpu is None:
        card = gpu_meant(job.model)
    chosen = None if gpu is None else gpu_meant(gpu)
    if card is not None and chosen is not None and card.key != chosen.key:
        raise InvalidInput(f"it ran on {card.key}, not on {chosen.key}")
    card = card or chosen
    if card is None:
        raise InvalidInput("the history does not name its GPU model. Pass --gpu")
    numbers: dict[str, Any] = dict.fromkeys(
        ("step_s", "power_w", "gpu_utilization", "memory_utilization")
    )
    for name, value in job.numbers.items():
        digits = 1 if name in {"memory_mib", "power_w"} else 4
        numbers[name] = value if name == "step_s" else round(value, digits)
    if job.active_s is not None:
        numbers["duration_s"] = round(job.active_s, 1)
    elif numbers["step_s"] is None:
        raise InvalidInput(
            "samples have no times, so its duration is unknown. Pass --interval or --step-s"
        )
    return MinimalProfile(schema=1, workload=job.name, gpu=card.key, batch_size=1, **numbers), card


def _report(written: Sequence[tuple[RecordedJob, MinimalProfile]]) -> Iterator[str]:
    for job, numbers in written:
        many = f"{job.gpus} x " * (job.gpus > 1)
        busy, memory_busy = (
            None if share is None else in_percent(share)
            for share in (numbers.gpu_utilization, numbers.memory_utilization)
        )
        shown = {
            "busy {}": busy,
            "memory busy {}": memory_busy,
            "{:,.0f} MiB": numbers.memory_mib,
            "{:.0f} W": numbers.power_w,
            "{:g} s a step": numbers.step_s,
            "active for {:,.0f} s": job.active_s,
        }
        values = [form.format(number) for form, number in shown.items() if number is not None]
        beginning = f"{job.name}: {many}{numbers.gpu}, {counted(job.samples, 'sample')}"
        yield ", ".join([beginning, *values])
    if several := [job.name for job, _ in written if job.gpus > 1]:
        yield (
            f"The numbers of {', '.join(several)} are those of one of its GPUs. Set gpus in a job "
            "file."
        )
    for job, _ in written:
        if job.doubted:
            yield (
                f"{job.name}: DCGM_FI_DEV_GPU_UTIL contradicts DCGM_FI_PROF_GR_ENGINE_ACTIVE in "
                f"{counted(job.doubted, 'sample')}, and replaces it there. {_CURE}"
            )
    if any(numbers.step_s is None for _, numbers in written):
        yield (
            "The history has no step times, so advisor uses nominal ones: read slowdowns and "
            "times of whole jobs. --step-s and --step-metric set steps."
        )


def _arrivals(jobs: Sequence[RecordedJob], out: Path | None) -> Iterator[str]:
    """Write when the jobs began into a trace with their profiles; yield a line about it."""
    starts = sorted(
        (job.first_s, f"{job.name}.json" if out else job.name, job.gpus)
        for job in jobs
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
