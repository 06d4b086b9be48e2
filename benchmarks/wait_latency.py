"""What waiting for its kernels costs a process under time slicing, beside mates of several kinds.

    python benchmarks/wait_latency.py --out benchmarks/wait-latency/h100-sxm-80gb.json
    python benchmarks/wait_latency.py --copies --out benchmarks/wait-latency/copies-h200-141gb.json
    python benchmarks/wait_latency.py --reads --out benchmarks/wait-latency/reads-h200-141gb.json

Kernels only pass time (`torch.cuda._sleep`), on a host that launches them at a set pace. Each loop
launches some and then waits for them, or does not; how long loops took is written. With `--copies`
some loops begin with a copy from pinned memory: it costs its owner the rest of its slice, be it
long or short, and runs while others have the GPU. With `--reads` some end by reading a value from
the GPU, which costs what waiting costs: the GPU is passed on before the host launches more.
"""

import argparse
import json
import multiprocessing as mp
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles
from time import perf_counter, sleep
from typing import Any

MEASURE_S, LEAD_S = 1.6, 0.4


@dataclass(frozen=True)
class Kind:
    """Kernels of `us` each, launched every `every_us` by a host that waits after `count`.

    Before them it copies `mib` to the GPU, and goes on meanwhile. If it `reads`, it waits as a
    training script does, for the value of a tensor.
    """

    count: int
    us: float
    every_us: float
    waits: bool
    mib: int = 0
    reads: bool = False


WAITERS = {
    "sparse, waits": Kind(200, 20, 60, True),
    "sparse": Kind(200, 20, 60, False),
    "dense, waits": Kind(200, 45, 60, True),
    "one kernel, waits": Kind(1, 20, 60, True),
}
MATES = {
    "none": (),
    "long kernels": (Kind(50, 100, 0, False),),
    "short kernels": (Kind(400, 12, 0, False),),
    "sparse": (Kind(200, 30, 90, False),),
    "sparse, waits": (Kind(200, 30, 90, True),),
    "long kernels twice": (Kind(50, 100, 0, False),) * 2,
    "sparse twice": (Kind(200, 30, 90, False),) * 2,
}
COPIERS = {
    "dense": Kind(200, 45, 60, False),
    "dense, copy": Kind(200, 45, 60, False, 6),
    "dense, big copy": Kind(200, 45, 60, False, 74),
    "full": Kind(200, 60, 0, False),
    "full, copy": Kind(200, 60, 0, False, 6),
    "full, big copy": Kind(200, 60, 0, False, 74),
    "sparse, copy": Kind(200, 20, 60, False, 6),
}
MATES_OF_COPIERS = {
    "none": (),
    "long kernels": (Kind(50, 100, 0, False),),
    "sparse": (Kind(200, 30, 90, False),),
    "full, copy": (Kind(200, 60, 0, False, 6),),
}
_READ = {
    "dense": Kind(200, 45, 60, True),
    "sparse": Kind(200, 20, 60, True),
    "short": Kind(40, 45, 60, True),
    "long kernel": Kind(1, 2750, 100, True),
    "a kernel of half a slice": Kind(1, 1000, 100, True),
}
READERS = {f"{name}, {how}": replace(kind, reads=how == "reads")
           for name, kind in _READ.items() for how in ("waits", "reads")}  # fmt: skip
MATES_OF_READERS = {
    "none": (),
    "long kernels": (Kind(50, 100, 0, False),),
    "sparse": (Kind(200, 30, 90, False),),
    "long kernels twice": (Kind(50, 100, 0, False),) * 2,
    "sparse twice": (Kind(200, 30, 90, False),) * 2,
}
# What each option measures.
MEASURED = {
    None: (WAITERS, MATES),
    "copies": (COPIERS, MATES_OF_COPIERS),
    "reads": (READERS, MATES_OF_READERS),
}


def copy_of(mib: int) -> Callable[[], Any]:
    """Copies so much from pinned memory, and does not wait for it."""
    import torch

    if not mib:
        return lambda: None
    here = torch.empty(mib << 20, dtype=torch.uint8, pin_memory=True)
    return partial(torch.empty_like(here, device="cuda").copy_, here, non_blocking=True)


def loops(kind: Kind, until: float, cycles_per_us: float) -> list[float]:
    """Seconds of each loop until then, by when its host was done with it."""
    import torch

    found, copied, settled = [], copy_of(kind.mib), settling(kind)
    cycles = int(kind.us * cycles_per_us)
    torch.cuda.synchronize()
    began = perf_counter()
    while began < until:
        copied()
        for number in range(kind.count):
            while perf_counter() < began + number * kind.every_us * 1e-6:
                pass
            torch.cuda._sleep(cycles)
        settled()
        while perf_counter() < began + kind.count * kind.every_us * 1e-6:
            pass
        now = perf_counter()
        found.append(now - began)
        began = now
    torch.cuda.synchronize()
    return found


def settling(kind: Kind) -> Callable[[], Any]:
    """What the host does after the kernels of a loop: waits, or lets two loops queue up at most."""
    import torch

    if kind.reads:
        return torch.zeros((), device="cuda").item
    if kind.waits:
        return torch.cuda.synchronize
    queued: list[torch.cuda.Event] = []

    def settled() -> None:
        queued.append(torch.cuda.Event())
        queued[-1].record()
        if len(queued) > 2:
            queued.pop(0).synchronize()

    return settled


def cycles_per_us() -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        begin.record()
        torch.cuda._sleep(20_000_000)
        end.record()
        torch.cuda.synchronize()
    return 20_000_000 / (1e3 * begin.elapsed_time(end))


def serve(pipe: Connection) -> None:
    """Answer each kind with the loops that ran until the time said."""
    import torch

    torch.cuda.init()
    pace = cycles_per_us()
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        kind, until = asked
        found = loops(kind, until, pace)
        pipe.send(found[len(found) // 5 :])


def measured(pipes: Sequence[Connection], waiter: Kind, mates: Sequence[Kind]) -> dict[str, Any]:
    """Seconds of a loop of each, and a quantile for each twentieth of the waiter's loops."""
    # perf_counter is the system's monotonic clock: all processes have the same.
    until = perf_counter() + LEAD_S + MEASURE_S
    chosen = list(zip(pipes, (waiter, *mates), strict=False))
    for pipe, kind in chosen:
        pipe.send((kind, until))
    answers = [pipe.recv() for pipe, _ in chosen]
    return {
        "loops_s": [sum(each) / len(each) for each in answers],
        "waiter_s": quantiles(answers[0], n=20),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--copies", action="store_const", const="copies", dest="what")
    which.add_argument("--reads", action="store_const", const="reads", dest="what")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    waiters, company = MEASURED[asked.what]
    context = mp.get_context("spawn")
    pipes = []
    for _ in range(3):
        here, there = context.Pipe()
        context.Process(target=serve, args=(there,), daemon=True).start()
        pipes.append(here)
    for pipe in pipes:
        pipe.recv()
    sleep(1)
    rows = []
    for turn in range(2):
        for mate, mates in company.items():
            for name, waiter in waiters.items():
                found = measured(pipes, waiter, mates)
                rows.append({
                    "turn": turn, "waiter": name, "mates": mate, **found,
                    "kinds": [asdict(each) for each in (waiter, *mates)],
                })  # fmt: skip
                loops_ms = [round(1e3 * each, 2) for each in found["loops_s"]]
                print(name, "|", mate, loops_ms, flush=True)
    for pipe in pipes:
        pipe.send(None)
    asked.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
