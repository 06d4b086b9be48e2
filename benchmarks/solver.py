"""How fast the plan space of one GPU is searched, as ratios to a plain Python start.

    python benchmarks/solver.py [GPU]

*Searched* is the whole space in estimates: the ways to share the whole GPU, every set of jobs
in every partition of every MIG layout, and phases over all set partitions. *Recommended* is all
that ``advisor recommend`` does once its files are read: limits that differ from job to job too, and
the best of each kind replayed to the end. The process is warm: what follows from a profile by
itself is known, and so are MIG instances that were replayed; no mix on the whole GPU is. Profiles
and model are of an H200; on another GPU they stand in, to time the search.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median
from time import perf_counter

from advisor.hardware.gpus import gpu
from advisor.plan import ObjectiveName
from advisor.plan.candidate_space import Space, in_phases
from advisor.plan.ranking import ranked
from advisor.plan.values import Question
from advisor.prediction.cache import once_a_mix
from advisor.prediction.model import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.replay import replay_mix
from advisor.workload.job import Job
from advisor.workload.store import load_profile, model_path

MEASURED_ON = "h200-141gb"
EIGHT = (
    "resnet26-cifar10-bs128",
    "resnet50-imagenet64-bs128",
    "resnet152-imagenet-bs32",
    "cait_xxs24_224-cifar10-bs128",
    "bert-base-finetune-bs16",
    "gpt2-small-finetune-bs2",
    "mobilenetv3_large_100-imagenet64-bs32",
    "resnet50-cifar10-bs32",
)
OBJECTIVES: tuple[ObjectiveName, ...] = (
    "makespan", "throughput", "mean-completion", "energy",
)  # fmt: skip
REPEATS = 5


def seconds(call: Callable[[], object]) -> float:
    """Median of a few, after one that warms up."""
    call()
    times_s = []
    for _ in range(REPEATS):
        began = perf_counter()
        call()
        times_s.append(perf_counter() - began)
    return median(times_s)


def searched(jobs: Sequence[Job], question: Question) -> None:
    """The best of each kind, from nothing but profiles."""
    space = Space(jobs, question)
    space.whole()
    list(islice(space.on_instances(), 3))
    list(islice(in_phases(space), 3))


def forgetful(predictor: Predictor) -> Predictor:
    """As each answer has it: it replays no mix twice, and remembers none of other answers."""
    return replace(predictor, replay=once_a_mix(replay_mix))


def main() -> None:
    model = gpu(sys.argv[1] if len(sys.argv) > 1 else "a100-40gb")
    predictor = Predictor(model, load_model(model_path()))
    jobs = [Job(load_profile(name, MEASURED_ON)) for name in EIGHT]
    start_s = seconds(
        lambda: subprocess.run([sys.executable, "-c", "pass"], check=True, capture_output=True)
    )
    print(f"{model.key}; python -c pass takes {1000 * start_s:.0f} ms")

    def told(what: str, call: Callable[[], object]) -> None:
        taken = seconds(call)
        print(f"{what:52} {1000 * taken:9.1f} ms {taken / start_s:8.2f} x python")

    for objective in OBJECTIVES:
        question = Question(gpu=model, predictor=predictor, objective=objective)
        for what, some in (("different", jobs[:7]), ("equal", jobs[:1] * 7)):
            told(f"searched, 7 {what}, {objective}", lambda s=some, q=question: searched(s, q))
            told(
                f"recommended, 7 {what}, {objective}",
                lambda s=some, o=objective: ranked(s, model, forgetful(predictor), o),
            )
        told(
            f"recommended, 3 different, {objective}",
            lambda o=objective: ranked(jobs[1:4], model, forgetful(predictor), o),
        )
    question = Question(gpu=model, predictor=predictor, objective="makespan")
    for count in range(2, len(jobs) + 1):
        told(f"searched, {count} different, makespan", lambda n=count: searched(jobs[:n], question))


if __name__ == "__main__":
    main()
