"""Makes slowdowns of what `kernel_interference.py` measured, beside what replay says of each pair.

    python benchmarks/interference_table.py FILE... > table.jsonl

A line for each pair: ``keys``; ``slowdown``, of each side, median of the repeats; ``repeats``, all
of them; ``replayed``, the slowdown of each side from blocks and SMs alone, so that the quotient
is what sharing caches, DRAM and clocks adds; ``dram`` and ``tensor`` of each side alone.

What the pairs taught replay (one H200; 626 pairs without copies, 276 of them over 20 us on both
sides; mean of abs(log(measured / replayed)) of a side, over all and over those): SMs shared out in
order 0.215 and 0.146, at the best share ceded; block slots shared out in order, and what SMs do in
proportion, 0.212 and 0.141 without a law for last waves, 0.181 and 0.129 with it, if nothing is
ceded before. Mixes of training jobs are better with 5 % ceded. Of training jobs of
families left out, replay alone then erred by 8.3 instead of 9.7 % under MPS, by 6.5 instead of
8.3 % where the GPU sets the pace; corrected by regression by 6.2 instead of 6.4 and 4.5 instead of
4.8 %, and under limits by 8.5 instead of 8.8 and 5.1 instead of 5.3 %.

What did not help these jobs: slowing kernels in proportion to the share of those that move data
(by 0.1 or 0.3 of it; all kernels, only those that move data, or only those that compute), and a
packing of its own for gemm, conv and attention.

What stays unexplained: a copy within the device waits, and makes wait, like a grid that fills the
GPU, but a trace does not tell it from one over PCIe; kernels of a few microseconds slow up to
fivefold beside some that fill DRAM and leave them room. The GPM counters of the 0.14 s of a pair
show in part what ran before, so nothing was fitted to them.
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
from advisor.prediction.trace import ReplayTrace, demand, waves
from advisor.workload.kernel_trace import KernelTrace
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
    trace = _trace(kernels)
    return ReplayTrace(
        launch_s=np.zeros(len(kernels)), duration_s=duration_s,
        demand=demand(trace, kind["sms"], physics.packing), waves=waves(trace, kind["sms"]),
        host_s=0.0, gap_s=gap_s, lead_s=0.0, waits_s=np.full(len(kernels), np.inf),
        in_turns=np.ones(len(kernels)),
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
    physics = load_model(model_path()).of(GPU).physics
    for each in table(lines, physics):
        print(json.dumps(each))


if __name__ == "__main__":
    main()
