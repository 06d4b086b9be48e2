"""Times operators of given shapes on the GPU at hand, forward, in FP32 and products in TF32 too.

    PYTHONPATH=. python benchmarks/operator_sweep.py --shapes shapes.csv --out h100.jsonl
    PYTHONPATH=. python benchmarks/operator_sweep.py --device cpu --shapes few.csv --out try.jsonl

The file of shapes is a CSV with columns ``op`` and ``shape`` (see `advisor.workload.gpu_side`);
others are ignored, and so are repetitions. The first line of what is written says what measured;
each other one is an operator: ``latency_ms``, the median of calls on an idle GPU with their launch,
``least_ms``, and ``kernel_ms``, without the launch; null for an operator that failed. The order is
shuffled, so that what a deadline leaves out is of every kind.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from advisor.measure.operator_calls import timed
from advisor.workload.gpu_side import Operator

SEED = 1
WITH_TF32 = ("linear", "bmm", "conv")
FIGURES = ("latency_ms", "least_ms", "kernel_ms")


def operators(path: Path) -> list[Operator]:
    """Those of the CSV file `path`, shuffled."""
    with path.open(newline="") as lines:
        pairs = dict.fromkeys((row["op"], row["shape"]) for row in csv.DictReader(lines))
    wanted = [
        Operator(op, shape, precision)
        for op, shape in pairs
        for precision in (("fp32", "tf32") if op in WITH_TF32 else ("fp32",))
    ]
    return Random(SEED).sample(wanted, len(wanted))


def provenance(device: str) -> dict[str, Any]:
    """What measures."""
    import torch

    gpu = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"gpu": gpu, "torch": str(torch.__version__), "cuda": torch.version.cuda}


def sweep(wanted: Sequence[Operator], device: str, out: Path, deadline_s: float) -> None:
    """Write a line for each of `wanted` as it is timed, until the deadline."""
    until = monotonic() + deadline_s
    about = provenance(device)
    with out.open("w") as lines:
        lines.write(json.dumps(about) + "\n")
        for number, operator in enumerate(wanted):
            if monotonic() > until:
                print(f"deadline: {len(wanted) - number} of {len(wanted)} not timed")
                break
            found = timed(operator, device)
            figures = {name: found and round(getattr(found, name), 6) for name in FIGURES}
            row = {"gpu": about["gpu"], **asdict(operator), **figures}
            lines.write(json.dumps(row) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--deadline", type=float, default=180.0, metavar="S")
    asked = parser.parse_args()
    began_s = monotonic()
    sweep(operators(asked.shapes), asked.device, asked.out, asked.deadline)
    print(f"{monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
