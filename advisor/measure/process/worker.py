"""What runs inside a tenant process: it pins itself to its cores, then serves requests from a pipe.

An answer is ``("done", value)``, ``("ended", outcome, detail)`` when the tenant cannot continue,
or ``("refused", exit code, message)`` for an error of the user's.
"""

import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from traceback import print_exc
from typing import Any, Literal

from advisor.errors import AdvisorError
from advisor.measure.process.pdeathsig import die_with_parent
from advisor.measure.process.trainable import Routine, Trainable, trained
from advisor.workload.spec import Script

Answer = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TenantSetup:
    """Where a tenant runs.

    Attributes:
        device: The kind of device, as torch names it.
        cores: Host cores to which it and its loader workers are pinned.
        environment: Set before CUDA is initialised; the caller's MPS variables are dropped.
        script: What the tenant is; None: a process of ours, which builds what it trains.
    """

    device: Literal["cuda", "cpu"]
    cores: tuple[int, ...]
    environment: Mapping[str, str]
    script: Script | None = None


@dataclass(slots=True)
class TenantState:
    """What a tenant keeps between two requests.

    Attributes:
        trainable: What it trains; None before a workload was loaded.
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
    _prepare_process(setup)
    known = verbs()
    state = TenantState(setup.device)
    answer = attempted(one_thread_versions)
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
        answer = attempted(partial(_answer, state, known[verb], arguments))


def _answer(state: TenantState, verb: Verb, arguments: dict[str, Any]) -> dict[str, Any]:
    answer = verb(state=state, **arguments)
    return trained(answer, lambda: state.trainable) if isinstance(answer, Generator) else answer


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


def one_thread_versions() -> dict[str, Any]:
    """Keep torch to one thread; as `versions`."""
    import torch

    torch.set_num_threads(1)
    return versions()


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


def attempted(request: Callable[[], dict[str, Any]]) -> Answer:
    """The answer to `request`, however that ends."""
    try:
        return ("done", request())
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
    no_memory = isinstance(error, RuntimeError) and lacks_memory(str(error))
    return "out-of-memory" if no_memory else "died"


def lacks_memory(said: str) -> bool:
    """Whether the words of an error say that the device has no memory left."""
    return any(sign in said for sign in _NO_MEMORY)


def _one_line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:300]
