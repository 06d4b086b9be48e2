"""How far each column may differ before two jobs no longer tell of each other, mode by mode.

    python benchmarks/likeness.py

Prints `advisor.prediction.surrogate_features.LENGTHS`: where mixes of every other model family,
answered by the predictor, are likeliest. A length at its bound says that the column hardly matters.
They are found here and stand in the code, because such a search ends elsewhere after a rounding
error.
"""

import numpy as np

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.drawn_mixes import batch_of, draw
from advisor.prediction.fit.surrogate_fit import LESSONS
from advisor.prediction.model_file import Model, load_model
from advisor.prediction.physics import replay_mix
from advisor.prediction.residual import Mix, by_replay
from advisor.prediction.surrogate import COLUMNS, columns
from advisor.prediction.surrogate_features import summaries
from advisor.prediction.trace import Floats
from advisor.workload.profile import Profile
from advisor.workload.store import load_profiles, model_path

GPU = gpu("h200-141gb")
MODES = ("naive", "mps", "mps-limits")
BOUNDS = (1.0, 100.0)
ROWS = 800
SEED = 1


def lessons(profiles: list[Profile], model: Model, mode: str) -> tuple[Floats, Floats]:
    """What is seen of each job of some mixes, shape (rows, columns), and its log slowdown."""
    seen = summaries(profiles, GPU, model.of(GPU).physics)
    assert seen is not None, "all have traces and counters"
    drawn = [each for each in draw(LESSONS, len(profiles), MODES)
             if each.sharing.mode == mode and len(each.jobs) > 1]  # fmt: skip
    mixes = [Mix(tuple(profiles[job] for job in each.jobs), each.sharing,
                 tuple(range(len(each.jobs)))) for each in drawn]  # fmt: skip
    found = by_replay(mixes, GPU, model, replay_mix)
    assert found is not None, "all have traces"
    crowds = batch_of(drawn)
    there = crowds.jobs >= 0
    steps_s = np.concatenate([middle for _, middle, _ in found])
    return columns(seen, crowds)[there], np.log(steps_s / seen.step_s[crowds.jobs[there]])


def likeliest(x: Floats, y: Floats) -> Floats:
    """The length of each column, in its standard deviations, shape (columns,)."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    some = np.random.default_rng(SEED).permutation(len(x))[:ROWS]
    likeness = ConstantKernel(1.0) * RBF(np.full(x.shape[1], 6.0), BOUNDS) + WhiteKernel(0.003)
    process = GaussianProcessRegressor(likeness)
    process.fit(StandardScaler().fit(x).transform(x[some]), y[some] - y.mean())
    return np.asarray(process.kernel_.k1.k2.length_scale)


def main() -> None:
    model = load_model(model_path())
    profiles = list(load_profiles(GPU.key).values())
    taught = set(sorted({each.workload.family for each in profiles})[::2])
    kept = [each for each in profiles if each.workload.family in taught]
    found = [likeliest(*lessons(kept, model, mode)) for mode in MODES]
    for column, lengths in zip(COLUMNS, np.array(found).T, strict=True):
        print(f'"{column}": ({", ".join(f"{each:.2g}" for each in lengths)}),')


if __name__ == "__main__":
    main()
