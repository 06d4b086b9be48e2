"""What Slurm calls MIG instances.

Its NVML plugin (``src/plugins/gpu/nvml/gpu_nvml.c``) makes a type of the GPU instance's compute
slices and of its MiB over 1024, rounded: ``3g.70gb`` of a 3g.71gb with 71,424 MiB. A compute
instance has the type of the GPU instance that it is part of, and ``+me`` is not said.
"""

from collections.abc import Iterator

from advisor.errors import InvalidInput
from advisor.gpu.catalogue import Gpu, MigProfile
from advisor.gpu.layouts import profile_of
from advisor.planning.handover import Handover, Room
from advisor.sharing import Instance

_MIB_IN_GIB = 1024


def slurm_type(gpu: Gpu, profile: str) -> str | None:
    """The type of a GPU instance of `profile`; None where no driver was seen to say its memory.

    Raises:
        NothingFits: `gpu` has no MIG profile of that name.
    """
    row = profile_of(gpu, profile)
    return None if row.memory_estimated else _named(row, round(row.memory_mib / _MIB_IN_GIB))


def other_type(gpu: Gpu, profile: str) -> str | None:
    """What it is called where half a GiB is rounded up; None where that is the same."""
    row = profile_of(gpu, profile)
    up = _named(row, (row.memory_mib + _MIB_IN_GIB // 2) // _MIB_IN_GIB)
    return up if slurm_type(gpu, profile) not in (None, up) else None


def refuse_alike(plan: Handover) -> None:
    """See that a job which asks Slurm for a type gets what it was planned for.

    Raises:
        InvalidInput: Compute instances differ, or their neighbours do, and have one type.
    """
    alike: dict[str, list[Room]] = {}
    for instance, room in _on_instances(plan):
        name = slurm_type(plan.gpu, instance.profile) or instance.profile
        alike.setdefault(name, []).append(room)
    for name, rooms in alike.items():
        if len({(room.slices, room.slices and room.instance) for room in rooms}) > 1:
            raise InvalidInput(
                f"{plan.sharing}: Slurm has one type, {name}, for all compute instances of such an "
                f"instance, and cannot tell these apart. Export it as commands instead."
            )


def profiles_used(plan: Handover) -> tuple[str, ...]:
    """The MIG profiles of the plan's GPU instances, each once."""
    return tuple(dict.fromkeys(instance.profile for instance, _ in _on_instances(plan)))


def _on_instances(plan: Handover) -> Iterator[tuple[Instance, Room]]:
    return ((room.instance, room) for room in plan.rooms if room.instance)


def _named(row: MigProfile, memory_gib: int) -> str:
    return f"{row.compute_slices}g.{memory_gib}gb"
