"""Tenant processes as seen from the process that starts them: requests are sent, answers received.

    with tenants_on(setups, folder) as tenants:
        answers = ask_all(tenants, "load", [{"workload": each} for each in workloads])

A tenant that dies or runs out of memory does not raise: it has `ended`, and answers `Ended` to
every further request.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from time import monotonic
from typing import Any

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware.gpus import gpu
from advisor.measure.mps import MpsSession
from advisor.measure.process import wait_until
from advisor.measure.script_steps import SteppingScript, WatchedScript
from advisor.measure.tenant_verbs import training_verbs
from advisor.measure.worker import (
    LOAD_S,
    Answer,
    Ended,
    TenantHandle,
    TenantSetup,
    TenantState,
    Verb,
    serve,
)
from advisor.sharing import Naive
from advisor.workload.profile import Memory

# How long a tenant's queued work may take after the moment at which it stops training.
GRACE_S = 120.0

# How long tenants have to end after they were asked to stop.
_POLITE_S = 3.0


class TenantProcess(TenantHandle):
    """A process of ours, that trains what the zoo builds."""

    def __init__(self, setup: TenantSetup, verbs: Callable[[], Mapping[str, Verb]]) -> None:
        super().__init__(setup)
        ours, its = _context().Pipe()
        self._connection: Connection = ours
        self._process: ForkServerProcess = _context().Process(
            target=serve, args=(its, setup, verbs)
        )
        self._process.start()
        its.close()  # or its death would not close the pipe
        self.pid = self._process.pid or 0

    def wait_until_ready(self) -> None:
        """Wait until it has sent its versions; once for each tenant, before any request."""
        versions = self.receive(LOAD_S)
        self.versions = {} if isinstance(versions, Ended) else versions

    def send(self, verb: str, **arguments: Any) -> None:
        if self.ended is None:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._connection.send((verb, arguments))

    def receive(self, timeout_s: float) -> Answer:
        if self.ended is not None:
            return self.ended
        if not wait([self._connection, self._process.sentinel], timeout_s):
            self._process.kill()
            return self._end("died", f"gave no answer within {timeout_s:.0f} s and was killed")
        try:
            answer = self._connection.recv() if self._connection.poll() else None
        except (EOFError, ConnectionResetError):
            answer = None
        said = self._parsed(answer)
        return self._end("died", self._how_it_died()) if said is None else said

    def _how_it_died(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"ended with exit status {code}"

    def end_by(self, deadline: float) -> None:
        self._process.join(max(0.0, deadline - monotonic()))
        for force in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                force()
                self._process.join(2)
        self._connection.close()


@contextmanager
def tenants_on(
    setups: Sequence[TenantSetup],
    folder: Path,
    verbs: Callable[[], Mapping[str, Verb]] = training_verbs,
) -> Iterator[tuple[TenantHandle, ...]]:
    """New tenants, one for each of `setups`, ready for requests; all ended when the block ends.

    Args:
        setups: Where each runs.
        folder: Where they and the fork server keep temporary files.
        verbs: An importable function that returns the requests they answer.
    """
    tenants: list[TenantHandle] = []
    try:
        if any(setup.script is None for setup in setups):
            warm_up(folder)
        for setup in setups:
            tenants.append(_tenant(setup, folder, verbs))  # noqa: PERF401 - each is ended below
        for tenant in tenants:
            if isinstance(tenant, TenantProcess):
                tenant.wait_until_ready()
        yield tuple(tenants)
    finally:
        end_all(tenants)


def _tenant(
    setup: TenantSetup, folder: Path, verbs: Callable[[], Mapping[str, Verb]]
) -> TenantHandle:
    if setup.script is None:
        return TenantProcess(setup, verbs)
    kind = SteppingScript if setup.script.by_steps else WatchedScript
    return kind(setup, setup.script, folder, verbs)


def ask_all(
    tenants: Sequence[TenantHandle],
    verb: str,
    arguments: Sequence[Mapping[str, Any]],
    timeout_s: float = LOAD_S,
) -> tuple[Answer, ...]:
    """Send every tenant a request at once, then wait for all answers, in the tenants' order."""
    for tenant, each in zip(tenants, arguments, strict=True):
        tenant.send(verb, **each)
    deadline = monotonic() + timeout_s
    return tuple(tenant.receive(max(0.0, deadline - monotonic())) for tenant in tenants)


def end_all(tenants: Sequence[TenantHandle]) -> None:
    """End all tenants: they are asked to stop, and those that do not are ended by force."""
    for tenant in tenants:
        tenant.send("stop")
    deadline = monotonic() + _POLITE_S
    for tenant in tenants:
        tenant.end_by(deadline)


@cache
def _context() -> ForkServerContext:
    return multiprocessing.get_context("forkserver")


def warm_up(folder: Path, preload: str = "fork_server") -> None:
    """Start the fork server if it does not run; it imports while the caller goes on.

    Args:
        folder: Where this process, the server and all tenants keep temporary files from now on,
            a socket of the server's among them; to be removed when all tenants have ended.
        preload: The module beside this one that it imports.
    """
    _context().set_forkserver_preload([f"{__package__}.{preload}"])
    # The default is a folder in /tmp that would stay if this process were killed.
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # type: ignore[attr-defined]
    inherited = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["TMPDIR"]
        if inherited is not None:
            os.environ["TMPDIR"] = inherited


def memory_record(
    reported: Mapping[str, float | None], on_device_mib: float | None
) -> Memory | None:
    """The record of a tenant's memory; None where neither it nor the driver says.

    Args:
        reported: From `advisor.measure.tenant_verbs.memory`; None where a program of the
            user's does not say.
        on_device_mib: Memory of its process from the driver; None if the driver does not say.
    """
    if reported["reserved_mib"] is None:
        if on_device_mib is None:
            return None
        return Memory(allocated_mib=None, reserved_mib=None, device_mib=on_device_mib)
    # A driver that reports less than torch holds counts something else (seen for MPS clients before
    # Volta): then its figure is not used.
    trusted = on_device_mib is not None and on_device_mib >= reported["reserved_mib"]
    return Memory(
        allocated_mib=reported["allocated_mib"],
        reserved_mib=reported["reserved_mib"],
        device_mib=on_device_mib if trusted else None,
    )


_MIB = 2**20

# Torch asks the driver for blocks above 10 MiB exactly, in multiples of 2 MiB; smaller ones come
# out of 20 MiB. So filling stops this near the target.
_NEAR_MIB = 20

# More than an MPS server holds (66 MiB on an H200), less than any tenant's context (740 MiB).
_LEAST_TENANT_MIB = 300

# The first block nearly reaches the target; the driver's page tables for it take a little more.
_MOST_BLOCKS = 4


@contextmanager
def memory_filled(session: MpsSession, capacity_mib: int | None) -> Iterator[float | None]:
    """While the block runs, the GPU has as much free as a card of `capacity_mib` would have.

    The driver's own memory is assumed to be the same on both. An MPS server that already runs
    counts as the tenants' memory, like one that starts with them.

    Args:
        session: Without a live tenant.
        capacity_mib: Size of the smaller card as its driver would report it; None: the GPU stays
            as it is.

    Yields:
        The memory then free for tenants and MPS server, MiB; None if nothing was held.

    Raises:
        InvalidInput: The GPU itself has less, or the device is a CPU.
        AdvisorError: The process that holds the memory ended, or another process uses the GPU.
    """
    if capacity_mib is None:
        yield None
        return
    uuid = session.device.uuid
    if uuid is None:
        raise InvalidInput("a CPU's memory cannot be made to look smaller; drop capacity_mib")
    served_mib = _served_mib(uuid)
    leave_mib = capacity_mib - reserve_mib(session.device.key, uuid) - served_mib
    setups = session.setups(Naive(), [tuple(sorted(os.sched_getaffinity(0)))])
    with tenants_on(setups, session.folder, filler_verbs) as (filler,):
        answer = filler.ask("leave_free", free_mib=leave_mib)
        if isinstance(answer, Ended):
            raise AdvisorError(
                f"the process that fills the GPU to look like {capacity_mib} MiB ended: "
                f"{answer.detail}. Run it again."
            )
        yield answer["free_mib"] + served_mib


def reserve_mib(key: str, uuid: str) -> int:
    """Memory that the driver reserves on a GPU: as catalogued, else as it says itself."""
    from advisor.hardware.live_gpu import reserved_mib

    known = gpu(key).reserved_mib
    return (reserved_mib(uuid) or 0) if known is None else known


def _served_mib(uuid: str) -> float:
    """Memory of the MPS server, after the tenants of the previous run have left."""
    from advisor.hardware.live_gpu import process_memory_mib

    def in_use_mib() -> float:
        return sum(process_memory_mib(uuid).values())

    if not wait_until(lambda: in_use_mib() < _LEAST_TENANT_MIB, 10):
        raise AdvisorError(
            f"{in_use_mib():.0f} MiB of the GPU are in use before any tenant runs. See who uses "
            f"it: nvidia-smi."
        )
    return in_use_mib()


def filler_verbs() -> Mapping[str, Verb]:
    """`leave_free`."""
    return {"leave_free": leave_free}


def leave_free(state: TenantState, free_mib: float) -> dict[str, Any]:
    """Hold so much device memory that `free_mib` remain free.

    Returns:
        ``free_mib``: what actually remains.

    Raises:
        InvalidInput: Less is free already.
    """
    import torch

    blocks = state.notes.setdefault("blocks", [])
    if _free_mib() < free_mib - _NEAR_MIB:
        raise InvalidInput(
            f"this GPU has {_free_mib():.0f} MiB free and should look as if it had "
            f"{free_mib:.0f}. Choose a smaller capacity_mib."
        )
    while len(blocks) < _MOST_BLOCKS and (excess := _free_mib() - free_mib) >= _NEAR_MIB:
        whole_mib = int(excess) // 2 * 2
        blocks.append(torch.empty(whole_mib * _MIB, dtype=torch.uint8, device=state.device))
    return {"free_mib": _free_mib()}


def _free_mib() -> float:
    """Free device memory as the driver reports it, MiB."""
    import torch

    return float(torch.cuda.mem_get_info()[0]) / _MIB
