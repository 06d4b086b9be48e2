"""Measures how kernels of two processes slow each other under MPS, kind by kind and grid by grid.

    PYTHONPATH=. python benchmarks/kernel_interference.py --devices 0,1 --out interference.jsonl
    PYTHONPATH=. python benchmarks/kernel_interference.py --devices cpu --only sum --out try.jsonl

A first process, without MPS, traces each kind in several sizes, and the sizes whose grids come next
to the shares of the SMs that are wanted are kept. Then two processes on each GPU, clients of an MPS
daemon of ours, loop a kind each, side by side, in shuffled order, each pair once per repeat; and
each kind alone. With several GPUs a repeat is measured on one of them.

The file has a JSON value on each line, written as it is measured: ``provenance``; each ``kind``
with the kernels of one call; ``alone`` and ``pair`` with the microseconds of a call on each side
and the counters of the whole GPU. `interference_table.py` makes slowdowns of it.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from random import Random
from threading import Thread
from time import monotonic
from typing import Any

from interference_bench import LOAD_S, Bench, Chosen, Record, chosen_sizes, tasks
from interference_kinds import KINDS, Kind
from interference_worker import interference_verbs

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import Meter, claimed, device_at_hand
from advisor.measure.process.cores import allowed_cores, cores_of_each, spare_cores
from advisor.measure.process.mps_session import MpsSession, mps_session_on
from advisor.measure.process.provenance import Origin, command_line
from advisor.measure.process.run_locks import sweep
from advisor.measure.process.scratch_folders import scratch_folder
from advisor.measure.process.tenant_handle import living
from advisor.measure.process.tenants import tenants_on, warm_up
from advisor.sharing import Mps, Naive

SEED = 11


def scouted(session: MpsSession, kinds: Sequence[Kind], record: Record) -> tuple[Chosen, ...]:
    """The kinds in the sizes to measure, traced by a process that has the GPU without MPS."""
    session.switch_to(Naive())
    setups = session.setups(Naive(), [allowed_cores()])
    on_cpu = session.device.kind == "cpu"
    tries = [(kind.name, size) for kind in kinds for size in kind.sizes[-1 if on_cpu else 0 :]]
    with tenants_on(setups, session.folder, interference_verbs) as (scout,):
        answer = living(scout.ask("trace", LOAD_S, tries=tries))
    seen: dict[str, dict[int, Any]] = {kind.name: {} for kind in kinds}
    for (name, size), found in zip(tries, answer["found"], strict=True):
        seen[name][size] = found
        if isinstance(found, str):
            record.write("failed", {"name": name, "size": size, "error": found})
    chosen = tuple(
        each for kind in kinds for each in chosen_sizes(kind, seen[kind.name], answer["sms"])
    )
    for each in chosen:
        record.write("kind", asdict(each) | {"launches": each.launches, "sms": answer["sms"]})
    return chosen


def measured(asked: argparse.Namespace, record: Record, stack: ExitStack) -> None:
    """Everything between starting processes and ending them; `stack` ends them."""
    until = monotonic() + asked.deadline
    names, command = asked.devices.split(","), command_line("kernel_interference", sys.argv[1:])
    devices = [device_at_hand(name) for name in names]
    for device in devices:
        stack.enter_context(claimed(device, command))
    folder = stack.enter_context(scratch_folder())
    warm_up(folder)
    sessions = []
    for name, device in zip(names, devices, strict=True):
        (folder / name).mkdir()
        sessions.append(stack.enter_context(mps_session_on(device, folder / name)))
    kinds = [each for each in KINDS if not asked.only or each.name in asked.only.split(",")]
    chosen = scouted(sessions[0], kinds, record)
    benches = started(names, sessions, folder, record, stack)
    threads = []
    for number, (bench, session) in enumerate(zip(benches, sessions, strict=True)):
        keys = bench.load(chosen)
        if bench.device.kind == "cuda":
            session.proved_clients(Mps(), [tenant.pid for tenant in bench.pair])
        versions, clocks_mhz = bench.pair[0].versions, bench.meter.clocks_mhz()
        found = Origin(bench.device, command, len(allowed_cores())).provenance(versions, clocks_mhz)
        record.write("provenance", asdict(found) | {"device_name": bench.name, "seed": SEED})
        repeats = range(number, asked.repeats, len(benches))
        planned = tasks(keys, repeats, Random(SEED + number))
        threads.append(Thread(target=bench.measure_all, args=(planned, chosen, until)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def started(
    names: Sequence[str], sessions: Sequence[MpsSession], folder: Path, record: Record,
    stack: ExitStack,
) -> tuple[Bench, ...]:  # fmt: skip
    """A bench for each of `sessions`, its MPS daemon running; `stack` ends the processes."""
    allowed, kind = allowed_cores(), sessions[0].device.kind
    cores = cores_of_each((2,) * 2 * len(sessions), allowed, share=kind == "cpu")
    os.sched_setaffinity(0, spare_cores(cores, allowed))
    benches = []
    for number, (name, session) in enumerate(zip(names, sessions, strict=True)):
        if kind == "cuda":
            session.switch_to(Mps())
        setups = session.setups(Mps(), cores[2 * number : 2 * number + 2])
        pair = stack.enter_context(tenants_on(setups, folder, interference_verbs))
        benches.append(Bench(name, session.device, pair, Meter(session.device), record))
    return tuple(benches)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="0", metavar="D,D", help="indices, or cpu [0]")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--deadline", type=float, default=400.0, metavar="S", help="[400]")
    parser.add_argument("--repeats", type=int, default=2, help="of each pair [2]")
    parser.add_argument("--only", metavar="KIND,KIND", help="[all kinds]")
    asked = parser.parse_args()
    sweep()
    try:
        with asked.out.open("w") as file, ExitStack() as stack:
            measured(asked, Record(file), stack)
    except AdvisorError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
