"""A claimed device, its MPS daemon, proved on or off, and the tenants on it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.hardware.gpus import gpu
from advisor.hardware.live_gpu import process_memory_mib, reserved_mib, visible_device
from advisor.hardware.machine import CONTROL, client_variables, mps_processes
from advisor.measure.device import Device, Origin, refuse_busy
from advisor.measure.launcher import tied_to_parent
from advisor.measure.printed_pace import PrintingTenant
from advisor.measure.process import end_within, gpu_lock, mps_within, scratch_folder, wait_until
from advisor.measure.script import without_mps
from advisor.measure.tenant import (
    LOAD_S,
    Answer,
    Tenant,
    TenantSetup,
    living,
    server_of,
    setup_of,
    zoo_setup,
)
from advisor.sharing import Concurrent, Naive
from advisor.workload.spec import Workload

# How long tenants have to end after they were asked to stop.
_POLITE_S = 3.0


@contextmanager
def tenants_on(
    setups: Sequence[TenantSetup],
    folder: Path,
    take: Callable[[TenantSetup], Tenant] | None = None,
) -> Iterator[tuple[Tenant, ...]]:
    """Make tenants, one for each of `setups`, ready for requests; end all when the block ends.

    The first request starts them, but those of the zoo that `take` has started already. Their
    temporary files go to `folder`, a short path.

    Raises:
        AdvisorError: One changed a file of the user's.
    """
    tenants: list[Tenant] = []
    try:
        for setup in setups:
            if setup.line is not None and take is not None:
                tenants.append(take(setup))
            else:
                kind = Tenant if setup.script.by_steps else PrintingTenant
                tenants.append(kind(setup, folder))
        yield tuple(tenants)
    finally:
        for tenant in tenants:
            tenant.interrupt()
        deadline = monotonic() + _POLITE_S
        for tenant in tenants:
            tenant.end_by(deadline)
        wrote = [each.named for each in tenants if each.exposed and each.exposed.name_changes()]
    if wrote:
        raise AdvisorError(
            f"{wrote[0]} changed files of yours, which are listed above. Check them, and measure "
            "it in a copy of its folder: --folder COPY."
        )


def send_all(tenants: Sequence[Tenant], verb: str, **arguments: Any) -> None:
    """Send every tenant the same request."""
    for tenant in tenants:
        tenant.send(verb, **arguments)


def receive_all(tenants: Sequence[Tenant], timeout_s: float) -> tuple[Answer, ...]:
    """Wait for all answers, in the tenants' order."""
    deadline = monotonic() + timeout_s
    return tuple(tenant.receive(max(0.0, deadline - monotonic())) for tenant in tenants)


def ask_all(
    tenants: Sequence[Tenant], verb: str, timeout_s: float = LOAD_S, **arguments: Any
) -> tuple[Answer, ...]:
    """Send every tenant the same request at once, then wait for all answers."""
    send_all(tenants, verb, **arguments)
    return receive_all(tenants, timeout_s)


class Crew:
    """Tenants of the zoo that were started ahead of need: importing torch takes some seconds."""

    def __init__(self, device: Literal["cuda", "cpu"], folder: Path) -> None:
        self._setup, self._folder = zoo_setup(device), folder
        self._waiting: list[Tenant] = []

    def prepare(self, count: int) -> None:
        """Start more until `count` wait; they import torch while the caller goes on."""
        self._waiting = [each for each in self._waiting if each.running.exit_code is None]
        while len(self._waiting) < count:
            tenant = Tenant(self._setup, self._folder)
            tenant.start()
            self._waiting.append(tenant)

    def take(self, setup: TenantSetup) -> Tenant:
        """Return a tenant with `setup`: the one that waits longest, or a new one."""
        while self._waiting:
            tenant = self._waiting.pop(0)
            if tenant.running.exit_code is None:
                tenant.setup = setup
                return tenant
            tenant.end_by(monotonic())
        return Tenant(setup, self._folder)

    def close(self) -> None:
        """End those that still wait."""
        while self._waiting:
            with suppress(OSError):
                self._waiting.pop().end_by(monotonic())


def daemon_variables(folder: Path, uuid: str) -> dict[str, str]:
    """Return the variables of the MPS daemon in `folder` for the GPU `uuid`."""
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "mps-log"),
        "CUDA_VISIBLE_DEVICES": uuid,
    }


class MpsSession:
    """One device and its MPS daemon, started for MPS runs and stopped for naive ones.

    The daemon ends with this process. Its pipes and logs go to `folder`: a short path, since pipes
    are Unix sockets.
    """

    def __init__(self, device: Device, folder: Path) -> None:
        self.device = device
        self.folder = folder
        self._environment = daemon_variables(folder, device.uuid or "")
        self._daemon: subprocess.Popen[bytes] | None = None
        (folder / "no-mps").mkdir(parents=True, exist_ok=True)

    def switch_to(self, sharing: Concurrent) -> None:
        """Bring MPS into the state that `sharing` needs; no tenant may be alive."""
        if sharing.under_mps:
            if not self._running:
                self._start()
            return
        self.close()
        if (uuid := self.device.uuid) is None:
            return

        def serving() -> list[int]:
            return [each.pid for each in mps_processes() if each.serves(uuid)]

        if not wait_until(lambda: not serving(), 5):
            pids = ", ".join(map(str, serving()))
            raise AdvisorError(f"MPS is off, but processes {pids} still run. End them.")

    def setups(self, sharing: Concurrent, workloads: Sequence[Workload]) -> tuple[TenantSetup, ...]:
        """Return the setups of tenants that train `workloads` and share by `sharing`."""
        environments = tenant_environments(sharing, len(workloads), self.folder, self.device.uuid)
        return tuple(
            setup_of(workload, self.device.kind, environment)
            for workload, environment in zip(workloads, environments, strict=True)
        )

    def servers(self, verbs: str, count: int = 1) -> AbstractContextManager[tuple[Tenant, ...]]:
        """Run programs of ours that answer `verbs`, see `server_of`, and are not under MPS."""
        environments = tenant_environments(Naive(), count, self.folder, self.device.uuid)
        setups = [server_of(verbs, self.device.kind, each) for each in environments]
        return tenants_on(setups, self.folder)

    def proved_clients(self, sharing: Concurrent, pids: Sequence[int]) -> int:
        """Return the number of tenants that MPS serves: all of them, or none if it is off."""
        if not sharing.under_mps:
            return 0
        servers = self._pids("get_server_list")
        listed = {pid for server in servers for pid in self._pids(f"get_client_list {server}")}
        if missing := set(pids) - listed:
            raise AdvisorError(
                f"tenants {sorted(missing)} do not share by MPS: its server lists only "
                f"{sorted(listed)}. Start again; if it persists, see the log of the MPS server."
            )
        return len(pids)

    def close(self) -> None:
        """End the daemon, whose clients have ended, and its servers: by request, else by force."""
        if self._daemon is None:
            return
        for request in ("quit", "quit -t 1"):
            if self._running and self._answer(request) is not None:
                wait_until(lambda: not self._running, 5)
        if self._running:
            self._daemon.terminate()
            if not wait_until(lambda: not self._running, 2):
                self._daemon.kill()
        self._daemon.wait()
        self._daemon = None
        pipes = self.folder / "mps"
        if not wait_until(lambda: not mps_within(pipes), 3):
            end_within(pipes)

    @property
    def _running(self) -> bool:
        return self._daemon is not None and self._daemon.poll() is None

    def _start(self) -> None:
        """Start the daemon, and wait until it answers; an error quotes the end of its logs."""
        if shutil.which(CONTROL) is None:
            raise GpuUnavailable(
                f"{CONTROL} is not installed, so jobs cannot share by MPS here. Install the "
                f"driver's compute utilities, or choose naive sharing."
            )
        pipes, logs = self.folder / "mps", self.folder / "mps-log"
        shutil.rmtree(pipes, ignore_errors=True)  # a daemon that was killed left its pipes
        pipes.mkdir(parents=True)
        logs.mkdir(exist_ok=True)
        with (logs / "output").open("wb") as output:
            self._daemon = subprocess.Popen(
                tied_to_parent([CONTROL, "-f"]),
                env=without_mps(os.environ) | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_until(lambda: not self._running or self._answer("get_server_list") is not None, 15)
        if not self._running or self._answer("get_server_list") is None:
            files = [logs / "output", logs / "control.log"]
            texts = [file.read_text(errors="replace") for file in files if file.is_file()]
            lines = [line.strip() for text in texts for line in text.splitlines()[-3:]]
            last = " / ".join(filter(None, lines)) or "its logs are empty"
            self.close()
            raise GpuUnavailable(
                f"the MPS daemon does not start: {last}. Fix that, or choose naive sharing."
            )

    def _pids(self, request: str) -> list[int]:
        return [int(word) for word in (self._answer(request) or "").split() if word.isdigit()]

    def _answer(self, request: str) -> str | None:
        try:
            reported = subprocess.run(
                [CONTROL],
                input=request + "\n",
                env=without_mps(os.environ) | self._environment,
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError):
            return None
        return reported.stdout if reported.returncode == 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The claimed device of `session`, on which a process measures.

    Its `crew` are tenants of the zoo that were started ahead of need; all tenants float over
    `cores`, as users run them. All figures share their `origin`.
    """

    session: MpsSession
    crew: Crew
    origin: Origin
    cores: tuple[int, ...]


@contextmanager
def bench_on(device: Device, cores: tuple[int, ...], command: str) -> Iterator[Bench]:
    """Claim `device` until the block ends; this process and its tenants float over `cores`.

    Raises:
        GpuUnavailable: Another process uses it.
    """
    os.sched_setaffinity(0, cores)
    with (
        nullcontext() if device.uuid is None else gpu_lock(device.uuid, command),
        scratch_folder() as folder,
        closing(MpsSession(device, folder)) as session,
        closing(Crew(device.kind, folder)) as crew,
    ):
        if device.uuid is not None:
            refuse_busy(device.uuid)
        origin = Origin(device, command, len(cores))
        yield Bench(session=session, crew=crew, origin=origin, cores=cores)


def tenant_environments(
    sharing: Concurrent, tenants: int, folder: Path, uuid: str | None
) -> tuple[dict[str, str], ...]:
    """Return the variables to set for each tenant, besides the caller's without MPS settings.

    A tenant that shares naively gets an empty folder as its pipe directory, so it finds no daemon,
    not even one that another user starts at the default path.
    """
    if uuid is None:
        return ({},) * tenants
    if not sharing.under_mps:
        no_daemon = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "no-mps")}
        return (visible_device(uuid) | no_daemon,) * tenants
    # The server counts the GPUs that its daemon sees from 0, and this one sees one (NVIDIA's MPS
    # documentation, CUDA_VISIBLE_DEVICES). A MIG device is named by its UUID on both sides.
    seen = uuid if uuid.startswith("MIG-") else "0"
    common = {"CUDA_VISIBLE_DEVICES": seen, "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps")}
    limits = sharing.limits or (None,) * tenants
    return tuple(common | client_variables(limit, None) for limit in limits)


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
    """Fill the GPU so that it has as much free as a card of `capacity_mib` would have.

    The driver's own memory is assumed to be the same on both. An MPS server that already runs
    counts as the tenants' memory, like one that starts with them. The process that holds the memory
    is not an MPS client and launches no kernels, so it takes only memory from the tenants.

    Yields:
        The memory then free for tenants and MPS server, MiB; None without `capacity_mib`.
    """
    if capacity_mib is None:
        yield None
        return
    uuid = session.device.uuid or ""  # `check_plans` refuses such a run of a CPU

    def in_use_mib() -> float:
        return sum(process_memory_mib(uuid).values())

    # The tenants of the previous run may still be leaving.
    if not wait_until(lambda: in_use_mib() < _LEAST_TENANT_MIB, 10):
        raise AdvisorError(
            f"{in_use_mib():.0f} MiB of the GPU are in use before a tenant runs. Find the process "
            "with nvidia-smi, and end it."
        )
    served_mib = in_use_mib()
    reserve_mib = gpu(session.device.key).reserved_mib
    if reserve_mib is None:
        reserve_mib = reserved_mib(uuid) or 0
    leave_mib = capacity_mib - reserve_mib - served_mib
    with session.servers("advisor.measure.bench:FILLER_VERBS") as (filler,):
        answer = living(filler.ask("leave_free", free_mib=leave_mib), ". Run it again.")
        yield answer["free_mib"] + served_mib


def leave_free(served: Any, free_mib: float) -> dict[str, Any]:
    """Hold so much device memory that about `free_mib` remain free; the answer is what remains."""
    import torch

    blocks: list[Any] = []
    served.held = blocks

    def left_mib() -> float:
        return float(torch.cuda.mem_get_info()[0]) / _MIB

    if left_mib() < free_mib - _NEAR_MIB:
        raise InvalidInput(
            f"this GPU has {left_mib():.0f} MiB free, less than the {free_mib:.0f} that it should "
            "show. Choose a smaller capacity_mib."
        )
    while len(blocks) < _MOST_BLOCKS and (excess := left_mib() - free_mib) >= _NEAR_MIB:
        whole_mib = int(excess) // 2 * 2
        blocks.append(torch.empty(whole_mib * _MIB, dtype=torch.uint8, device="cuda"))
    return {"free_mib": left_mib()}


FILLER_VERBS = {"leave_free": leave_free}
"""The request that the process answers that holds memory."""
