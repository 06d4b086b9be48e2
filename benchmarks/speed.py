"""How fast the advisor answers: processor seconds, as ratios to ``python -c "import numpy"``.

    python -m benchmarks.speed                 # this checkout
    python -m benchmarks.speed --before FOLDER # commands in another checkout too, in turn

A loaded machine changes the seconds and hardly the ratios; medians count. Nothing here is a test.
"""

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import process_time

from advisor.api import Advisor
from advisor.hardware import DEFAULT_GPU
from advisor.sharing import Mps, Naive
from advisor.simulation.events import Pace, PlacedJobs, Task, run
from advisor.simulation.queues import BestFit, GpuCapacity, InOrder, JobQueue

THREE = ("resnet50-imagenet-bs32-amp", "bert-base-finetune-bs4", "gpt2-small-finetune-bs2")
SEVEN = (
    "bert-base-finetune-bs16",
    "resnet50-imagenet64-bs128",
    "gpt2-small-finetune-bs2",
    "densenet121-cifar10-bs64",
    "lstm-wikitext-bs32",
    "t5-small-pretrain-bs16",
    "transformer-toy-bs512",
)
COMMANDS = (("--help",), ("recommend", *THREE), ("recommend", *SEVEN))
NUMPY = ("-c", "import numpy")
REPEATS = 7
SIMULATED, GPUS, PLACES, KINDS = 100_000, 64, 4, 6


def command_s(*words: str, checkout: Path | None = None) -> float:
    """Seconds that a fresh Python keeps a processor busy."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # as an installed package does
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout)
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *words], check=True, capture_output=True, env=environment, cwd=checkout
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def call_s(call: Callable[[], object]) -> float:
    """Processor seconds of a call in this process."""
    began_s = process_time()
    call()
    return process_time() - began_s


def commands(before: Path | None) -> dict[str, Callable[[], float]]:
    """Return what costs a fresh process, by its name."""
    here = Path(__file__).resolve().parents[1]
    ways = {"import numpy": partial(command_s, *NUMPY)}
    for words in COMMANDS:
        name = f"advisor {words[0]}" + (f", {len(words) - 1} jobs" if words[1:] else "")
        own = partial(command_s, "-m", "advisor", *words)
        ways[name] = partial(own, checkout=here)
        if before is not None:
            ways[f"{name}, before"] = partial(own, checkout=before)
    return ways


def questions() -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield what costs a question in a process that has answered one, and replays, by name."""
    Advisor().recommend(THREE)  # reads files, and loads what is compiled

    def changed(ask: Callable[[Advisor], object]) -> float:
        advisor = Advisor()
        advisor.recommend(THREE)
        return call_s(partial(ask, advisor))

    yield "first question", lambda: call_s(lambda: Advisor().recommend(THREE))
    asked: dict[str, Callable[[Advisor], object]] = {
        "the same again": lambda one: one.recommend(THREE),
        "another objective": lambda one: one.recommend(THREE, "throughput"),
        "a job less": lambda one: one.recommend(THREE[1:]),
        "more epochs": lambda one: one.recommend(
            [replace(job, epochs=3) for job in one.jobs(THREE)]
        ),
        "limits": lambda one: one.predict(THREE, "mps=57,43,43"),
    }
    for name, ask in asked.items():
        yield f"question: {name}", partial(changed, ask)
    profiles = [job.profile for job in Advisor().jobs(SEVEN)]
    for sharing in (Naive(), Mps()):
        predict = partial(Advisor(DEFAULT_GPU).uncalibrated.predict, profiles, sharing)
        yield f"prediction of 7 under {sharing}", partial(call_s, predict)


def tasks() -> list[Task]:
    """Draw jobs that arrive so often that about 40 GPUs run one at any time."""
    drawn, now_s, each = [], 0.0, random.Random(7)
    for _ in range(SIMULATED):
        now_s += each.expovariate(1 / 3.0)
        drawn.append(Task(each.expovariate(1 / 128.0), now_s))
    return drawn


@cache
def pace(busy_gpus: int = 1) -> Pace:
    """Return a pace by which co-located jobs slow each other, and a full host all of them."""
    slowed = max(1.0, busy_gpus / 32)

    def speeds(seats: PlacedJobs) -> list[float]:
        return [1 / (1 + 0.1 * (job % KINDS) * (len(seats) - 1)) / slowed for job, _ in seats]

    return speeds


def simulations() -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield what simulating many jobs costs: the event loop and its queues, without replays."""
    kinds = [job % KINDS for job in range(SIMULATED)]
    room = GpuCapacity(
        (0,) * PLACES,
        worth=lambda seats: sum(pace()(seats)),
        mix=lambda seats: tuple(sorted(kinds[job] for job, _ in seats)),
    )
    queues: dict[str, Callable[[], JobQueue]] = {
        "first-come": partial(InOrder, room),
        "best-fit": partial(BestFit, room, kinds),
    }
    for cores, shared in (("enough cores", None), ("few cores", pace)):
        for policy, queue in queues.items():
            name = f"{SIMULATED:,} jobs, {policy}, {cores}"
            yield (
                name,
                lambda queue=queue, shared=shared: call_s(
                    lambda: run(tasks(), pace(), queue(), (GPUS,), shared)
                ),
            )


def main() -> None:
    """Print a line for each cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=lambda text: Path(text).resolve())
    ways = commands(parser.parse_args().before)
    rounds = [{name: way() for name, way in ways.items()} for _ in range(REPEATS)]
    costs = {name: median(each[name] for each in rounds[1:]) for name in ways}
    costs |= {name: median(way() for _ in range(3)) for name, way in questions()}
    costs |= {name: way() for name, way in simulations()}
    for name, seconds in costs.items():
        print(f"{name:44} {seconds:8.3f} s {seconds / costs['import numpy']:8.2f} x import numpy")


if __name__ == "__main__":
    main()
