"""Sets the stage on which tenants share a device: MPS on or off, as each run needs it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import Device
from advisor.measure.process.mps_daemon import MpsDaemon, prove_absent
from advisor.sharing import Mps, Naive


class MpsSession:
    """One device, and an MPS daemon that is started when first needed and stopped when in the way.

    Args:
        device: What the tenants share.
        folder: For pipes, logs and temporary files.
    """

    def __init__(self, device: Device, folder: Path) -> None:
        self.device = device
        self.folder = folder
        self._daemon = MpsDaemon(folder, device.uuid or "")
        _no_pipes(folder).mkdir(exist_ok=True)

    def set_for(self, sharing: Naive | Mps) -> None:
        """Bring MPS into the state that `sharing` needs; no tenant may be alive.

        Raises:
            GpuUnavailable: The MPS daemon does not start.
            AdvisorError: MPS should be off and is not.
        """
        if isinstance(sharing, Mps):
            if not self._daemon.running:
                self._daemon.start()
            return
        self._daemon.stop()
        if self.device.uuid is not None:
            prove_absent(self.device.uuid)

    def environments(self, sharing: Naive | Mps, tenants: int) -> tuple[dict[str, str], ...]:
        """What each of `tenants` tenants has in its environment."""
        return tenant_environments(sharing, tenants, self.folder, self.device.uuid)

    def proved_clients(self, sharing: Naive | Mps, pids: Sequence[int]) -> int:
        """How many tenants MPS serves: all of them, or none where it is off.

        Raises:
            AdvisorError: It serves other tenants than it should.
        """
        if not isinstance(sharing, Mps):
            return 0
        listed = self._daemon.clients()
        if missing := set(pids) - listed:
            raise AdvisorError(
                f"tenants {sorted(missing)} should share by MPS, and its server lists only "
                f"{sorted(listed)}. Start again; if it persists, see the MPS server's log."
            )
        return len(pids)

    def close(self) -> None:
        """Stop what was started."""
        self._daemon.stop()


@contextmanager
def stage_on(device: Device, folder: Path) -> Iterator[MpsSession]:
    """A stage that is cleared when the block ends."""
    stage = MpsSession(device, folder)
    try:
        yield stage
    finally:
        stage.close()


def tenant_environments(
    sharing: Naive | Mps, tenants: int, folder: Path, uuid: str | None
) -> tuple[dict[str, str], ...]:
    """What each tenant has in its environment, beside the caller's without its MPS settings.

    A tenant that shares naively is pointed to an empty folder of pipes: so it finds no daemon,
    not even one that somebody starts meanwhile at the default place.
    """
    if uuid is None:
        return ({},) * tenants
    common = {"CUDA_VISIBLE_DEVICES": uuid}
    if not isinstance(sharing, Mps):
        return (common | {"CUDA_MPS_PIPE_DIRECTORY": str(_no_pipes(folder))},) * tenants
    common |= {"CUDA_MPS_PIPE_DIRECTORY": str(MpsDaemon(folder, uuid).pipes)}
    if not sharing.limits:
        return (common,) * tenants
    name = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    return tuple(common | {name: f"{limit:g}"} for limit in sharing.limits)


def _no_pipes(folder: Path) -> Path:
    return folder / "no-mps"
