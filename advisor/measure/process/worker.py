"""A tenant's own side: it sits down on its cores, then does what it is told over a pipe.

An answer is ``("done", value)``, ``("ended", outcome, detail)`` when the tenant can go on no
longer, or ``("refused", exit code, message)`` for an error of the user's.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from traceback import print_exc
from typing import TYPE_CHECKING, Any, Literal

from advisor.errors import AdvisorError
from advisor.measure.process.mps_daemon import without_mps
from advisor.measure.process.pdeathsig import die_with_parent

if TYPE_CHECKING:
    from advisor.zoo.task import Step

Answer = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TenantSetup:
    """Where a tenant runs.

    Attributes:
        device: What torch calls the device.
        cores: Host cores it is pinned to, its loader workers with it.
        environment: Set before CUDA is touched; what the caller set for MPS is dropped.
    """

    device: Literal["cuda", "cpu"]
    cores: tuple[int, ...]
    environment: Mapping[str, str]


@dataclass(slots=True)
class TenantState:
    """What a tenant remembers between two things it is told.

    Attributes:
        step: Enqueues one training step; None before a workload was loaded.
        notes: Whatever verbs want to keep.
    """

    device: Literal["cuda", "cpu"]
    step: "Step | None" = None
    notes: dict[str, Any] = field(default_factory=dict)


Verb = Callable[..., dict[str, Any]]


def serve(
    connection: Connection, seat: TenantSetup, verbs: Callable[[], Mapping[str, Verb]]
) -> None:
    """Greet, then obey until told ``"stop"`` or until something ends this tenant.

    Args:
        connection: To whoever started this process.
        seat: Where to sit.
        verbs: Gives what can be asked: each takes a `TenantState` and the arguments it was sent,
            and returns plain values.
    """
    _sit_down(seat)
    known = verbs()
    desk = TenantState(seat.device)
    answer = _attempt(_greet, {})
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
        answer = _attempt(known[verb], {"desk": desk} | arguments)


def _sit_down(seat: TenantSetup) -> None:
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)  # loader workers
    parent = parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # it died before the kernel knew that we die with it
    os.sched_setaffinity(0, seat.cores)
    kept = without_mps(os.environ)
    os.environ.clear()
    os.environ.update(kept)
    os.environ.update(seat.environment)


def _greet() -> dict[str, Any]:
    """Versions of what measures."""
    import torch

    torch.set_num_threads(1)
    return {
        "torch": str(torch.__version__), "cuda": torch.version.cuda, "timm": _timm_version()
    }  # fmt: skip


def _timm_version() -> str | None:
    try:
        return version("timm")
    except PackageNotFoundError:
        return None


def _attempt(verb: Verb, arguments: dict[str, Any]) -> Answer:
    try:
        return ("done", verb(**arguments))
    except AdvisorError as error:
        return ("refused", error.exit_code, str(error))
    except Exception as error:  # whatever it is, it ends this tenant and not the run
        outcome = _outcome(error)
        if outcome == "died":
            print_exc()  # for whoever must mend it; the record holds one line
        return ("ended", outcome, _one_line(error))


# How CUDA's libraries say that the device has no memory left, where torch does not say it.
_NO_MEMORY = (
    "out of memory", "ALLOC_FAILED", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"
)  # fmt: skip


def _outcome(error: Exception) -> Literal["out-of-memory", "died"]:
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return "out-of-memory"
    said = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)
    return "out-of-memory" if said else "died"


def _one_line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:300]
