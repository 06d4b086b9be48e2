"""How much throughput is given away by searching roughly instead of replaying everything.

    python benchmarks/distilled_regret.py [JOB_SETS]

Job sets of 2 to 6 are drawn by a seed from half of the model families, and the distilled
predictor is taught anew on the other half. Each set's candidates are naive, MPS, and limit vectors
of one grid, a hundred or so in all. All are predicted. Beside that, equal limits and the best few
by the distilled predictor are replayed for a short time, and only naive, MPS and the best of these
are predicted. Nothing here is measured: it is what the predictor says of the sharing chosen, over
the best that it says of any. Nothing here is a test.
"""

import sys
from collections.abc import Sequence
from itertools import product
from random import Random
from time import perf_counter

import numpy as np

from advisor.hardware.catalogue import gpu
from advisor.measure.process.cores import allowed_cores
from advisor.plan.search.limit_search import kept
from advisor.prediction.fit.surrogate_fit import with_surrogate
from advisor.prediction.mix_pace import step_intervals
from advisor.prediction.model_file import Model, load_model
from advisor.prediction.surrogate_answers import surrogate_predictor
from advisor.prediction.surrogate_features import LIMIT_GRID
from advisor.sharing import Mps, Naive
from advisor.workload.profile import Profile
from advisor.workload.store import load_profiles, model_path

GPU = gpu("h200-141gb")
SEED = 7
MOST = 100
KEPT = (4, 8, 16, 24, 32)


def candidates(degree: int, random: Random) -> list[Naive | Mps]:
    """Naive, MPS, equal limits, and limit vectors of the grid: all, or as many as `MOST`."""
    equal = [(float(each),) * degree for each in LIMIT_GRID]
    if len(LIMIT_GRID) ** degree <= MOST:
        vectors = list(product(map(float, LIMIT_GRID), repeat=degree))
    else:
        vectors = [tuple(float(random.choice(LIMIT_GRID)) for _ in range(degree))
                   for _ in range(MOST)]  # fmt: skip
    return [Naive(), Mps(), *map(Mps, dict.fromkeys([*equal, *vectors]))]


def throughputs(steps_s: np.ndarray, profiles: Sequence[Profile]) -> np.ndarray:
    """What is done in a unit of time, shape (sharings,), of steps (sharings, jobs)."""
    return (np.array([each.step_s for each in profiles]) / steps_s).sum(axis=1)


def regrets(profiles: Sequence[Profile], tried: Sequence[Naive | Mps], model: Model) -> list[float]:
    """What is given away with so many kept as `KEPT` says."""
    exact_s = [[each.p50 for each in step_intervals(profiles, sharing, GPU, model)]
               for sharing in tried]  # fmt: skip
    exact = throughputs(np.array(exact_s), profiles)
    asked = surrogate_predictor(profiles, GPU, model)
    order = np.argsort(-throughputs(asked.steps(tried), profiles), kind="stable")
    whole, equal = list(range(2)), list(range(2, 2 + len(LIMIT_GRID)))
    replayed = np.full(len(tried), -np.inf)
    replayed[2:] = throughputs(asked.replayed(tried[2:]), profiles)
    found = []
    names = [each.name for each in profiles]
    for few in KEPT:
        some = sorted({*equal, *order[:few]} - {*whole}, key=lambda at: -replayed[at])
        predicted = kept([tried[at] for at in some], names)
        best = max(exact[tried.index(each)] for each in [*tried[:2], *predicted])
        found.append(1 - best / exact.max())
    return found


def halves(profiles: Sequence[Profile]) -> tuple[list[Profile], list[Profile]]:
    """Profiles of every other family, and the rest."""
    families = sorted({each.workload.family for each in profiles})
    taught = set(families[::2])
    return ([each for each in profiles if each.workload.family in taught],
            [each for each in profiles if each.workload.family not in taught])  # fmt: skip


def main(job_sets: int) -> None:
    model = load_model(model_path())
    taught, unseen = halves(list(load_profiles(GPU.key).values()))
    began = perf_counter()
    model = with_surrogate(model, {GPU: taught}, processes=len(allowed_cores()))
    print(f"distilled in {perf_counter() - began:.1f} s")
    random, rows, counts = Random(SEED), [], []
    for number in range(job_sets):
        chosen = random.sample(unseen, 2 + number % 5)
        tried = candidates(len(chosen), random)
        counts.append(len(tried))
        rows.append(regrets(chosen, tried, model))
    print(f"{job_sets} job sets, {min(counts)} to {max(counts)} candidates")
    for few, given in zip(KEPT, np.array(rows).T, strict=True):
        print(f"{few:3} kept: mean {given.mean():.3%}, worst {given.max():.3%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
