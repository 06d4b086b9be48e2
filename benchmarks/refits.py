"""How far models lie apart that were fitted to the same data by other processors' arithmetic.

    python benchmarks/refits.py FOLDER [AT_ONCE]

Fits the shipped runs anew in processes that see another OpenBLAS core type or number of threads,
and compares each model with the first: its numbers, each over the largest of its list, and what it
predicts of mixes drawn by a seed. Models of other machines or Pythons that lie in FOLDER already,
as FOLDER/NAME/GPU.json, are compared as well.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.drawn_mixes import draw
from advisor.prediction.mix_pace import step_intervals
from advisor.prediction.model_file import load_model
from advisor.workload.files import MODEL_FILE
from advisor.workload.store import load_profiles

GPU = gpu("h200-141gb")
CORES, THREADS = ("Haswell", "SkylakeX", "Zen"), ("1", "2")
MIXES = 60


def fitted(folder: Path) -> None:
    """Fits into `folder`, unless that was done before; its name says how."""
    if (folder / MODEL_FILE).is_file():
        return
    core, threads = folder.name.split("-")
    seen = {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": threads}
    command = [sys.executable, "-c", "from advisor.cli import main; main()", "fit", "--out"]
    subprocess.run([*command, str(folder)], env={**os.environ, **seen}, check=True)


def apart(one: Any, other: Any) -> Iterator[float]:
    """Of each list of numbers the largest difference, over its largest number."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            yield from apart(one[key], other[key])
    elif isinstance(one, list) and not all(isinstance(each, int | float) for each in one):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            yield from apart(*pair)
    elif isinstance(one, list | float) and one:
        numbers = np.atleast_1d(one), np.atleast_1d(other)
        yield float(np.abs(numbers[0] - numbers[1]).max() / (np.abs(numbers[0]).max() or 1.0))
    else:
        assert one == other


def predicted(path: Path) -> np.ndarray:
    """All three ends of each job's step in mixes drawn by a seed."""
    model, profiles = load_model(path), list(load_profiles(GPU.key).values())
    drawn = draw(MIXES, len(profiles), ("mps", "mps-limits", "naive"))
    steps = [step_intervals([profiles[job] for job in each.jobs], each.sharing, GPU, model)
             for each in drawn]  # fmt: skip
    return np.array([(step.p05, step.p50, step.p95) for mix in steps for step in mix])


def main(folder: Path, at_once: int) -> None:
    ways = [folder / f"{core}-{threads}" for core, threads in product(CORES, THREADS)]
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(fitted, ways))
    first = ways[0] / MODEL_FILE
    model, steps = json.loads(first.read_text()), predicted(first)
    for path in sorted(folder.glob(f"*/{GPU.key}.json")):
        numbers = max(apart(model, json.loads(path.read_text())))
        answers = float(np.abs(predicted(path) / steps - 1).max())
        print(f"{path.parent.name:16} numbers {numbers:.1e}  predictions {answers:.1e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
