"""A plan as a script for Slurm: lines of gres.conf and slurm.conf, and the job lines.

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

_MIB_IN_GIB = 1024
_TIMES_S = 900


def slurm_type(gpu: Gpu, profile: str) -> str | None:
    """Return Slurm's type of a GPU instance; None if no driver reported its memory yet."""
    row = profile_of(gpu, profile)
    return None if row.memory_estimated else _named(row, round(row.memory_mib / _MIB_IN_GIB))


def other_type(gpu: Gpu, profile: str) -> str | None:
    """Return the type if Slurm rounds half a GiB up; None if it is the same."""
    row = profile_of(gpu, profile)
    up = _named(row, (row.memory_mib + _MIB_IN_GIB // 2) // _MIB_IN_GIB)
    return up if slurm_type(gpu, profile) not in (None, up) else None


def refuse_same_type(plan: LaunchPlan) -> None:
    """Check that different compute instances have different types.

    Raises:
        InvalidInput: Different ones have one type.
    """
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


def _profiles_used(plan: LaunchPlan) -> Iterator[str]:
    yield from dict.fromkeys(part.instance.profile for part in plan.partitions if part.instance)


def _named(row: MigProfile, memory_gib: int) -> str:
    return f"{row.compute_slices}g.{memory_gib}gb"


ASKED = """\
# --time is the upper end of the predicted time, rounded up; Slurm ends a job then. Add --mem=...:
# advisor does not predict host memory."""


def slurm_text(plan: LaunchPlan) -> str:
    """Return a script that submits the jobs of `plan`, with comments on how to set up the node.

    Raises:
        InvalidInput: The plan changes MIG instances between groups of jobs, or has different
            compute instances of one type.
    """
    if plan.on_mig and len(plan.stages) > 1:
        raise InvalidInput(
            f"{plan.sharing}: Slurm does not change MIG instances between jobs. Export the plan as "
            f"commands, or export each group as a plan of its own."
        )
    refuse_same_type(plan)
    first = ("set -euo pipefail", shell.NOBODYS_MPS)
    return "\n".join([*_node(plan), *first, *_unknown(plan), *_jobs(plan), ""])


def _node(plan: LaunchPlan) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    yield f"# {plan.sharing} on GPU 0 of a node, one {plan.gpu.key}."
    yield "# Untested: this script has not run on a cluster yet."
    if plan.on_mig:
        yield f"# {NOT_RUN}"
        yield "# Before Slurm starts, as root on the node:"
        yield from _making_instances(plan)
    if plan.power_cap_w is not None:
        yield f"# As root on the node: nvidia-smi -i 0 --power-limit={plan.power_cap_w:g}"
    # Most jobs that take turns on the GPU at the same time.
    turns = [len(part.starts) for part in plan.partitions if part.sharing.mode == "naive"]
    shards = 0 if plan.on_mig else max((count for count in turns if count > 1), default=0)
    yield "# gres.conf of the node:"
    yield "#   AutoDetect=nvml"
    if shards:
        yield f"#   Name=shard Count={shards} File=/dev/nvidia0"
    yield "# slurm.conf, with the select/cons_tres plugin:"
    yield "#   GresTypes=gpu,shard" if shards else "#   GresTypes=gpu"
    instances = [part.instance for part in plan.partitions if part.instance]
    types = Counter(_type(plan.gpu, instance.profile) for instance in instances)
    gres = [f"gpu:{name}:{count}" for name, count in types.items()] if plan.on_mig else ["gpu:N"]
    gres += [f"shard:{shards}"] if shards else []
    yield f"#   NodeName=NODE Gres={','.join(gres)}"
    count = "" if plan.on_mig else "N: all GPUs that the node has. "
    yield f"# {count}Keep what else that line lists: other GPUs of the node are lost without it."
    yield from _types(plan)
    yield from node_wanted(plan.partitions)
    yield ASKED
    yield from shell.own_commands_wanted(plan)


def node_wanted(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    """Yield comments on what else decides how jobs share the GPU of their node."""
    if not any(part.instance for part in partitions):
        yield "# Switch MIG mode off on the node: Slurm would give each job one instance of a GPU."
    if any(part.under_mps for part in partitions):
        yield "# Jobs under MPS start its daemon and stop it again: do not start one on the node."


def _making_instances(plan: LaunchPlan) -> Iterator[str]:
    mig = "#   sudo nvidia-smi mig -i 0"
    whole, divided = cut_instances(plan.stages[0], plan.gpu)
    yield "#   sudo nvidia-smi -i 0 -mig 1"
    if whole:
        yield f"{mig} -cgi {','.join(whole)} -C"
    for place, names in divided.items():
        yield f"{mig} -cgi {place}"
        yield f"{mig} -cci {','.join(names)} -gi ID  # of the line before"


def _types(plan: LaunchPlan) -> Iterator[str]:
    """Comments on Slurm's types of MIG instances."""
    if not plan.on_mig:
        return
    yield "# `sudo slurmd -G` on the node lists Slurm's types, slices and GiB, which vary between"
    yield "# drivers and releases, and any other type drains the node."
    for profile in _profiles_used(plan):
        if other := other_type(plan.gpu, profile):
            yield f"# {profile}: {other} where half a GiB is rounded up."


def _type(gpu: Gpu, profile: str) -> str:
    """Slurm's name of an instance; a variable if it is not known."""
    return slurm_type(gpu, profile) or f"${_variable(profile)}"


def _variable(profile: str) -> str:
    return "TYPE_" + re.sub(r"\W", "_", profile)


def _unknown(plan: LaunchPlan) -> Iterator[str]:
    """Lines that stop the script until the unknown values have been filled in."""
    for profile in _profiles_used(plan):
        if slurm_type(plan.gpu, profile) is None:
            remedy = f"set it to the type of {profile} that slurmd -G lists"
            yield f': "${{{_variable(profile)}:?{remedy}}}"'
    yield from shell.secrets(plan.starts)
    yield from unknown_cores(plan)


def unknown_cores(plan: LaunchPlan) -> Iterator[str]:
    """Yield lines that stop a script until ``CORES_1``, ... have the cores of unprofiled jobs."""
    for start in plan.starts:
        if start.core_count is None:
            remedy = f"set it to the host cores of job {start.number}, which its profile lacks"
            yield f': "${{CORES_{start.number}:?{remedy}}}"'


def _jobs(plan: LaunchPlan) -> Iterator[str]:
    """Each group waits for all jobs of the one before; jobs one by one wait for each other."""
    before: list[str] = []
    for stage in plan.stages:
        submitted: list[str] = []
        for part in stage.partitions:
            # Jobs that share an MPS daemon or an instance have one allocation.
            together = _together(part)
            for starts in [part.starts] if together else [(start,) for start in part.starts]:
                name = "job_" + "_".join(str(start.number) for start in starts)
                words = _words(plan.gpu, part, starts)
                yield f"{name}=$(sbatch --parsable{_after(before)} {words})"
                submitted.append(name)
                if part.sharing.mode == "serial":
                    before, submitted = [name], []
        before = submitted or before


def _together(part: LaunchPartition) -> bool:
    return part.under_mps or (part.instance is not None and len(part.starts) > 1)


def _after(names: list[str]) -> str:
    return " --dependency=afterany:" + ":".join(f"${name}" for name in names) if names else ""


def _words(gpu: Gpu, part: LaunchPartition, starts: tuple[Start, ...]) -> str:
    name = shlex.quote("+".join(start.job.name for start in starts))
    if part.instance is not None:
        gres = f"gpu:{_type(gpu, part.instance.profile)}:1"
    else:
        in_turns = part.sharing.mode == "naive" and len(part.starts) > 1
        gres = "shard:1" if in_turns else "gpu:1"
    cores = sum(start.core_count or 0 for start in starts)
    unknown = [f"CORES_{start.number}" for start in starts if start.core_count is None]
    count = f"$(({' + '.join([str(cores), *unknown])}))" if unknown else str(cores)
    times_s = [start.most_s for start in starts if start.most_s is not None]
    time = asked_time(max(times_s)) if len(times_s) == len(starts) else ""
    words = f"--job-name {name} --output=%x-%j.log --gres={gres} --cpus-per-task={count}{time}"
    if not _together(part):
        return f"{words} --wrap {shlex.quote(shell.without_mps(starts[0]))}"
    own = from_first_core(replace(part, starts=starts))
    guard = shell.guard([own], by_scheduler=True)
    script = [*guard, *run([own], by_scheduler=True), shell.STATUS]
    return "\n".join([f"{words} <<'EOF'", "#!/bin/bash", *script, "EOF", ""])


def from_first_core(part: LaunchPartition) -> LaunchPartition:
    """Return `part` with cores counted from the first of its own allocation."""
    first, starts = 0, []
    for start in part.starts:
        used = start.core_count or 0
        starts.append(replace(start, cores=(first, first + used - 1) if used else None))
        first += used
    return replace(part, starts=tuple(starts))


def asked_time(most_s: float) -> str:
    """Return the option for this time, rounded up to a quarter of an hour for start-up."""
    return f" --time={ceil(most_s / _TIMES_S) * _TIMES_S // 60}"
