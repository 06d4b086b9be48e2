"""In what order blocks of several processes start under MPS, with and without priorities.

    PYTHONPATH=. python benchmarks/block_order.py --device 0 --out h100-sxm-80gb.json
    PYTHONPATH=. python benchmarks/block_order.py --device 0 --shapes --out shapes-h200-141gb.json
    PYTHONPATH=. python benchmarks/block_order.py --device cpu --out try.json

Kernels only pass time, so mates can slow each other in nothing but the wait for block slots. Each
process launches loops of them; how long a loop took, in the mean, is written for every mix.

On an H200 blocks start strictly in order: by priority, then in the order in which kernels became
ready. Blocks that run are not taken off, and the last wave of a kernel holds only as many slots as
it has blocks. Replayed so, as `block_order_engine` does, loops are off by 1.6 % in the mean without
priorities and 2.9 % with them; by the replay that suits real kernels better, by 10 and 13 %.

With `--shapes` a block asks for all, half or a quarter of an SM's shared memory, or for its threads
alone. Pairs of such kernels are off by 7 % then: what limits how many blocks an SM holds matters
little beside how many it holds, which profiles say.
"""

import argparse
import ctypes
import json
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import claimed, device_at_hand
from advisor.measure.process.cores import allowed_cores, cores_of_each
from advisor.measure.process.mps_session import mps_session_on
from advisor.measure.process.provenance import command_line
from advisor.measure.process.run_locks import sweep
from advisor.measure.process.scratch_folders import scratch_folder
from advisor.measure.process.tenant_handle import TenantHandle, living
from advisor.measure.process.tenants import tenants_on, warm_up
from advisor.measure.process.worker import TenantState, Verb
from advisor.sharing import Mps

NOTICE_S, LEAD_S, WINDOW_S = 0.01, 0.08, 0.4
LOAD_S, ANSWER_S = 300.0, 60.0
QUEUED = 2  # loops, so that the GPU never waits for the host
RESIDENT = 2  # blocks that an SM holds, of kinds that have no shape of their own
MOST_SHARED_KIB = 227
SPREAD = 0.3  # of the log of durations, so that mates do not fall into step

SOURCE = """
extern "C" __global__ void pass_time(int cycles) {
    long long begin = clock64();
    if (threadIdx.x == 0) while (clock64() - begin < cycles) {}
    __syncthreads();
}
"""


@dataclass(frozen=True)
class Kind:
    """A loop of `count` kernels of `waves` times the slots in blocks, each of which takes `us`.

    The host launches a loop each `every_us`; 0: as fast as it can. A block has so many `threads`
    and asks for `shared_kib`; an SM holds so many as `resident_blocks`.
    """

    waves: float
    us: float
    count: int
    every_us: float = 0.0
    threads: int = 1024
    shared_kib: int = 0
    resident_blocks: int = RESIDENT


KINDS = {
    "few short": Kind(0.2, 10, 80),
    "few long": Kind(0.5, 100, 10),
    "one wave": Kind(0.95, 40, 25),
    "short blocks": Kind(3.5, 10, 25),
    "long blocks": Kind(3.5, 100, 3),
    "many blocks": Kind(20, 10, 5),
    "idle between": Kind(3.5, 10, 12, 1500),
}
FIRSTS = ("few short", "one wave", "short blocks", "long blocks", "many blocks", "idle between")
LATES = ("few short", "few long", "one wave", "short blocks", "long blocks", "many blocks")
SEVERAL = (
    (("short blocks", "short blocks"), ("short blocks",)),
    (("long blocks", "short blocks"), ("short blocks",)),
    (("long blocks", "many blocks"), ("one wave",)),
    (("one wave", "one wave"), ("one wave",)),
    (("few short", "few short"), ("long blocks",)),
    (("short blocks",), ("short blocks", "short blocks")),
    (("one wave",), ("long blocks", "few short")),
    (("short blocks",) * 3, ("short blocks",)),
    (("short blocks", "many blocks", "one wave"), ("long blocks",)),
    (("short blocks",) * 4, ("short blocks",)),
    (("short blocks", "long blocks", "many blocks", "one wave"), ("few long",)),
    (("few short",) * 4, ("short blocks",)),
    (("one wave",) * 4, ("one wave",)),
    (("short blocks",), ("short blocks",) * 4),
)
# What limits how many blocks an SM holds: threads, or the 227 KiB of shared memory (a KiB of each
# block is the driver's).
SHAPES = {
    "threads": {},
    "whole SM": {"threads": 384, "shared_kib": 200, "resident_blocks": 1},
    "half SM": {"threads": 256, "shared_kib": 100, "resident_blocks": 2},
    "quarter SM": {"threads": 128, "shared_kib": 48, "resident_blocks": 4},
    "small": {"threads": 128, "resident_blocks": 16},
}
SIZES = {"few short": (0.5, 10, 40), "short": (3.5, 10, 25), "long": (3.5, 100, 3)}
SHAPED = {
    f"{shape}, {size}": Kind(*SIZES[size], **SHAPES[shape]) for shape in SHAPES for size in SIZES
}
ALL = KINDS | SHAPED
_Names = tuple[str, ...]
_Mix = tuple[_Names, _Names]


def mixes() -> list[_Mix]:
    """Names of the kinds that come first, and of those that come late."""
    pairs = [((first,), (late,)) for first in FIRSTS for late in LATES]
    return [*(((name,), ()) for name in KINDS), *pairs, *SEVERAL]


def mixes_of_shapes() -> list[_Mix]:
    """Each kind of `SHAPED` alone and beside each; none comes late."""
    alone: list[_Mix] = [((name,), ()) for name in SHAPED]
    return [*alone, *((pair, ()) for pair in combinations_with_replacement(SHAPED, 2))]


def durations_us(name: str) -> list[float]:
    kind, dice = ALL[name], Random(name)
    return [kind.us * dice.lognormvariate(0, SPREAD) for _ in range(kind.count)]


def load(state: TenantState) -> dict[str, Any]:
    """Compile the kernel; `sms` of the GPU."""
    if state.device == "cpu":
        return {"sms": None}
    import torch

    runtime = torch.cuda._utils._get_gpu_runtime_library()
    kernel = torch.cuda._compile_kernel(SOURCE, "pass_time")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    stream = torch.cuda.current_stream()._as_parameter_

    kernel.set_shared_memory_config(MOST_SHARED_KIB * 1024)

    def launch(kind: Kind, blocks: int, arguments: Any) -> None:
        failed = runtime.cuLaunchKernel(
            kernel.func, blocks, 1, 1, kind.threads, 1, 1, kind.shared_kib * 1024, stream,
            arguments, None,
        )  # fmt: skip
        if failed:
            raise RuntimeError(f"cuLaunchKernel: {failed}")

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        begin.record()
        launch(KINDS["few short"], 1, _arguments(20_000_000)[0])
        end.record()
        torch.cuda.synchronize()
    state.notes["cycles_per_us"] = 20_000_000 / (1e3 * begin.elapsed_time(end))
    state.notes["launch"], state.notes["sms"] = launch, sms
    return {"sms": sms}


def _arguments(cycles: int) -> tuple[Any, Any]:
    """What points to `cycles`, and what must live as long."""
    value = ctypes.c_int(cycles)
    return (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(value), ctypes.c_void_p)), value


def one_loop(state: TenantState, name: str) -> Callable[[], None]:
    kind = ALL[name]
    if state.device == "cpu":
        return lambda: None
    pace, launch = state.notes["cycles_per_us"], state.notes["launch"]
    blocks = round(kind.waves * state.notes["sms"] * kind.resident_blocks)
    given = [_arguments(int(us * pace)) for us in durations_us(name)]

    def call() -> None:
        for arguments, _ in given:
            launch(kind, blocks, arguments)

    return call


def loop(state: TenantState, name: str, start_at: float) -> dict[str, Any]:
    """Mean seconds of a loop of the kind `name`, and how many ended in the window."""
    call, every_s = one_loop(state, name), 1e-6 * ALL[name].every_us
    window = start_at + LEAD_S, start_at + LEAD_S + WINDOW_S
    ends: list[float] = []
    queued: deque[Any] = deque()
    while monotonic() < start_at:
        pass
    while (began := monotonic()) < window[1]:
        call()
        if state.device == "cuda":
            import torch

            queued.append(torch.cuda.Event())
            queued[-1].record()
            if len(queued) > QUEUED:
                queued.popleft().synchronize()
                ends.append(monotonic())
        else:
            ends.append(monotonic())
        while monotonic() < began + every_s:
            pass
    if state.device == "cuda":
        torch.cuda.synchronize()
    inside = [end for end in ends if window[0] <= end]
    loops = max(0, len(inside) - 1)
    return {"loops": loops, "loop_s": (inside[-1] - inside[0]) / loops if loops else None}


def verbs() -> Mapping[str, Verb]:
    return {"load": load, "loop": loop}


def measured(tenants: Sequence[TenantHandle], names: Sequence[str]) -> list[dict[str, Any]]:
    start_at = monotonic() + NOTICE_S
    for tenant, name in zip(tenants, names, strict=True):
        tenant.send("loop", name=name, start_at=start_at)
    return [living(tenant.receive(ANSWER_S)) for tenant in tenants]


def rows(
    first: Sequence[TenantHandle], late: Sequence[TenantHandle], wanted: Sequence[_Mix], turns: int
) -> list[Any]:
    """Each mix with the late ones behind, and with all alike, in shuffled order."""
    found = []
    for turn in range(turns):
        planned = [(*mix, behind) for mix in wanted for behind in ((1, 0) if mix[1] else (0,))]
        Random(turn).shuffle(planned)
        for firsts, lates, behind in planned:
            names = (*firsts, *lates)
            chosen = [*first[: len(firsts)], *late[: len(lates)]] if behind else first[: len(names)]
            answers = measured(chosen, names)
            priorities = [0] * len(firsts) + [behind] * len(lates)
            found.append({"turn": turn, "kinds": names, "priorities": priorities,
                          "loops": [each["loops"] for each in answers],
                          "loops_s": [each["loop_s"] for each in answers]})  # fmt: skip
            print(turn, priorities, names, found[-1]["loops_s"], flush=True)
    return found


def document(asked: argparse.Namespace) -> dict[str, Any]:
    kinds, wanted = (SHAPED, mixes_of_shapes()) if asked.shapes else (KINDS, mixes())
    device, sharing = device_at_hand(asked.device), Mps(priorities=(0,) * 5 + (1,) * 4)
    command = command_line("block_order", sys.argv[1:])
    with claimed(device, command), scratch_folder() as folder:
        warm_up(folder)
        with mps_session_on(device, folder) as session:
            if device.kind == "cuda":
                session.switch_to(sharing)
            on_cpu = device.kind == "cpu"
            cores = cores_of_each((1,) * 9, allowed_cores(), share=on_cpu)
            setups = session.setups(sharing, cores)
            with tenants_on(setups, folder, verbs) as tenants:
                loaded = [living(each.ask("load", LOAD_S)) for each in tenants]
                found = rows(tenants[:5], tenants[5:], wanted, asked.turns)
    return {
        "gpu": device.name, "sms": loaded[0]["sms"], "resident_blocks": RESIDENT,
        "kinds": {name: asdict(each) for name, each in kinds.items()},
        "durations_us": {name: durations_us(name) for name in kinds}, "rows": found,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="0", help="an index, or cpu [0]")
    parser.add_argument("--turns", type=int, default=1, help="of each mix [1]")
    parser.add_argument("--shapes", action="store_true", help="pairs of kinds of several shapes")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    asked = parser.parse_args()
    sweep()
    try:
        asked.out.write_text(json.dumps(document(asked), indent=1) + "\n")
    except AdvisorError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
