"""How well the rates of two GPUs predict the ratio of what an operator takes on them.

    python -m research.operator_ratios THEIRS.csv benchmarks/operator-timings/*.jsonl

THEIRS.csv holds the timings of an A100 and a V100 from NeuSight's artifact (ASPLOS'25,
sitar-lab/NeuSight), in FP32 without TF32; the other files are of `benchmarks/operator_sweep.py`.
Each operator's latency on the first GPU is translated to the second: by the rate of arithmetic or
of memory, whichever takes longer for it on each; then by that and a factor of its kind, fitted on
every other operator. Both are scored on the rest. Where an operator is little more than its launch
on either GPU, the host decides, so those are apart. Of ours the shortest of some calls counts: the
host was uneven, and theirs are not known to be of one that was.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log
from pathlib import Path
from statistics import mean, median

from advisor.hardware.attained_rates import rates_of
from advisor.hardware.catalogue import Gpu, gpu_of_product
from advisor.validate.score_tables import percent
from advisor.workload.gpu_side import Operator
from research.files import csv_rows

HEADINGS = (
    "from, to", "operator", "size", "operators", "ratio", "by rates", "error by rates", "factor",
    "error with it",
)  # fmt: skip

# Operators that take fewer times the shortest of their kind, on either GPU, are "launch".
_OVER_LAUNCH = 3.0

Latencies = Mapping[Operator, float]


@dataclass(frozen=True, slots=True)
class OperatorRatio:
    """Operators of one kind and size on two GPUs.

    Attributes:
        ratio: Median of the latency on the second over that on the first.
        by_rates: The same as predicted.
        error: Mean absolute error of predicted latencies, over the scored half.
        factor: By which the fitted half takes longer than predicted, geometric mean.
        corrected_error: As `error`, with that factor.
    """

    op: str
    size: str
    operators: int
    ratio: float
    by_rates: float
    error: float
    factor: float
    corrected_error: float


def latencies(paths: Iterable[Path]) -> dict[Gpu, dict[Operator, float]]:
    """Milliseconds of each operator in FP32, by GPU."""
    found: dict[Gpu, dict[Operator, float]] = {}
    for row in (row for path in paths for row in _rows(path)):
        gpu = gpu_of_product(row["gpu"])
        if gpu is not None and row["latency_ms"] and row.get("precision", "fp32") == "fp32":
            operator = Operator(row["op"], row["shape"], "fp32")
            took_ms = float(row.get("least_ms", row["latency_ms"]))
            found.setdefault(gpu, {})[operator] = took_ms
    return found


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if path.suffix == ".csv":
        return csv_rows(path)
    return (row for row in map(json.loads, path.read_text().splitlines()) if "op" in row)


def predicted_ms(operator: Operator, gpu: Gpu) -> float:
    """What `operator` would take at the rates of `gpu`, milliseconds."""
    rates = rates_of(gpu)
    assert rates is not None, "every GPU that was timed is in the catalogue with its rates"
    arithmetic_ms = operator.flops / rates.fp32_tflops / 1e9
    return max(arithmetic_ms, operator.traffic_mib * 2**20 / rates.bandwidth_gb_s / 1e6)


def translated(
    here: Gpu, here_ms: Latencies, there: Gpu, there_ms: Latencies
) -> tuple[OperatorRatio, ...]:
    """How well `here_ms` predict `there_ms`, by kind of operator and size."""
    long = _over_launch(here_ms) & _over_launch(there_ms)
    both: dict[tuple[str, str], list[Operator]] = {}
    for operator in here_ms.keys() & there_ms.keys():
        size = "work" if operator in long else "launch"
        both.setdefault((operator.op, size), []).append(operator)
    return tuple(
        _scored(kind, [
            (there_ms[each] / here_ms[each], predicted_ms(each, there) / predicted_ms(each, here))
            for each in sorted(operators, key=lambda each: (here_ms[each], each.shape))
        ])
        for kind, operators in sorted(both.items())
        if len(operators) > 1
    )  # fmt: skip


def _over_launch(timed: Latencies) -> set[Operator]:
    """Operators that take much longer than the shortest of their kind."""
    least_ms: dict[str, float] = {}
    for operator, ms in timed.items():
        least_ms[operator.op] = min(ms, least_ms.get(operator.op, ms))
    return {each for each, ms in timed.items() if ms >= _OVER_LAUNCH * least_ms[each.op]}


def _scored(kind: tuple[str, str], ratios: Sequence[tuple[float, float]]) -> OperatorRatio:
    """Fits to the even of `ratios`, true and predicted, and scores the odd."""
    factor = exp(mean(log(true / predicted) for true, predicted in ratios[::2]))
    scored = ratios[1::2]
    return OperatorRatio(
        *kind,
        operators=len(ratios),
        ratio=median(true for true, _ in ratios),
        by_rates=median(predicted for _, predicted in ratios),
        error=mean(abs(predicted / true - 1) for true, predicted in scored),
        factor=factor,
        corrected_error=mean(abs(factor * predicted / true - 1) for true, predicted in scored),
    )


def rows(timed: Mapping[Gpu, Latencies]) -> Iterator[tuple[str, ...]]:
    """The rows under `HEADINGS`, for every two GPUs."""
    for here, there in combinations(timed, 2):
        for each in translated(here, timed[here], there, timed[there]):
            yield (
                f"{here.key} to {there.key}", each.op, each.size, str(each.operators),
                f"{each.ratio:.2f}", f"{each.by_rates:.2f}", percent(each.error),
                f"{each.factor:.2f}", percent(each.corrected_error),
            )  # fmt: skip


def main(paths: Sequence[str]) -> None:
    for row in (HEADINGS, *rows(latencies(map(Path, paths)))):
        print(" | ".join(row))


if __name__ == "__main__":
    main(sys.argv[1:])
