"""Writes a public trace of a cluster as jobs for ``advisor simulate --trace-in``.

    python -m research.public_traces philly DIR --start 2017-11-01 --end 2d --out trace.csv

reads the trace in DIR. Profiles stand in for its jobs, because it recorded no kernels.
"""

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from io import StringIO
from math import inf
from pathlib import Path

from advisor.api import Advisor
from advisor.errors import AdvisorError, InvalidInput, counted
from advisor.files import units
from advisor.files.writing import write_whole
from advisor.hardware import DEFAULT_GPU
from advisor.workload.job import MOST_HOST_GPUS, Arrival, Job
from advisor.workload.profile import Profile
from research.traces import FORMATS, Part, Trace, TraceJob, read_trace

STAND_INS = (
    "dlrm-1gb-bs128",
    "dlrm-8gb-bs2048",
    "dlrm-29gb-bs128",
    "cnn-cifar10-bs128",
    "resnet26-cifar10-bs128",
    "gru-speech-bs64",
    "resnet152-imagenet-bs32-fp16",
    "bert-base-finetune-bs16",
    "gpt2-medium-pretrain-bs4",
    "resnet152-imagenet-bs128",
)
"""Profiles that stand in by default: from an idle GPU to a busy one, and from 1 GiB to 30 GiB."""

# Profiles that are further than the nearest by at most this are equally near.
_EQUALLY_NEAR = 0.05


def stand_in_arrivals(
    trace: Trace, profiles: Sequence[Profile], memory_mib: float, gpus: int
) -> tuple[tuple[Arrival, ...], tuple[str, ...]]:
    """Return the jobs of `trace` as arrivals of `profiles`, and notes on them.

    Each job takes as long as in the trace. Its profile is the nearest by GPU utilisation and by the
    share of memory; of equally near ones, the job's name draws one. Jobs that need more than `gpus`
    are left out.

    Args:
        trace: Jobs with times on the clock of the trace.
        profiles: Those that may stand in, of one GPU model.
        memory_mib: Memory of that GPU.
        gpus: GPUs of the largest host.

    Raises:
        InvalidInput: No profile can stand in, or every job needs more GPUs.
    """
    for each in profiles:
        if each.workload.steps_per_epoch is None:
            raise InvalidInput(
                f"--stand-ins {each.name}: the length of its epoch is not in its profile. Name "
                f"another."
            )
    fitting = [each for each in profiles if (each.memory.device_mib or 0.0) < memory_mib]
    if not fitting:
        raise InvalidInput("no stand-in fits in the GPU's memory. Name smaller ones: --stand-ins.")
    most = min(gpus, MOST_HOST_GPUS)
    kept = [job for job in trace.jobs if job.gpus <= most]
    if not kept:
        raise InvalidInput(
            f"each job of the trace needs more than {most} GPUs. Use more: --host-gpus."
        )
    one_pass = cache(lambda at, gpus: Job(fitting[at], gpus=gpus))
    arrivals = []
    for job in kept:
        alone = one_pass(_nearest(job, fitting, memory_mib), job.gpus)
        epochs = job.run_s / (alone.alone_s or inf)
        arrivals.append(
            Arrival(replace(alone, epochs=epochs), job.submitted_s - kept[0].submitted_s)
        )
    left_out = list(trace.left_out)
    if wide := len(trace.jobs) - len(kept):
        left_out.insert(0, f"{counted(wide, 'job')} with more than {counted(most, 'GPU')}")
    return tuple(arrivals), _notes(kept, fitting, left_out)


def _nearest(job: TraceJob, profiles: Sequence[Profile], memory_mib: float) -> int:
    """The position of the profile that stands in for `job`."""
    distances = []
    for profile in profiles:
        distance = 0.0
        if job.utilization is not None:
            share = None if profile.counters is None else profile.counters.gract
            distance += 1.0 if share is None else abs(share - job.utilization)
        if job.memory_mib is not None:
            distance += abs((profile.memory.device_mib or 0.0) - job.memory_mib) / memory_mib
        distances.append(distance)
    near = [at for at, each in enumerate(distances) if each <= min(distances) + _EQUALLY_NEAR]
    return near[int(job.draw("profile") * len(near))]


def _notes(
    jobs: Sequence[TraceJob], profiles: Sequence[Profile], left_out: Sequence[str]
) -> tuple[str, ...]:
    recorded: Mapping[str, int] = {
        "GPU utilisation": sum(each.utilization is not None for each in jobs),
        "memory": sum(each.memory_mib is not None for each in jobs),
    }
    by = " and ".join(f"{name} ({counted(n, 'job')})" for name, n in recorded.items() if n)
    chosen = f"nearest by {by}, else drawn" if by else "drawn, because the trace records no use"
    notes = [
        f"{counted(len(profiles), 'profile')} stand in for the jobs of the trace: {chosen}. "
        f"Lengths are those of the trace; slowdowns, memory and energy are those of the stand-ins, "
        f"not measured."
    ]
    if left_out:
        notes.append(f"Left out: {', '.join(left_out)}.")
    return tuple(notes)


def main(words: Sequence[str] | None = None) -> int:
    """Write the table that `words` ask for, and its notes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m research.public_traces")
    parser.add_argument("form", choices=FORMATS, help="whose trace it is")
    parser.add_argument("path", type=Path, help="its folder, or the file with its jobs")
    parser.add_argument("--start", help="leave out jobs before this date, or after the first job")
    parser.add_argument("--end", help="leave out jobs from then on")
    parser.add_argument("--keep", default="100%", help="share of the jobs, as 1%%")
    parser.add_argument("--gpu", default=DEFAULT_GPU, help="GPU with the profiles that stand in")
    parser.add_argument("--host-gpus", type=int, default=8, help="leave out jobs that need more")
    parser.add_argument("--stand-ins", nargs="+", default=STAND_INS, metavar="JOB")
    parser.add_argument("--out", type=Path, required=True, help="write to this file")
    passed = parser.parse_args(words)
    try:
        part = Part(passed.start, passed.end, units.share(passed.keep))
        trace = read_trace(passed.path, passed.form, part)
        advisor = Advisor(passed.gpu)
        profiles = [advisor.find_profile(name) for name in passed.stand_ins]
        arrivals, notes = stand_in_arrivals(
            trace, profiles, advisor.card.memory_mib, passed.host_gpus
        )
        write_whole(passed.out, _table(arrivals))
    except AdvisorError as error:
        parser.error(str(error))
    print(*notes, sep="\n", file=sys.stderr)
    return 0


def _table(arrivals: Sequence[Arrival]) -> str:
    csv.writer(text := StringIO(), lineterminator="\n").writerows(
        [
            ("arrival_s", "job", "epochs", "gpus"),
            *(
                (f"{at.arrival_s:.12g}", at.job.name, f"{at.job.epochs:.12g}", at.job.gpus)
                for at in arrivals
            ),
        ]
    )
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
