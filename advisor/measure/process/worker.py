"""What runs inside a tenant process: it pins itself to its cores, then serves requests from a pipe.

An answer is ``("done", value)``, ``("ended", outcome, detail)`` when the tenant cannot continue,
or ``("refused", exit code, message)`` for an error of the user's.
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
from advisor.measure.process.pdeathsig import die_with_parent

if TYPE_CHECKING:
    from advisor.zoo.task import Step

Answer = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TenantSetup:
    """Where a tenant runs.

    Attributes:
        device: The kind of device, as torch names it.
        cores: Host cores to which it and its loader workers are pinned.
        environment: Set before CUDA is initialised; the caller's MPS variables are dropped.
    """

    device: Literal["cuda", "cpu"]
    cores: tuple[int, ...]
    environment: Mapping[str, str]


@dataclass(slots=True)
class TenantState:
    """What a tenant keeps between two requests.

    Attributes:
        step: Enqueues one training step; None before a workload was loaded.
        notes: Values that verbs keep for later requests.
    """

    device: Literal["cuda", "cpu"]
    step: "Step | None" = None
    notes: dict[str, Any] = field(default_factory=dict)


Verb = Callable[..., dict[str, Any]]


def serve(
    connection: Connection, setup: TenantSetup, verbs: Callable[[], Mapping[str, Verb]]
) -> None:
    """Send the versions in use, then answer requests until ``"stop"`` or until this tenant ends.

    Args:
        connection: To the process that started this one.
        setup: Where to run.
        verbs: Returns the requests that are understood: each takes a `TenantState` and the
            arguments sent, and returns plain values.
    """
    _prepare_process(setup)
    known = verbs()
    state = TenantState(setup.device)
    answer = _attempt(_versions, {})
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
        answer = _attempt(known[verb], {"state": state} | arguments)


def _prepare_process(setup: TenantSetup) -> None:
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


def without_mps(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without the caller's own MPS settings, which would change how tenants share."""
    return {name: value for name, value in environment.items() if not name.startswith("CUDA_MPS_")}


def _versions() -> dict[str, Any]:
    """Versions of torch, CUDA and timm."""
    import torch

    torch.set_num_threads(1)
    try:
        timm = version("timm")
    except PackageNotFoundError:
        timm = None
    return {"torch": str(torch.__version__), "cuda": torch.version.cuda, "timm": timm}


def _attempt(verb: Verb, arguments: dict[str, Any]) -> Answer:
    try:
        return ("done", verb(**arguments))
    except AdvisorError as error:
        return ("refused", error.exit_code, str(error))
    except Exception as error:  # any error ends this tenant and not the run
        outcome = _outcome(error)
        if outcome == "died":
            print_exc()  # the record holds one line only
        return ("ended", outcome, _one_line(error))


# Messages of CUDA's libraries when the device has no memory left and torch does not raise its own.
_NO_MEMORY = (
    "out of memory", "ALLOC_FAILED", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"
)  # fmt: skip


def _outcome(error: Exception) -> Literal["out-of-memory", "died"]:
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return "out-of-memory"
    no_memory = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)
    return "out-of-memory" if no_memory else "died"


def _one_line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:300]
