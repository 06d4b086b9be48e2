"""Words of shell lines that start jobs: their environment, their cores, MPS daemons.

Environment variables as in NVIDIA's MPS documentation, Environment Variables, and its MIG User
Guide, MIG with CUDA MPS: one daemon for each MIG device, with a folder of its own.
"""

import shlex

from advisor.planning.handover import Room, Start

_CONTROL = "nvidia-cuda-mps-control"


def device(room: Room) -> str:
    """The setting that lets a process, or an MPS daemon, see this room alone.

    UUIDs of MIG devices are known only once these exist, so a variable stands for each.
    """
    name = str(room.device) if room.instance is None else f'"$MIG_{room.number}"'
    return f"CUDA_VISIBLE_DEVICES={name}"


def device_of_job(room: Room) -> str:
    """As `device`, for a job: to clients of an MPS daemon that sees one GPU, that is device 0."""
    if room.under_mps and room.instance is None:
        return "CUDA_VISIBLE_DEVICES=0"
    return device(room)


def folder(room: Room) -> str:
    """The variable that holds the folder of the room's MPS daemon."""
    return f"MPS_{room.number}"


def daemon_started(room: Room) -> str:
    """Starts the room's MPS daemon; where it runs is said before."""
    return f"{_pipes(room)} CUDA_MPS_LOG_DIRECTORY={_value(room)} {_CONTROL} -d"


def daemon_stopped(room: Room) -> str:
    return f"echo quit | {_pipes(room)} {_CONTROL}"


def client(room: Room, start: Start) -> list[str]:
    """Settings of a job as an MPS client; none where its room has no MPS."""
    return [_pipes(room), *limits(start)] if room.under_mps else []


def limits(start: Start) -> list[str]:
    """Settings of what an MPS client may take; device 0 is the one that it sees."""
    said = []
    if start.limit is not None:
        said.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={start.limit:g}")
    if start.memory_cap_mib is not None:
        said.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={start.memory_cap_mib}M")
    return said


def pinned(start: Start) -> str:
    """What keeps a job on its cores: one, and one for each loader worker."""
    first, last = start.cores
    return f"taskset -c {first}" if first == last else f"taskset -c {first}-{last}"


def command(start: Start) -> str:
    """Stands for the user's own command."""
    return shlex.quote(f"./{start.job.name}.sh")


def _pipes(room: Room) -> str:
    return f"CUDA_MPS_PIPE_DIRECTORY={_value(room)}"


def _value(room: Room) -> str:
    return f'"${folder(room)}"'
