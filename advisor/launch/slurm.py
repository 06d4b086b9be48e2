"""What Slurm needs: lines of gres.conf and slurm.conf, and the job lines.

After Slurm's documentation, Generic Resource Scheduling: time-sliced jobs take shards, jobs on MIG
an instance by its type, jobs under MPS a GPU together. Its own gres/mps is left alone: that sets
percentages from shares, and without a daemon that a prolog starts, CUDA runs without MPS and says
nothing. Slurm does not cut up GPUs itself, and gives out cores by count.
"""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu, MigProfile
from advisor.hardware.mig import profile_of
from advisor.launch import shell
from advisor.launch.commands import run
from advisor.launch.launch_plan import NOT_RUN, LaunchPartition, LaunchPlan, Start
from advisor.launch.shell import cut_instances
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


ASKED = """\
# --time is the upper end of what is predicted, rounded up; a job is ended then. Add --mem=...: how
# much host memory a job takes is not known."""


def slurm_text(plan: LaunchPlan) -> str:
    """A script that submits the jobs of `plan`, with comments on how to set up the node.

    Raises:
        InvalidInput: The plan changes the MIG instances between groups of jobs, which Slurm does
            not, or has parts that Slurm cannot tell apart.
    """
    if plan.on_mig and len(plan.stages) > 1:
        raise InvalidInput(
            f"{plan.sharing}: Slurm does not cut up a GPU between jobs. Export it as commands, or "
            f"export each group as a plan of its own."
        )
    refuse_alike(plan)
    first = ("set -euo pipefail", shell.NOBODYS_MPS)
    return "\n".join([*_node(plan), *first, *_unknown(plan), *_jobs(plan), ""])


def _node(plan: LaunchPlan) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    yield f"# {plan.sharing} on GPU 0 of a node, one {plan.gpu.key}."
    yield "# Untested: this script has not run on a cluster yet."
    if plan.on_mig:
        yield f"# {NOT_RUN}"
        yield "# Before Slurm starts, as root on the node:"
        yield from (f"#   {line}" for line in _by_hand(plan))
    if plan.power_cap_w is not None:
        yield f"# As root on the node: nvidia-smi -i 0 --power-limit={plan.power_cap_w:g}"
    shards = 0 if plan.on_mig else _most_at_once(plan)
    yield "# gres.conf of the node:"
    yield "#   AutoDetect=nvml"
    if shards:
        yield f"#   Name=shard Count={shards} File=/dev/nvidia0"
    yield "# slurm.conf, with the select/cons_tres plugin:"
    yield "#   GresTypes=gpu,shard" if shards else "#   GresTypes=gpu"
    gres = [*_gpus(plan), f"shard:{shards}"] if shards else _gpus(plan)
    yield f"#   NodeName=NODE Gres={','.join(gres)}"
    count = "" if plan.on_mig else "N: all GPUs that the node has. "
    yield f"# {count}Keep what else that line lists: other GPUs of the node are lost without it."
    yield from _types(plan)
    yield from node_wanted(plan.partitions)
    yield ASKED
    yield from shell.own_commands_wanted(plan)


def node_wanted(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    """Comments on what else decides how jobs share the GPU of their node."""
    if not any(part.instance for part in partitions):
        yield "# Switch MIG mode off on the node: Slurm would give each job one instance of a GPU."
    if any(part.under_mps for part in partitions):
        yield "# Jobs under MPS start its daemon and stop it again: do not start one on the node."


def _by_hand(plan: LaunchPlan) -> Iterator[str]:
    """How an administrator makes the MIG instances of `plan`."""
    mig = "sudo nvidia-smi mig -i 0"
    whole, divided = cut_instances(plan.stages[0], plan.gpu)
    yield "sudo nvidia-smi -i 0 -mig 1"
    if whole:
        yield f"{mig} -cgi {','.join(whole)} -C"
    for place, names in divided.items():
        yield f"{mig} -cgi {place}"
        yield f"{mig} -cci {','.join(names)} -gi ID  # which the line before said"


def _types(plan: LaunchPlan) -> Iterator[str]:
    """Comments on Slurm's types of MIG instances."""
    if not plan.on_mig:
        return
    yield "# `sudo slurmd -G` on the node lists the types that Slurm makes of slices and GiB, which"
    yield "# differ between drivers and releases: one that is not among them drains the node."
    for profile in profiles_used(plan):
        if other := other_type(plan.gpu, profile):
            yield f"# {profile}: {other} where half a GiB is rounded up."


def _most_at_once(plan: LaunchPlan) -> int:
    """Most jobs that take turns on the GPU at the same time; 0 if none do."""
    partitions = (part for part in plan.partitions if part.sharing.mode == "naive")
    return max((len(part.starts) for part in partitions if len(part.starts) > 1), default=0)


def _gpus(plan: LaunchPlan) -> list[str]:
    if not plan.on_mig:
        return ["gpu:N"]
    types = Counter(
        _type(plan.gpu, part.instance.profile) for part in plan.partitions if part.instance
    )
    return [f"gpu:{name}:{count}" for name, count in types.items()]


def _type(gpu: Gpu, profile: str) -> str:
    """Slurm's name of an instance; a variable if it is not known."""
    return slurm_type(gpu, profile) or f"${_variable(profile)}"


def _variable(profile: str) -> str:
    return "TYPE_" + re.sub(r"\W", "_", profile)


def _unknown(plan: LaunchPlan) -> Iterator[str]:
    """Lines that stop the script until the unknown values have been filled in."""
    for profile in profiles_used(plan):
        if slurm_type(plan.gpu, profile) is None:
            said = f"set it to the type of {profile} that slurmd -G lists"
            yield f': "${{{_variable(profile)}:?{said}}}"'
    yield from shell.secrets(plan.starts)
    yield from unknown_cores(plan)


def unknown_cores(plan: LaunchPlan) -> Iterator[str]:
    """Lines that stop the script until it says how many cores the jobs use whose profiles do not.

    They are in variables ``CORES_1``, ... by the numbers of the jobs.
    """
    for start in plan.starts:
        if start.core_count is None:
            said = f"set it to the cores that job {start.number} uses, its profile does not say"
            yield f': "${{CORES_{start.number}:?{said}}}"'


def _jobs(plan: LaunchPlan) -> Iterator[str]:
    """Each group waits for all jobs of the one before; jobs one by one wait for each other."""
    before: list[str] = []
    for stage in plan.stages:
        submitted: list[str] = []
        for part in stage.partitions:
            for starts in _allocations(part):
                name = "job_" + "_".join(str(start.number) for start in starts)
                words = _words(plan.gpu, part, starts)
                yield f"{name}=$(sbatch --parsable{_after(before)} {words})"
                submitted.append(name)
                if part.sharing.mode == "serial":
                    before, submitted = [name], []
        before = submitted or before


def _allocations(part: LaunchPartition) -> list[tuple[Start, ...]]:
    """Jobs grouped by allocation: those that share an MPS daemon or an instance have one."""
    return [part.starts] if _together(part) else [(start,) for start in part.starts]


def _together(part: LaunchPartition) -> bool:
    return part.under_mps or (part.instance is not None and len(part.starts) > 1)


def _after(names: list[str]) -> str:
    return " --dependency=afterany:" + ":".join(f"${name}" for name in names) if names else ""


def _words(gpu: Gpu, part: LaunchPartition, starts: tuple[Start, ...]) -> str:
    name = shlex.quote("+".join(start.job.name for start in starts))
    asked = (
        f"--job-name {name} --output=%x-%j.log --gres={_gres(gpu, part)} "
        f"--cpus-per-task={_cores(starts)}{_time(starts)}"
    )
    if not _together(part):
        return f"{asked} --wrap {shlex.quote(shell.without_mps(starts[0]))}"
    own = from_first_core(replace(part, starts=starts))
    given = shell.guard([own], by_scheduler=True)
    script = [*given, *run([own], by_scheduler=True), shell.STATUS]
    return "\n".join([f"{asked} <<'EOF'", "#!/bin/bash", *script, "EOF", ""])


def from_first_core(part: LaunchPartition) -> LaunchPartition:
    """`part` with cores that are counted among those of an allocation of its own."""
    first, starts = 0, []
    for start in part.starts:
        used = start.core_count or 0
        starts.append(replace(start, cores=(first, first + used - 1) if used else None))
        first += used
    return replace(part, starts=tuple(starts))


def _time(starts: Sequence[Start]) -> str:
    """Asks for the time of all `starts`, which run at once; "" if it is not known."""
    known = [start.most_s for start in starts if start.most_s is not None]
    return asked_time(max(known)) if len(known) == len(starts) else ""


def asked_time(most_s: float) -> str:
    """Asks for so much time, to the next quarter of an hour."""
    return f" --time={ceil(most_s / _TIMES_S) * _TIMES_S // 60}"


def _cores(starts: tuple[Start, ...]) -> str:
    """Number of cores that `starts` use together; variables stand for unknown numbers."""
    known = sum(start.core_count or 0 for start in starts)
    unknown = [f"CORES_{start.number}" for start in starts if start.core_count is None]
    return f"$(({' + '.join([str(known), *unknown])}))" if unknown else str(known)


def _gres(gpu: Gpu, part: LaunchPartition) -> str:
    if part.instance is not None:
        return f"gpu:{_type(gpu, part.instance.profile)}:1"
    in_turns = part.sharing.mode == "naive" and len(part.starts) > 1
    return "shard:1" if in_turns else "gpu:1"


# Slurm takes minutes; a quarter of an hour leaves something for start-up.
_TIMES_S = 900
