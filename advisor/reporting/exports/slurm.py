"""What Slurm needs: lines of gres.conf and slurm.conf, and the job lines.

After Slurm's documentation, Generic Resource Scheduling: time-sliced jobs take shards, jobs under
MPS shares of gres/mps, jobs on MIG an instance by its profile. Slurm does not cut up GPUs itself,
has no gres/mps on MIG, and gives out cores by count.
"""

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from advisor.errors import InvalidInput
from advisor.planning import shell
from advisor.planning.commands import created, run
from advisor.planning.handover import NOT_RUN, Handover, Room, Start
from advisor.sharing import Mps, Naive, Serial

_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def slurm_text(plan: Handover) -> str:
    """A script that submits the jobs of `plan`; above it, as comments, how the node is set up.

    Raises:
        InvalidInput: The plan cuts up the GPU between groups of jobs, which Slurm does not.
    """
    if plan.on_mig and len(plan.stages) > 1:
        raise InvalidInput(
            f"{plan.sharing}: Slurm does not cut up a GPU between jobs. Export it as commands, or "
            f"export each group as a plan of its own."
        )
    return "\n".join([*_node(plan), *_jobs(plan), ""])


def _node(plan: Handover) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    yield f"# {plan.sharing} on GPU 0 of a node, one {plan.gpu.key}. Not run on a cluster."
    if plan.on_mig:
        yield f"# {NOT_RUN}"
        yield "# Before Slurm starts, as root on the node:"
        for line in ("sudo nvidia-smi -i 0 -mig 1", *created(plan.stages[0], plan.gpu)):
            yield f"#   {line}"
    if plan.power_cap_w is not None:
        yield f"# As root on the node: nvidia-smi -i 0 --power-limit={plan.power_cap_w:g}"
    shared = {"shard": _most_at_once(plan), "mps": 100 * any(room.under_mps for room in plan.rooms)}
    counts = {} if plan.on_mig else {name: count for name, count in shared.items() if count}
    yield "# gres.conf of the node:"
    yield "#   AutoDetect=nvml"
    for name, count in counts.items():
        yield f"#   Name={name} Count={count} File=/dev/nvidia0"
    yield "# slurm.conf, with the select/cons_tres plugin:"
    yield f"#   GresTypes={','.join(['gpu', *counts])}"
    gres = [*_gpus(plan), *(f"{name}:{count}" for name, count in counts.items())]
    yield f"#   NodeName=NODE Gres={','.join(gres)}"
    yield "# Put your own command in place of each job's ./NAME.sh."


def _most_at_once(plan: Handover) -> int:
    """Jobs that take turns on the GPU, at most; 0 where none does."""
    rooms = (room for room in plan.rooms if isinstance(room.sharing, Naive))
    return max((len(room.starts) for room in rooms if len(room.starts) > 1), default=0)


def _gpus(plan: Handover) -> list[str]:
    if not plan.on_mig:
        return ["gpu:1"]
    profiles = Counter(str(room.profile) for room in plan.rooms)
    return [f"gpu:{profile}:{count}" for profile, count in profiles.items()]


def _jobs(plan: Handover) -> Iterator[str]:
    """Each group waits for all jobs of the one before; jobs one by one wait for each other."""
    before: list[str] = []
    for stage in plan.stages:
        submitted: list[str] = []
        for room in stage.rooms:
            for starts in _allocations(room):
                name = "job_" + "_".join(str(start.number) for start in starts)
                yield f"{name}=$(sbatch --parsable{_after(before)} {_words(room, starts)})"
                submitted.append(name)
                if isinstance(room.sharing, Serial):
                    before, submitted = [name], []
        before = submitted or before


def _allocations(room: Room) -> list[tuple[Start, ...]]:
    """Jobs by who is given resources together: all on an instance that several share."""
    shared = room.instance is not None and (room.under_mps or len(room.starts) > 1)
    return [room.starts] if shared else [(start,) for start in room.starts]


def _after(names: list[str]) -> str:
    return " --dependency=afterany:" + ":".join(f"${name}" for name in names) if names else ""


def _words(room: Room, starts: tuple[Start, ...]) -> str:
    cores = sum(start.job.profile.workload.cores for start in starts)
    name = "+".join(start.job.name for start in starts)
    asked = ["--job-name", name, f"--gres={_gres(room, starts[0])}", f"--cpus-per-task={cores}"]
    if room.instance and (room.under_mps or len(starts) > 1):
        lines = ["#!/bin/bash", *run([room], by_scheduler=True)]
        return "\n".join([f"{shlex.join(asked)} <<'EOF'", *lines, "EOF", ""])
    return shlex.join([*asked, "--wrap", _wrapped(room, starts[0])])


def _gres(room: Room, start: Start) -> str:
    match room.sharing:
        case _ if room.profile:
            return f"gpu:{room.profile}:1"
        case Serial():
            return "gpu:1"
        case Naive():
            return "gpu:1" if len(room.starts) == 1 else "shard:1"
        case Mps(limits):
            total = max(100.0, sum(limits)) if limits else 100.0 * len(room.starts)
            return f"mps:{max(1, int(100 * (start.limit or 100.0) / total))}"
        case _:
            assert_never(room.sharing)


def _wrapped(room: Room, start: Start) -> str:
    """The job's command under its own limits: Slurm's follow from shares, 100 in all."""
    if not room.under_mps:
        return shell.command(start)
    unlimited = ["-u", _PERCENTAGE] if start.limit is None else []
    return " ".join(["env", *unlimited, *shell.limits(start), shell.command(start)])
