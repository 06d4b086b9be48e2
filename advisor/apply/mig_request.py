"""What MIG instances a plan asks for on the GPU at hand, and what forbids making them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.errors import GpuUnavailable, NothingFits
from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.gpu_instances import ComputeInstance, GpuInstance, described
from advisor.hardware.gpu_partition import place_compute
from advisor.hardware.gpu_state import LiveGpu
from advisor.hardware.mig_layouts import place, profile_of
from advisor.hardware.mig_offer import mig_profiles
from advisor.hardware.mig_rules import driver_branch
from advisor.sharing import Instance

# Drivers differ by 0.6 % in the memory of an A100's 3g, and by 7 % in that of a B200's 1g: what a
# plan has to spare bears the one and not the other.
_LESS_MEMORY = 0.02


@dataclass(frozen=True, slots=True)
class MigPart:
    """What one MIG device is asked to be.

    Attributes:
        number: Of the plan's partition.
        instance: The GPU instance that it is in.
        slices: Compute slices of it; None: all. Parts of one GPU instance name its start.
    """

    number: int
    instance: Instance
    slices: int | None = None


@dataclass(frozen=True, slots=True)
class MigRequest:
    """What is to be on the GPU at once.

    Attributes:
        instances: By start.
        seats: Of each part, by its number: the first memory slice of its GPU instance, and its own
            first compute slice of that.
    """

    instances: tuple[GpuInstance, ...]
    seats: dict[int, tuple[int, int]]


def request_of(gpu: Gpu, live: LiveGpu, parts: Sequence[MigPart]) -> MigRequest:
    """What `parts` ask for, of the GPU at hand.

    Args:
        gpu: As it was planned for.
        live: The GPU at hand.
        parts: All that are to be there at once.

    Raises:
        NothingFits: Its driver's instances are not those planned for, or it cannot hold them.
    """
    here = _as_the_driver_says(gpu, live, parts)
    groups = _by_instance(parts)
    first = [group[0].instance for group in groups]
    placed = place(here, first, driver_branch(live.driver))
    instances: list[GpuInstance] = []
    seats: dict[int, tuple[int, int]] = {}
    for group, instance in zip(groups, placed, strict=True):
        row, start = profile_of(here, instance.profile), instance.start or 0
        sizes = [part.slices or row.compute_slices for part in group]
        firsts = place_compute(here, instance.profile, sizes)
        compute = sorted(map(ComputeInstance, firsts, sizes))
        instances.append(GpuInstance(start, row.memory_slices, row.profile_id, tuple(compute)))
        seats |= {part.number: (start, at) for part, at in zip(group, firsts, strict=True)}
    return MigRequest(tuple(sorted(instances)), seats)


def refuse_mode(live: LiveGpu) -> None:
    """Check that MIG mode is on, and stays on.

    Raises:
        NothingFits: The GPU has no MIG.
        GpuUnavailable: It is off, or changes with the next reset.
    """
    if live.mig_enabled is None:
        raise NothingFits(f"GPU {live.index}, {live.product}, has no MIG. Use another plan.")
    if live.mig_enabled != live.mig_pending:
        raise GpuUnavailable(
            f"MIG mode of GPU {live.index} changes when it is reset next. End what runs on it, "
            f"then: sudo nvidia-smi -i {live.index} --gpu-reset"
        )
    if not live.mig_enabled:
        raise GpuUnavailable(
            f"MIG mode of GPU {live.index} is off, and is never switched here: on an A100 or A30 "
            f"that resets the GPU. While nothing runs on it: sudo nvidia-smi -i {live.index} -mig 1"
        )


def refuse_jobs(live: LiveGpu) -> None:
    """Check that nothing runs on the GPU.

    Raises:
        GpuUnavailable: Something does.
    """
    if live.processes:
        pids = ", ".join(str(each.pid) for each in live.processes)
        raise GpuUnavailable(
            f"process {pids} runs on GPU {live.index}, whose instances would be changed. Wait for "
            f"it, or end it."
        )


def beside(
    request: MigRequest, before: Sequence[GpuInstance], *, replacing: bool
) -> tuple[GpuInstance, ...]:
    """Those of `before` that can stay beside what is requested.

    Raises:
        GpuUnavailable: One stands in the way, and may not be replaced.
    """
    there = [each for each in before if not any(each.is_like(other) for other in request.instances)]
    in_the_way = [each for each in there if any(map(each.overlaps, request.instances))]
    if in_the_way and not replacing:
        raise GpuUnavailable(
            f"instances stand where {described(request.instances)} are to be: "
            f"{described(in_the_way)}. Remove them, or let them be replaced meanwhile: "
            f"--replace-instances."
        )
    return tuple(each for each in there if each not in in_the_way)


def _as_the_driver_says(gpu: Gpu, live: LiveGpu, parts: Sequence[MigPart]) -> Gpu:
    """`gpu` with the instances of its driver; those that `parts` ask for are as planned."""
    offered = {row.profile_id: row for row in mig_profiles(live.uuid)}
    rows = []
    for name in dict.fromkeys(part.instance.profile for part in parts):
        planned = profile_of(gpu, name)
        row = offered.get(planned.profile_id)
        if row is None or not _is_as_planned(row, planned):
            raise NothingFits(
                f"driver {live.driver} of GPU {live.index} offers no {name} as it was planned "
                f"with. Plan again on this machine: `advisor recommend`."
            )
        rows.append(replace(row, name=name))  # which differs between drivers
    return replace(gpu, mig=tuple(rows))


def _is_as_planned(row: MigProfile, planned: MigProfile) -> bool:
    return (
        (row.compute_slices, row.memory_slices) == (planned.compute_slices, planned.memory_slices)
        and sorted(row.starts) == sorted(planned.starts)
        and row.memory_mib >= planned.memory_mib * (1 - _LESS_MEMORY)
    )


def _by_instance(parts: Sequence[MigPart]) -> list[list[MigPart]]:
    groups: list[list[MigPart]] = []
    for part in parts:
        same = (each for each in groups if part.slices and each[0].instance == part.instance)
        if group := next(same, None):
            group.append(part)
        else:
            groups.append([part])
    return groups
