"""``advisor profile --from-history``: writes profiles of jobs that a cluster's monitoring saw."""

import argparse
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from time import time

from advisor.errors import AdvisorError, InvalidInput, counted
from advisor.hardware.gpus import gpu_meant, gpu_of_product
from advisor.measure.history import Series, epoch_s, has_labels, read_history, renamed
from advisor.measure.parser import Parser, above_0
from advisor.measure.process import say
from advisor.measure.profile import OUT_HELP, write_numbers
from advisor.measure.prometheus import (
    MOST_POINTS,
    TOKEN,
    check_address,
    is_metric,
    recorded_series,
)
from advisor.measure.recorded_jobs import CURE, JOB_LABELS, RecordedJob, recorded_jobs
from advisor.workload import units
from advisor.workload.arrivals import arrivals_text
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.reading import DAY_S, is_file, read_bytes, user_folder
from advisor.workload.writing import new_path, write_whole

# dcgm-exporter reads its counters every 30 s by default.
_INTERVAL_S = 30.0


def run_from_history(argv: Sequence[str]) -> int:
    """Write a profile of each job in the history that `argv` names; return 0, or 1 without any."""
    words = _parser().parse_args(argv)
    history, interval_s, timed = _history(words)
    match = dict(words.match)
    chosen = [  # an application's own metric has other labels
        each for each in history if each.quantity == "step_s" or has_labels(each.labels, match)
    ]
    if not chosen:
        raise InvalidInput(
            f"{words.from_history}: no series of a GPU in this range"
            f"{' with these labels' * bool(words.match)}. Check --start, --end and --match, and "
            "that dcgm-exporter is scraped."
        )
    labels = {name for each in chosen for name, value in each.labels.items() if value}
    by = words.by
    jobs_named = labels & {*JOB_LABELS, *map(renamed, JOB_LABELS)}
    if by is None and not _is_address(words.from_history) and not jobs_named:
        by = "gpu"
    jobs = recorded_jobs(chosen, by, interval_s, timed=timed)
    written: list[tuple[RecordedJob, MinimalProfile]] = []
    left_out: list[tuple[str, str]] = []
    for job in _with_options(jobs, words):
        try:
            written.append((job, _write(job, words)))
        except InvalidInput as error:
            left_out.append((job.name, str(error)))
    for line in (*_report(written), *_arrivals(written, words.out)):
        say(line)
    for name, why in left_out:
        say(f"left out {name}: {why.removesuffix('.')}.")
    if not written:
        raise AdvisorError("no job of this history has the numbers of a profile; see above")
    return 0


def _is_address(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


def _history(words: Namespace) -> tuple[list[Series], float | None, bool]:
    """The series, seconds between their samples if known, and whether they have times."""
    source = words.from_history
    if source is None:
        raise InvalidInput("expected a file or an address after --from-history.")
    if _is_address(source):
        return _of_prometheus(words)
    series, timed = read_history(Path(source), words.step_metric)
    if not timed and (words.start or words.end):
        raise InvalidInput(f"{source}: it has no times. Leave out --start and --end.")
    first_s, last_s = words.start or 0.0, words.end or inf
    within = (
        replace(each, points=[at for at in each.points if first_s <= at[0] <= last_s])
        for each in series
    )
    return [each for each in within if each.points], words.interval, timed


def _of_prometheus(words: Namespace) -> tuple[list[Series], float, bool]:
    check_address(words.from_history)
    end_s = time() if words.end is None else words.end
    start_s = end_s - DAY_S if words.start is None else words.start
    if start_s >= end_s:
        raise InvalidInput("--start is not before --end. Correct one of them.")
    least_s = (end_s - start_s) / (MOST_POINTS - 1)
    interval_s = words.interval or max(_INTERVAL_S, float(-(-least_s // 1)))
    if interval_s < least_s:
        raise InvalidInput(
            f"--interval {interval_s:g} makes more than {MOST_POINTS:,} samples of this range, and "
            f"Prometheus refuses those. Use {least_s:.0f} s or more, or a shorter range."
        )
    match, metric = dict(words.match), words.step_metric
    series = recorded_series(words.from_history, start_s, end_s, interval_s, match, metric)
    return series, interval_s, True


def _with_options(jobs: Sequence[RecordedJob], words: Namespace) -> Iterator[RecordedJob]:
    """The jobs with the name and the steps that the user passed."""
    if words.name is not None:
        if len(jobs) != 1:
            raise InvalidInput(f"--name is for one job, and there are {len(jobs)}. Use --match.")
        jobs = [replace(jobs[0], name=words.name)]
    steps_s = dict(words.step_s)
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


def _write(job: RecordedJob, words: Namespace) -> MinimalProfile:
    """Write the profile of a job, and return it."""
    if job.problem is not None:
        raise InvalidInput(job.problem)
    card = None if job.model is None else gpu_of_product(job.model)
    if card is None and job.model is not None and words.gpu is None:
        card = gpu_meant(job.model)
    chosen = None if words.gpu is None else gpu_meant(words.gpu)
    if card is not None and chosen is not None and card.key != chosen.key:
        raise InvalidInput(f"it ran on {card.key}, not on {chosen.key}")
    if (gpu := card or chosen) is None:
        raise InvalidInput("the history does not name its GPU model. Pass --gpu")
    minimal = job.minimal(gpu.key)
    write_numbers(minimal, gpu, words.out)
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


def _moment(text: str) -> float:
    """Return seconds since the epoch of a time of day, or of so long ago."""
    try:
        return epoch_s(text)
    except InvalidInput:
        try:
            return time() - units.seconds(text)
        except InvalidInput:
            raise ArgumentTypeError(
                f"expected a time such as 2026-05-01T12:00, or how long ago, such as 2h; got {text}"
            ) from None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not is_metric(name):
        raise ArgumentTypeError(f"{text}: write LABEL=VALUE")
    return name, value


def _step(text: str) -> tuple[str | None, float]:
    name, _, seconds = text.rpartition("=")
    return name or None, above_0(seconds)


def _metric(text: str) -> str:
    if not is_metric(text):
        raise ArgumentTypeError(f"{text} is not a name of Prometheus")
    return text


def _parser() -> Parser:
    parser = Parser(
        prog="advisor profile --from-history",
        usage="advisor profile --from-history FILE|ADDRESS [OPTIONS]",
        description="Write DIR/JOB.json for each job that dcgm-exporter and Prometheus recorded, "
        "or a file of nvidia-smi, dcgmi dmon or Grafana. Counters are of the whole GPU, so the "
        "numbers are from samples in which the job was active and alone on its GPU.",
        epilog="ADDRESS is Prometheus's, e.g. http://prometheus:9090. The variable "
        f"{TOKEN} may have a token. Exit codes: 0 a profile was written; 1 none; 2 wrong use.",
    )
    add = parser.add_argument
    add("--from-history", nargs="?", metavar="FILE|ADDRESS", help=argparse.SUPPRESS)
    add(
        "--start",
        type=_moment,
        metavar="TIME",
        help="Leave out earlier samples: a time such as "
        "2026-05-01T12:00, or how long ago, e.g. 6h; default: a day before the end.",
    )
    add("--end", type=_moment, metavar="TIME", help="Leave out later samples; default: now.")
    add(
        "--interval",
        type=above_0,
        metavar="SECONDS",
        help="Time between samples.  [default: 30, more for long ranges; of a file: by its times]",
    )
    add(
        "--by",
        type=_metric,
        metavar="LABEL",
        help="Name jobs by this label; gpu: one job a GPU.  "
        "[default: exported_pod, pod or hpc_job]",
    )
    add(
        "--match",
        type=_pair,
        action="append",
        default=[],
        metavar="LABEL=VALUE",
        help="Use series with this label only, e.g. namespace=ml; repeatable.",
    )
    add(
        "--step-s",
        type=_step,
        action="append",
        default=[],
        metavar="[JOB=]SECONDS",
        help="Set the step of a job; repeatable.",
    )
    add(
        "--step-metric",
        type=_metric,
        metavar="NAME",
        help="Read steps, in seconds, from this metric of your jobs.",
    )
    add(
        "--gpu",
        metavar="GPU",
        help="Leave out jobs on other GPU models; needed if the history does not name the model.",
    )
    add("--name", metavar="NAME", help="Name the only job.")
    add("--out", type=new_path, metavar="DIR", help=OUT_HELP)
    add("--json", action="store_true", help="Print the new profiles as one JSON document.")
    return parser
