"""Plans as scripts for Slurm: lines of gres.conf and slurm.conf, and the job lines.

After Slurm's documentation, Generic Resource Scheduling: jobs that share a GPU or a MIG instance
run in one allocation of it. Its gres/shard and gres/mps are left alone. Slurm 22.05 spreads the
shards of one GPU over all GPUs of the node, so jobs that ask for one each run on different GPUs.
gres/mps sets percentages from shares, and without a daemon that a prolog starts, CUDA runs without
MPS and prints nothing. Slurm does not cut up GPUs itself, and gives out cores by count.
"""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import chain
from math import ceil, inf, isfinite

from advisor.errors import InvalidInput, counted
from advisor.hardware.gpus import Gpu, MigProfile
from advisor.hardware.mig import profile_of
from advisor.launch import shell
from advisor.launch.commands import commands_text
from advisor.launch.launch_plan import NOT_RUN, LaunchPartition, LaunchPlan, Stage
from advisor.simulation.events import line_s

_MIB_IN_GIB = 1024
_QUARTER_S = 900
_TIME_FACTOR = 2  # the predicted time is of steps alone, on a host without other load
_BEGINNING = (
    "set -euo pipefail",
    # Keeps the limits and the daemon that the environment of `sbatch` names from its jobs.
    'unset "${!CUDA_MPS_@}"',
    # From Slurm's documentation of slurm.conf, KillWait: 30 s unless the cluster sets it.
    "# Slurm kills a job 30 s after it asks it to end: what the job changed is undone before that.",
    "export ADVISOR_GRACE_S=${ADVISOR_GRACE_S:-10}",
)
_TESTED = "# Tested with Slurm 22.05 on one node without a GPU; not yet on a cluster."
_TYPES = (
    "# `sudo slurmd -G` on the node lists Slurm's types, slices and GiB, which vary between",
    "# drivers and releases, and any other type drains the node.",
)
_ASKED = """\
# --time is twice the upper end of the predicted time; Slurm ends a job then. Add --mem=...:
# advisor does not predict host memory."""


def slurm_type(gpu: Gpu, profile: str) -> str | None:
    """Return Slurm's type of a GPU instance; None if no driver reported its memory yet."""
    row = profile_of(gpu, profile)
    return None if row.memory_estimated else _named(row, round(row.memory_mib / _MIB_IN_GIB))


def other_type(gpu: Gpu, profile: str) -> str | None:
    """Return the type if Slurm rounds half a GiB up; None if it is the same."""
    row = profile_of(gpu, profile)
    up = _named(row, (row.memory_mib + _MIB_IN_GIB // 2) // _MIB_IN_GIB)
    return up if slurm_type(gpu, profile) not in (None, up) else None


def _named(row: MigProfile, memory_gib: int) -> str:
    return f"{row.compute_slices}g.{memory_gib}gb"


def _type(gpu: Gpu, profile: str) -> str:
    """Slurm's name of an instance; a variable if it is not known."""
    return slurm_type(gpu, profile) or f"${_variable(profile)}"


def _variable(profile: str) -> str:
    return "TYPE_" + re.sub(r"\W", "_", profile)


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
    kinds_of_type = defaultdict(set)
    instances = dict.fromkeys(part.instance for part in plan.partitions if part.instance)
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
    profiles = list(dict.fromkeys(instance.profile for instance in instances))
    unknown = _unknown_types(plan.gpu, profiles)
    wanted = chain(unknown, shell.secrets(plan.starts), _unknown_cores(plan))
    return "\n".join([*_node(plan, profiles), *_BEGINNING, *wanted, *_jobs(plan), ""])


def _node(plan: LaunchPlan, profiles: Sequence[str]) -> Iterator[str]:
    """Comments on how to set up the node of `plan`, which uses these MIG profiles."""
    yield "#!/usr/bin/env bash"
    yield f"# {plan.sharing} on a GPU of a node, one {plan.gpu.key}."
    yield _TESTED
    if plan.on_mig:
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
    if plan.power_cap_w is not None:
        yield f"# As root on the node: nvidia-smi --power-limit={plan.power_cap_w:g}"
    yield "# gres.conf of the node:"
    yield "#   AutoDetect=nvml"
    yield "# slurm.conf, with the select/cons_tres plugin:"
    yield "#   GresTypes=gpu"
    used = (part.instance.profile for part in plan.partitions if part.instance)
    types = Counter(_type(plan.gpu, profile) for profile in used)
    gres = [f"gpu:{name}:{count}" for name, count in types.items()] if plan.on_mig else ["gpu:N"]
    yield f"#   NodeName=NODE Gres={','.join(gres)}"
    count = "" if plan.on_mig else "N: all GPUs that the node has. "
    yield f"# {count}Keep what else that line lists: other GPUs of the node are lost without it."
    yield from _TYPES if plan.on_mig else ()
    for profile in profiles:
        if other := other_type(plan.gpu, profile):
            yield f"# {profile}: {other} where half a GiB is rounded up."
    yield from _node_wanted(plan.partitions)
    yield _ASKED
    yield from shell.own_commands_wanted(plan)


def _node_wanted(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    """Comments on what else decides how jobs share the GPU of their node."""
    if not any(part.instance for part in partitions):
        yield "# Switch MIG mode off on the node: Slurm would give each job one instance of a GPU."
    if any(part.under_mps for part in partitions):
        yield "# Jobs under MPS start its daemon and stop it again: do not start one on the node."


def _unknown_types(gpu: Gpu, profiles: Sequence[str]) -> Iterator[str]:
    """Lines that stop a script until the unknown types have been filled in."""
    for profile in profiles:
        if slurm_type(gpu, profile) is None:
            remedy = f"set it to the type of {profile} that slurmd -G lists"
            yield f': "${{{_variable(profile)}:?{remedy}}}"'


def _unknown_cores(plan: LaunchPlan) -> Iterator[str]:
    """Lines that stop a script until ``CORES_1``, ... have the cores of unprofiled jobs."""
    for start in plan.starts:
        if start.cores is None:
            remedy = f"set it to the host cores of job {start.number}, which its profile lacks"
            yield f': "${{CORES_{start.number}:?{remedy}}}"'


def _jobs(plan: LaunchPlan) -> Iterator[str]:
    """Each group waits for all jobs of the one before; jobs one by one wait for each other."""
    before: list[str] = []
    names: list[str] = []
    for stage in plan.stages:
        submitted: list[str] = []
        for part in stage.partitions:
            together = part.under_mps or (len(part.starts) > 1 and not stage.one_by_one)
            for starts in [part.starts] if together else [(start,) for start in part.starts]:
                own = replace(part, starts=starts, instance=None, slices=None, profile=None)
                submitted.append("job_" + "_".join(str(start.number) for start in starts))
                after = f' --dependency="afterany:{":".join(before)}"' if before else ""
                title = shlex.quote("+".join(start.job.name for start in starts))
                words = _words(title, _gres(plan.gpu, part), [Stage((own,))])
                what = f"--wrap {shlex.quote(shell.without_mps(starts[0]))}"
                if together:
                    alone = LaunchPlan(plan.gpu, part.sharing, (Stage((own,)),), None)
                    what = "\n".join([*_here(alone), ""])
                names.append(f"${submitted[-1]}")
                yield f"{submitted[-1]}=$(sbatch --parsable{after} {words} {what})"
                if stage.one_by_one:
                    before, submitted = [f"${submitted[-1]}"], []
        before = [f"${name}" for name in submitted] or before
    yield f'echo "Submitted: {" ".join(names)}"'


def _gres(gpu: Gpu, part: LaunchPartition) -> str:
    return "gpu:1" if part.instance is None else f"gpu:{_type(gpu, part.instance.profile)}:1"


def _words(name: str, gres: str, stages: Sequence[Stage]) -> str:
    """Options of a Slurm job that runs these stages in turn.

    It asks for the most cores that are used at once, with variables for unknown numbers, and for
    twice the time of all stages, rounded up to a quarter of an hour, if each job has a time.
    """
    cores, most_s = 0, 0.0
    for stage in stages:
        in_order = [start for part in stage.partitions for start in part.starts]
        counts = [start.cores or 0 for start in in_order]
        times_s = [inf if start.most_s is None else start.most_s for start in in_order]
        cores = max(cores, sum(nlargest(stage.at_once, counts)))
        most_s += line_s(times_s, stage.at_once)
    starts = [start for stage in stages for start in stage.starts]
    unknown = [f"CORES_{start.number}" for start in starts if start.cores is None]
    count = f"$(({' + '.join([str(cores), *unknown])}))" if unknown else str(cores)
    quarters = ceil(_TIME_FACTOR * most_s / _QUARTER_S) if isfinite(most_s) else 0
    time = f" --time={quarters * _QUARTER_S // 60}" if quarters else ""
    return f"--job-name {name} --output=%x-%j.log --gres={gres} --cpus-per-task={count}{time}"


def _here(plan: LaunchPlan) -> list[str]:
    """A script on stdin that runs `plan` on the GPU or MIG instance of its own allocation."""
    text = commands_text(replace(plan, power_cap_w=None), gpu="${CUDA_VISIBLE_DEVICES:-0}")
    end = "END"
    while end in text:
        end += "_"
    return [f"<<'{end}'", text + end]


def slurm_text_of_all(plans: Sequence[LaunchPlan]) -> str:
    """Return a script that submits a Slurm job for each GPU with all jobs of its plan.

    What one GPU runs stays together: jobs submitted one by one might get other GPUs than those that
    they were planned to share.

    Args:
        plans: The plan of each GPU, from `fleet_launch_plans`.

    Raises:
        InvalidInput: A plan has MIG instances, which Slurm does not make, or a job takes several
            GPUs.
    """
    if wide := next(filter(None, (plan.wide for plan in plans)), None):
        raise InvalidInput(f"{wide.name}: this script does not start jobs of several GPUs.")
    if cut := next((plan for plan in plans if plan.on_mig), None):
        raise InvalidInput(
            f"GPU {cut.number}, {cut.sharing}: Slurm makes no MIG instances. Export the plan as "
            f"commands, or plan without MIG: --no-root."
        )
    keys = dict.fromkeys(plan.gpu.key for plan in plans)
    caps_w = {plan.power_cap_w for plan in plans if plan.power_cap_w is not None}
    lines = [
        "#!/usr/bin/env bash",
        f"# A Slurm job for each of {counted(len(plans), 'GPU')}, {' and '.join(keys)}.",
        _TESTED,
        *(f"# As root on each node: nvidia-smi --power-limit={cap:g}" for cap in sorted(caps_w)),
        "# gres.conf of the nodes:",
        "#   AutoDetect=nvml",
        "# slurm.conf, with the select/cons_tres plugin:",
        "#   GresTypes=gpu",
        "#   NodeName=NODE Gres=gpu:N",
        "# N: all GPUs that the node has. Keep what else that line lists.",
        *_node_wanted([part for plan in plans for part in plan.partitions]),
        _ASKED,
        *dict.fromkeys(line for plan in plans for line in shell.own_commands_wanted(plan)),
        *_BEGINNING,
        *chain.from_iterable(map(_unknown_cores, plans)),
    ]
    for plan in plans:
        gres = "gpu:1" if len(keys) == 1 else f"gpu:{plan.gpu.key.partition('-')[0]}:1"
        words = _words(f"gpu_{plan.number}", gres, plan.stages)
        script = _here(plan)
        lines.append(f"# Job {', '.join(str(start.number) for start in plan.starts)}.")
        lines.append("\n".join([f"sbatch {words} {script[0]}", *script[1:]]))
    return "\n".join([*lines, ""])
