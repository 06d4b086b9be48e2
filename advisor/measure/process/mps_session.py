"""Switches MPS on or off on a device as each run needs it, and sets the tenants' environments."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.hardware.mps import client_variables
from advisor.measure.process.claimed_device import Device
from advisor.measure.process.mps_daemon import MpsDaemon, prove_absent
from advisor.measure.process.worker import TenantSetup
from advisor.sharing import Concurrent
from advisor.workload.spec import Workload


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
