"""What a changed question costs in a process that has answered one, as the page asks them.

    python benchmarks/what_if.py [GPU]

Each change is put to an `Advisor` that has answered for three jobs and nothing else: seconds, the
processor's seconds (which other processes change little), and these as a ratio to the first
answer's, for which files are read and libraries loaded already. The least of some times. Nothing
here is a test.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time

from advisor.api import Advisor
from advisor.hardware import DEFAULT_GPU

NAMES = ("resnet50-imagenet-bs32-amp", "bert-base-finetune-bs4", "gpt2-small-finetune-bs2")
REPEATS = 3


def changes(advisor: Advisor) -> dict[str, Callable[[], object]]:
    """What is asked after the first question, by its name."""
    first, *rest = advisor.jobs(NAMES)
    return {
        "nothing": lambda: advisor.recommend(NAMES),
        "another objective": lambda: advisor.recommend(NAMES, "throughput"),
        "energy": lambda: advisor.recommend(NAMES, "energy"),
        "two of the first job": lambda: advisor.recommend([f"{NAMES[0]}:2", *NAMES[1:]]),
        "one job less": lambda: advisor.recommend(NAMES[1:]),
        "more epochs": lambda: advisor.recommend([replace(first, epochs=3), *rest]),
        "the upper ends": lambda: advisor.recommend(NAMES, level="p95"),
        "a limit": lambda: advisor.predict(NAMES, "mps=57,43,43"),
    }


def cost(ask: Callable[[], object]) -> tuple[float, float]:
    """Seconds until the answer, and the processor's."""
    began, busy = perf_counter(), process_time()
    ask()
    return perf_counter() - began, process_time() - busy


def main(gpu: str) -> None:
    Advisor(gpu).recommend(NAMES)  # reads files, and loads what is compiled
    costs: dict[str, list[tuple[float, float]]] = {}
    for change in changes(Advisor(gpu)):
        for _ in range(REPEATS):
            advisor = Advisor(gpu)
            first = cost(partial(advisor.recommend, NAMES))
            costs.setdefault("the first question", []).append(first)
            costs.setdefault(change, []).append(cost(changes(advisor)[change]))
    whole_s = min(busy for _, busy in costs["the first question"])
    for change, measured in costs.items():
        length_s, busy_s = map(min, zip(*measured, strict=True))
        ratio = busy_s / whole_s
        print(f"{length_s:6.3f} s, {busy_s:6.3f} s of a processor, {ratio:.2f}: {change}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_GPU)
