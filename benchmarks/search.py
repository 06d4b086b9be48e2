"""Processor seconds until `recommend` answers, for sets of 2 to 8 jobs that a seed draws.

    python -m benchmarks.search [--gpus a100-40gb ...] [--sets 40] [--limit 60] > sets.jsonl

The jobs of every second set are bare numbers. Each set is a process of its own, which has imported
the advisor and nothing else. Prints a line for each set, and last the worst of each GPU.
"""

import argparse
import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from time import process_time
from typing import Any

from advisor.api import Advisor
from advisor.errors import NothingFits
from advisor.hardware.gpus import Gpu, gpu
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.rules import Conditions
from advisor.workload.job import Job
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.profile import Profile
from advisor.workload.store import profile_paths

GPUS = ("a100-40gb", "a100-80gb", "a30-24gb", "h100-sxm-80gb", "h200-141gb")
_MEASURED_ON = "h200-141gb"
_SEED = 53
_LENGTHS_S = (600, 1800, 3600, 7200, 14_400)
_LARGEST = 0.6  # share of a GPU's memory


def drawn_jobs(model: Gpu, number: int) -> tuple[Job, ...]:
    """Draw the jobs of the set `number` for a GPU of this `model`."""
    draw, advisor, jobs = Random(f"{_SEED} {model.key} {number}"), Advisor(model.key), list[Job]()
    names, size, due = sorted(profile_paths(_MEASURED_ON)), draw.randint(2, 8), draw.random() < 0.5
    while len(jobs) < size:
        if number % 2:
            profile = _bare_numbers(draw, model, len(jobs))
        else:
            profile = advisor.find_profile(draw.choice(names))
        alone_s = Job(profile).alone_s
        if alone_s is None or (profile.memory.device_mib or 0) > _LARGEST * model.memory_mib:
            continue
        lasts_s = draw.choice(_LENGTHS_S)
        jobs.append(
            Job(
                profile,
                epochs=lasts_s / alone_s,
                deadline_s=draw.uniform(1, size) * lasts_s if due and draw.random() < 0.5 else None,
            )
        )
    return tuple(jobs)


def _bare_numbers(draw: Random, model: Gpu, number: int) -> Profile:
    busy = None if draw.random() < 0.2 else draw.uniform(0.1, 1.0)
    memory = draw.uniform(0.02, _LARGEST) ** draw.choice((1, 2))
    limit_w = model.power_limit_w or 300.0
    return MinimalProfile(
        schema=1,
        workload=f"bare-{number}",
        gpu=model.key,
        batch_size=2 ** draw.randint(3, 8),
        step_s=10 ** draw.uniform(-2, 0),
        memory_mib=max(500.0, memory * model.memory_mib),
        power_w=None if draw.random() < 0.2 else limit_w * draw.uniform(0.3, 1.0),
        gpu_utilization=busy,
        memory_utilization=None if busy is None else busy * draw.random(),
        examples_per_epoch=50_000,
    ).whole()


def answer(key: str, number: int) -> dict[str, Any]:
    """Answer for the set `number` on the GPU of this key: a row with its processor seconds."""
    draw, jobs = Random(f"objective {key} {number}"), drawn_jobs(gpu(key), number)
    objective = draw.choice(list(OBJECTIVES))
    conditions = Conditions(power_caps=draw.random() < 0.2)
    began_s = process_time()
    row: dict[str, Any] = {
        "gpu": key,
        "set": number,
        "jobs": len(jobs),
        "bare": bool(number % 2),
        "objective": objective,
        "cpu_s": None,
    }
    try:
        advised = Advisor(key).recommend(jobs, objective, conditions=conditions)
    except NothingFits as error:
        row["why"] = str(error)
    else:
        price = known_cost(advised.best, advised.ranked_by).p50
        row |= {"first": str(advised.best.sharing), "cost": float(f"{price:.6g}")}
    return row | {"cpu_s": round(process_time() - began_s, 2)}


def answers(keys: Sequence[str], numbers: Sequence[int], limit_s: int) -> Iterator[dict[str, Any]]:
    """Yield the row of each set, without `cpu_s` if it takes more than the limit."""
    for key in keys:
        for number in numbers:
            row = {
                "gpu": key,
                "set": number,
                "jobs": len(drawn_jobs(gpu(key), number)),
                "cpu_s": None,
            }
            read, write = os.pipe()
            if (child := os.fork()) == 0:
                resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
                os.write(write, json.dumps(answer(key, number)).encode())
                os._exit(0)
            os.close(write)
            with os.fdopen(read, "rb") as stream:
                text = stream.read()
            os.waitpid(child, 0)
            yield json.loads(text) if text else row


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean and the most processor seconds of the sets of each GPU that ended."""
    lines = []
    for key in dict.fromkeys(row["gpu"] for row in rows):
        own = [row for row in rows if row["gpu"] == key]
        ended = [row["cpu_s"] for row in own if row["cpu_s"] is not None] or [float("nan")]
        lines.append(
            f"{key}: {sum(row['cpu_s'] is not None for row in own)} of {len(own)} sets ended, "
            f"mean {sum(ended) / len(ended):.2f} s, most {max(ended):.2f} s"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", nargs="+", default=GPUS)
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--limit", type=int, default=60, help="processor seconds")
    options = parser.parse_args()
    rows, numbers = [], range(options.first, options.first + options.sets)
    for row in answers(options.gpus, numbers, options.limit):
        print(json.dumps(row), flush=True)
        rows.append(row)
    print(summary(rows), file=sys.stderr)


if __name__ == "__main__":
    main()
