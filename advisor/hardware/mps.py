"""NVIDIA's Multi-Process Service: its processes on this machine, and what its clients are set."""

import os
from dataclasses import dataclass
from pathlib import Path
from pwd import getpwuid
from typing import Literal

CONTROL = "nvidia-cuda-mps-control"
_ROLES = {CONTROL: "control", "nvidia-cuda-mps-server": "server"}


@dataclass(frozen=True, slots=True)
class MpsProcess:
    """A process of NVIDIA's Multi-Process Service.

    Attributes:
        role: ``"control"``: the daemon that starts servers; ``"server"``: runs the clients' work.
        owner: The user it runs as; jobs of other users wait until its server is idle.
        pipe_directory: ``CUDA_MPS_PIPE_DIRECTORY`` it was started with; None if it was not
            set, or its environment may not be read.
        gpus: UUIDs that ``CUDA_VISIBLE_DEVICES`` confined it to; empty: it serves all of the
            machine's, or its environment may not be read.
    """

    pid: int
    role: Literal["control", "server"]
    owner: str
    pipe_directory: str | None
    gpus: tuple[str, ...] = ()

    def serves(self, uuid: str) -> bool:
        """Whether it may serve clients of the GPU `uuid`."""
        return not self.gpus or uuid in self.gpus

    @property
    def pipes(self) -> str:
        """The folder of its pipes: the default, unless another is known."""
        return self.pipe_directory or "/tmp/nvidia-mps"

    @property
    def how_to_end(self) -> str:
        """The command by which its owner ends it."""
        return f"echo quit | CUDA_MPS_PIPE_DIRECTORY={self.pipes} {CONTROL}"


def client_variables(limit_pct: float | None, memory_cap_mib: int | None) -> dict[str, str]:
    """Variables that set what an MPS client may take; None: not set.

    As in NVIDIA's MPS documentation, Environment Variables. Device 0 is the one that a client sees.
    """
    variables = {}
    if limit_pct is not None:
        variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{limit_pct:g}"
    if memory_cap_mib is not None:
        variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_cap_mib}M"
    return variables


def mps_processes(proc: Path = Path("/proc")) -> tuple[MpsProcess, ...]:
    """The MPS daemons and servers that run now, by pid.

    Only visible processes: inside a container, a daemon of the host is not visible.

    Args:
        proc: Where the kernel lists processes.
    """
    pids = sorted(int(path.name) for path in proc.iterdir() if path.name.isdigit())
    return tuple(filter(None, (_mps_process(proc / str(pid)) for pid in pids)))


def _mps_process(folder: Path) -> MpsProcess | None:
    try:
        command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        role = _ROLES.get(Path(command).name)
        if role is None:
            return None
        uid = folder.stat().st_uid
    except OSError:  # it has just ended
        return None
    try:
        owner = getpwuid(uid).pw_name
    except KeyError:
        owner = str(uid)
    environment = _environment(folder)
    pipes = environment.get("CUDA_MPS_PIPE_DIRECTORY")
    gpus = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    by_uuid = tuple(gpus) if all(each.startswith("GPU-") for each in gpus) else ()
    return MpsProcess(int(folder.name), role, owner, pipes, by_uuid)  # type: ignore[arg-type]


def _environment(folder: Path) -> dict[str, str]:
    """The environment of the process; empty if it belongs to another user and is private."""
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs}
