"""Slurm's types of MIG instances, which it makes of slices and GiB."""

from collections import defaultdict
from collections.abc import Iterator

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.mig_layouts import profile_of
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan
from advisor.sharing import Instance

_MIB_IN_GIB = 1024


def slurm_type(gpu: Gpu, profile: str) -> str | None:
    """The type of a GPU instance of `profile`; None if no driver was known to report its memory.

    Raises:
        UnknownName: `gpu` has no MIG profile of that name.
    """
    row = profile_of(gpu, profile)
    return None if row.memory_estimated else _named(row, round(row.memory_mib / _MIB_IN_GIB))


def other_type(gpu: Gpu, profile: str) -> str | None:
    """The type if half a GiB is rounded up; None if it is the same."""
    row = profile_of(gpu, profile)
    up = _named(row, (row.memory_mib + _MIB_IN_GIB // 2) // _MIB_IN_GIB)
    return up if slurm_type(gpu, profile) not in (None, up) else None


def refuse_alike(plan: LaunchPlan) -> None:
    """Check that a job which asks Slurm for a type gets what it was planned for.

    Raises:
        InvalidInput: Compute instances differ, or their neighbours do, and have one type.
    """
    alike = defaultdict(set)
    for instance, part in _on_instances(plan):
        name = slurm_type(plan.gpu, instance.profile) or instance.profile
        alike[name].add((part.slices, part.slices and instance))
    for name, kinds in alike.items():
        if len(kinds) > 1:
            raise InvalidInput(
                f"{plan.sharing}: Slurm has one type, {name}, for all compute instances of such an "
                f"instance, and cannot tell these apart. Export it as commands instead."
            )


def profiles_used(plan: LaunchPlan) -> tuple[str, ...]:
    """The MIG profiles of the plan's GPU instances, each once."""
    return tuple(dict.fromkeys(instance.profile for instance, _ in _on_instances(plan)))


def _on_instances(plan: LaunchPlan) -> Iterator[tuple[Instance, LaunchPartition]]:
    return ((part.instance, part) for part in plan.partitions if part.instance)


def _named(row: MigProfile, memory_gib: int) -> str:
    return f"{row.compute_slices}g.{memory_gib}gb"
