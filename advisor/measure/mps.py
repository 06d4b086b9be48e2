"""The MPS control daemon of one GPU: started, asked for its clients, and ended."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.mps import CONTROL, client_variables, mps_processes
from advisor.measure.device import Device
from advisor.measure.pdeathsig import tied_to_parent
from advisor.measure.process import end_mps_within, mps_within, wait_until
from advisor.measure.worker import TenantSetup, without_mps
from advisor.sharing import Concurrent
from advisor.workload.spec import Workload


class MpsDaemon:
    """A control daemon for one GPU, between `start` and `stop`.

    Args:
        folder: Where pipes and logs go; a short path, since pipes are Unix sockets.
        uuid: The GPU. Clients must name it by its UUID too, since the daemon numbers its GPUs
            afresh.
        mark: Variables by which it is known as somebody's. With them it outlives this process, and
            one with the same folder takes it over; without, it ends with this process.
    """

    def __init__(self, folder: Path, uuid: str, mark: Mapping[str, str] | None = None) -> None:
        self.pipes = folder / "mps"
        self._logs = folder / "mps-log"
        self._uuid = uuid
        self._mark = mark
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return self._mark is not None and bool(mps_within(self.pipes))

    @property
    def environment(self) -> dict[str, str]:
        """Variables to set for the daemon, in addition to the caller's environment."""
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
            "CUDA_VISIBLE_DEVICES": self._uuid,
        }

    def start(self) -> None:
        """Start the daemon, and wait until it answers.

        Raises:
            GpuUnavailable: Its program is missing, or it ended or did not answer; the message
                quotes the end of its logs.
        """
        if shutil.which(CONTROL) is None:
            raise GpuUnavailable(
                f"{CONTROL} is not installed, so jobs cannot share by MPS here. Install the "
                f"driver's compute utilities, or choose naive sharing."
            )
        shutil.rmtree(self.pipes, ignore_errors=True)  # a daemon that was killed left its pipes
        self.pipes.mkdir(parents=True)
        self._logs.mkdir(exist_ok=True)
        self._process = self._launched()
        wait_until(lambda: not self.running or self._answer("get_server_list") is not None, 15)
        if not self.running or self._answer("get_server_list") is None:
            last = self._log_tail()
            self.stop()
            raise GpuUnavailable(
                f"the MPS daemon does not start: {last}. Fix that, or choose naive sharing."
            )

    def _launched(self) -> "subprocess.Popen[bytes]":
        command = [CONTROL, "-f"]
        with (self._logs / "output").open("wb") as output:
            return subprocess.Popen(
                tied_to_parent(command) if self._mark is None else command,
                env=self._whole_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=self._mark is not None,
            )

    def servers(self) -> frozenset[int]:
        """The pids of its servers; it starts one for the first client."""
        return frozenset(_pids(self._answer("get_server_list")))

    def clients(self) -> frozenset[int]:
        """The pids that the daemon's servers list as their clients."""
        lists = [_pids(self._answer(f"get_client_list {server}")) for server in self.servers()]
        return frozenset(pid for each in lists for pid in each)

    def stop(self) -> None:
        """End the daemon and its servers: by request, and by force if that fails.

        Its clients must have ended before.
        """
        if not self.running and self._process is None:
            return
        for request in ("quit", "quit -t 1"):
            if self.running and self._answer(request) is not None:
                wait_until(lambda: not self.running, 5)
        if self._process is not None:
            if self.running:
                self._process.terminate()
                if not wait_until(lambda: not self.running, 2):
                    self._process.kill()
            self._process.wait()
            self._process = None
        if not wait_until(lambda: not mps_within(self.pipes), 3):
            end_mps_within(self.pipes)

    def _answer(self, request: str) -> str | None:
        """The daemon's answer to `request`; None if it does not answer."""
        try:
            reported = subprocess.run(
                [CONTROL],
                input=request + "\n",
                env=self._whole_environment(),
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError):
            return None
        return reported.stdout if reported.returncode == 0 else None

    def _whole_environment(self) -> dict[str, str]:
        return without_mps(os.environ) | self.environment | dict(self._mark or {})

    def _log_tail(self) -> str:
        logs = [self._logs / "output", self._logs / "control.log"]
        lines = [
            line.strip()
            for log in logs
            if log.is_file()
            for line in log.read_text(errors="replace").splitlines()[-3:]
        ]
        return " / ".join(filter(None, lines)) or "its logs are empty"


def prove_absent(uuid: str) -> None:
    """Check that MPS is off on the GPU `uuid`.

    Raises:
        AdvisorError: A daemon or server still runs after some seconds.
    """

    def serving() -> list[int]:
        return [each.pid for each in mps_processes() if each.serves(uuid)]

    if not wait_until(lambda: not serving(), 5):
        pids = ", ".join(map(str, serving()))
        raise AdvisorError(f"MPS should be off and processes {pids} still run. End them.")


def _pids(answer: str | None) -> list[int]:
    return [int(word) for word in (answer or "").split() if word.isdigit()]


class MpsSession:
    """One device and its MPS daemon, started for MPS runs and stopped for naive ones."""

    def __init__(self, device: Device, folder: Path) -> None:
        self.device = device
        self.folder = folder
        self._daemon = MpsDaemon(folder, device.uuid or "")
        _no_pipes(folder).mkdir(exist_ok=True)

    def switch_to(self, sharing: Concurrent) -> None:
        """Bring MPS into the state that `sharing` needs; no tenant may be alive.

        Raises:
            GpuUnavailable: The MPS daemon does not start.
            AdvisorError: MPS should be off and is not.
        """
        if sharing.under_mps:
            if not self._daemon.running:
                self._daemon.start()
            return
        self._daemon.stop()
        if self.device.uuid is not None:
            prove_absent(self.device.uuid)

    def setups(
        self,
        sharing: Concurrent,
        cores: Sequence[tuple[int, ...]],
        workloads: Sequence[Workload] | None = None,
    ) -> tuple[TenantSetup, ...]:
        """The setups of tenants that share by `sharing`, each on its `cores`.

        Args:
            sharing: Without MIG instances.
            cores: Of each tenant, shape (tenants,).
            workloads: What each trains; None: nothing of the user's own.
        """
        found = tenant_environments(sharing, len(cores), self.folder, self.device.uuid)
        scripts = repeat(None) if workloads is None else (each.script for each in workloads)
        return tuple(map(TenantSetup, repeat(self.device.kind), cores, found, scripts))

    def proved_clients(self, sharing: Concurrent, pids: Sequence[int]) -> int:
        """How many tenants MPS serves: all of them, or none if it is off.

        Raises:
            AdvisorError: The MPS server does not list one of the tenants.
        """
        if not sharing.under_mps:
            return 0
        listed = self._daemon.clients()
        if missing := set(pids) - listed:
            raise AdvisorError(
                f"tenants {sorted(missing)} should share by MPS, and its server lists only "
                f"{sorted(listed)}. Start again; if it persists, see the MPS server's log."
            )
        return len(pids)

    def close(self) -> None:
        """Stop the daemon, if it runs."""
        self._daemon.stop()


@contextmanager
def mps_session_on(device: Device, folder: Path) -> Iterator[MpsSession]:
    """An MPS session that is closed when the block ends."""
    session = MpsSession(device, folder)
    try:
        yield session
    finally:
        session.close()


def tenant_environments(
    sharing: Concurrent, tenants: int, folder: Path, uuid: str | None
) -> tuple[dict[str, str], ...]:
    """The variables to set for each tenant, in addition to the caller's without its MPS settings.

    A tenant that shares naively gets an empty folder as its pipe directory, so it finds no daemon,
    not even one that another user starts meanwhile at the default path.
    """
    if uuid is None:
        return ({},) * tenants
    common = {"CUDA_VISIBLE_DEVICES": uuid}
    if not sharing.under_mps:
        return (common | {"CUDA_MPS_PIPE_DIRECTORY": str(_no_pipes(folder))},) * tenants
    common |= {"CUDA_MPS_PIPE_DIRECTORY": str(MpsDaemon(folder, uuid).pipes)}
    limits = sharing.limits or (None,) * tenants
    return tuple(common | client_variables(limit, None) for limit in limits)


def _no_pipes(folder: Path) -> Path:
    return folder / "no-mps"
