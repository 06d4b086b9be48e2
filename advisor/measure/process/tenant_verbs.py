"""What every tenant can be told: load a workload, and train from one moment to another."""

import ctypes
import os
import resource
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter, sleep, time
from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError
from advisor.measure.process.host_speed import host_check_s
from advisor.measure.process.worker import TenantState, Verb
from advisor.workload.spec import Workload

if TYPE_CHECKING:
    from advisor.zoo.task import Step

_MIB = 2**20

# Steps whose events are kept unread at once: beyond what a GPU queues, so the oldest are done.
_UNREAD_STEPS = 4096


def training_verbs() -> Mapping[str, Verb]:
    """`load`, `run`, `run_steps` and `check_host`."""
    return {"load": load, "run": run, "run_steps": run_steps, "check_host": check_host}


def load(desk: TenantState, workload: Workload, warm_steps: int = 5) -> dict[str, Any]:
    """Build `workload` and take its first steps, which are slower than all later ones.

    Returns:
        ``pid``, ``sms`` as the CUDA context reports them, ``warm_step_s`` and ``memory``.
    """
    from advisor.zoo.task import build

    desk.step = build(workload, desk.device)
    for _ in range(warm_steps):
        desk.step()
    synchronise(desk)
    began = perf_counter()
    for _ in range(2):
        desk.step()
    synchronise(desk)
    warm_step_s = (perf_counter() - began) / 2
    return {
        "pid": os.getpid(),
        "sms": context_sms(desk),
        "warm_step_s": warm_step_s,
        "memory": memory(desk),
    }


def run(desk: TenantState, start_at: float, stop_at: float) -> dict[str, Any]:
    """Train without waiting for the device, from one moment to another.

    Args:
        desk: With a workload loaded.
        start_at: Seconds of the wall clock.
        stop_at: No step begins after it; at least one is taken.

    Returns:
        ``completed_at``: when each step ended on the device, seconds of the wall clock; and
        ``memory``.
    """
    step, clock = _at_the_start(desk, start_at)
    while True:
        step()
        clock.mark()
        if time() >= stop_at:
            break
    return {"completed_at": clock.marked_at(), "memory": memory(desk)}


def run_steps(desk: TenantState, start_at: float, steps: int) -> dict[str, Any]:
    """Train so many `steps` without waiting for the device; as `run` otherwise."""
    step, clock = _at_the_start(desk, start_at)
    for _ in range(steps):
        step()
        clock.mark()
    return {"completed_at": clock.marked_at(), "memory": memory(desk)}


def _at_the_start(desk: TenantState, start_at: float) -> "tuple[Step, _GpuClock | _HostClock]":
    """What to train and a clock for it, when it is time."""
    if desk.step is None:
        raise AdvisorError("a tenant trains only what it has loaded")
    clock = _GpuClock() if desk.device == "cuda" else _HostClock()
    sleep(max(0.0, start_at - time()))
    return desk.step, clock


def check_host(desk: TenantState) -> dict[str, Any]:
    """``check_s``: how fast this tenant's core is now, its GPU work done."""
    synchronise(desk)
    return {"check_s": host_check_s()}


def synchronise(desk: TenantState) -> None:
    """Wait until the device has done all it was given."""
    if desk.device == "cuda":
        import torch

        torch.cuda.synchronize()


def memory(desk: TenantState) -> dict[str, float]:
    """Most memory held so far, MiB; on a CPU the process's resident memory stands for both."""
    if desk.device == "cpu":
        resident_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"allocated_mib": resident_mib, "reserved_mib": resident_mib}
    import torch

    return {
        "allocated_mib": torch.cuda.max_memory_allocated() / _MIB,
        "reserved_mib": torch.cuda.max_memory_reserved() / _MIB,
    }


_SM_COUNT = 0  # cuda.h, CUexecAffinityType


def context_sms(desk: TenantState) -> int | None:
    """SMs that this process's CUDA context may use; fewer than there are under an MPS limit."""
    if desk.device == "cpu":
        return None
    import torch

    whole: int = torch.cuda.get_device_properties(0).multi_processor_count
    affinity = (ctypes.c_int * 4)()  # CUexecAffinityParam: the type, then the count
    try:
        refused = ctypes.CDLL("libcuda.so.1").cuCtxGetExecAffinity(affinity, _SM_COUNT)
    except (OSError, AttributeError):
        return whole
    return whole if refused or affinity[1] < 1 else min(whole, affinity[1])


class _HostClock:
    """Ends of steps on a device that works while one waits."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        self._marks.append(time())

    def marked_at(self) -> list[float]:
        return self._marks


class _GpuClock:
    """Ends of steps on the GPU, told in seconds of the wall clock.

    The GPU's clock is tied to the wall clock by an event that had just happened when this was
    made; so make it while the GPU is idle.
    """

    def __init__(self) -> None:
        import torch

        self._new: Callable[[], Any] = partial(torch.cuda.Event, enable_timing=True)
        self._base: Any = self._new()
        torch.cuda.synchronize()
        self._base.record()
        self._base.synchronize()
        self._base_at = time()
        self._unread: deque[Any] = deque()
        self._marks: list[float] = []

    def mark(self) -> None:
        event = self._new()
        event.record()
        self._unread.append(event)
        if len(self._unread) >= _UNREAD_STEPS:
            self._read(_UNREAD_STEPS // 2)

    def marked_at(self) -> list[float]:
        self._read(len(self._unread))
        return self._marks

    def _read(self, count: int) -> None:
        events = [self._unread.popleft() for _ in range(count)]
        if events:
            events[-1].synchronize()
        self._marks += [self._base_at + self._base.elapsed_time(each) / 1000 for each in events]
