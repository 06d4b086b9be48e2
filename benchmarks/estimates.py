"""Estimates to search by, against full predictions: how they rank mixes, and how fast they are.

``python -m benchmarks.estimates GPU...`` draws mixes of 2 to 8 bundled jobs by a fixed seed. It
prints Spearman's rank correlation of speedups among the mixes of a mode, and of slowdowns of jobs,
and the error of steps. Then it draws job sets, each under 30 ways to share, and prints which share
of the best speedup the way with the best estimate gives away, and the best of the first five.
"""

import sys
from collections.abc import Sequence
from random import Random
from statistics import mean
from time import process_time

import numpy as np
from numpy.typing import ArrayLike

from advisor.api import Advisor
from advisor.hardware.partition import whole_gpu
from advisor.prediction.find_profile import names_of_jobs
from advisor.prediction.mix_steps import SurrogatePredictor, Tenancy
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate import LIMIT_GRID
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mps, Naive
from advisor.workload.profile import Profile

MIXES, SETS, WAYS, SEED, MOST_JOBS = 300, 40, 30, 2030, 8
KINDS = {
    "surrogate": SurrogatePredictor,
    "capacity, corrected": lambda *of: SurrogatePredictor(*of, replays=False),
}


def drawn_limits(random: Random, jobs: int) -> Mps:
    """Draw a sharing under MPS with a limit for each job, one at least below 100 %."""
    limits = [float(random.choice(LIMIT_GRID)) for _ in range(jobs)]
    limits[0] = min(limits[0], 86.0)
    return Mps(tuple(limits))


def estimated(estimates: SurrogatePredictor, sharing: Concurrent) -> Floats:
    """Return seconds of a step of each job of `estimates` under `sharing`."""
    if sharing.limits:
        return estimates.limited(np.array([sharing.limits]))[0]
    places = np.arange(len(estimates.profiles))[None]
    return estimates.steps([(Tenancy(whole_gpu(estimates.gpu), sharing), places)])[0][0]


def rank_correlation(one: ArrayLike, other: ArrayLike) -> float:
    """Return Spearman's correlation of two lists of numbers without ties."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def main(gpu: str) -> None:
    """Print the figures of one GPU."""
    advisor, random = Advisor(gpu), Random(SEED)
    predictor = Predictor(advisor.card, advisor.model)
    profiles = [advisor.find_profile(name) for name in names_of_jobs(advisor.card)]
    profiles = [each for each in profiles if predictor.surrogate([each]).replays]

    def answers(jobs: Sequence[Profile], sharing: Concurrent) -> list[Floats]:
        """Slowdowns of the jobs, predicted in full, and by each kind of estimate."""
        alone_s = np.array([each.step_s for each in jobs])
        full = [each.step_s.p50 for each in predictor.predict(jobs, sharing).jobs]
        kinds = [make(tuple(jobs), advisor.card, advisor.model) for make in KINDS.values()]
        return [full / alone_s, *(estimated(each, sharing) / alone_s for each in kinds)]

    def draw() -> list[Profile]:
        return random.sample(profiles, random.randint(2, MOST_JOBS))

    ways = {"naive": lambda _: Naive(), "mps": lambda _: Mps()}
    ways["mps-limits"] = lambda jobs: drawn_limits(random, len(jobs))
    for mode, way in ways.items():
        drawn = [answers(jobs, way(jobs)) for jobs in (draw() for _ in range(MIXES))]
        full, *others = zip(*drawn, strict=True)
        for kind, own in zip(KINDS, others, strict=True):
            speedups = [[(1 / each).sum() / len(each) for each in of] for of in (full, own)]
            jobs = [np.concatenate(of) for of in (full, own)]
            error = np.abs(jobs[1] / jobs[0] - 1)
            print(
                f"{gpu:14} {mode:10} {kind:20} rank of mixes {rank_correlation(*speedups):.3f}, of "
                f"jobs {rank_correlation(*jobs):.3f}; error {np.median(error):.1%}, "
                f"P90 {np.quantile(error, 0.9):.1%}"
            )
    lost = {kind: ([], []) for kind in KINDS}
    for jobs in (draw() for _ in range(SETS)):
        sharings = [Naive(), Mps(), *(drawn_limits(random, len(jobs)) for _ in range(WAYS - 2))]
        slowdowns = np.array([answers(jobs, each) for each in sharings])
        full, *others = (1 / slowdowns).sum(axis=2).T
        for kind, own in zip(KINDS, others, strict=True):
            first = full[np.argsort(-own)[:5]] / full.max()
            lost[kind][0].append(1 - first[0])
            lost[kind][1].append(1 - first.max())
    vectors = np.random.default_rng(SEED).choice(LIMIT_GRID, (2000, MOST_JOBS)).astype(float)
    for kind, make in KINDS.items():
        estimates = make(tuple(profiles[:MOST_JOBS]), advisor.card, advisor.model)
        estimates.limited(vectors)
        begin = process_time()
        estimates.limited(vectors)
        first, five = ((mean(each), max(each)) for each in lost[kind])
        print(
            f"{gpu:14} {kind:20} gives away {first[0]:.1%} (worst {first[1]:.1%}), best of five "
            f"{five[0]:.1%} ({five[1]:.1%}); 2,000 limits of 8 jobs in "
            f"{1000 * (process_time() - begin):.0f} ms"
        )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(name)
