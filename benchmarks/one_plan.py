"""The search against an earlier one: is its plan of least cost as good, on 200 drawn questions?

    python -m benchmarks.one_plan store > benchmarks/one_plan.jsonl
    python -m benchmarks.one_plan compare benchmarks/one_plan.jsonl

`store` writes the least-cost plan of each question as notation, before the rule of choice.
`compare` searches again, and predicts both plans with the same predictor. It prints the cost of the
stored plan over that of the new one: above 1 the new plan is better.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from time import process_time
from typing import Any, get_args

from advisor.api import Advisor
from advisor.hardware.gpus import gpu
from advisor.plan import ObjectiveName
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import known_cost
from advisor.plan.rules import Conditions
from advisor.prediction.caching_predictor import in_one_order
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from advisor.workload.store import profile_paths

QUESTIONS = 200
GPUS = ("a100-40gb", "h100-sxm-80gb", "h200-141gb")
_MEASURED_ON = "h200-141gb"
_SEED = 55
_LENGTHS_S = (600, 1200, 1800, 3600, 7200, 14_400)
_LARGEST = 0.6  # share of a GPU's memory
_ANY_LAYOUT = Conditions(mig="any")


def drawn_question(number: int) -> tuple[Advisor, tuple[Job, ...], ObjectiveName]:
    """Draw a GPU, 2 to 8 jobs, some of them copies, and an objective."""
    draw = Random(f"{_SEED} {number}")
    advisor, objective = Advisor(draw.choice(GPUS)), draw.choice(get_args(ObjectiveName))
    names, size = sorted(profile_paths(_MEASURED_ON)), draw.randint(2, 8)
    memory_mib, jobs = gpu(advisor.gpu).memory_mib, list[Job]()
    while len(jobs) < size:
        profile = advisor.find_profile(draw.choice(names))
        alone_s, lasts_s = Job(profile).alone_s, draw.choice(_LENGTHS_S)
        if alone_s is None or (profile.memory.device_mib or 0) > _LARGEST * memory_mib:
            continue
        due = objective == "deadlines" and draw.random() < 0.6
        deadline_s = draw.uniform(1, size) * lasts_s if due or not jobs else None
        jobs.append(Job(profile, epochs=lasts_s / alone_s, deadline_s=deadline_s))
        if draw.random() < 0.2 and len(jobs) < size:
            jobs.append(jobs[-1])
    return advisor, tuple(jobs), objective


def least_cost(number: int) -> dict[str, Any]:
    """Answer the question `number`: its least-cost plan as notation, and the processor seconds."""
    advisor, jobs, objective = drawn_question(number)
    began_s = process_time()
    advised = advisor.recommend(jobs, objective, conditions=_ANY_LAYOUT)
    took_s = process_time() - began_s
    best = min(advised.plans, key=lambda each: known_cost(each, advised.ranked_by).p50)
    return {
        "question": number,
        "gpu": advisor.gpu,
        "jobs": len(jobs),
        "objective": advised.ranked_by,
        "sharing": str(best.sharing),
        "cost": known_cost(best, advised.ranked_by).p50,
        "cpu_s": round(took_s, 2),
    }


def ratios(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the answer to each stored question, with the ratio of the costs."""
    for stored in rows:
        new = least_cost(stored["question"])
        advisor, jobs, _ = drawn_question(stored["question"])
        mixes = Mixes(jobs, in_one_order(advisor.predictor))
        before = known_cost(forecast(mixes, parse_sharing(stored["sharing"])), new["objective"])
        yield new | {"before": stored["sharing"], "ratio": before.p50 / new["cost"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("store", "compare"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    options = parser.parse_args()
    if options.do == "store":
        for number in range(options.questions):
            print(json.dumps(least_cost(number)), flush=True)
        return
    stored = [json.loads(line) for line in options.file.read_text().splitlines()]
    rows = []
    for row in ratios(stored[: options.questions]):
        print(json.dumps(row), flush=True)
        rows.append(row)
    for name in (*get_args(ObjectiveName), None):
        own = [row["ratio"] for row in rows if name in (None, row["objective"])]
        if own:
            label = name or "all"
            print(
                f"{label}: {len(own)} sets, mean {fmean(own):.4f}, least {min(own):.4f}, "
                f"most {max(own):.4f}",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
