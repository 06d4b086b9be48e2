"""Inside a tenant process: it pins itself to its cores, then serves requests from a pipe.

An answer is ``("done", value)``, ``("ended", outcome, detail)`` when the tenant cannot continue,
or ``("refused", exit code, message)`` for an error of the user's.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from traceback import print_exc
from typing import Any, Literal, Protocol, cast

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.measure.pdeathsig import die_with_parent
from advisor.workload.spec import Script

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
    """Train as far as `routine` asks; return its answer.

    Args:
        routine: Asks for training only if there is something to train; it may load that itself.
        loaded: Returns the `PhasedStep` to train.
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
                count = len(left) if part == "step" else 1
                for phase in left[:count]:
                    phase()
                left = left[count:]
            part = routine.send(not left)
    except StopIteration as end:
        answer: dict[str, Any] = end.value
        return answer


VerbAnswer = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TenantSetup:
    """Where a tenant runs.

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

    Args:
        connection: To the process that started this one.
        setup: Where to run.
        verbs: Returns the requests that are understood: each takes a `TenantState` and the
            arguments sent, and returns plain values, or a routine that does.
    """
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)  # loader workers
    parent = parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # it died before `die_with_parent` took effect
    os.sched_setaffinity(0, setup.cores)
    kept = without_mps(os.environ)
    os.environ.clear()
    os.environ.update(kept)
    os.environ.update(setup.environment)
    requests = verbs()
    state = TenantState(setup.device)

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
    """`environment` without the caller's own MPS settings, which would change how tenants share."""
    return {name: value for name, value in environment.items() if not name.startswith("CUDA_MPS_")}


def versions() -> dict[str, Any]:
    """Versions of torch, CUDA and timm."""
    import torch

    timm = installed_version("timm")
    return {"torch": str(torch.__version__), "cuda": torch.version.cuda, "timm": timm}


def installed_version(package: str) -> str | None:
    """The version of `package`, without importing it; None if it is not installed here."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def attempt(request: Callable[[], dict[str, Any]]) -> VerbAnswer:
    """Call `request`; return the answer, however that ends."""
    try:
        return ("done", request())
    except AdvisorError as error:
        return ("refused", error.exit_code, str(error))
    except Exception as error:  # any error ends this tenant and not the run
        import torch

        line = (str(error).strip().splitlines() or [""])[0]
        detail = f"{type(error).__name__}: {line}"[:300]
        if isinstance(error, torch.OutOfMemoryError) or (
            isinstance(error, RuntimeError) and lacks_memory(str(error))
        ):
            return ("ended", "out-of-memory", detail)
        print_exc()  # the record holds one line only
        return ("ended", "died", detail)


# Messages of CUDA's libraries when the device has no memory left and torch does not raise its own.
_NO_MEMORY = (
    "out of memory", "ALLOC_FAILED", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"
)  # fmt: skip


def lacks_memory(printed: str) -> bool:
    """Whether an error message means that the device has no memory left."""
    return any(sign in printed for sign in _NO_MEMORY)


# A big model on a busy GPU; the first tenant also waits for the imports.
LOAD_S = 300.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a tenant ended before it was asked to."""

    outcome: Literal["out-of-memory", "died"]
    detail: str


Answer = dict[str, Any] | Ended


def living(answer: Answer, remedy: str = "") -> dict[str, Any]:
    """Return `answer`, if its tenant still runs.

    Raises:
        AdvisorError: The tenant ran out of memory or died; the message ends with `remedy`.
    """
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

    def _parsed(self, answer: Any) -> Answer | None:
        """The answer in its message; None if there is none."""
        match answer:
            case ["done", dict() as value]:
                return value
            case ["refused", int() as code, str() as message]:
                raise error_of(code, message)
            case ["ended", "out-of-memory" | "died" as outcome, str() as detail]:
                return self._end(outcome, detail)
            case _:
                return None

    def _end(self, outcome: Literal["out-of-memory", "died"], detail: str) -> Ended:
        self.ended = Ended(outcome, detail)
        return self.ended
