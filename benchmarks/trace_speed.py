"""How long simulating a trace of arrivals takes, and how that grows with its length.

    python benchmarks/trace_speed.py [JOBS]...

Jobs of a dozen kinds come at random to 64 GPUs under MPS, four at once on each, at half as much
again as the GPUs would do one job at a time. `first`: every mix is predicted when it first occurs;
`again`: all are known. Each is three simulations: the median and both bounds. Nothing here is a
test.
"""

import sys
from math import log
from time import perf_counter

import numpy as np

from advisor.api import Advisor
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.sharing import Mps
from advisor.timeline import Policy
from advisor.timeline.paces import Paces
from advisor.timeline.simulate import Fleet, simulated
from advisor.workload.job import Arrival, Job
from advisor.workload.store import load_profile

GPU, GPUS, AT_ONCE = "h200-141gb", 64, 4
KINDS = (
    "resnet26-cifar10-bs128",
    "resnet50-cifar10-bs32",
    "resnet50-imagenet64-bs128",
    "resnet152-imagenet-bs32",
    "tf_efficientnetv2_s-imagenet-bs32",
    "cait_xxs24_224-cifar10-bs128",
    "densenet121-cifar10-bs64",
    "convnext_tiny-imagenet64-bs128",
    "bert-base-finetune-bs16",
    "gpt2-small-finetune-bs2",
    "lstm-wikitext-bs32",
    "mobilenetv3_large_100-imagenet64-bs32",
)
MEAN_S, LOAD = 600.0, 1.5
POLICIES: tuple[Policy, ...] = ("first-come", "shortest-first", "best-fit")
LENGTHS = (1_000, 10_000, 100_000)


def drawn(jobs: int) -> list[Arrival]:
    """Poisson arrivals of jobs that take 60 to 1140 s alone, evenly."""
    random = np.random.default_rng(0)
    profiles = [load_profile(name, GPU) for name in KINDS]
    comes_s = np.cumsum(random.exponential(MEAN_S / LOAD / GPUS, jobs))
    # A hundred lengths of each kind: as many objects as a CSV of such jobs would give.
    choices = [
        [Job(each, seconds / (each.epoch_s or 1.0)) for seconds in np.linspace(60, 1140, 100)]
        for each in profiles
    ]
    kinds, lengths = random.integers(len(KINDS), size=jobs), random.integers(100, size=jobs)
    return [
        Arrival(choices[kind][length], float(at_s))
        for kind, length, at_s in zip(kinds, lengths, comes_s, strict=True)
    ]


def measured(jobs: int, policy: Policy) -> tuple[float, float, int]:
    """Seconds with no mix known and with all known, and how many there were."""
    arrivals = drawn(jobs)
    profiles = [each.job.profile for each in arrivals]
    paces = Paces(Advisor(GPU).uncalibrated.predict, profiles, Mps(), AT_ONCE, MAX_OOM_PROBABILITY)
    seconds = []
    for _ in range(2):
        began = perf_counter()
        simulated(arrivals, paces, Fleet(GPU, GPUS, policy))
        seconds.append(perf_counter() - began)
    return seconds[0], seconds[1], paces.mixes


def main() -> None:
    lengths = [int(word) for word in sys.argv[1:]] or LENGTHS
    print(f"{'policy':16}{'jobs':>9}{'mixes':>8}{'first, s':>10}{'again, s':>10}{'growth':>8}")
    for policy in POLICIES:
        before: tuple[int, float] | None = None
        for jobs in lengths:
            first_s, again_s, mixes = measured(jobs, policy)
            growth = ""
            if before:
                growth = f"{log(again_s / before[1]) / log(jobs / before[0]):.2f}"
            before = jobs, again_s
            print(f"{policy:16}{jobs:9,}{mixes:8,}{first_s:10.1f}{again_s:10.2f}{growth:>8}")


if __name__ == "__main__":
    main()
