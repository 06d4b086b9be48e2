"""The MPS daemons of a run, one for each partition that shares so."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.hardware.mps import mps_processes
from advisor.measure.execution.execution_plan import ExecutedPartition, ExecutedStage
from advisor.measure.execution.run_processes import MARK
from advisor.measure.process.mps_daemon import MpsDaemon, prove_absent
from advisor.measure.process.process_ends import end_mps_within, mps_within
from advisor.measure.process.scratch_folders import temporary_base
from advisor.workload.files import reason_of


def pipes_folder(run_id: str) -> Path:
    """Where a run's MPS daemons have their pipes: Unix sockets, whose paths are short."""
    return temporary_base() / f"advisor-mps-{run_id}"


class MpsDaemons:
    """The MPS daemons of a run, one for each partition that needs one; they outlive this process.

    Args:
        run_id: Their mark.
        folder: From `pipes_folder`; made when needed.
    """

    def __init__(self, run_id: str, folder: Path) -> None:
        self.folder = folder
        self._mark = {MARK: run_id}
        self._daemons: dict[int, MpsDaemon] = {}

    def of(self, partition: ExecutedPartition, uuid: str) -> MpsDaemon:
        """The daemon of `partition`, whether it runs or not."""
        if partition.number not in self._daemons:
            folder = self.folder / str(partition.number)
            self._daemons[partition.number] = MpsDaemon(folder, uuid, self._mark)
        return self._daemons[partition.number]

    def prepared(self, stage: ExecutedStage, devices: Mapping[int, str]) -> None:
        """Have a daemon for each partition under MPS, and none that serves the others.

        Raises:
            GpuUnavailable: A daemon does not start.
            AdvisorError: The folder of pipes cannot be made, or MPS should be off and is not.
        """
        try:
            (self.folder / "no-mps").mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise AdvisorError(f"{self.folder}: {reason_of(error)}. Set TMPDIR.") from None
        for part in stage.partitions:
            daemon = self.of(part, devices[part.number])
            if part.under_mps and not daemon.running:
                daemon.start()
            elif not part.under_mps and devices[part.number].startswith("GPU-"):
                prove_absent(devices[part.number])

    def variables(self, partition: ExecutedPartition, uuid: str) -> dict[str, str]:
        """Variables that lead a job of `partition` to its MPS daemon, or to none."""
        if not uuid:
            return {}
        pipes = self.of(partition, uuid).pipes if partition.under_mps else self.folder / "no-mps"
        return {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}

    def living(self, partition: ExecutedPartition) -> frozenset[int]:
        """Pids of the daemon of `partition` and its servers that live now."""
        return frozenset(mps_within(self.folder / str(partition.number)))

    def served(self, partition: ExecutedPartition) -> bool:
        """Whether an MPS server of `partition` lives now."""
        pids = self.living(partition)
        return any(each.role == "server" and each.pid in pids for each in mps_processes())

    def stop(self, partition: ExecutedPartition) -> None:
        """End its daemon, if it has one."""
        self.of(partition, "").stop()

    def clear(self) -> None:
        """End all daemons, of any process, and remove their folder."""
        for daemon in self._daemons.values():
            daemon.stop()
        end_mps_within(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
