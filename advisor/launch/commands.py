"""The shell lines that apply a plan by hand, and plans for several GPUs of one host at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.errors import InvalidInput
from advisor.launch import shell
from advisor.launch.launch_plan import (
    NOT_RUN,
    LaunchPartition,
    LaunchPlan,
    Stage,
    Start,
    launch_plan,
)
from advisor.launch.shell import (
    make_instances,
    mig_mode_line,
    mig_words,
    note_mig_mode,
    which_gpu,
    whole_wanted,
)
from advisor.plan.fleet import FleetPlan
from advisor.plan.values import Plan, Recommendation

_UUID = re.compile(r"GPU-[0-9a-fA-F-]{1,64}")


def commands(plan: LaunchPlan, device: str | None = None) -> tuple[str, ...]:
    """Return shell lines that apply the plan on a GPU; each job is pinned to host cores of its own.

    One shell runs them all and ends with the status of a job that failed. However it ends, it
    leaves no job, daemon or power cap behind.
    """
    return (*head(plan), "(", *(f"  {line}" for line in body(plan, device)), ")")


def commands_text(plan: LaunchPlan) -> str:
    """Return a script of the shell lines that apply `plan` by hand."""
    return "\n".join(["#!/usr/bin/env bash", *head(plan), *body(plan), ""])


def commands_on(plan: LaunchPlan, device: str) -> tuple[str, ...]:
    """Return `commands` for a GPU of this host by its index in ``nvidia-smi`` or its UUID.

    Raises:
        InvalidInput: `device` is neither an index nor a UUID.
    """
    if not re.fullmatch(r"\d{1,4}", device) and not _UUID.fullmatch(device):
        raise InvalidInput(
            f"--device {device}: commands are for a whole GPU. Name its index or its UUID, as "
            f"`nvidia-smi -L` lists them."
        )
    return commands(plan, device)


def body(plan: LaunchPlan, device: int | str | None = None) -> tuple[str, ...]:
    """Return the lines of `commands` for an existing shell; `device` as for `which_gpu`."""
    cap_w, cap = plan.power_cap_w, []
    mig = mig_words() if plan.on_mig else []
    guard = shell.guard(plan.partitions, which_gpu(device), cap=cap_w is not None, mig=mig)
    first = note_mig_mode(plan) if plan.on_mig else whole_wanted()
    if cap_w is not None:
        query = 'nvidia-smi -i "$GPU" --query-gpu=power.limit --format=csv,noheader,nounits'
        cap = [
            f"cap_was_w=$({query}) || exit",
            'note "cap $cap_was_w"',
            f'as_root nvidia-smi -i "$GPU" --power-limit={cap_w:g} || exit',
        ]
    return (*guard, *first, *cap, *_lines(plan), shell.STATUS)


def head(plan: LaunchPlan) -> Iterator[str]:
    """Yield comments on what to know before applying `plan`."""
    if plan.on_mig:
        yield f"# {NOT_RUN} Nothing else may run on the GPU."
    yield from shell.own_commands_wanted(plan)


def _lines(plan: LaunchPlan) -> Iterator[str]:
    for number, stage in enumerate(plan.stages, start=1):
        if len(plan.stages) > 1:
            jobs = ", ".join(str(start.number) for start in stage.starts)
            yield f"# Group {number} of {len(plan.stages)}: job {jobs}."
        if plan.on_mig:
            yield mig_mode_line(plan, on=stage.on_mig)
        if stage.on_mig:
            yield from make_instances(stage, plan.gpu)
        yield from run(stage.partitions)
        if stage.on_mig:
            yield "undo made took || exit"


def run(partitions: Sequence[LaunchPartition], *, by_scheduler: bool = False) -> Iterator[str]:
    """Yield lines that start daemons and jobs, wait for the jobs, and end the daemons.

    They come after those of `shell.guard`.

    Args:
        partitions: The partitions of one stage.
        by_scheduler: Leave out devices, which a scheduler assigns, and pin jobs that share its
            cores among those.
    """
    served = [part for part in partitions if part.under_mps]
    for part in served:
        name = shell.folder(part)  # pipes are Unix sockets, whose paths are short
        yield f'{name}=$(mktemp -d /tmp/advisor-mps.XXXXXX) && note "mps ${name}" || exit'
        where = [] if by_scheduler else [shell.device(part)]
        yield " ".join([*where, shell.daemon_started(part), "|| exit"])
    one_by_one = partitions[0].sharing.mode == "serial"
    for part in partitions:
        seen = by_scheduler and not shell.renumbered(part)
        where = [] if seen else [shell.device_of_job(part)]
        for start in part.starts:
            given = [shell.numbered(start), *where, *shell.client(part, start)]
            yield " ".join([*given, "job", *shell.pinned(start), shell.command(start)])
            if one_by_one:
                yield "ended"
    if not one_by_one:
        yield "ended"
    if served:
        yield "undo mps || exit"


def side_by_side(
    plans: Mapping[int, LaunchPlan], jobs: Mapping[int, Sequence[int]]
) -> tuple[LaunchPlan, ...]:
    """Return `plans` with devices, and with disjoint host cores and partition numbers.

    Args:
        plans: By the index of the GPU; each as if it had the host alone, with its jobs numbered
            from 1.
        jobs: Numbers of the jobs of each plan among all jobs, by the same index.
    """
    moved: list[LaunchPlan] = []
    partitions = cores = 0
    for device, plan in plans.items():
        moved.append(_moved(plan, device, jobs[device], partitions, cores))
        partitions += len(plan.partitions)
        ends = (start.cores[1] + 1 for start in moved[-1].starts if start.cores)
        cores = max(ends, default=cores)
    return tuple(moved)


def _moved(
    plan: LaunchPlan, device: int, jobs: Sequence[int], partitions: int, cores: int
) -> LaunchPlan:
    """`plan` on the GPU `device`, with jobs, partitions and cores numbered after others."""

    def start(its: Start) -> Start:
        own = its.cores and (cores + its.cores[0], cores + its.cores[1])
        return replace(its, number=jobs[its.number - 1], cores=own)

    def part(its: LaunchPartition) -> LaunchPartition:
        starts = tuple(map(start, its.starts))
        return replace(its, number=partitions + its.number, starts=starts, device=device)

    stages = (Stage(tuple(map(part, stage.partitions))) for stage in plan.stages)
    return replace(plan, stages=tuple(stages))


# Each GPU has a shell of its own, which undoes what it did when it is asked to end.
_AT_ONCE = (
    "set -euo pipefail",
    "jobs='' failed=0",
    'ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }',
    "trap 'trap \"\" INT HUP TERM; kill $jobs 2> /dev/null || :; wait' EXIT",
    "trap 'exit 130' INT",
    "trap 'exit 143' HUP TERM",
)


def commands_at_once(plans: Sequence[LaunchPlan]) -> tuple[str, ...]:
    """Return lines that apply `plans`, as made by `side_by_side`, and wait for all of them."""
    heads = dict.fromkeys(line for plan in plans for line in head(plan))
    shells: list[str] = []
    for plan in plans:
        numbers = ", ".join(str(start.number) for start in plan.starts)
        lines = (f"  {line}" for line in body(plan, plan.device))
        shells += [f"(  # GPU {plan.device}: job {numbers}", *lines, ') & jobs="$jobs $!"']
    inside = (*_AT_ONCE, *shells, "ended", shell.STATUS)
    return (*heads, "(", *(f"  {line}" for line in inside), ")")


def with_commands(advised: Recommendation, device: str | None = None) -> Recommendation:
    """Return `advised` with the commands of each plan for the GPU `device`.

    Args:
        advised: For any GPU of its model.
        device: Index as ``nvidia-smi`` counts, or UUID; None: the host's first.

    Raises:
        InvalidInput: `device` is neither an index nor a UUID.
    """
    plans: list[Plan] = []
    for plan in advised.plans:
        launched = launch_plan(advised.jobs, advised.gpu, plan.prediction)
        lines = commands(launched) if device is None else commands_on(launched, device)
        plans.append(replace(plan, commands=lines))
    return replace(advised, plans=tuple(plans), serial=plans[advised.serial.rank - 1])


def fleet_launch_plans(fleet: FleetPlan) -> tuple[LaunchPlan, ...]:
    """Return what each GPU runs, in the order of `FleetPlan.on`, its jobs numbered among all."""
    plans = {
        on.number: launch_plan(on.candidate.chosen(fleet.jobs), fleet.gpu, on.forecast.prediction)
        for on in fleet.on
    }
    return side_by_side(plans, {on.number: on.candidate.jobs for on in fleet.on})
