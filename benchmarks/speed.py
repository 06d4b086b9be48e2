"""How fast the advisor answers, each as a ratio to a plain Python start on the same machine.

    python benchmarks/speed.py

prints a table; a loaded machine changes the seconds and hardly the ratios. Nothing here is a test.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from advisor.hardware.gpus import gpu
from advisor.prediction.model import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.replay import Effort, replay_mps, replay_naive
from advisor.prediction.surrogate import LIMIT_GRID
from advisor.prediction.trace import replay_trace
from advisor.sharing import Mps, Naive
from advisor.workload.store import load_profile, model_path, profile_paths

GPU = "h200-141gb"
SEVEN = (
    "resnet26-cifar10-bs128",
    "resnet50-imagenet64-bs128",
    "resnet152-imagenet-bs32",
    "cait_xxs24_224-cifar10-bs128",
    "bert-base-finetune-bs16",
    "gpt2-small-finetune-bs2",
    "mobilenetv3_large_100-imagenet64-bs32",
)
REPEATS = 7
MIXES = 4000


def command_s(*words: str) -> float:
    """Median seconds of a fresh process."""
    return median(_timed(lambda: subprocess.run(words, check=True, capture_output=True)))


def _timed(call: Callable[[], object]) -> list[float]:
    seconds = []
    for _ in range(REPEATS):
        began = perf_counter()
        call()
        seconds.append(perf_counter() - began)
    return seconds


def main() -> None:
    advisor = str(Path(sys.executable).with_name("advisor"))
    jobs = [name for name in SEVEN if name in profile_paths(GPU)]
    profiles = [load_profile(name, GPU) for name in jobs]
    model = load_model(model_path())
    predictor = Predictor(gpu(GPU), model)
    start_s = command_s(sys.executable, "-c", "pass")
    rows = {
        "python -c pass": start_s,
        "advisor --help": command_s(advisor, "--help"),
        f"advisor recommend, {len(jobs)} different jobs, fresh process": command_s(
            advisor, "recommend", *jobs
        ),
    }
    physics = model.of(gpu(GPU)).physics
    scripts = [replay_trace(each, gpu(GPU).sms, physics.packing) for each in profiles]
    whole = [1.0] * len(scripts)
    calls = {
        "replay": {
            Naive(): lambda: replay_naive(scripts, physics.slicing, Effort()),
            Mps(): lambda: replay_mps(scripts, whole, whole, physics.ceded, Effort()),
        },
        "prediction": {
            sharing: partial(predictor.predict, profiles, sharing) for sharing in (Naive(), Mps())
        },
    }
    if surrogate := predictor.surrogate(profiles):
        vectors = np.random.default_rng(0).choice(LIMIT_GRID, (MIXES, len(jobs))).astype(float)
        seconds = median(_timed(lambda: surrogate.limited(vectors))) / MIXES
        rows[f"estimate of {len(jobs)} under limits, one of {MIXES}"] = seconds
    for what, of in calls.items():
        for sharing, call in of.items():
            call()  # compiles, or loads what was compiled
            rows[f"{what} of {len(jobs)} under {sharing}, warm"] = median(_timed(call))
    for name, seconds in rows.items():
        print(f"{name:58} {1000 * seconds:9.3f} ms {seconds / start_s:8.2f} x python")


if __name__ == "__main__":
    main()
