"""Plans as shell scripts: `plan_lines` are the jobs, files in ``bash/`` the functions they call.

    core.sh   finds the GPU, ends jobs
    jobs.sh   locks the GPU, starts jobs, notes and undoes changes
    queue.sh  starts jobs when others end
    gpus.sh   has a shell for each of several GPUs
    mps.sh    MPS daemons
    loader.sh a data loader for several jobs
    root.sh, power.sh, mig.sh   the power limit and MIG
    stop_job.sh   for `advisor stop --job`, in no script

Before each change, `undo_by` adds the command that undoes it to a state file, which starts with all
functions; it counts once it has its line ``# boot``. So the script's own end, the next script on
that GPU after a kill, and `undo_left` in `advisor.run.start` undo it the same way. A process
belongs to a job if ``ADVISOR_MARK`` in its environment is MARK-NUMBER-; to an MPS daemon if it is
mps-FOLDER. If no daemon answers, CUDA silently runs without MPS: so the script asks each daemon.
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.hardware.machine import client_variables
from advisor.hardware.mig import profile_of
from advisor.launch.launch_plan import (
    NOT_RUN,
    LaunchPartition,
    LaunchPlan,
    Stage,
    Start,
    launch_plans,
)
from advisor.plan.values import Plan, Recommendation
from advisor.sharing import Instance
from advisor.workload.spec import is_secret


def commands(plans: Sequence[LaunchPlan]) -> tuple[str, ...]:
    """Return shell lines that apply `plans` on GPUs of one host, and wait for all of them.

    One shell runs them all and ends with the status of a job that failed. However it ends, it
    leaves no job, daemon or power cap behind. The GPU of a single plan is that of the caller's
    variable ``GPU``, else as planned.

    Raises:
        InvalidInput: No script runs the plans.
    """
    return ("(", *(f"  {line}" for line in _script(plans, None)), ")")


def commands_text(plans: Sequence[LaunchPlan], gpu: str | None = None) -> str:
    """Return the script of `plans`, as `commands` does; `gpu`: shell words for its GPU."""
    return "\n".join(["#!/usr/bin/env bash", *_script(plans, gpu), ""])


def _script(plans: Sequence[LaunchPlan], gpu: str | None) -> Iterator[str]:
    if why := why_not_started(plans):
        raise InvalidInput(why)
    yield f"# {', '.join(str(plan.sharing) for plan in plans)} on {plans[0].gpu.key}."
    if any(plan.on_mig for plan in plans):
        yield f"# {NOT_RUN} Nothing else may run on the GPU."
    yield from dict.fromkeys(line for plan in plans for line in own_commands_wanted(plan))
    if len(plans) == 1:
        (plan,) = plans
        if gpu is not None or plan.device:
            yield f"GPU={gpu or f'${{GPU:-{plan.device}}}'}"
        yield from (*_function("plan", plan), *functions(plans))
        yield f'begin {_mode(plan)}; plan; exit "$failed"'
        return
    for plan in plans:
        yield from _function(f"plan_{plan.device}", plan)
    yield from (*functions(plans), *bash("gpus"))
    yield from (f"on_gpu {plan.device} {_mode(plan)}" for plan in plans)
    yield from ("wait_for_gpus 0", 'exit "$failed"')


def _function(name: str, plan: LaunchPlan) -> Iterator[str]:
    yield from (f"{name}() {{", *(f"  {line}" for line in plan_lines(plan)), "}")


def _mode(plan: LaunchPlan) -> str:
    """The word for `begin` by which the GPU may be in MIG mode, or not."""
    return "mig" if plan.on_mig else "whole"


def with_commands(advised: Recommendation) -> Recommendation:
    """Return `advised` with the `commands` of each plan, and of each of several GPUs."""
    plans: list[Plan] = []
    for plan in advised.plans:
        launched = launch_plans(advised.hosts, plan)
        gpus = tuple(
            replace(on, commands=() if own.wide or advised.gpus == 1 else commands([own]))
            for on, own in zip(plan.gpus, launched, strict=True)
        )
        lines = () if why_not_started(launched) else commands(launched)
        plans.append(replace(plan, gpus=gpus, commands=lines))
    return replace(advised, plans=tuple(plans), serial=plans[advised.serial.rank - 1])


def why_not_started(plans: Sequence[LaunchPlan]) -> str | None:
    """Return why no shell script applies the plans of several GPUs; None: one does."""
    if len({plan.gpu for plan in plans}) > 1:
        places = "several models of GPU"
    elif (hosts := len({plan.host for plan in plans})) > 1:
        places = f"{hosts} hosts"
    elif wide := next(filter(None, (plan.wide for plan in plans)), None):
        places = f"several GPUs at once, as {wide.name} takes"
    else:
        return None
    form = "json" if any(plan.on_mig for plan in plans) else "slurm"  # which makes no instances
    return f"No shell script runs jobs on {places}. Export it: `advisor export --format {form}`."


@cache
def bash(name: str) -> tuple[str, ...]:
    """Return the lines of a file in ``bash/``."""
    return tuple((Path(__file__).parent / "bash" / f"{name}.sh").read_text().splitlines())


def functions(plans: Sequence[LaunchPlan]) -> Iterator[str]:
    """Yield lines that define what the functions of `plans` call."""
    yield from (*bash("core"), *bash("jobs"))
    if not all(part.under_mps for plan in plans for part in plan.partitions):
        yield "use() { device=${1:-$index} pipes=/dev/null; }  # for the next jobs, without MPS"
    queues = any(part.at_once for plan in plans for part in plan.partitions)
    yield from bash("queue") if queues else ()
    yield from bash("mps") if any(plan.under_mps for plan in plans) else ()
    yield from bash("loader") if any(plan.shares_loader for plan in plans) else ()
    capped, on_mig = any(plan.power_cap_w for plan in plans), any(plan.on_mig for plan in plans)
    yield from bash("root") if capped or on_mig else ()
    yield from bash("power") if capped else ()
    yield from bash("mig") if on_mig else ()


def plan_lines(plan: LaunchPlan) -> Iterator[str]:
    """Yield the lines that run the jobs of `plan`, between `begin` and the end."""
    yield from secrets(plan.starts)
    if plan.power_cap_w is not None:
        yield f"cap_power {plan.power_cap_w:.2f}"
    if plan.switches_mode:
        yield "keep_mig_mode"
    for number, stage in enumerate(plan.stages, start=1):
        if number > 1:
            yield 'undo "${kept-0}"'
        if len(plan.stages) > 1:
            jobs = ", ".join(str(start.number) for start in stage.starts)
            yield f"# Group {number} of {len(plan.stages)}: job {jobs}."
        if plan.on_mig:
            verb = "switch_mig" if plan.switches_mode else "mig_mode"
            yield f"{verb} {'Enabled 1' if stage.on_mig else 'Disabled 0'}"
        if stage.on_mig:
            yield from make_instances(stage, plan.gpu)
        yield from job_lines(stage)


def job_lines(stage: Stage) -> Iterator[str]:
    """Yield lines that start the jobs of `stage`, whose instances are there, and wait for them."""
    lines = [part for part in stage.partitions if part.instance and part.at_once]
    for part in stage.partitions:
        if part in lines:
            continue
        yield f"use_mps {device(part)} {part.number}" if part.under_mps else f"use {device(part)}"
        if part.of_loader:
            yield f"use_loader {len(part.of_loader)} {command(part.of_loader[0])}"
        for place, start in enumerate(part.starts):
            if part.at_once and place >= part.at_once:
                yield f"wait_for_room {part.at_once}"
            yield " ".join([*client_settings(part, start), f"job {start.number}", command(start)])
            if stage.one_by_one:
                yield "wait_for_jobs"
    for part in lines:
        for start in part.starts:
            job = f"job {start.number} {command(start)}"
            yield f"start_{start.number}() {{ use {device(part)}; {job}; }}"
    if lines:
        numbers = ((str(start.number) for start in part.starts) for part in lines)
        yield " ".join(["run_lines", *(f"'{' '.join(each)}'" for each in numbers)])
    if not stage.one_by_one:
        yield "wait_for_jobs"


def device(part: LaunchPartition) -> str:
    """Return the word for the device of `part`, for `use` and `use_mps`; empty: the whole GPU."""
    return "''" if part.instance is None else f'"$MIG_{part.number}"'


def client_settings(part: LaunchPartition, start: Start) -> list[str]:
    """Return the loader of a job, and its limits as a client of MPS."""
    words = ['ADVISOR_LOADER="$loader"'] if start in part.of_loader else []
    if part.under_mps:
        variables = client_variables(start.limit, start.memory_cap_mib)
        words += [f"{name}={value}" for name, value in variables.items()]
    return words


def make_instances(stage: Stage, gpu: Gpu) -> Iterator[str]:
    """Yield lines that make the stage's instances, and set ``MIG_n`` to the UUID of partition n.

    If the caller has set these, no instance is made.

    The commands follow NVIDIA's MIG User Guide, Getting Started: GPU instances by profile id and
    first memory slice, compute instances of a divided one by name. The largest come first, because
    the driver chooses the places of compute instances. Instances of others are left alone. If
    ADVISOR_REPLACE is set, idle ones that are in the way are removed, and made again at the end.
    Untested on MIG hardware.
    """
    on_mig = [part for part in stage.partitions if part.instance]
    named = ", ".join(f"MIG_{part.number} ({part.profile})" for part in on_mig)
    yield f"# Instances that are there already: set {named} to their UUIDs."
    yield f'if [ -z "${{MIG_{on_mig[0].number}-}}" ]; then'
    whole, divided = cut_instances(stage, gpu)
    instances = dict.fromkeys(part.instance for part in stage.partitions if part.instance)
    taken = (f"{one.start}:{profile_of(gpu, one.profile).memory_slices}" for one in instances)
    yield f"  mig_clear {' '.join(taken)}"
    if whole:
        yield f"  mig_make -C {' '.join(whole)}"
    for place, names in divided.items():
        yield f"  mig_make '' {place}"
        yield f"  mig_split {place} {','.join(names)}"
    counts = Counter[tuple[str, str]]()
    for part, instance in [(part, part.instance) for part in stage.partitions if part.instance]:
        place, name = _place(instance, gpu), "" if part.slices is None else str(part.profile)
        counts[place, name] += 1
        words = [place, *([name, str(counts[place, name])] if name else [])]
        yield f"  MIG_{part.number}=$(mig_uuid {' '.join(words)})"
    yield "fi"


def cut_instances(stage: Stage, gpu: Gpu) -> tuple[list[str], dict[str, list[str]]]:
    """Return arguments of ``-cgi`` and ``-cci``, largest first; instances are ``ID:START``.

    Returns:
        Those with one compute instance, and the names of the compute instances of each other.
    """
    parts: dict[Instance, list[LaunchPartition]] = defaultdict(list)
    for part in stage.partitions:
        if part.instance:
            parts[part.instance].append(part)
    whole: list[str] = []
    divided: dict[str, list[str]] = {}
    for instance in sorted(
        parts, key=lambda each: (-profile_of(gpu, each.profile).memory_slices, each.start)
    ):
        if parts[instance][0].slices is None:
            whole.append(_place(instance, gpu))
        else:
            own = sorted(parts[instance], key=lambda part: -(part.slices or 0))
            divided[_place(instance, gpu)] = [str(part.profile) for part in own]
    return whole, divided


def _place(instance: Instance, gpu: Gpu) -> str:
    return f"{profile_of(gpu, instance.profile).profile_id}:{instance.start}"


_HOOK_PATH = {"PYTHONPATH": '"${ADVISOR_HOOK_PATH:+$ADVISOR_HOOK_PATH:}"'}


def command(start: Start) -> str:
    """Return the command of the job's script in its folder, or a placeholder for the user's own.

    Secrets come from the caller's environment. ``ADVISOR_HOOK_PATH`` goes before ``PYTHONPATH``.
    """
    script = start.job.profile.workload.script
    if script is None:
        return shlex.quote(f"./{start.job.name}.sh")
    first = ["env", "-C", shlex.quote(script.folder)]
    for name, value in script.environment.items():
        own = _required(name) if is_secret(name) else shlex.quote(value)
        first.append(f"{name}={_HOOK_PATH.get(name, '')}{own}")
    return " ".join([*first, shlex.join(script.command)])


def without_mps(start: Start) -> str:
    """Return a line of plain sh that runs a job without any MPS daemon, even the machine's own."""
    return f"CUDA_MPS_PIPE_DIRECTORY=/dev/null ADVISOR_JOB={start.number} {command(start)}"


def secrets(starts: Iterable[Start]) -> Iterator[str]:
    """Yield lines that stop a script before it starts anything if a secret of a job is not set."""
    scripts = (start.job.profile.workload.script for start in starts)
    names = (name for script in scripts if script for name in script.environment)
    yield from dict.fromkeys(f": {_required(name)}" for name in names if is_secret(name))


def own_commands_wanted(plan: LaunchPlan) -> Iterator[str]:
    """Yield comments on commands that the user has to write, or that have to use several GPUs."""
    for start in plan.starts:
        if (gpus := start.job.gpus) > 1:
            use = f"its command must use all of them, e.g. torchrun --nproc-per-node={gpus}"
            yield f"# Job {start.number} has {gpus} GPUs: {use}."
    if any(start.job.profile.workload.script is None for start in plan.starts):
        yield "# Put your own command in place of each ./NAME.sh; ADVISOR_JOB is its number."


def power_caps_wanted(plans: Iterable[LaunchPlan]) -> Iterator[str]:
    """Yield a comment for each power cap of `plans` that somebody else has to set."""
    for plan in plans:
        if plan.power_cap_w is not None:
            cap = f"nvidia-smi -i {plan.device} --power-limit={plan.power_cap_w:g}"
            yield f"# It does not set the plan's power cap. As root on the node: {cap}"


def _required(name: str) -> str:
    return f'"${{{name}:?set {name}}}"'


_MPS_HEAD = """\
#!/usr/bin/env bash
# MPS for {sharing} on one {gpu}.
#   bash FILE start            starts the daemons
#   bash FILE run JOB COMMAND  runs COMMAND as the job of that number, with its limit
#   bash FILE stop             ends the daemons; the jobs must have ended"""


def mps_text(plans: Sequence[LaunchPlan]) -> str:
    """Return a script that starts and stops a plan's MPS daemons, and runs commands as its jobs.

    Raises:
        InvalidInput: No job of the plan shares by MPS, or such jobs are a queue.
    """
    (plan,) = plans
    partitions = [part for part in plan.partitions if part.under_mps]
    if not partitions:
        raise InvalidInput(f"{plan.sharing}: no job shares by MPS. Export it as commands instead.")
    if lacks := [
        *["jobs in order"] * any(part.at_once for part in partitions),
        *["a data loader for several jobs"] * plan.shares_loader,
    ]:
        raise InvalidInput(
            f"{plan.sharing}: this script does not start {lacks[0]}. Export it as commands instead."
        )
    head = _MPS_HEAD.format(sharing=plan.sharing, gpu=plan.gpu.key)
    return "\n".join([head, *power_caps_wanted([plan]), *_mps_lines(partitions), ""])


def _mps_lines(partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    on_mig = [part for part in partitions if part.instance]
    if on_mig:
        yield f"# {NOT_RUN}"
    for part in on_mig:
        yield f': "${{MIG_{part.number}:?set it to the UUID of {part}: nvidia-smi -L}}"'
    yield from (*bash("core"), *bash("mps"))
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
    yield from (f"  use_mps {device(part)} by-hand-{part.number}" for part in partitions)
    yield from ("  trap - EXIT", "  ;;", "stop) stop ;;")
    yield from ("run)", "  [ $# -gt 2 ] || usage", "  job=$2", "  shift 2", "  case $job in")
    for part in partitions:
        for start in part.starts:
            whole = "$client" if part.instance is None else f"$MIG_{part.number}"
            words = [f"ADVISOR_JOB={start.number}", f'CUDA_VISIBLE_DEVICES="{whole}"']
            words += ['CUDA_MPS_PIPE_DIRECTORY="$pipes"', *client_settings(part, start)]
            yield f"  {start.number})  # {start.job.name}"
            yield f"    folder {part.number}"
            yield '    mps get_server_list "$pipes" || fail "MPS is off: bash $0 start"'
            yield f'    exec env {" ".join(words)} "$@" ;;'
    yield '  *) echo "no job of this plan under MPS: $job" >&2; exit 2 ;;'
    yield from ("  esac", "  ;;", "*) usage ;;", "esac")
