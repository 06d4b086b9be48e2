"""Plans as files for the tool that applies them, on one GPU or several.

What one GPU runs stays together in Slurm too: jobs submitted one by one might get other GPUs than
those that they were planned to share.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from advisor.errors import InvalidInput, counted
from advisor.hardware.gpus import Gpu
from advisor.launch import ExportFormat, shell
from advisor.launch.commands import commands_at_once, commands_text, run
from advisor.launch.launch_plan import (
    NOT_RUN,
    LaunchPartition,
    LaunchPlan,
    Stage,
    Start,
    check_memory,
    launch_plan,
)
from advisor.launch.plan_file import plan_text
from advisor.launch.shell import which_gpu, whole_wanted
from advisor.launch.shell_state import MPS_WORDS
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
"""The plan of each GPU, from `side_by_side`."""


def commands_text_of_all(plans: Plans) -> str:
    """Return a script of the shell lines that apply all `plans` at once, by hand, on one host."""
    return "\n".join(["#!/usr/bin/env bash", *commands_at_once(plans), ""])


def slurm_text_of_all(plans: Plans) -> str:
    """Return a script that submits a Slurm job for each GPU with all jobs of its plan.

    Raises:
        InvalidInput: A plan has MIG instances, which Slurm does not make.
    """
    if cut := next((plan for plan in plans if plan.on_mig), None):
        raise InvalidInput(
            f"GPU {cut.device}, {cut.sharing}: Slurm makes no MIG instances. Export the plan as "
            f"commands instead."
        )
    unknown = chain.from_iterable(map(unknown_cores, plans))
    return "\n".join([*_head(plans), "set -euo pipefail", *unknown, *map(_submitted, plans), ""])


def json_texts(plans: Plans) -> dict[int, str]:
    """Return a plan file for each GPU, by its index."""
    return {plan.device: plan_text(plan) for plan in plans}


WHOLE: dict[ExportFormat, Callable[[Plans], str]] = {
    "commands": commands_text_of_all,
    "slurm": slurm_text_of_all,
}
"""Writers of all of a plan for several GPUs into one file; JSON is a file for each GPU."""


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
    words = (
        f"--job-name gpu_{plan.device} --output=%x-%j.log --gres=gpu:1 "
        f"--cpus-per-task={_cores(plan)}{_time(plan)}"
    )
    return "\n".join([
        f"# Job {numbers}.", f"sbatch {words} <<'EOF'", "#!/bin/bash",
        *shell.guard([part for parts in groups for part in parts], by_scheduler=True),
        *(line for parts in groups for line in run(parts, by_scheduler=True)),
        shell.STATUS, "EOF",
    ])  # fmt: skip


def _time(plan: LaunchPlan) -> str:
    """The option for the time of all groups in turn; "" without a time of each job."""
    total_s = 0.0
    for stage in plan.stages:
        times_s = [start.most_s for start in stage.starts if start.most_s is not None]
        if len(times_s) < len(stage.starts):
            return ""
        total_s += sum(times_s) if _in_turn(stage) else max(times_s)
    return asked_time(total_s)


def _in_turn(stage: Stage) -> bool:
    return stage.partitions[0].sharing.mode == "serial"


def _cores(plan: LaunchPlan) -> str:
    """Most host cores that its jobs use at once; variables for unknown numbers."""
    counts = [[start.core_count or 0 for start in stage.starts] for stage in plan.stages]
    cores = max(
        max(count) if _in_turn(stage) else sum(count)
        for stage, count in zip(plan.stages, counts, strict=True)
    )
    unknown = [f"CORES_{start.number}" for start in plan.starts if start.core_count is None]
    return f"$(({' + '.join([str(cores), *unknown])}))" if unknown else str(cores)


_COLUMNS = (
    "Experiment", "Workload", "Status", "Run", "Devices", "Collocation", "File", "Listeners",
    "Params",
)  # fmt: skip

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
    if lacking := _lacking(plan):
        raise InvalidInput(f"{plan.sharing}: radT has no {lacking}. Export it as commands instead.")
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_COLUMNS)
    workload = 0
    for stage in plan.stages:
        workload += 1
        for part in stage.partitions:
            for position, start in enumerate(part.starts):
                workload += part.sharing.mode == "serial" and position > 0
                rows.writerow(_row(workload, part, start))
    return text.getvalue()


def radt_wants(plan: LaunchPlan) -> Iterator[str]:
    """Yield which scripts in `radt_text` are placeholders, and why."""
    names = [_placeholder(start) for start in plan.starts if _file_and_params(start.job) is None]
    if names:
        yield (
            f"{', '.join(dict.fromkeys(names))}: placeholders. Replace them by your own scripts: a "
            f"row can only have `python SCRIPT.py --option WORD...`, run in the script's folder, "
            f"without variables, blanks or quotes."
        )


def _row(workload: int, part: LaunchPartition, start: Start) -> tuple[object, ...]:
    collocation = part.profile or ("mps" if part.under_mps else "-")
    file, params = _file_and_params(start.job) or (_placeholder(start), "-")
    return 1, workload, "", "", 0, collocation, file, "smi+top+dcgmi", params


def _placeholder(start: Start) -> str:
    return f"{start.job.name}.py"


def _file_and_params(job: Job) -> tuple[str, str] | None:
    """File and Params of the command of `job`; None if a row cannot express it."""
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


_MPS_HEAD = """\
#!/usr/bin/env bash
# MPS for {sharing} on one {gpu}.
#   bash FILE start            starts the daemons
#   bash FILE run JOB COMMAND  runs COMMAND as the job of that number, with its limits and cores
#   bash FILE stop             ends the daemons; the jobs must have ended
"""


def mps_text(plan: LaunchPlan) -> str:
    """Return a script that starts and stops the plan's MPS daemons, and runs commands as its jobs.

    Raises:
        InvalidInput: No job of `plan` shares by MPS.
    """
    partitions = [part for part in plan.partitions if part.under_mps]
    if not partitions:
        raise InvalidInput(
            f"{plan.sharing}: no job of it shares by MPS. Export it as commands instead."
        )
    head = _MPS_HEAD.format(sharing=plan.sharing, gpu=plan.gpu.key)
    script = [*_cap_wanted(plan), *_places(partitions), *_verbs(partitions), ""]
    return head + "\n".join(script)


def _cap_wanted(plan: LaunchPlan) -> Iterator[str]:
    """A comment, where somebody else has to set the power cap of `plan`."""
    if plan.power_cap_w is not None:
        cap = f"nvidia-smi -i 0 --power-limit={plan.power_cap_w:g}"
        yield f"# It does not set the plan's power cap. As root: {cap}"


def _places(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    if any(part.instance for part in partitions):
        yield f"# {NOT_RUN}"
    yield "set -euo pipefail"
    yield shell.NOBODYS_MPS
    yield from which_gpu(None)
    yield from shell.core_words(partitions, by_scheduler=False)
    for part in partitions:
        if part.instance:
            yield f': "${{MIG_{part.number}:?set it to the UUID of {part}: nvidia-smi -L}}"'
    # A short path, since pipes are Unix sockets.
    yield "folder=${XDG_RUNTIME_DIR:-/tmp/advisor-$UID}/advisor-mps"
    for part in partitions:
        yield f"{shell.folder(part)}=$folder/{part.number}"


def _verbs(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    yield from MPS_WORDS
    yield "stop() {"
    yield from (f"  {shell.daemon_stopped(part)}" for part in partitions)
    yield "}"
    yield 'usage() { echo "usage: $0 start | run JOB COMMAND... | stop" >&2; exit 2; }'
    yield "case ${1:-} in"
    yield "start)"
    yield from (f"  {line}" for line in _start(partitions))
    yield "  ;;"
    yield "stop)"
    yield from ("  stop", "  ;;", "run)", "  [ $# -gt 2 ] || usage", "  job=$2", "  shift 2")
    yield from _run_verbs(partitions)
    yield from ("  ;;", "*) usage ;;", "esac")


def _start(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    """Lines that start all daemons or none, and leave running daemons alone."""
    if not any(part.instance for part in partitions):
        yield from whole_wanted()
    for part in partitions:
        message = f'echo "MPS runs already, in ${shell.folder(part)}: bash $0 stop" >&2'
        yield f"! {shell.daemon_answers(part)} || {{ {message}; exit 1; }}"
    for part in partitions:
        yield f'mkdir -p "${shell.folder(part)}"'
        yield f"{shell.device(part)} {shell.daemon_started(part)} || {{ stop; exit 1; }}"


def _run_verbs(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    yield "  case $job in"
    for part in partitions:
        off = '{ echo "MPS is off: bash $0 start" >&2; exit 1; }'
        for start in part.starts:
            words = [shell.numbered(start), shell.device_of_job(part), *shell.client(part, start)]
            yield f"  {start.number})  # {start.job.name}"
            yield f"    {shell.daemon_answers(part)} || {off}"
            yield f'    exec env {" ".join([*words, *shell.pinned(start)])} "$@" ;;'
    yield '  *) echo "no job of this plan under MPS: $job" >&2; exit 2 ;;'
    yield "  esac"


def mig_parted_text(plan: LaunchPlan) -> str:
    """Return a configuration of GPU 0 for each stage: ``advisor``, or ``advisor-1``, ...

    mig-parted's format is v1, as its documentation and examples have it: by configuration, the
    devices, whether MIG is on, and how many of each profile; ``3c.7g.141gb`` is a compute instance.
    """
    return "\n".join([*_configurations(plan), ""])


def _configurations(plan: LaunchPlan) -> Iterator[str]:
    several = len(plan.stages) > 1
    yield f"# {plan.sharing} on one {plan.gpu.key}."
    if plan.on_mig:
        yield f"# {NOT_RUN}"
        yield "# Places are left to mig-parted: the file has no word for them."
    if any(part.under_mps for part in plan.partitions):
        yield "# It does not start MPS: the script of `advisor export --format mps` does."
    yield from _cap_wanted(plan)
    yield "# Apply: nvidia-mig-parted apply -f FILE -c " + ("advisor-1" if several else "advisor")
    yield "version: v1"
    yield "mig-configs:"
    for number, stage in enumerate(plan.stages, start=1):
        yield f"  advisor-{number}:" if several else "  advisor:"
        yield "    - devices: [0]"
        yield f"      mig-enabled: {'true' if stage.on_mig else 'false'}"
        if stage.on_mig:
            yield "      mig-devices:"
            counts = Counter(str(part.profile) for part in stage.partitions)
            yield from (f'        "{profile}": {count}' for profile, count in counts.items())


EXPORTS: dict[ExportFormat, Callable[[LaunchPlan], str]] = {
    "commands": commands_text,
    "mps": mps_text,
    "mig-parted": mig_parted_text,
    "slurm": slurm_text,
    "radt": radt_text,
    "json": plan_text,
}
"""Writers by format; they raise InvalidInput if the format cannot express a plan."""

SUFFIXES: dict[ExportFormat, str] = {
    "commands": "commands.sh",
    "mps": "mps.sh",
    "mig-parted": "mig-parted.yaml",
    "slurm": "slurm.sh",
    "radt": "radt.csv",
    "json": "json",
}
"""Ends of file names by format, after a dot."""


class ExportedPlans(NamedTuple):
    """A plan as a file; `notes`: what to know before applying it, and the file does not say."""

    text: str
    notes: tuple[str, ...]


def exported(
    jobs: Sequence[Job], gpu: Gpu, prediction: MixPrediction, form: ExportFormat
) -> ExportedPlans:
    """Return the plan of `jobs` for which `prediction` was made, in a format of `EXPORTS`.

    Raises:
        InvalidInput: The format cannot express this plan.
        NothingFits: The jobs run out of memory, or `gpu` cannot be cut up like that.
    """
    plan = launch_plan(jobs, gpu, prediction)
    check_memory(plan, prediction)
    text = EXPORTS[form](plan)
    wanted = radt_wants(plan) if form == "radt" else ()
    return ExportedPlans(text, (*[NOT_RUN] * plan.on_mig, *wanted))
