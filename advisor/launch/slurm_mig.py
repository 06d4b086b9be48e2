"""MIG instances as Slurm has them: its types, and a node that is set up for the plan of a GPU.

Slurm does not cut up GPUs itself. Jobs that share an instance run in one allocation of it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu, MigProfile
from advisor.hardware.mig import profile_of
from advisor.launch import shell
from advisor.launch.allocations import Allocation
from advisor.launch.launch_plan import NOT_RUN, LaunchPlan, Stage

_MIB_IN_GIB = 1024


def slurm_type(gpu: Gpu, profile: str) -> str | None:
    """Return Slurm's type of a GPU instance; None if no driver reported its memory yet."""
    row = profile_of(gpu, profile)
    return None if row.memory_estimated else _named(row, round(_newest_mib(row) / _MIB_IN_GIB))


def other_type(gpu: Gpu, profile: str) -> str | None:
    """Return the type if Slurm rounds half a GiB up; None if it is the same."""
    row = profile_of(gpu, profile)
    up = _named(row, (_newest_mib(row) + _MIB_IN_GIB // 2) // _MIB_IN_GIB)
    return up if slurm_type(gpu, profile) not in (None, up) else None


def _newest_mib(row: MigProfile) -> int:
    return row.newest_mib or row.memory_mib


def _named(row: MigProfile, memory_gib: int) -> str:
    return f"{row.compute_slices}g.{memory_gib}gb"


def _variable(profile: str) -> str:
    return "TYPE_" + re.sub(r"\W", "_", profile)


def mig_allocations(plan: LaunchPlan) -> Iterator[Allocation]:
    """Yield the allocations of the instances of `plan`, one for jobs that share one.

    Raises:
        InvalidInput: The plan changes MIG instances between groups of jobs, or has different
            compute instances of one type.
    """
    _check(plan)
    for part in plan.partitions:
        assert part.instance is not None, "a plan of one group of instances has no other partitions"
        profile = part.instance.profile
        gres = f"gpu:{slurm_type(plan.gpu, profile) or f'${_variable(profile)}'}"
        together = part.under_mps or len(part.starts) > 1
        for starts in [part.starts] if together else [(start,) for start in part.starts]:
            own = replace(part, starts=starts, instance=None, slices=None, profile=None)
            yield Allocation(
                name="job_" + "_".join(str(start.number) for start in starts),
                gres=gres,
                plan=LaunchPlan(plan.gpu, part.sharing, (Stage((own,)),), None),
            )


def _check(plan: LaunchPlan) -> None:
    if plan.gres:
        raise InvalidInput(
            f"{plan.sharing}: Slurm's types of MIG instances follow from the plan. Leave "
            f"--gres-name out."
        )
    if len(plan.stages) > 1:
        raise InvalidInput(
            f"{plan.sharing}: Slurm does not change MIG instances between jobs. Export the plan as "
            f"commands, or export each group as a plan of its own."
        )
    kinds_of_type = defaultdict(set)
    for part in plan.partitions:
        if part.instance:
            name = slurm_type(plan.gpu, part.instance.profile) or part.instance.profile
            kinds_of_type[name].add((part.slices, part.slices and part.instance))
    for name, kinds in kinds_of_type.items():
        if len(kinds) > 1:
            raise InvalidInput(
                f"{plan.sharing}: Slurm has one type, {name}, for different compute instances. "
                f"Export the plan as commands instead."
            )


def instances_wanted(plan: LaunchPlan) -> Iterator[str]:
    """Yield comments on the instances that `plan` needs on the node."""
    yield f"# {NOT_RUN}"
    yield "# Before Slurm starts, as root on the node:"
    mig = "#   sudo nvidia-smi mig -i 0"
    whole, divided = shell.cut_instances(plan.stages[0], plan.gpu)
    yield "#   sudo nvidia-smi -i 0 -mig 1"
    if whole:
        yield f"{mig} -cgi {','.join(whole)} -C"
    for place, names in divided.items():
        yield f"{mig} -cgi {place}"
        yield f"{mig} -cci {','.join(names)} -gi ID  # of the line before"


def types_wanted(plan: LaunchPlan) -> Iterator[str]:
    """Yield comments on the types of these instances."""
    yield "# `sudo slurmd -G` on the node lists Slurm's types, slices and GiB, which vary between"
    yield "# drivers and releases, and any other type drains the node."
    for profile in _profiles(plan):
        if other := other_type(plan.gpu, profile):
            yield f"# {profile}: {other} where half a GiB is rounded up."


def unknown_types(plan: LaunchPlan) -> Iterator[str]:
    """Yield lines that stop a script until the unknown types have been filled in."""
    for profile in _profiles(plan):
        if slurm_type(plan.gpu, profile) is None:
            remedy = f"set it to the type of {profile} that slurmd -G lists"
            yield f': "${{{_variable(profile)}:?{remedy}}}"'


def _profiles(plan: LaunchPlan) -> list[str]:
    return list(dict.fromkeys(part.instance.profile for part in plan.partitions if part.instance))
