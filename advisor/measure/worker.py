"""A tenant: its process, the requests that it serves, and its handle in the starting process.

An answer is ``("done", value)``, ``("ended", outcome, detail)`` when the tenant cannot continue,
or ``("refused", exit code, message)`` for an error of the user's.
"""

import ctypes
import json
import os
import resource
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from statistics import median
from threading import Thread
from time import perf_counter, sleep, time
from traceback import print_exc
from typing import Any, Literal, Protocol, cast

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.measure.pdeathsig import die_with_parent
from advisor.workload.spec import Script, Workload

Part = Literal["step", "phase"]

Routine = Generator[Part, bool, dict[str, Any]]
"""Yields how far to train, receives whether a step has ended, and returns plain values."""


class Trainable(Protocol):
    """A model in training, as routines see it."""

    @property
    def fetched_s(self) -> float:
        """Seconds that its host has spent so far on taking batches."""

    @property
    def loader_workers(self) -> int:
        """Processes of the loader that feeds it; 0 without."""

    def next_batch(self) -> object:
        """Take the next batch without training on it."""

    def close(self) -> None:
        """End what it owns; it cannot be trained afterwards."""


class PhasedStep(Trainable, Protocol):
    """A trainable whose step is called from outside, whole or phase by phase."""

    def __call__(self) -> None:
        """Enqueue one step."""

    @property
    def phases(self) -> Mapping[str, Callable[[], None]]:
        """The parts of a step, by name, to be called in this order."""


def trained(routine: Routine, loaded: Callable[[], Trainable | None]) -> dict[str, Any]:
    """Train the `PhasedStep` that `loaded` returns as far as `routine` asks; return its answer.

    A routine may load it, before it asks for training.
    """
    left: list[Callable[[], None]] = []
    try:
        part = next(routine)
        while True:
            step = cast("PhasedStep", loaded())
            if part == "step" and not left:
                step()
            else:
                left = left or list(step.phases.values())
                due = len(left) if part == "step" else 1
                for phase in left[:due]:
                    phase()
                left = left[due:]
            part = routine.send(not left)
    except StopIteration as end:
        answer: dict[str, Any] = end.value
        return answer


@dataclass(frozen=True, slots=True)
class TenantSetup:
    """The device and the process of a tenant.

    Attributes:
        device: The kind of device, as torch names it.
        cores: Host cores to which it and its loader workers are pinned.
        environment: Set before CUDA is initialised; the caller's MPS variables are dropped.
        script: The user's program that the tenant is; None: a process of ours, of the zoo.
    """

    device: Literal["cuda", "cpu"]
    cores: tuple[int, ...]
    environment: Mapping[str, str]
    script: Script | None = None


@dataclass(slots=True)
class TenantState:
    """The memory of a tenant between two requests.

    Attributes:
        trainable: The model that it trains; None before a workload was loaded.
        notes: Values that verbs keep for later requests.
    """

    device: Literal["cuda", "cpu"]
    trainable: Trainable | None = None
    notes: dict[str, Any] = field(default_factory=dict)


Verb = Callable[..., dict[str, Any] | Routine]


def serve(
    connection: Connection, setup: TenantSetup, verbs: Callable[[], Mapping[str, Verb]]
) -> None:
    """Send the versions in use, then answer requests until ``"stop"`` or until this tenant ends.

    `verbs` returns the requests that are understood: each takes a `TenantState` and the arguments
    sent, and returns plain values, or a routine that does.
    """
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)  # loader workers
    parent = parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # it died before `die_with_parent` took effect
    os.sched_setaffinity(0, setup.cores)
    environment = {**without_mps(os.environ), **setup.environment}
    os.environ.clear()
    os.environ.update(environment)
    requests, state = verbs(), TenantState(setup.device)

    def first_answer() -> dict[str, Any]:
        import torch

        torch.set_num_threads(1)
        return versions()

    def answer_to(verb: Verb, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = verb(state=state, **arguments)
        if isinstance(answer, Generator):
            return trained(answer, lambda: state.trainable)
        return answer

    answer = attempt(first_answer)
    while True:
        connection.send(answer)
        if answer[0] == "ended":
            return
        try:
            verb, arguments = connection.recv()
        except EOFError:
            return
        if verb == "stop":
            return
        answer = attempt(partial(answer_to, requests[verb], arguments))


def without_mps(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out the caller's own MPS settings, which would change how tenants share."""
    return {name: value for name, value in environment.items() if not name.startswith("CUDA_MPS_")}


def versions() -> dict[str, Any]:
    """Return the versions of torch, CUDA and timm."""
    import torch

    timm = installed_version("timm")
    return {"torch": str(torch.__version__), "cuda": torch.version.cuda, "timm": timm}


def installed_version(package: str) -> str | None:
    """Return the version of `package` without importing it; None if it is not installed here."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def attempt(request: Callable[[], dict[str, Any]]) -> tuple[Any, ...]:
    """Call `request`; return the answer, however that ends."""
    try:
        return ("done", request())
    except AdvisorError as error:
        return ("refused", error.exit_code, str(error))
    except Exception as error:  # any error ends this tenant and not the run
        import torch

        line = (str(error).strip().splitlines() or [""])[0]
        detail = f"{type(error).__name__}: {line}"[:300]
        lacking = isinstance(error, RuntimeError) and lacks_memory(str(error))
        if lacking or isinstance(error, torch.OutOfMemoryError):
            return ("ended", "out-of-memory", detail)
        print_exc()  # the record holds one line only
        return ("ended", "died", detail)


# Messages of CUDA's libraries when the device has no memory left and torch does not raise its own.
_NO_MEMORY = (
    "out of memory", "ALLOC_FAILED", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"
)  # fmt: skip


def lacks_memory(printed: str) -> bool:
    """Return whether an error message means that the device has no memory left."""
    return any(sign in printed for sign in _NO_MEMORY)


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
    step_s = (perf_counter() - began) / 2
    answer = {"pid": os.getpid(), "sms": _context_sms(state), "warm_step_s": step_s}
    return answer | {"memory": memory(state)}


def run(state: TenantState, start_at: float, stop_at: float) -> Routine:
    """Train without waiting for the device, between two moments of the wall clock.

    No step begins after `stop_at`; at least one is taken.

    Returns:
        ``completed_at``: when each step ended on the device, seconds of the wall clock; and
        ``memory``.
    """
    return (yield from _train(state, start_at, lambda _: time() >= stop_at))


def run_steps(state: TenantState, start_at: float, steps: int) -> Routine:
    """Train so many steps without waiting for the device; the answer is that of `run`."""
    return (yield from _train(state, start_at, lambda number: number >= steps))


def _train(state: TenantState, start_at: float, is_last: Callable[[int], bool]) -> Routine:
    """Wait for `start_at`, then train up to the step whose number `is_last`."""
    if state.trainable is None:
        raise AdvisorError("a tenant must load a workload before it trains")
    clock = _GpuClock() if state.device == "cuda" else _HostClock()
    sleep(max(0.0, start_at - time()))
    for number in count(1):
        yield "step"
        clock.mark()
        if is_last(number):
            break
    return {"completed_at": clock.marked_at(), "memory": memory(state)}


def check_host(state: TenantState) -> dict[str, Any]:
    """Return ``check_s``: `host_check_s` on this tenant's core, after its GPU work is done."""
    synchronise(state)
    return {"check_s": host_check_s()}


def synchronise(state: TenantState) -> None:
    """Wait until the device has finished its queued work."""
    if state.device == "cuda":
        import torch

        torch.cuda.synchronize()


def memory(state: TenantState) -> dict[str, float]:
    """Return the peak memory so far, MiB; on a CPU, twice the process's resident memory."""
    if state.device == "cpu":
        resident_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"allocated_mib": resident_mib, "reserved_mib": resident_mib}
    import torch

    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {"allocated_mib": allocated / 2**20, "reserved_mib": reserved / 2**20}


_SM_COUNT = 0  # cuda.h, CUexecAffinityType


def _context_sms(state: TenantState) -> int | None:
    """The SMs that this process's CUDA context may use: under an MPS limit, not all."""
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
    """A clock of steps on a device whose calls return when the work is done."""

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


# Most events kept unread: more than a GPU queues, so the oldest steps are done.
_UNREAD_STEPS = 4096


class _GpuClock:
    """A clock of steps on the GPU, in seconds of the wall clock.

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


# Half interpreter and half dispatch into torch, as a step's host path is; about a millisecond.
_SUMS, _DISPATCHES = 8000, 300


def piece_of_work() -> Callable[[], float]:
    """Return a function that does the fixed piece of host work once and returns its seconds."""
    import torch

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


_ROUNDS = 40


def host_check_s() -> float:
    """Measure the median seconds of a piece of work on the core of this process."""
    work = piece_of_work()
    return median(work() for _ in range(_ROUNDS))


def begin(settings: Mapping[str, str]) -> None:
    """Connect to the process that started the program, and answer until it hangs up.

    A thread serves programs in which no hook finds steps, so no request may need the program's own
    thread. Each Python process of such a program has one once it has imported torch.

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


# A big model on a busy GPU; the first tenant also waits for the imports.
LOAD_S = 300.0


Outcome = Literal["out-of-memory", "died"]


@dataclass(frozen=True, slots=True)
class Ended:
    """The early end of a tenant."""

    outcome: Outcome
    detail: str


Answer = dict[str, Any] | Ended


def living(answer: Answer, remedy: str = "") -> dict[str, Any]:
    """Return `answer` if its tenant still runs; else raise AdvisorError, ending with `remedy`."""
    if isinstance(answer, Ended):
        raise AdvisorError(f"{answer.outcome}: {answer.detail}{remedy}")
    return answer


def error_of(code: int, message: str) -> AdvisorError:
    """The error of another process, by its exit code."""
    kinds = {kind.exit_code: kind for kind in (InvalidInput, GpuUnavailable)}
    return kinds.get(code, AdvisorError)(message)


class TenantHandle(ABC):
    """One tenant, alive until it is stopped or ends by itself.

    Attributes:
        setup: Where it runs.
        pid: Its process; 0 before a script has been started.
        versions: ``torch``, ``cuda`` and ``timm``, each a version or None; empty if it ended
            before it sent them, or is not a Python.
        ended: None while it lives.
    """

    def __init__(self, setup: TenantSetup) -> None:
        self.setup = setup
        self.pid = 0
        self.versions: dict[str, str | None] = {}
        self.ended: Ended | None = None

    @abstractmethod
    def send(self, verb: str, **arguments: Any) -> None:
        """Send a request without waiting; `receive` returns the answer."""

    @abstractmethod
    def receive(self, timeout_s: float) -> Answer:
        """Return its answer, or how it ended; kill it if it does not answer in time.

        Raises:
            InvalidInput: It refused the user's request.
        """

    @abstractmethod
    def end_by(self, deadline: float) -> None:
        """Wait until `deadline` (monotonic seconds) for it to end, then end it by force."""

    def pin(self, cores: tuple[int, ...]) -> None:
        """Move it to `cores`."""
        self.setup = replace(self.setup, cores=cores)

    def ask(self, verb: str, timeout_s: float = LOAD_S, **arguments: Any) -> Answer:
        """Send a request and wait for the answer."""
        self.send(verb, **arguments)
        return self.receive(timeout_s)

    def _parsed(self, message: Any) -> Answer | None:
        """The answer in its message; None if there is none."""
        match message:
            case ["done", dict() as value]:
                return value
            case ["refused", int() as code, str() as text]:
                raise error_of(code, text)
            case ["ended", "out-of-memory" | "died" as outcome, str() as detail]:
                return self._end(outcome, detail)
            case _:
                return None

    def _end(self, outcome: Outcome, detail: str) -> Ended:
        self.ended = Ended(outcome, detail)
        return self.ended
