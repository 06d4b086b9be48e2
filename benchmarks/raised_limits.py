"""That no job is said to slow when its own MPS limit is raised, and how often replay says so.

    python benchmarks/raised_limits.py [MIXES]

Each limit replayed by itself, a job may seem to slow a little; what is predicted never does, see
`advisor.prediction.own_limit`. Mixes of 2 to 7 jobs with profiles are drawn, and one job's limit is
raised by one step of the grid.
"""

import sys
from collections.abc import Sequence

import numpy as np

from advisor.hardware.catalogue import gpu
from advisor.prediction.mix_pace import step_intervals
from advisor.prediction.model_file import Model, load_model
from advisor.prediction.physics import replay_mix
from advisor.prediction.surrogate_features import LIMIT_GRID
from advisor.prediction.trace import Floats
from advisor.sharing import Mps
from advisor.workload.profile import Profile
from advisor.workload.store import load_profiles, model_path

GPU = gpu("h200-141gb")
SEED = 7


def slowed(profiles: Sequence[Profile], limits: Floats, job: int, model: Model) -> Floats:
    """Log of the job's step at `limits` over the one at its next lower limit.

    Returns:
        As predicted, and as replayed; shape (2,).
    """
    lower = limits.copy()
    lower[job] = LIMIT_GRID[LIMIT_GRID.index(int(limits[job])) - 1]
    steps = []
    for each in (limits, lower):
        sharing = Mps(tuple(map(float, each)))
        replayed = replay_mix(profiles, sharing, GPU, model.of(GPU).physics)
        assert replayed is not None, "the profiles that come with advisor have traces"
        steps.append((step_intervals(profiles, sharing, GPU, model)[job].p50, replayed[job]))
    raised, lower_s = np.array(steps)
    return np.asarray(np.log(raised / lower_s))


def main() -> None:
    mixes = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    random, model = np.random.default_rng(SEED), load_model(model_path())
    measured = list(load_profiles(GPU.key).values())
    found = []
    for _ in range(mixes):
        jobs = int(random.integers(2, 8))
        chosen = [measured[at] for at in random.choice(len(measured), jobs, replace=False)]
        limits = random.choice(LIMIT_GRID[1:], jobs)
        found.append(slowed(chosen, limits, int(random.integers(jobs)), model))
    for name, logs in zip(("predicted", "replayed"), np.array(found).T, strict=True):
        shares = ", ".join(
            f"{np.mean(logs > least):.1%} slow by more than {least:.1%}"
            for least in (1e-9, 0.005, 0.01, 0.02)
        )
        print(f"{name}: of {mixes} raised limits {shares}; at most {np.expm1(logs.max()):.1%}")


if __name__ == "__main__":
    main()
