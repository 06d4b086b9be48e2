"""What `kernel_interference.py` measures, in which order, and how one pair is measured."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations_with_replacement
from math import log
from random import Random
from threading import Lock
from time import monotonic, sleep
from typing import Any, TextIO

from interference_kinds import Kind

from advisor.measure.process.claimed_device import Device, Meter
from advisor.measure.process.tenant_handle import TenantHandle, living
from advisor.measure.process.tenants import ask_all

LOAD_S = 300.0

# Both run from the start to the end; the GPM counters need 0.1 s at least.
_NOTICE_S, _LEAD_S, _WINDOW_S, _TAIL_S = 0.008, 0.025, 0.14, 0.01
_ANSWER_S = 60.0

# How long a CUDA graph of one kind takes alone: far above a launch, far below a window.
_GRAPH_US, _MOST_LAUNCHES = 1500.0, 200

_Kernels = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A kind in the size whose grid came next to the share of the SMs that is wanted.

    Attributes:
        key: Its name and that share, e.g. ``"gemm-bf16@0.5"``.
        kernels: What one call launches alone; empty on a CPU.
        blocks_per_sm: Of its longest kernel's grid; None on a CPU.
    """

    key: str
    name: str
    stands_for: str
    dtype: str
    size: int
    kernels: _Kernels
    blocks_per_sm: float | None

    @property
    def launches(self) -> int:
        """Calls in one CUDA graph."""
        took_us = sum(each["duration_us"] + 1 for each in self.kernels)
        return min(_MOST_LAUNCHES, max(2, round(_GRAPH_US / max(took_us, 1.0))))


class Record:
    """A file of JSON lines that several threads write; each line is on disk when it is written."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._lock = file, Lock()

    def write(self, what: str, values: Mapping[str, Any]) -> None:
        line = json.dumps({"record": what} | dict(values))
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()


@dataclass(frozen=True, slots=True)
class Task:
    """A pair, or one kind alone on one of the two processes.

    Attributes:
        keys: Of the first and second process; None for the one that does nothing.
        repeat: From 0.
    """

    keys: tuple[str | None, str | None]
    repeat: int


def tasks(keys: Sequence[str], repeats: Sequence[int], random: Random) -> list[Task]:
    """What one GPU measures in `repeats`; all alone first, so that a cut leaves their paces."""
    found = [Task((key, None), -1) for key in random.sample(keys, len(keys))]
    for repeat in repeats:
        pairs = [random.choice(((a, b), (b, a))) for a, b in combinations_with_replacement(keys, 2)]
        shuffled = [Task(pair, repeat) for pair in pairs]
        shuffled += [Task((None, key), repeat) for key in keys]
        random.shuffle(shuffled)
        found += shuffled
    return found


def main_kernel(kernels: _Kernels) -> dict[str, Any]:
    """The longest of `kernels`."""
    return max(kernels, key=lambda each: float(each["duration_us"]))


def chosen_sizes(
    kind: Kind, seen: Mapping[int, _Kernels | str], sms: int | None
) -> tuple[Chosen, ...]:
    """`kind` in each size that it is measured in, no size twice.

    Args:
        kind: What was traced.
        seen: Size -> its kernels, or why there are none.
        sms: Of the GPU; None on a CPU, where the smallest size is taken.
    """
    good = {size: found for size, found in seen.items() if not isinstance(found, str)}
    if sms is None:
        last = kind.sizes[-1]
        return (_chosen(kind, 1.0, last, [], sms),) if last in good else ()
    grids = {size: main_kernel(found)["blocks"] / sms for size, found in good.items() if found}
    taken: dict[int, Chosen] = {}
    for share in kind.shares:
        among = [size for size in kind.sizes if size in grids and size not in taken]
        if share < 1:
            among.sort(key=lambda size: abs(log(min(1.0, max(grids[size], 1e-6)) / share)))
        if among:
            taken[among[0]] = _chosen(kind, share, among[0], list(good[among[0]]), sms)
    return tuple(taken.values())


def _chosen(kind: Kind, share: float, size: int, kernels: _Kernels, sms: int | None) -> Chosen:
    blocks_per_sm = main_kernel(kernels)["blocks"] / sms if kernels and sms else None
    return Chosen(f"{kind.name}@{share:g}", kind.name, kind.stands_for, kind.dtype, size, kernels,
                  blocks_per_sm)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bench:
    """A GPU with the two processes that share it."""

    name: str
    device: Device
    pair: tuple[TenantHandle, ...]
    meter: Meter
    record: Record

    def load(self, chosen: Sequence[Chosen]) -> tuple[str, ...]:
        """Load all in both processes; the keys of those that both have."""
        loaded = []
        for each in chosen:
            request = {"key": each.key, "name": each.name, "size": each.size,
                       "launches": each.launches}  # fmt: skip
            errors = [
                living(answer)["error"]
                for answer in ask_all(self.pair, "load", (request, request), LOAD_S)
            ]
            if any(errors):
                self.record.write("failed", {"key": each.key, "errors": errors})
            else:
                loaded.append(each.key)
        return tuple(loaded)

    def measure(self, task: Task, launches: Mapping[str, int]) -> None:
        """Run `task` and write what was measured."""
        start_at = monotonic() + _NOTICE_S
        window = (start_at + _LEAD_S, start_at + _LEAD_S + _WINDOW_S)
        running = [(tenant, key) for tenant, key in zip(self.pair, task.keys, strict=True) if key]
        for tenant, key in running:
            tenant.send(
                "loop", key=key, start_at=start_at, window=window, stop_at=window[1] + _TAIL_S
            )
        sleep(max(0.0, window[0] - monotonic()))
        self.meter.begin()
        sleep(max(0.0, window[1] - monotonic()))
        activity = self.meter.end()
        clocks_mhz = self.meter.clocks_mhz()
        call_us, late_s = {}, 0.0
        for side, (tenant, key) in enumerate(running):
            answer = living(tenant.receive(_ANSWER_S))
            calls = answer["calls"] * launches[key or ""]
            call_us[side] = 1e6 * answer["seconds"] / calls if calls else None
            late_s = max(late_s, answer["late_s"])
        self.record.write(
            "pair" if len(running) == 2 else "alone",
            {"device": self.name, "keys": [key for _, key in running], "repeat": task.repeat,
             "call_us": list(call_us.values()), "at_s": start_at, "late_s": late_s,
             "sm_clock_mhz": clocks_mhz[0], "activity": asdict(activity)},
        )  # fmt: skip

    def measure_all(self, planned: Sequence[Task], chosen: Sequence[Chosen], until: float) -> None:
        """Measure `planned` in order, as far as there is time before the moment `until`."""
        on_gpu = self.device.kind == "cuda"
        launches = {each.key: each.launches if on_gpu else 1 for each in chosen}
        for done, task in enumerate(planned):
            if monotonic() > until:
                self.record.write("cut", {"device": self.name, "left": len(planned) - done})
                return
            self.measure(task, launches)
