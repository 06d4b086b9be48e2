"""What jobs stand on: a device for each partition, its MPS daemon, and variables that say so."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.hardware.mps_processes import mps_processes
from advisor.measure.execution.run_processes import MARK
from advisor.measure.execution.stages import ExecutedJob, ExecutedPartition, ExecutedStage
from advisor.measure.process.claimed_device import Device, Meter
from advisor.measure.process.mps_session import MpsDaemon, prove_absent
from advisor.measure.process.run_locks import (
    end_mps_within,
    lock_gpu,
    mps_within,
    run_holding,
    temporary_base,
    unlock_gpu,
    wait_until,
)
from advisor.measure.process.worker import without_mps
from advisor.workload.files import reason_of

# A keeper ends at once when it has said how its job did.
_KEEPERS_END_S = 3.0

_OURS = (MARK, "ADVISOR_JOB", "ADVISOR_PROGRESS", "ADVISOR_APPLY")


class Ground(Protocol):
    """Cuts a GPU up as stages need it, and puts it back as it was.

    Each act is written down before it is done, so that it can be taken back by another process.
    """

    def made(self, stage: ExecutedStage) -> Mapping[int, str]:
        """``CUDA_VISIBLE_DEVICES`` of each partition of `stage`, by its number.

        Called again for a stage that is there already, it only says them.

        Raises:
            GpuUnavailable: No permission, or somebody else uses the GPU.
        """

    def freed(self, partition: ExecutedPartition) -> None:
        """Take away what `partition` had: all its jobs have ended."""

    def given_back(self) -> None:
        """Put everything as it was before the run."""


@dataclass(frozen=True, slots=True)
class WholeDevice:
    """A device as it is: nothing is cut up."""

    device: Device

    def made(self, stage: ExecutedStage) -> Mapping[int, str]:
        """As `Ground.made`.

        Raises:
            InvalidInput: A partition is a MIG instance.
        """
        if any(part.instance for part in stage.partitions):
            raise InvalidInput(
                "its jobs are on MIG instances, which `python -m advisor.running` does not make. "
                "Use `advisor run`."
            )
        return {part.number: self.device.uuid or "" for part in stage.partitions}

    def freed(self, partition: ExecutedPartition) -> None:
        """Nothing was made."""

    def given_back(self) -> None:
        """Nothing was made."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a run happens.

    Attributes:
        ground: Makes what its partitions need.
        meter: Of the device.
        cores: Host cores that jobs may have.
        claim: On the GPU.
        grace_s: Between asking a job to end and killing it.
        patience_s: A job that counts its steps, and does none for so long, is ended; None: never.
    """

    device: Device
    ground: Ground
    meter: Meter
    cores: tuple[int, ...]
    claim: "GpuClaim"
    grace_s: float
    patience_s: float | None = None


class GpuClaim:
    """The lock on a run's GPU, which the keepers of its jobs hold too, so that it outlives us.

    Args:
        uuid: The GPU; None: a CPU, which is not locked.
        command: The user's command line.
        run_id: Of the run.
    """

    def __init__(self, uuid: str | None, command: str, run_id: str) -> None:
        self._uuid, self._command, self._run_id = uuid, command, run_id
        self._held: tuple[Path, int] | None = None

    def take(self) -> None:
        """Hold the lock, unless the run's own jobs hold it already.

        Raises:
            GpuUnavailable: Another run has it.
        """
        if self._uuid is None or self._held is not None:
            return
        try:
            self._held = lock_gpu(self._uuid, self._command, self._run_id)
        except GpuUnavailable:
            if run_holding(self._uuid) != self._run_id:
                raise

    def _taken(self) -> bool:
        with suppress(GpuUnavailable):
            self.take()
        return self._held is not None

    @property
    def descriptor(self) -> int | None:
        """What keepers inherit; None where there is none."""
        return None if self._held is None else self._held[1]

    def give_back(self) -> None:
        """Unlock the GPU, after the run."""
        if self._held is None and self._uuid is not None:
            wait_until(self._taken, _KEEPERS_END_S)  # it was their keepers', which are leaving
        if self._held is not None:
            unlock_gpu(*self._held)
            self._held = None


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
        """What a job of `partition` is told of MPS, also where it is to find none."""
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


def environment_of(
    job: ExecutedJob, partition: ExecutedPartition, uuid: str, daemons: MpsDaemons
) -> dict[str, str]:
    """All variables of a job's process: the caller's without its MPS settings, and its own."""
    kept = {name: value for name, value in without_mps(os.environ).items() if name not in _OURS}
    return kept | dict(own_variables(job, partition, uuid, daemons))


def own_variables(
    job: ExecutedJob, partition: ExecutedPartition, uuid: str, daemons: MpsDaemons
) -> Iterator[tuple[str, str]]:
    """What a job is told beyond its caller's environment."""
    if uuid:
        yield "CUDA_VISIBLE_DEVICES", uuid
    yield from daemons.variables(partition, uuid).items()
    if not partition.under_mps:
        return
    if job.limit is not None:
        yield "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", f"{job.limit:g}"
    if job.priority is not None:
        yield "CUDA_MPS_CLIENT_PRIORITY", str(job.priority)
    if job.memory_cap_mib is not None:
        yield "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", f"0={job.memory_cap_mib}M"


def cores_of_stage(
    stage: ExecutedStage, jobs: Sequence[ExecutedJob], allowed: Sequence[int], *, share: bool
) -> dict[int, tuple[int, ...]]:
    """Cores of each job of `stage`, by its number; no core twice unless they may be shared.

    Raises:
        InvalidInput: There are too few.
    """
    from advisor.measure.process.cores import cores_of_each

    numbers = sorted(stage.jobs)
    wanted = [jobs[number - 1].core_count for number in numbers]
    return dict(zip(numbers, cores_of_each(wanted, allowed, share=share), strict=True))
