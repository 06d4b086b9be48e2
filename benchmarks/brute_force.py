"""The search against brute force: how far from the best of all plans is its plan of least cost?

    python -m benchmarks.brute_force [--sets 20] > benchmarks/brute_force.jsonl

Sets of 2 to 5 drawn jobs, each for all objectives. All plans are predicted in full: each division
of the jobs into groups, the groups in every order, each shared in every way; queues in every order;
limits of seven values, for up to three jobs in every combination, and equal ones above; and each
way to give jobs MIG instances, shared for up to three jobs, and one each above.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from random import Random
from statistics import fmean
from typing import Any, get_args

from advisor.api import Advisor
from advisor.hardware.mig import layouts
from advisor.plan import ObjectiveName
from advisor.plan.forecast import Mixes, forecast_allowed
from advisor.plan.objectives import cost, known_cost
from advisor.plan.values import Forecast, Question
from advisor.prediction.caching_predictor import in_one_order
from advisor.sharing import (
    Concurrent,
    Group,
    Hybrid,
    Instance,
    Mps,
    Naive,
    Part,
    Place,
    Queue,
    Serial,
    Sharing,
)
from advisor.sharing.groups import in_turn
from advisor.workload.job import Job
from advisor.workload.store import profile_paths

_LIMITS = (14.0, 28.0, 43.0, 57.0, 71.0, 86.0, 100.0)
_FEW = 3
_GPUS = ("a100-40gb", "h100-sxm-80gb", "h200-141gb")
_MEASURED_ON = "h200-141gb"
_SEED = 55
_LENGTHS_S = (600, 1200, 1800, 3600, 7200, 14_400)
_LARGEST = 0.6  # share of a GPU's memory


def drawn_question(number: int) -> tuple[Advisor, tuple[Job, ...], ObjectiveName]:
    """Draw a GPU, 2 to 8 jobs, some of them copies, and an objective."""
    draw = Random(f"{_SEED} {number}")
    advisor, objective = Advisor(draw.choice(_GPUS)), draw.choice(get_args(ObjectiveName))
    names, size = sorted(profile_paths(_MEASURED_ON)), draw.randint(2, 8)
    memory_mib, jobs = advisor.card.memory_mib, list[Job]()
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


def divisions(jobs: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield every way to divide `jobs` into groups."""
    if not jobs:
        yield ()
        return
    first, *rest = jobs
    for groups in divisions(rest):
        yield ((first,), *groups)
        for at, group in enumerate(groups):
            yield (*groups[:at], (first, *group), *groups[at + 1 :])


def at_once(jobs: int, *, all_limits: bool) -> Iterator[Concurrent]:
    """Yield every way in which so many jobs share a GPU at once."""
    yield from (Naive(), Mps())
    if all_limits and jobs <= _FEW:
        yield from (Mps(each) for each in product(_LIMITS, repeat=jobs) if min(each) < max(_LIMITS))
    else:
        yield from (Mps((each,) * jobs) for each in _LIMITS[:-1])


def every_way(jobs: int, instances: Sequence[tuple[Instance, ...]]) -> Iterator[Sharing]:
    """Yield every way to run so many jobs on a GPU with one of these sets of `instances`."""
    numbers = range(1, jobs + 1)
    yield from at_once(jobs, all_limits=True)
    for groups in divisions(numbers):
        ways: list[list[Serial | Concurrent]] = [
            [Serial()] if len(group) == 1 else list(at_once(len(group), all_limits=False))
            for group in groups
        ]
        for order in permutations(range(len(groups))) if len(groups) > 1 else ():
            for how in product(*(ways[at] for at in order)):
                pairs = zip(order, how, strict=True)
                yield in_turn([Group(groups[at], way) for at, way in pairs])
    for width in range(2, jobs):
        for line in permutations(numbers):
            yield in_turn([Group(line, Queue(Mps(), width))])
    for own in instances:
        yield from on_instances(jobs, own)


def on_instances(jobs: int, instances: tuple[Instance, ...]) -> Iterator[Sharing]:
    """Yield every way to give each of so many jobs one of `instances`."""
    seen = set[object]()
    for at in product(range(len(instances)), repeat=jobs):
        groups = [
            tuple(job for job, own in enumerate(at, 1) if own == n) for n in range(len(instances))
        ]
        if jobs > _FEW and any(len(group) > 1 for group in groups):
            continue
        key = tuple(sorted((instances[n].profile, group) for n, group in enumerate(groups)))
        if key in seen:
            continue
        seen.add(key)
        ways: list[list[Serial | Concurrent]] = [
            [Serial()] if len(group) == 1 else [Naive(), Mps()] for group in groups if group
        ]
        used = [n for n, group in enumerate(groups) if group]
        for how in product(*ways):
            pairs = zip(used, how, strict=True)
            yield Hybrid(tuple(Place(instances[n], (Part(groups[n], way),)) for n, way in pairs))


def answer(number: int) -> Iterator[dict[str, Any]]:
    """Compare the search with brute force, for one set of jobs and each objective."""
    advisor, jobs, _ = drawn_question(number)
    jobs = jobs[: 2 + number % 4]
    predictor = in_one_order(advisor.predictor)
    question = Question(gpu=advisor.card, predictor=predictor, objective="makespan")
    mixes = Mixes(jobs, predictor)
    every = [
        each
        for sharing in every_way(len(jobs), [*layouts(advisor.card)])
        if isinstance(each := forecast_allowed(mixes, question, sharing), Forecast)
    ]
    for objective in get_args(ObjectiveName):
        advised = advisor.recommend(jobs, objective)
        best = min(advised.plans, key=lambda each: known_cost(each, advised.ranked_by).p50)
        costs = [(price.p50, each) for each in every if (price := cost(each, advised.ranked_by))]
        least, way = min(costs, key=lambda pair: pair[0])
        yield {
            "question": number,
            "gpu": advisor.gpu,
            "jobs": len(jobs),
            "objective": objective,
            "ranked_by": advised.ranked_by,
            "plans": len(every),
            "over_least": round(known_cost(best, advised.ranked_by).p50 / least - 1, 5),
            "sharing": best.notation,
            "least": str(way.sharing),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=20)
    options = parser.parse_args()
    rows = []
    for number in range(options.sets):
        for row in answer(number):
            rows.append(row)
            print(json.dumps(row), flush=True)
    over = [max(0.0, row["over_least"]) for row in rows]
    print(json.dumps({"questions": len(rows), "mean": fmean(over), "most": max(over)}))


if __name__ == "__main__":
    main()
