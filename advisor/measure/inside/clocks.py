"""Clocks of steps, memory and SMs of this process, and the pace of its core."""

import ctypes
import multiprocessing
import os
import resource
import sys
from collections import deque
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time, time
from typing import Any

import torch


def on_gpu() -> bool:
    """Return whether this process has begun to use CUDA; does not begin to."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def synchronise() -> None:
    """Wait until the GPU has done what this process queued."""
    if on_gpu():
        torch.cuda.synchronize()


def memory_mib() -> dict[str, float]:
    """Return the peak memory so far; on a CPU, twice the process's resident memory."""
    if not on_gpu():
        resident_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"allocated_mib": resident_mib, "reserved_mib": resident_mib}
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {"allocated_mib": allocated / 2**20, "reserved_mib": reserved / 2**20}


def allocations() -> "int | None":
    """Return how often this process asked torch for GPU memory so far; None if it did not yet.

    About once an operation: so it shows what a step does, however fast the host is.
    """
    if not on_gpu():
        return None
    try:
        return int(torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]["allocated"])
    except (KeyError, RuntimeError):  # of an allocator that does not count
        return None


def context_sms() -> int | None:
    """Return the SMs that this process's CUDA context may use: under an MPS limit, not all."""
    if not on_gpu():
        return None
    whole: int = torch.cuda.get_device_properties(0).multi_processor_count
    affinity = (ctypes.c_int * 4)()  # CUexecAffinityParam: the type, then the count
    sm_count = 0  # cuda.h, CUexecAffinityType
    try:
        refused = ctypes.CDLL("libcuda.so.1").cuCtxGetExecAffinity(affinity, sm_count)
    except (OSError, AttributeError):
        return whole
    return whole if refused or affinity[1] < 1 else min(whole, affinity[1])


# Most events kept unread: more than a GPU queues, so the oldest steps are done.
_UNREAD_STEPS = 4096


class StepClock:
    """A clock whose marks are moments at which the device reached them, by the wall clock.

    An event that is recorded while the GPU is idle ties the GPU's clock to the wall clock.
    """

    def __init__(self) -> None:
        self._marks: list[float] = []
        self._unread: deque[Any] = deque()
        self._on_gpu = on_gpu()
        if self._on_gpu:
            synchronise()
            self._base = self._recorded()
            self._base.synchronize()
            self._base_at = time()

    def _recorded(self) -> Any:
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def mark(self) -> None:
        """Mark the moment at which the device has done what is queued now."""
        if not self._on_gpu:
            self._marks.append(time())
            return
        self._unread.append(self._recorded())
        if len(self._unread) >= _UNREAD_STEPS:
            self._read(_UNREAD_STEPS // 2)

    def marked_at(self) -> list[float]:
        """Return all marks so far, once the device has reached the last."""
        self._read(len(self._unread))
        return self._marks

    def _read(self, count: int) -> None:
        events = [self._unread.popleft() for _ in range(count)]
        if events:
            events[-1].synchronize()
        self._marks += [self._base_at + self._base.elapsed_time(each) / 1000 for each in events]


# Half interpreter and half dispatch into torch, as a step's host path is; about a millisecond.
_SUMS, _DISPATCHES = 8000, 300


def piece_of_work() -> Callable[[], float]:
    """Return a function that does the fixed piece of host work once and returns its seconds."""
    tensor = torch.ones(4, device="cpu")  # a script may have another default

    def work() -> float:
        began = perf_counter()
        total = 0
        for number in range(_SUMS):
            total += number * number % 7
        for _ in range(_DISPATCHES):
            tensor.add_(1)
        return perf_counter() - began

    return work


def host_check_s(pieces: int) -> float:
    """Measure the median seconds of so many pieces of work on the core of this thread."""
    work = piece_of_work()
    return median(work() for _ in range(pieces))


def used() -> dict[str, float | None]:
    """Return the host's work so far by this process and its loader's workers, by name.

    ``cpu_s`` of all, and ``loader_cpu_s`` of the workers, with those that have ended, so that
    neither decreases; ``read_mib`` of the living workers, None if the system does not report it.
    """
    workers = [Path("/proc", str(each.pid)) for each in active_children()]
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    loader_cpu_s = sum(map(_cpu_s, workers)) + ended.ru_utime + ended.ru_stime
    try:  # proc(5): rchar of io, cached files included
        texts = [(worker / "io").read_text() for worker in workers]
        read_mib = sum(int(text.split("rchar:", 1)[1].split()[0]) for text in texts) / 2**20
    except (OSError, IndexError, ValueError):
        read_mib = None
    return {
        "cpu_s": process_time() + loader_cpu_s,
        "loader_cpu_s": loader_cpu_s,
        "read_mib": read_mib,
    }


def _cpu_s(process: Path) -> float:
    """User and system time of a process (proc(5): stat, fields 14 and 15); 0 once it is gone."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# A virtual core changes its speed within a second; over one, many cores average that.
_LASTS_S = 1.0
# The first pieces are slower.
_WARM_S = 0.1


def _mean_piece_s(start_at: float) -> float:
    """Repeat the piece for `_LASTS_S` from a moment of the wall clock; return its mean seconds."""
    work, pieces_s = piece_of_work(), []
    while time() < start_at:
        work()
    until = perf_counter() + _LASTS_S
    while perf_counter() < until:
        pieces_s.append(work())
    return fmean(pieces_s)


def check_cores() -> None:
    """Print the mean seconds of a piece over as many processes at once as the last word asks.

    Profiles and runs time it on the cores of a job; here processes float over all cores, so that
    slow ones and shared hyperthreads count.
    """
    busy = int(sys.argv[-1])
    with multiprocessing.get_context("fork").Pool(busy) as pool:
        start_at = time() + _WARM_S
        print(fmean(pool.map(_mean_piece_s, [start_at] * busy, chunksize=1)))
