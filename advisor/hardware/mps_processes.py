"""Finds NVIDIA's Multi-Process Service among the processes of this machine."""

import os
from pathlib import Path
from pwd import getpwuid

from advisor.hardware.gpu_state import MpsProcess

CONTROL = "nvidia-cuda-mps-control"
_ROLES = {CONTROL: "control", "nvidia-cuda-mps-server": "server"}


def mps_processes(proc: Path = Path("/proc")) -> tuple[MpsProcess, ...]:
    """The MPS daemons and servers that run now, by pid.

    Only visible processes: inside a container, a daemon of the host is not visible.

    Args:
        proc: Where the kernel lists processes.
    """
    folders = sorted((path for path in proc.iterdir() if path.name.isdigit()), key=_pid)
    return tuple(found for folder in folders if (found := _mps_process(folder)))


def _pid(folder: Path) -> int:
    return int(folder.name)


def _mps_process(folder: Path) -> MpsProcess | None:
    try:
        command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        role = _ROLES.get(Path(command).name)
        if role is None:
            return None
        owner = _user(folder.stat().st_uid)
    except OSError:  # it has just ended
        return None
    environment = _environment(folder)
    pipes = environment.get("CUDA_MPS_PIPE_DIRECTORY")
    gpus = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    by_uuid = tuple(gpus) if all(each.startswith("GPU-") for each in gpus) else ()
    return MpsProcess(_pid(folder), role, owner, pipes, by_uuid)  # type: ignore[arg-type]


def _user(uid: int) -> str:
    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _environment(folder: Path) -> dict[str, str]:
    """The environment of the process; empty if it belongs to another user and is private."""
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs}
