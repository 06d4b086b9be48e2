"""Runs jobs that wait for their hosts pinned to cores of their own, and free to move.

    python benchmarks/pinning_study.py --device 0 --cores 0-15 --out FOLDER [--deadline 200]

Each mix runs on as many cores as it needs, and on all; pinned and free, in shuffled order.
Begun again with the same folder it goes on where it was. `research.pinning_score` says what pinning
gained. With ``--device cpu`` one small mix tries out the way.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from time import monotonic

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import device_at_hand
from advisor.measure.process.cores import allowed_cores, cores_of_each, leave_to_tenants
from advisor.measure.process.windows import Timing
from advisor.measure.shared.bench import bench_on
from advisor.measure.shared.planned_run import PlannedMix, PlannedRun, mixes_of
from advisor.measure.shared.shared_run import measure
from advisor.workload.named_workloads import workload
from advisor.workload.stored_runs import read_runs
from advisor.workload.writing import append_run

SEED = 2053
WHERE, HOW = ("few", "all"), ("pinned", "free")
MIXES = {
    "alone": ("naive", ("mobilenetv3_large_100-cifar10-bs128",)),
    "copies": ("naive", ("resnet26-cifar10-bs128",) * 3),
    "mps-copies": ("mps", ("resnet26-cifar10-bs128",) * 3),
    "pair": ("naive", ("cait_xxs24_224-cifar10-bs128", "t5-small-pretrain-bs8-amp")),
    "mps-three": ("mps", ("t5-small-pretrain-bs8-amp",) * 2 + ("densenet121-cifar10-bs64",)),
    "mps-four": (
        "mps",
        (
            "transformer-toy-bs32",
            "cnn-cifar10-bs128",
            "mobilenetv3_large_100-cifar10-bs128",
            "gpt2-small-finetune-bs2",
        ),
    ),
}
TRIAL = {"trial": ("naive", ("mlp-toy-bs8",) * 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="0")
    parser.add_argument("--cores", help="those that jobs may have, e.g. 0-15 [all]")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--deadline", type=float, default=200.0)
    asked = parser.parse_args()
    try:
        study(asked)
    except AdvisorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def study(asked: argparse.Namespace) -> None:
    """Measure what is not in the folder yet, until the deadline."""
    until = monotonic() + asked.deadline
    file = asked.out / f"pinning-{asked.device}.jsonl"
    asked.out.mkdir(parents=True, exist_ok=True)
    done = {run.id for run in read_runs(file)} if file.exists() else set()
    allowed = allowed_cores(asked.cores)
    os.sched_setaffinity(0, allowed)
    timing = Timing(settle_s=0.5, window_s=0.7, windows=3)
    device = device_at_hand(asked.device)
    with bench_on(device, allowed, timing, "benchmarks/pinning_study.py") as bench:
        for mix, cores in orders(TRIAL if device.kind == "cpu" else MIXES, allowed, asked.device):
            if mix.id not in done and monotonic() < until:
                leave_to_tenants(cores, allowed)
                append_run(file, measure(mix, cores, bench.settings))


def orders(
    mixes: dict[str, tuple[str, tuple[str, ...]]], allowed: tuple[int, ...], device: str
) -> Iterator[tuple[PlannedMix, tuple[tuple[int, ...], ...]]]:
    """Every mix in every way, with the cores of each of its jobs, in an order of the device's."""
    cases = list(product(mixes, WHERE, HOW))
    Random(f"{SEED} {device}").shuffle(cases)
    for name, where, how in cases:
        sharing, names = mixes[name]
        jobs = tuple(map(workload, names))
        plan = PlannedRun(
            id=f"pinning-{device}-{name}-{where}-{how}",
            sharing=sharing,
            purpose="control",
            workloads=jobs,
        )
        (mix,) = mixes_of(plan)
        needs = [job.cores for job in jobs]
        theirs = allowed[: sum(needs)] if where == "few" else allowed
        own = cores_of_each(needs, theirs)
        yield mix, own if how == "pinned" else (theirs,) * len(jobs)


if __name__ == "__main__":
    sys.exit(main())
