"""The shell lines that apply a plan by hand.

Of MIG, after NVIDIA's MIG User Guide, Getting Started: GPU instances by profile id and first
memory slice, compute instances of a divided one by name, the largest first, since the driver
chooses their places; taken apart in the opposite order.
"""

import re
from collections.abc import Iterator, Sequence

from advisor.errors import InvalidInput
from advisor.gpu.catalogue import Gpu
from advisor.gpu.layouts import profile_of
from advisor.planning import shell
from advisor.planning.handover import NOT_RUN, Handover, Room, Stage
from advisor.sharing import Instance, Serial

ORDER = "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
"""Indices of ``nvidia-smi`` count GPUs by their places on the bus; CUDA does if it is told to."""

_UUID = re.compile(r"GPU-[0-9a-fA-F-]{1,64}")


def commands(plan: Handover) -> tuple[str, ...]:
    """Lines for the plan's GPU, in order; each job is pinned to host cores of its own.

    Variables go from line to line, so all of them belong in one shell.
    """
    return tuple(_under_cap([*_head(plan), *_lines(plan)], plan))


def commands_on(plan: Handover, device: str) -> tuple[str, ...]:
    """As `commands`, for the GPU `device` of the host.

    Args:
        plan: For any GPU.
        device: Index as ``nvidia-smi`` counts, or UUID.

    Raises:
        InvalidInput: It is neither.
    """
    if not (by_index := re.fullmatch(r"\d{1,4}", device)) and not _UUID.fullmatch(device):
        raise InvalidInput(
            f"--device {device}: commands are for a whole GPU. Name its index or its UUID, as "
            f"`nvidia-smi -L` lists them."
        )
    return (*([ORDER] if by_index else []), *commands(plan.on(device)))


def _head(plan: Handover) -> Iterator[str]:
    if plan.on_mig:
        yield f"# {NOT_RUN} Nothing else may run on the GPU."
    yield "# Put your own command in place of each job's ./NAME.sh."


def _under_cap(lines: Sequence[str], plan: Handover) -> Sequence[str]:
    """`lines` between those that set a power cap and take it back, where there is one."""
    if plan.power_cap_w is None:
        return lines
    limit = f"sudo nvidia-smi -i {plan.device} --power-limit"
    return (
        f"{limit}={plan.power_cap_w:g}",
        *lines,
        f"{limit}={plan.gpu.power_limit_w:g}  # the GPU's own limit",
    )


def _lines(plan: Handover) -> Iterator[str]:
    on_mig = False
    for number, stage in enumerate(plan.stages, start=1):
        if len(plan.stages) > 1:
            jobs = ", ".join(str(start.number) for start in stage.starts)
            yield f"# Group {number} of {len(plan.stages)}: job {jobs}."
        if stage.on_mig != on_mig:
            on_mig = stage.on_mig
            yield f"sudo nvidia-smi -i {plan.device} -mig {on_mig:d}"
        yield from _on_mig(stage, plan.gpu) if on_mig else run(stage.rooms)
    if on_mig:
        yield f"sudo nvidia-smi -i {plan.device} -mig 0"


def _on_mig(stage: Stage, gpu: Gpu) -> Iterator[str]:
    yield from created(stage, gpu)
    yield "nvidia-smi -L  # UUIDs of the MIG devices; a script stops below until they are set"
    for room in stage.rooms:
        jobs = ", ".join(str(start.number) for start in room.starts)
        yield f': "${{MIG_{room.number}:?set it to the UUID of {room}, for job {jobs}}}"'
    yield from run(stage.rooms)
    mig = f"sudo nvidia-smi mig -i {stage.device}"
    yield f"{mig} -dci && {mig} -dgi"


def created(stage: Stage, gpu: Gpu) -> Iterator[str]:
    """Lines that make the stage's GPU instances at their places, and all compute instances."""
    whole = [room.instance for room in stage.rooms if room.instance and room.slices is None]
    if whole:
        yield f"sudo nvidia-smi mig -i {stage.device} -cgi {_cuts(whole, gpu)} -C"
    divided: dict[Instance, list[Room]] = {}
    for room in stage.rooms:
        if room.instance and room.slices is not None:
            divided.setdefault(room.instance, []).append(room)
    for instance, rooms in divided.items():
        yield f"sudo nvidia-smi mig -i {stage.device} -cgi {_cuts([instance], gpu)}"
        yield from _compute_instances(instance, rooms)


def _compute_instances(instance: Instance, rooms: Sequence[Room]) -> Iterator[str]:
    variable, mig = f"GI_{rooms[0].number}", f"nvidia-smi mig -i {rooms[0].device}"
    largest_first = sorted(rooms, key=lambda room: -(room.slices or 0))
    names = ",".join(str(room.profile) for room in largest_first)
    yield f"{mig} -lgi  # IDs of the GPU instances; a script stops below likewise"
    yield f': "${{{variable}:?set it to the ID of {instance}}}"'
    yield f'sudo {mig} -cci {names} -gi "${variable}"'


def _cuts(instances: Sequence[Instance], gpu: Gpu) -> str:
    """What ``-cgi`` takes: ``ID:START``, the largest first."""
    found = [(profile_of(gpu, each.profile), each.start) for each in instances]
    found.sort(key=lambda each: (-each[0].memory_slices, each[1]))
    return ",".join(f"{profile.profile_id}:{start}" for profile, start in found)


def run(rooms: Sequence[Room], *, by_scheduler: bool = False) -> Iterator[str]:
    """Lines that start daemons and jobs, wait for the jobs, and end the daemons.

    Args:
        rooms: Of one stage.
        by_scheduler: Leave out device and cores: a scheduler has given them out.
    """
    served = [room for room in rooms if room.under_mps]
    for room in served:
        yield f"{shell.folder(room)}=$(mktemp -d)"
        where = [] if by_scheduler else [shell.device(room)]
        yield " ".join([*where, shell.daemon_started(room)])
    one_by_one = isinstance(rooms[0].sharing, Serial)
    for room in rooms:
        for start in room.starts:
            where = [] if by_scheduler else [shell.device_of_job(room)]
            cores = [] if by_scheduler else [shell.pinned(start)]
            line = " ".join([*where, *shell.client(room, start), *cores, shell.command(start)])
            yield line if one_by_one else f"{line} &"
    if not one_by_one:
        yield "wait"
    yield from map(shell.daemon_stopped, served)
