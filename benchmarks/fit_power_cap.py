"""Fits what a power cap does to pace and power, from published traces of a V100 and an A40.

    python benchmarks/fit_power_cap.py power_limit_training.csv

prints the constants of `advisor/prediction/power_cap.py` and how far they are off for networks
and for GPUs that were left out. The rows are epochs of the Zeus traces (NSDI 2023,
github.com/ml-energy/zeus, Apache-2.0) with the columns gpu, dataset, network, batch_size,
optimizer, power_limit_w, max_power_limit_w, epoch_s and avg_power_w.
"""

import csv
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np

from advisor.prediction.power_cap import PowerCapLaw, columns_of
from advisor.prediction.trace import Floats

What = Literal["time", "power"]
_OFFSETS = (-0.1, 0.0, 0.1, 0.2)
_SOFTNESSES = (0.05, 0.1, 0.2)
_SETTING = ("gpu", "dataset", "network", "batch_size", "optimizer")


@dataclass(frozen=True, slots=True)
class Capped:
    """Epochs under a cap beside the same epoch at the GPU's limit; columns of shape (rows,).

    `time` and `power` are capped over uncapped.
    """

    gpu: tuple[str, ...]
    network: tuple[str, ...]
    uncapped_w: Floats
    cap_w: Floats
    limit_w: Floats
    time: Floats
    power: Floats


def read(path: Path) -> Capped:
    """The capped epochs in the file, each with its uncapped one."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    free = {
        tuple(row[name] for name in _SETTING): row
        for row in rows
        if float(row["power_limit_w"]) == float(row["max_power_limit_w"])
    }
    pairs = [(row, free.get(tuple(row[name] for name in _SETTING))) for row in rows]
    known = [(row, full) for row, full in pairs if full and row is not full]

    def numbers(name: str, of: int) -> Floats:
        return np.array([float(pair[of][name]) for pair in known])

    return Capped(
        gpu=tuple(row["gpu"] for row, _ in known),
        network=tuple(row["network"] for row, _ in known),
        uncapped_w=numbers("avg_power_w", 1),
        cap_w=numbers("power_limit_w", 0),
        limit_w=numbers("max_power_limit_w", 0),
        time=numbers("epoch_s", 0) / numbers("epoch_s", 1),
        power=numbers("avg_power_w", 0) / numbers("avg_power_w", 1),
    )


def fit(data: Capped, what: What) -> PowerCapLaw:
    """The law that does best on networks and GPUs that were left out."""
    tried = [_left_out(data, what, *shape) for shape in product(_OFFSETS, _SOFTNESSES)]
    best = min(range(len(tried)), key=lambda each: float(np.abs(tried[each]).mean()))
    offset, softness = list(product(_OFFSETS, _SOFTNESSES))[best]
    first, second = _coefficients(data, what, offset, softness, np.ones(len(data.gpu), bool))
    low, high = np.quantile(tried[best], (0.05, 0.95))
    return PowerCapLaw(
        first=round(first, 4), second=round(second, 4), offset=offset, softness=softness,
        low=round(float(low), 3), high=round(float(high), 3),
    )  # fmt: skip


def errors(data: Capped, law: PowerCapLaw, what: What, by: Literal["network", "gpu"]) -> Floats:
    """Relative errors with `by` left out, one after another, in the law's shape."""
    log_errors = _folds(data, what, law.offset, law.softness, np.array(getattr(data, by)))
    return np.asarray(np.expm1(-log_errors))


def _left_out(data: Capped, what: What, offset: float, softness: float) -> Floats:
    groups = (np.array(data.network), np.array(data.gpu))
    return np.concatenate([_folds(data, what, offset, softness, group) for group in groups])


def _folds(data: Capped, what: What, offset: float, softness: float, group: Floats) -> Floats:
    """Log of measured over predicted with each value of `group` left out, shape (rows,)."""
    columns = columns_of(data.uncapped_w, data.cap_w, data.limit_w, offset, softness)
    target = np.log(getattr(data, what))
    found = np.zeros(len(target))
    for value in sorted(set(group)):
        out = group == value
        found[out] = target[out] - columns[out] @ np.array(
            _coefficients(data, what, offset, softness, ~out)
        )
    return found


def _coefficients(
    data: Capped, what: What, offset: float, softness: float, rows: Floats
) -> tuple[float, float]:
    """Both of one sign, so that a lower cap never speeds up nor draws more."""
    from scipy.optimize import nnls

    sign = 1.0 if what == "time" else -1.0
    columns = columns_of(data.uncapped_w, data.cap_w, data.limit_w, offset, softness)
    (first, second), _ = nnls(columns[rows], sign * np.log(getattr(data, what))[rows])
    return sign * float(first) + 0.0, sign * float(second) + 0.0  # never -0.0


def main() -> None:
    data = read(Path(sys.argv[1]))
    for what in ("time", "power"):
        law = fit(data, what)
        print(f"{what.upper()} = {law}")
        for by in ("network", "gpu"):
            far = np.abs(errors(data, law, what, by))
            print(f"  each {by} left out: mean {far.mean():.1%}, p90 {np.quantile(far, 0.9):.1%}")


if __name__ == "__main__":
    main()
