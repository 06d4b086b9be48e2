"""How much better limits there are for 2 and 3 jobs than those that are found.

    python benchmarks/unequal_limits.py [JOB_SETS]

Job sets are drawn by a seed. All limits of the grid are predicted while all jobs run, which takes
up to a minute a set; beside them, those that `best_limits` returns. Nothing here is measured: it is
what the predictor says of the best found over the best there is, by throughput and by the job that
fares worst, of medians and of upper ends. Nothing here is a test.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from statistics import mean

from advisor.hardware.catalogue import gpu
from advisor.plan.forecast import CachingPredictor, Mixes
from advisor.plan.search.limit_search import best_limits
from advisor.prediction.cache import once_a_mix
from advisor.prediction.interval import Level
from advisor.prediction.model_file import load_model
from advisor.prediction.physics import replay_mix
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_features import LIMIT_GRID
from advisor.sharing import Mps
from advisor.workload.job import Job
from advisor.workload.store import load_profiles, model_path

GPU = gpu("h200-141gb")
SEED = 12
LEVELS: tuple[Level, ...] = ("p50", "p95")


def least(mixes: Mixes, sharings: Sequence[Mps], level: Level) -> float:
    """Of the costs while all jobs run."""
    found = [[job.slowdown_at(level) for job in mixes.whole(each).jobs] for each in sharings]
    return min(1 / sum(1 / each for each in own) for own in found)


def main(job_sets: int) -> None:
    plain = Predictor(GPU, load_model(model_path()))
    random, profiles = Random(SEED), list(load_profiles(GPU.key).values())
    for jobs in (2, 3):
        every = [Mps(tuple(map(float, each))) for each in product(LIMIT_GRID, repeat=jobs)]
        missed = []
        for _ in range(job_sets):
            predictor = CachingPredictor(replace(plain, play=once_a_mix(replay_mix)))
            mixes = Mixes([Job(each) for each in random.sample(profiles, jobs)], predictor)
            for level in LEVELS:
                found = best_limits(mixes, "throughput", level).sharings
                there_is = least(mixes, [*every, *found], level)
                missed.append(least(mixes, found, level) / there_is - 1)
        over = sum(each > 0.005 for each in missed)
        print(
            f"{jobs} jobs, {job_sets} sets: mean {mean(missed):.2%}, worst {max(missed):.2%}, "
            f"{over} of {len(missed)} questions miss more than 0.5%",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
