"""Makes slowdowns of what `kernel_interference.py` measured, beside what replay says of each pair.

    python benchmarks/interference_table.py FILE... > table.jsonl

A line for each pair: ``keys``; ``slowdown``, of each side, median of the repeats; ``repeats``, all
of them; ``replayed``, the slowdown of each side from shares of the SMs alone, so that the quotient
is what sharing caches, DRAM, clocks and SMs adds; ``dram`` and ``tensor`` of each side alone.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from advisor.hardware.catalogue import gpu
from advisor.prediction.model_file import load_model
from advisor.prediction.physics import Physics
from advisor.prediction.replay import Effort, replay_mps
from advisor.prediction.trace import ReplayTrace, demand
from advisor.workload.profile import KernelTrace
from advisor.workload.store import model_path

GPU = gpu("h200-141gb")

_EFFORT = Effort(steps=400.0, events=20_000)

Lines = Sequence[Mapping[str, Any]]


def paces_alone(lines: Lines) -> dict[tuple[str, str], float]:
    """Median microseconds of a call alone, by device and key."""
    found = defaultdict(list)
    for each in lines:
        if each["record"] == "alone" and each["call_us"][0]:
            found[each["device"], each["keys"][0]].append(each["call_us"][0])
    return {key: median(calls_us) for key, calls_us in found.items()}


def slowdowns(lines: Lines) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Slowdown of each side in each repeat, by the keys of the pair in alphabetical order."""
    alone, found = paces_alone(lines), defaultdict(list)
    for each in lines:
        if each["record"] != "pair" or not all(each["call_us"]):
            continue
        sides = sorted(zip(each["keys"], each["call_us"], strict=True))
        (a, a_us), (b, b_us) = sides
        device = each["device"]
        if (device, a) in alone and (device, b) in alone:
            found[a, b].append((a_us / alone[device, a], b_us / alone[device, b]))
    return dict(found)


def script(kind: Mapping[str, Any], alone_us: float, physics: Physics) -> ReplayTrace:
    """One call of `kind`, repeated without a host, as replay takes it."""
    kernels = kind["kernels"]
    duration_s = 1e-6 * np.array([each["duration_us"] for each in kernels])
    # The profiler's durations are a little long: kernels and gaps make up the measured pace.
    duration_s *= min(1.0, 1e-6 * alone_us / duration_s.sum())
    gap_s = max(0.0, 1e-6 * alone_us - float(duration_s.sum())) / len(kernels)
    return ReplayTrace(
        launch_s=np.zeros(len(kernels)), duration_s=duration_s,
        demand=demand(_trace(kernels), kind["sms"], physics.packing),
        host_s=0.0, gap_s=gap_s, lead_s=0.0,
    )  # fmt: skip


def _trace(kernels: Sequence[Mapping[str, Any]]) -> KernelTrace:
    blocks, threads, resident_blocks, duration_us = (
        tuple(each[name] for each in kernels)
        for name in ("blocks", "threads", "resident_blocks", "duration_us")
    )
    names = tuple(each["class"] for each in kernels)
    return KernelTrace(
        classes=names, class_of=tuple(range(len(names))), launch_us=(0.0,) * len(names),
        duration_us=duration_us, blocks=blocks, threads=threads, resident_blocks=resident_blocks,
    )  # fmt: skip


def counted_alone(lines: Lines, counter: str) -> dict[str, float]:
    """Median of a counter of the whole GPU while a kind ran alone, by key."""
    found = defaultdict(list)
    for each in lines:
        counters = (each.get("activity") or {}).get("counters") or {}
        if each["record"] == "alone" and counters.get(counter) is not None:
            found[each["keys"][0]].append(counters[counter])
    return {key: median(values) for key, values in found.items()}


def table(lines: Lines, physics: Physics) -> Iterable[dict[str, Any]]:
    """A value for each pair, as the module says."""
    kinds = {each["key"]: each for each in lines if each["record"] == "kind"}
    calls = defaultdict(list)
    for (_, key), call_us in paces_alone(lines).items():
        calls[key].append(call_us)
    scripts = {
        key: script(kinds[key], median(found), physics)
        for key, found in calls.items()
        if kinds[key]["kernels"]
    }
    dram, tensor = (counted_alone(lines, name) for name in ("dram_active", "tensor_active"))
    for pair, repeats in sorted(slowdowns(lines).items()):
        replayed = None
        if all(key in scripts for key in pair):
            both = [scripts[key] for key in pair]
            together_s = replay_mps(both, (1.0, 1.0), (1.0, 1.0), physics.ceded, _EFFORT)
            alone_s = [each.duration_s.sum() + each.gap_s * len(each.demand) for each in both]
            replayed = [float(step_s) for step_s in together_s / alone_s]
        yield {
            "keys": pair,
            "slowdown": [median(side) for side in zip(*repeats, strict=True)],
            "repeats": repeats,
            "replayed": replayed,
            "dram": [dram.get(key) for key in pair],
            "tensor": [tensor.get(key) for key in pair],
        }


def main() -> None:
    lines = [
        json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text().splitlines()
    ]
    physics = load_model(model_path(GPU.key)).physics
    for each in table(lines, physics):
        print(json.dumps(each))


if __name__ == "__main__":
    main()
