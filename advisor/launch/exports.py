"""Plans as files for the tool that applies them, on one GPU or several."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.launch import ExportFormat, shell
from advisor.launch.commands import commands_text, commands_text_of_all
from advisor.launch.kubernetes import IMAGE, IMAGE_WANTED
from advisor.launch.kubernetes_plugin import kubernetes_text
from advisor.launch.kubernetes_script import kubernetes_script_text
from advisor.launch.launch_plan import (
    NOT_RUN,
    LaunchPartition,
    LaunchPlan,
    check_memory,
    gres_names,
    launch_plan,
)
from advisor.launch.mig_parted import mig_parted_text
from advisor.launch.plan_file import plans_text
from advisor.launch.slurm import slurm_text_of_all
from advisor.prediction.prediction import MixPrediction
from advisor.workload.job import Job

_COLUMNS = (
    "Experiment",
    "Workload",
    "Status",
    "Run",
    "Devices",
    "Collocation",
    "File",
    "Listeners",
    "Params",
)

_PYTHON = re.compile(r"python[\d.]*")
_WORD = re.compile(r"[\w@%+=:,./-]+")
# Of Params that begin with a dash, `radt run` takes others for options of its own.
_BEGINNING = re.compile(r"[^-]|--[^\s=]+ |-[^-chlp\s]\S* ")


def radt_text(plan: LaunchPlan) -> str:
    """Return `plan` as a CSV; ``NAME.py`` replaces a script that a row cannot express.

    The columns are those of radT's README and examples. Rows of one Workload run at once, and
    Workloads run one after another. Collocation is ``-``, ``mps`` or a MIG profile; each row with a
    profile gets an instance of its own. Params ``-`` passes nothing on. radT runs the Python script
    File in its folder, puts Params between double quotes, and splits the text at blanks.

    Raises:
        InvalidInput: radT cannot express part of the plan.
    """
    on_mig = [part for part in plan.partitions if part.instance]
    reasons = {
        "MPS limits": any(start.limit is not None for start in plan.starts),
        "memory caps": any(start.memory_cap_mib is not None for start in plan.starts),
        "power cap": plan.power_cap_w is not None,
        "compute instances": any(part.slices is not None for part in on_mig),
        "several jobs on one instance": any(len(part.starts) > 1 for part in on_mig),
        "MPS on an instance": any(part.under_mps for part in on_mig),
        "queue of jobs": any(part.at_once for part in plan.partitions),
    }
    if lacking := next((what for what, lacks in reasons.items() if lacks), None):
        raise InvalidInput(
            f"{plan.sharing}: radT cannot express {lacking}. Export it as commands instead."
        )
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_COLUMNS)
    workload = 0
    for stage in plan.stages:
        workload += 1
        for part in stage.partitions:
            for position, start in enumerate(part.starts):
                workload += stage.one_by_one and position > 0
                collocation = part.profile or ("mps" if part.under_mps else "-")
                file, params = _file_and_params(start.job) or (f"{start.job.name}.py", "-")
                rows.writerow((1, workload, "", "", 0, collocation, file, "smi+top+dcgmi", params))
    return text.getvalue()


def radt_wants(plan: LaunchPlan) -> tuple[str, ...]:
    """Return a note if scripts in `radt_text` are placeholders."""
    jobs = [start.job for start in plan.starts]
    names = [f"{job.name}.py" for job in jobs if _file_and_params(job) is None]
    note = (
        f"{', '.join(dict.fromkeys(names))}: placeholders. Replace them by your own scripts: a row "
        f"can only have `python SCRIPT.py --option WORD...`, run in the script's folder, without "
        f"variables, blanks or quotes."
    )
    return (note,) if names else ()


def _file_and_params(job: Job) -> tuple[str, str] | None:
    """File and Params of the command of `job`; None if a row cannot express it."""
    script = job.profile.workload.script
    if script is None or script.environment or len(script.command) < 2:
        return None
    program, name, *words = script.command
    file = Path(script.folder, name)
    params = " ".join(words) or "-"
    expressible = (
        _PYTHON.fullmatch(Path(program).name)
        and file.suffix == ".py"
        and file.parent == Path(script.folder)
        and all(map(_WORD.fullmatch, (file.name, *words)))
        and (not words or _BEGINNING.match(params))
    )
    return (str(file), params) if expressible else None


_MPS_HEAD = """\
#!/usr/bin/env bash
# MPS for {sharing} on one {gpu}.
#   bash FILE start            starts the daemons
#   bash FILE run JOB COMMAND  runs COMMAND as the job of that number, with its limit
#   bash FILE stop             ends the daemons; the jobs must have ended"""


def mps_text(plan: LaunchPlan) -> str:
    """Return a script that starts and stops the plan's MPS daemons, and runs commands as its jobs.

    Raises:
        InvalidInput: No job of `plan` shares by MPS, or such jobs are a queue.
    """
    partitions = [part for part in plan.partitions if part.under_mps]
    if not partitions:
        raise InvalidInput(
            f"{plan.sharing}: no job of it shares by MPS. Export it as commands instead."
        )
    if any(part.at_once for part in partitions):
        raise InvalidInput(
            f"{plan.sharing}: this script does not start jobs in order. Export it as commands "
            f"instead."
        )
    head = _MPS_HEAD.format(sharing=plan.sharing, gpu=plan.gpu.key)
    return "\n".join([head, *shell.power_caps_wanted([plan]), *_mps_lines(partitions), ""])


def _mps_lines(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    on_mig = [part for part in partitions if part.instance]
    if on_mig:
        yield f"# {NOT_RUN}"
    for part in on_mig:
        yield f': "${{MIG_{part.number}:?set it to the UUID of {part}: nvidia-smi -L}}"'
    yield from (*shell.bash("core"), *shell.bash("mps"))
    yield "undo_by() { :; }  # these daemons go on when the script ends"
    yield "folder() { find_gpu mig; pipes=/tmp/advisor-mps-$UID-$uuid-by-hand-$1; }"
    stops = (f'  folder {part.number}; mps_stop "$pipes"' for part in partitions)
    yield from ("stop() {", *stops, "}")
    yield 'usage() { echo "usage: $0 start | run JOB COMMAND... | stop" >&2; exit 2; }'
    yield from ("case ${1:-} in", "start)", f"  find_gpu {'mig' if on_mig else 'whole'}")
    for part in partitions:  # start all daemons or none, and leave running ones alone
        message = 'fail "MPS runs already, in $pipes: bash $0 stop"'
        yield f'  folder {part.number}; ! mps get_server_list "$pipes" || {message}'
    yield "  trap stop EXIT"
    yield from (f"  use_mps {shell.device(part)} by-hand-{part.number}" for part in partitions)
    yield from ("  trap - EXIT", "  ;;", "stop) stop ;;")
    yield from ("run)", "  [ $# -gt 2 ] || usage", "  job=$2", "  shift 2", "  case $job in")
    for part in partitions:
        for start in part.starts:
            whole = "$client" if part.instance is None else f"$MIG_{part.number}"
            words = [f"ADVISOR_JOB={start.number}", f'CUDA_VISIBLE_DEVICES="{whole}"']
            words += ['CUDA_MPS_PIPE_DIRECTORY="$pipes"', *shell.client_settings(part, start)]
            yield f"  {start.number})  # {start.job.name}"
            yield f"    folder {part.number}"
            yield '    mps get_server_list "$pipes" || fail "MPS is off: bash $0 start"'
            yield f'    exec env {" ".join(words)} "$@" ;;'
    yield '  *) echo "no job of this plan under MPS: $job" >&2; exit 2 ;;'
    yield from ("  esac", "  ;;", "*) usage ;;", "esac")


WHOLE: dict[ExportFormat, Callable[[Sequence[LaunchPlan]], str]] = {
    "commands": commands_text_of_all,
    "mig-parted": mig_parted_text,
    "kubernetes": kubernetes_text,
    "kubernetes-script": kubernetes_script_text,
    "slurm": slurm_text_of_all,
    "json": plans_text,
}
"""Writers of plans for one GPU or several into one file."""


def _on_one_gpu(
    write: Callable[[Sequence[LaunchPlan]], str],
) -> Callable[[LaunchPlan], str]:
    return lambda plan: write([plan])


EXPORTS: dict[ExportFormat, Callable[[LaunchPlan], str]] = {
    **{form: _on_one_gpu(write) for form, write in WHOLE.items()},
    "commands": commands_text,
    "mps": mps_text,
    "radt": radt_text,
}
"""Writers of a plan for one GPU; all raise InvalidInput if the format cannot express a plan."""

SUFFIXES: dict[ExportFormat, str] = {
    "commands": "commands.sh",
    "mps": "mps.sh",
    "mig-parted": "mig-parted.yaml",
    "kubernetes": "kubernetes.yaml",
    "kubernetes-script": "kubernetes-script.yaml",
    "slurm": "slurm.sh",
    "radt": "radt.csv",
    "json": "json",
}
"""Ends of file names by format, after a dot."""


def exported(
    jobs: Sequence[Job],
    gpu: Gpu,
    prediction: MixPrediction,
    form: ExportFormat,
    gres: str | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Write the plan of `jobs` for which `prediction` was made, in a format of `EXPORTS`.

    `gres` names the GPU to Slurm as `gres_names` has it.

    Returns:
        The text, and notes that it lacks on what to know before applying it.

    Raises:
        InvalidInput: The format cannot express this plan.
        NothingFits: The jobs run out of memory, or `gpu` cannot be cut up like that.
    """
    name = gres_names([gpu.key], gres).get(gpu.key)
    plan = replace(launch_plan(jobs, gpu, prediction), gres=name)
    check_memory(plan, prediction)
    wanted = radt_wants(plan) if form == "radt" else ()
    text = EXPORTS[form](plan)
    return text, (*[NOT_RUN] * plan.on_mig, *wanted, *image_wanted(text))


def image_wanted(text: str) -> tuple[str, ...]:
    """Return a note if `text` has a placeholder for an image."""
    return (IMAGE_WANTED,) if f"image: {IMAGE}\n" in text else ()
