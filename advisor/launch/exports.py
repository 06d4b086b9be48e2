"""Plans for several equal GPUs as files: shell lines, a Slurm job for each GPU, a plan for each.

What one GPU runs stays together in Slurm too: jobs submitted one by one might be given other GPUs
than those that they were planned to share.
"""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from advisor.errors import InvalidInput, counted
from advisor.hardware.gpus import Gpu
from advisor.launch import ExportFormat, shell
from advisor.launch.commands import body, commands_at_once, head, run
from advisor.launch.launch_plan import (
    NOT_RUN,
    LaunchPartition,
    LaunchPlan,
    Stage,
    Start,
    check_memory,
    launch_plan,
)
from advisor.launch.mig_parted import mig_parted_text, mps_text
from advisor.launch.plan_file import plan_text
from advisor.launch.slurm import (
    ASKED,
    asked_time,
    from_first_core,
    node_wanted,
    slurm_text,
    unknown_cores,
)
from advisor.prediction.prediction import MixPrediction
from advisor.workload.job import Job

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


_COLUMNS = (
    "Experiment", "Workload", "Status", "Run", "Devices", "Collocation", "File", "Listeners",
    "Params",
)  # fmt: skip

_PYTHON = re.compile(r"python[\d.]*")
_WORD = re.compile(r"[\w@%+=:,./-]+")
# Of Params that begin with a dash, `radt run` takes others for options of its own.
_BEGINNING = re.compile(r"[^-]|--[^\s=]+ |-[^-chlp\s]\S* ")


def radt_text(plan: LaunchPlan) -> str:
    """`plan` as a CSV; ``NAME.py`` stands for a script of the user's that a row cannot say.

    Raises:
        InvalidInput: radT cannot express part of the plan.
    """
    if lacking := _lacking(plan):
        raise InvalidInput(f"{plan.sharing}: radT has no {lacking}. Export it as commands instead.")
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_COLUMNS)
    rows.writerows(_rows(plan))
    return text.getvalue()


def radt_wants(plan: LaunchPlan) -> Iterator[str]:
    """Which scripts in `radt_text` only stand for others, and why; nothing if none do."""
    names = [_placeholder(start) for start in plan.starts if _said(start.job) is None]
    if names:
        yield (
            f"{', '.join(dict.fromkeys(names))}: placeholders. Put your own scripts in their "
            f"place: a row can only say `python SCRIPT.py --option WORD...`, run in the script's "
            f"folder, without variables, blanks or quotes."
        )


def _rows(plan: LaunchPlan) -> Iterator[tuple[object, ...]]:
    workload = 0
    for stage in plan.stages:
        workload += 1
        for part in stage.partitions:
            for position, start in enumerate(part.starts):
                workload += part.sharing.mode == "serial" and position > 0
                yield _row(workload, part, start)


def _row(workload: int, part: LaunchPartition, start: Start) -> tuple[object, ...]:
    collocation = part.profile or ("mps" if part.under_mps else "-")
    file, params = _said(start.job) or (_placeholder(start), "-")
    return 1, workload, "", "", 0, collocation, file, "smi+top+dcgmi", params


def _placeholder(start: Start) -> str:
    return f"{start.job.name}.py"


def _said(job: Job) -> tuple[str, str] | None:
    """File and Params of the command of `job`; None where a row cannot say it."""
    script = job.profile.workload.script
    if script is None or script.environment or len(script.command) < 2:
        return None
    program, name, *words = script.command
    file = Path(script.folder, name)
    params = " ".join(words) or "-"
    can_be_said = (
        _PYTHON.fullmatch(Path(program).name)
        and file.suffix == ".py"
        and file.parent == Path(script.folder)
        and all(map(_WORD.fullmatch, (file.name, *words)))
        and (not words or _BEGINNING.match(params))
    )
    return (str(file), params) if can_be_said else None


def _lacking(plan: LaunchPlan) -> str | None:
    """The part of `plan` that radT cannot express; None if it can express all."""
    on_mig = [part for part in plan.partitions if part.instance]
    reasons = {
        "MPS limits": any(start.limit is not None for start in plan.starts),
        "memory caps": any(start.memory_cap_mib is not None for start in plan.starts),
        "power cap": plan.power_cap_w is not None,
        "compute instances": any(part.slices is not None for part in on_mig),
        "several jobs on one instance": any(len(part.starts) > 1 for part in on_mig),
        "MPS on an instance": any(part.under_mps for part in on_mig),
    }
    return next((what for what, lacking in reasons.items() if lacking), None)


def commands_text(plan: LaunchPlan) -> str:
    """A script of the shell lines that apply `plan` by hand."""
    return "\n".join(["#!/usr/bin/env bash", *head(plan), *body(plan), ""])


EXPORTS: dict[ExportFormat, Callable[[LaunchPlan], str]] = {
    "commands": commands_text,
    "mps": mps_text,
    "mig-parted": mig_parted_text,
    "slurm": slurm_text,
    "radt": radt_text,
    "json": plan_text,
}
"""What writes each format; raises InvalidInput where the format cannot say a plan."""

SUFFIXES: dict[ExportFormat, str] = {
    "commands": "commands.sh",
    "mps": "mps.sh",
    "mig-parted": "mig-parted.yaml",
    "slurm": "slurm.sh",
    "radt": "radt.csv",
    "json": "json",
}
"""What the name of a file of each format ends in, after a dot."""


class ExportedPlans(NamedTuple):
    """A plan as a file; `notes`: what to know before applying it, and the file does not say."""

    text: str
    notes: tuple[str, ...]


def exported(
    jobs: Sequence[Job], gpu: Gpu, prediction: MixPrediction, form: ExportFormat
) -> ExportedPlans:
    """The plan of `jobs` that `prediction` is for, in a format of `EXPORTS`.

    Raises:
        InvalidInput: The format cannot express this plan.
        NothingFits: The jobs run out of memory, or `gpu` cannot be cut up like that.
    """
    plan = launch_plan(jobs, gpu, prediction)
    check_memory(plan, prediction)
    text = EXPORTS[form](plan)
    wanted = radt_wants(plan) if form == "radt" else ()
    return ExportedPlans(text, (*[NOT_RUN] * plan.on_mig, *wanted))
