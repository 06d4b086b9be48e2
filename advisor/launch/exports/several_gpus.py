"""Plans for several equal GPUs as files: shell lines, a Slurm job for each GPU, a plan for each.

What one GPU runs stays together in Slurm too: jobs submitted one by one might be given other GPUs
than those that they were planned to share.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.launch import ExportFormat, shell
from advisor.launch.commands import commands_at_once, run
from advisor.launch.exports.slurm import (
    ASKED,
    asked_time,
    from_first_core,
    node_wanted,
    unknown_cores,
)
from advisor.launch.launch_plan import LaunchPlan, Stage
from advisor.launch.plan_file import plan_text

Plans = Sequence[LaunchPlan]
"""What each GPU runs, as `side_by_side` has it."""


def commands_text_of_all(plans: Plans) -> str:
    """A script of the shell lines that apply all `plans` at once, by hand, on one host."""
    return "\n".join(["#!/usr/bin/env bash", *commands_at_once(plans), ""])


def slurm_text_of_all(plans: Plans) -> str:
    """A script that submits a Slurm job for each GPU, which runs all that is planned there.

    Raises:
        InvalidInput: A GPU is to be cut up, which Slurm does not.
    """
    if cut := next((plan for plan in plans if plan.on_mig), None):
        raise InvalidInput(
            f"GPU {cut.device} is to be {cut.sharing}: Slurm does not cut up a GPU. Export the "
            f"plan as commands instead."
        )
    unknown = chain.from_iterable(map(unknown_cores, plans))
    return "\n".join([*_head(plans), "set -euo pipefail", *unknown, *map(_submitted, plans), ""])


def json_texts(plans: Plans) -> dict[int, str]:
    """A plan file for each GPU, by its index."""
    return {plan.device: plan_text(plan) for plan in plans}


WHOLE: dict[ExportFormat, Callable[[Plans], str]] = {
    "commands": commands_text_of_all,
    "slurm": slurm_text_of_all,
}
"""What writes all of a plan for several GPUs into one file; JSON is a file for each GPU."""


def refuse_format(form: ExportFormat) -> None:
    """Check that a plan for several GPUs can be written as `form`.

    Raises:
        InvalidInput: It cannot.
    """
    if form not in (*WHOLE, "json"):
        raise InvalidInput(
            f"--format {form} is for one GPU: for several use {', '.join(WHOLE)} or json."
        )


def _head(plans: Plans) -> Iterator[str]:
    yield "#!/usr/bin/env bash"
    yield f"# A Slurm job for each of {counted(len(plans), 'GPU')}, {plans[0].gpu.key}."
    yield "# Untested: this script has not run on a cluster yet."
    caps_w = {plan.power_cap_w for plan in plans if plan.power_cap_w is not None}
    for cap_w in sorted(caps_w):
        yield f"# As root on each node: nvidia-smi --power-limit={cap_w:g}"
    yield "# gres.conf of the nodes:"
    yield "#   AutoDetect=nvml"
    yield "# slurm.conf, with the select/cons_tres plugin:"
    yield "#   GresTypes=gpu"
    yield "#   NodeName=NODE Gres=gpu:N"
    yield "# N: all GPUs that the node has. Keep what else that line lists."
    yield from node_wanted([part for plan in plans for part in plan.partitions])
    yield ASKED
    yield from dict.fromkeys(line for plan in plans for line in shell.own_commands_wanted(plan))


def _submitted(plan: LaunchPlan) -> str:
    numbers = ", ".join(str(start.number) for start in plan.starts)
    groups = [[from_first_core(part) for part in stage.partitions] for stage in plan.stages]
    asked = (
        f"--job-name gpu_{plan.device} --output=%x-%j.log --gres=gpu:1 "
        f"--cpus-per-task={_cores(plan)}{_time(plan)}"
    )
    return "\n".join([
        f"# Job {numbers}.", f"sbatch {asked} <<'EOF'", "#!/bin/bash",
        *shell.guard([part for parts in groups for part in parts], by_scheduler=True),
        *(line for parts in groups for line in run(parts, by_scheduler=True)),
        shell.STATUS, "EOF",
    ])  # fmt: skip


def _time(plan: LaunchPlan) -> str:
    """Asks for the time of all groups, one after another; "" if that of a job is not known."""
    total_s = 0.0
    for stage in plan.stages:
        known = [start.most_s for start in stage.starts if start.most_s is not None]
        if len(known) < len(stage.starts):
            return ""
        total_s += sum(known) if _in_turn(stage) else max(known)
    return asked_time(total_s)


def _in_turn(stage: Stage) -> bool:
    return stage.partitions[0].sharing.mode == "serial"


def _cores(plan: LaunchPlan) -> str:
    """How many cores its jobs use at once, at most; variables for unknown numbers."""
    known = max(map(_known_cores, plan.stages))
    unknown = [f"CORES_{start.number}" for start in plan.starts if start.core_count is None]
    return f"$(({' + '.join([str(known), *unknown])}))" if unknown else str(known)


def _known_cores(stage: Stage) -> int:
    counts = [start.core_count or 0 for start in stage.starts]
    return max(counts) if _in_turn(stage) else sum(counts)
