"""Where a run happens: a device for each partition, the lock on the GPU, cores and variables."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from advisor.errors import GpuUnavailable, InvalidInput
from advisor.hardware.mps import client_variables
from advisor.measure.execution.execution_plan import ExecutedJob, ExecutedPartition, ExecutedStage
from advisor.measure.execution.mps_daemons import MpsDaemons
from advisor.measure.execution.run_processes import MARK
from advisor.measure.process.claimed_device import Device, Meter
from advisor.measure.process.cores import cores_of_each
from advisor.measure.process.process_ends import wait_until
from advisor.measure.process.run_locks import lock_gpu, run_holding, unlock_gpu
from advisor.measure.process.worker import without_mps

# A keeper ends at once when it has said how its job did.
_KEEPERS_END_S = 3.0

_OURS = (MARK, "ADVISOR_JOB", "ADVISOR_PROGRESS", "ADVISOR_APPLY")


class DeviceProvider(Protocol):
    """Cuts a GPU up as stages need it, and puts it back as it was.

    Each act is written down before it is done, so that it can be taken back by another process.
    """

    def provide(self, stage: ExecutedStage) -> Mapping[int, str]:
        """``CUDA_VISIBLE_DEVICES`` of each partition of `stage`, by its number.

        Called again for a stage that is there already, it only says them.

        Raises:
            GpuUnavailable: No permission, or somebody else uses the GPU.
        """

    def release(self, partition: ExecutedPartition) -> None:
        """Take away what `partition` had: all its jobs have ended."""

    def restore(self) -> None:
        """Put everything as it was before the run."""


@dataclass(frozen=True, slots=True)
class WholeDevice:
    """A device as it is: nothing is cut up."""

    device: Device

    def provide(self, stage: ExecutedStage) -> Mapping[int, str]:
        """As `DeviceProvider.provide`.

        Raises:
            InvalidInput: A partition is a MIG instance.
        """
        if any(part.instance for part in stage.partitions):
            raise InvalidInput(
                "its jobs are on MIG instances, which `python -m advisor.execution` does not make. "
                "Use `advisor run`."
            )
        return {part.number: self.device.uuid or "" for part in stage.partitions}

    def release(self, partition: ExecutedPartition) -> None:
        """Nothing was made."""

    def restore(self) -> None:
        """Nothing was made."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a run happens.

    Attributes:
        provider: Makes what its partitions need.
        meter: Of the device.
        cores: Host cores that jobs may have.
        claim: On the GPU.
        grace_s: Between asking a job to end and killing it.
        patience_s: A job that counts its steps, and does none for so long, is ended; None: never.
    """

    device: Device
    provider: DeviceProvider
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


def environment_of(
    job: ExecutedJob, partition: ExecutedPartition, uuid: str, daemons: MpsDaemons
) -> dict[str, str]:
    """All variables of a job's process: the caller's without its MPS settings, and its own."""
    kept = {name: value for name, value in without_mps(os.environ).items() if name not in _OURS}
    return kept | dict(own_variables(job, partition, uuid, daemons))


def own_variables(
    job: ExecutedJob, partition: ExecutedPartition, uuid: str, daemons: MpsDaemons
) -> Iterator[tuple[str, str]]:
    """Variables that are set for a job beside its caller's."""
    if uuid:
        yield "CUDA_VISIBLE_DEVICES", uuid
    yield from daemons.variables(partition, uuid).items()
    if partition.under_mps:
        yield from client_variables(job.limit, job.memory_cap_mib).items()


def cores_of_stage(
    stage: ExecutedStage, jobs: Sequence[ExecutedJob], allowed: Sequence[int], *, share: bool
) -> dict[int, tuple[int, ...]]:
    """Cores of each job of `stage`, by its number; no core twice unless they may be shared.

    Raises:
        InvalidInput: There are too few.
    """
    numbers = sorted(stage.jobs)
    wanted = [jobs[number - 1].core_count for number in numbers]
    return dict(zip(numbers, cores_of_each(wanted, allowed, share=share), strict=True))
