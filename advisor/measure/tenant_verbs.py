"""The requests that every tenant answers: load a workload, train, check the host core.

`begin` answers requests in a thread of a program whose steps no hook finds.
"""

import ctypes
import json
import os
import resource
import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from statistics import median
from threading import Thread
from time import perf_counter, sleep, time
from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError
from advisor.measure.worker import Routine, TenantState, Verb, attempt
from advisor.workload.spec import Workload

if TYPE_CHECKING:
    import torch

_MIB = 2**20

# Most events kept unread: more than a GPU queues, so the oldest steps are done.
_UNREAD_STEPS = 4096


def training_verbs() -> Mapping[str, Verb]:
    """`load`, `run`, `run_steps` and `check_host`."""
    return {"load": load, "run": run, "run_steps": run_steps, "check_host": check_host}


def load(state: TenantState, workload: Workload, warm_steps: int = 5) -> Routine:
    """Build `workload`, then take its first steps; see `warmed`."""
    from advisor.zoo.task import build

    state.trainable = build(workload, state.device)
    return (yield from warmed(state, warm_steps))


def warmed(state: TenantState, warm_steps: int) -> Routine:
    """Take the first steps, which are slower than later ones.

    Returns:
        ``pid``, ``sms`` as the CUDA context reports them, ``warm_step_s`` and ``memory``.
    """
    for _ in range(warm_steps):
        yield "step"
    synchronise(state)
    began = perf_counter()
    for _ in range(2):
        yield "step"
    synchronise(state)
    warm_step_s = (perf_counter() - began) / 2
    return {
        "pid": os.getpid(),
        "sms": context_sms(state),
        "warm_step_s": warm_step_s,
        "memory": memory(state),
    }


def run(state: TenantState, start_at: float, stop_at: float) -> Routine:
    """Train without waiting for the device, from one moment to another.

    Args:
        state: With a workload loaded.
        start_at: Seconds of the wall clock.
        stop_at: No step begins after it; at least one is taken.

    Returns:
        ``completed_at``: when each step ended on the device, seconds of the wall clock; and
        ``memory``.
    """
    clock = _started_clock(state, start_at)
    while True:
        yield "step"
        clock.mark()
        if time() >= stop_at:
            break
    return {"completed_at": clock.marked_at(), "memory": memory(state)}


def run_steps(state: TenantState, start_at: float, steps: int) -> Routine:
    """Train the number of `steps` without waiting for the device; the answer is that of `run`."""
    clock = _started_clock(state, start_at)
    for _ in range(steps):
        yield "step"
        clock.mark()
    return {"completed_at": clock.marked_at(), "memory": memory(state)}


def _started_clock(state: TenantState, start_at: float) -> "_GpuClock | _HostClock":
    """Wait for `start_at`; return a clock for the steps from then on."""
    if state.trainable is None:
        raise AdvisorError("a tenant must load a workload before it trains")
    clock = _GpuClock() if state.device == "cuda" else _HostClock()
    sleep(max(0.0, start_at - time()))
    return clock


def check_host(state: TenantState) -> dict[str, Any]:
    """``check_s``: seconds of the host check on this tenant's core, after its GPU work is done."""
    synchronise(state)
    return {"check_s": host_check_s()}


def synchronise(state: TenantState) -> None:
    """Wait until the device has finished its queued work."""
    if state.device == "cuda":
        import torch

        torch.cuda.synchronize()


def memory(state: TenantState) -> dict[str, float]:
    """Peak memory so far, MiB; on a CPU both values are the process's resident memory."""
    if state.device == "cpu":
        resident_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"allocated_mib": resident_mib, "reserved_mib": resident_mib}
    import torch

    return {
        "allocated_mib": torch.cuda.max_memory_allocated() / _MIB,
        "reserved_mib": torch.cuda.max_memory_reserved() / _MIB,
    }


_SM_COUNT = 0  # cuda.h, CUexecAffinityType


def context_sms(state: TenantState) -> int | None:
    """SMs that this process's CUDA context may use; fewer than the GPU has under an MPS limit."""
    if state.device == "cpu":
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
    """When steps ended, on a device whose calls return when the work is done."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        self._marks.append(time())

    def marked_at(self) -> list[float]:
        return self._marks


class GpuQueue:
    """Marks work that was queued on the GPU; waits while more than `most` marks are ahead."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ahead: deque[Any] = deque()

    def mark(self) -> None:
        import torch

        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._ahead.append(event)
        if len(self._ahead) > self._most:
            self._ahead.popleft().synchronize()

    def ahead(self) -> int:
        """Marks that the GPU has not reached."""
        while self._ahead and self._ahead[0].query():
            self._ahead.popleft()
        return len(self._ahead)


class _GpuClock:
    """When steps ended on the GPU, in seconds of the wall clock.

    The GPU's clock is tied to the wall clock by an event recorded when this object is created, so
    create it while the GPU is idle.
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


_ROUNDS = 40
# Half interpreter and half dispatch into torch, as a step's host path is; about a millisecond.
_SUMS, _DISPATCHES = 8000, 300


def host_check_s() -> float:
    """Median seconds of the piece of work on the core to which this process is pinned."""
    import torch

    tensor = torch.ones(4, device="cpu")  # a script may have another default
    return median(_round_s(tensor) for _ in range(_ROUNDS))


def _round_s(tensor: "torch.Tensor") -> float:
    began = perf_counter()
    total = 0
    for number in range(_SUMS):
        total += number * number % 7
    for _ in range(_DISPATCHES):
        tensor.add_(1)
    return perf_counter() - began


def begin(settings: Mapping[str, str]) -> None:
    """Connect to the process that started the program, and answer until it hangs up.

    The thread serves programs in which no hook finds steps, so no request may need the program's
    own thread. Each Python process of such a program has one once it has imported torch.

    Args:
        settings: ``address`` and ``verbs``; see `advisor.measure.hook.VARIABLE`.
    """
    ours = socket.socket(socket.AF_UNIX)
    try:
        ours.connect(settings["address"])
    except OSError:  # the measurement has ended
        return
    connection = Connection(ours.detach())
    Thread(target=_serve, args=(connection, settings["verbs"]), daemon=True).start()


def _serve(connection: Connection, verbs: str) -> None:
    import torch

    module, _, function = verbs.partition(":")
    with connection, suppress(EOFError, OSError):
        while True:
            request = json.loads(connection.recv_bytes())
            verb = getattr(import_module(module), function)()[request["verb"]]
            on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
            state = TenantState("cuda" if on_gpu else "cpu")
            answer = attempt(partial(verb, state=state, **request["arguments"]))
            connection.send_bytes(json.dumps(answer).encode())
