"""What this program changes on a machine, as values that say how it is undone."""

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from advisor.hardware.gpu_instances import GpuInstance
from advisor.measure.execution.run_processes import boot_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedMig:
    """The MIG instances of a GPU.

    Attributes:
        before: Instances that existed before, and are to exist again.
        ours: Instances that were, or may have been, made since.
    """

    before: tuple[GpuInstance, ...]
    ours: tuple[GpuInstance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that changes a GPU.

    Attributes:
        gpu: UUID of the whole GPU.
        command: For messages.
        host: The machine's name; several may have one home folder.
        boot: Identifies the boot of the machine, which no MIG instance outlives.
        since: When it began, ISO 8601, UTC.
    """

    schema: Literal[1]
    gpu: str
    command: str
    pid: int
    host: str
    boot: str
    since: str

    @property
    def on_this_machine(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def in_this_boot(self) -> bool:
        return self.boot == boot_id()

    def __str__(self) -> str:
        return f"`{self.command}`, process {self.pid} on {self.host} since {self.since}"


def this_process(gpu: str, command: str) -> Owner:
    """This process as an owner; `command` holds no secrets."""
    return Owner(
        schema=1, gpu=gpu, command=command, pid=os.getpid(), host=socket.gethostname(),
        boot=boot_id(), since=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
