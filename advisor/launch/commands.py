"""The shell lines that apply a plan by hand, and plans for several GPUs of one host at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.errors import InvalidInput
from advisor.launch import shell
from advisor.launch.launch_plan import NOT_RUN, LaunchPartition, LaunchPlan, Start, launch_plan
from advisor.plan.fleet import FleetPlan
from advisor.plan.values import Plan, Recommendation


def commands(plan: LaunchPlan, device: str | None = None) -> tuple[str, ...]:
    """Return shell lines that apply the plan on a GPU.

    One shell runs them all and ends with the status of a job that failed. However it ends, it
    leaves no job, daemon or power cap behind.

    Args:
        plan: The plan.
        device: Index of the GPU in ``nvidia-smi``, or its UUID; None: the caller's variable
            ``GPU``, else the first.

    Raises:
        InvalidInput: `device` is neither an index nor a UUID.
    """
    if device is not None and not re.fullmatch(r"\d{1,4}|(GPU|MIG)-[0-9a-fA-F-]{1,64}", device):
        raise InvalidInput(
            f"--device {device}: commands are for a whole GPU. Name its index or its UUID, as "
            f"`nvidia-smi -L` lists them."
        )
    return (*_head(plan), "(", *(f"  {line}" for line in _body(plan, device)), ")")


def commands_text(plan: LaunchPlan) -> str:
    """Return a script of the shell lines that apply `plan` by hand."""
    return "\n".join(["#!/usr/bin/env bash", *_head(plan), *_body(plan), ""])


def _head(plan: LaunchPlan) -> Iterator[str]:
    """Comments on what to know before applying `plan`."""
    if plan.on_mig:
        yield f"# {NOT_RUN} Nothing else may run on the GPU."
    yield from shell.own_commands_wanted(plan)


def _body(plan: LaunchPlan, device: int | str | None = None) -> Iterator[str]:
    cap_w, on_mig = plan.power_cap_w, plan.on_mig
    which = shell.which_gpu(device, plan.partitions)
    yield from shell.guard(plan.partitions, which, cap=cap_w is not None, mig=on_mig)
    if not on_mig:
        yield from shell.WHOLE_WANTED
    elif plan.switches_mode:
        query = "--query-gpu=mig.mode.current --format=csv,noheader"
        yield f'mode=$(nvidia-smi -i "$GPU" {query}) || exit'
        yield 'note "mode $mode"'
    if cap_w is not None:
        query = 'nvidia-smi -i "$GPU" --query-gpu=power.limit --format=csv,noheader,nounits'
        yield f"cap_was_w=$({query}) || exit"
        yield 'note "cap $cap_was_w"'
        yield f'as_root nvidia-smi -i "$GPU" --power-limit={cap_w:g} || exit'
    if any(part.instance is None and not part.under_mps for part in plan.partitions):
        yield from shell.VISIBLE
    for number, stage in enumerate(plan.stages, start=1):
        if len(plan.stages) > 1:
            jobs = ", ".join(str(start.number) for start in stage.starts)
            yield f"# Group {number} of {len(plan.stages)}: job {jobs}."
        if on_mig:
            verb = "mig_switch" if plan.switches_mode else "mig_is"
            yield f"{verb} {'Enabled 1' if stage.on_mig else 'Disabled 0'} || exit"
        if stage.on_mig:
            yield from shell.make_instances(stage, plan.gpu)
        yield from run(stage.partitions)
        if stage.on_mig:
            yield "undo made took || exit"
    yield shell.STATUS


def run(partitions: Sequence[LaunchPartition], *, by_scheduler: bool = False) -> Iterator[str]:
    """Yield lines that start daemons and jobs, wait for the jobs, and end the daemons.

    They come after those of `shell.guard`.

    Args:
        partitions: The partitions of one stage.
        by_scheduler: Leave out devices, which a scheduler assigns.
    """
    served = [part for part in partitions if part.under_mps]
    for part in served:
        name = shell.folder(part)  # pipes are Unix sockets, whose paths are short
        yield f'{name}=$(mktemp -d /tmp/advisor-mps.XXXXXX) && note "mps ${name}" || exit'
        where = [] if by_scheduler else [shell.device(part)]
        yield " ".join([*where, shell.daemon(part, "start"), "|| exit"])
    one_by_one = partitions[0].sharing.mode == "serial"
    for part in partitions:
        for start in part.starts:
            settings = shell.settings(part, start, by_scheduler=by_scheduler)
            yield " ".join([*settings, "job", shell.command(start)])
            if one_by_one:
                yield "ended"
    if not one_by_one:
        yield "ended"
    if served:
        yield "undo mps || exit"


def side_by_side(
    plans: Mapping[int, LaunchPlan], jobs: Mapping[int, Sequence[int]]
) -> tuple[LaunchPlan, ...]:
    """Return `plans` with devices, and with disjoint numbers of jobs and partitions.

    Args:
        plans: Plans by the index of the GPU, each with its jobs numbered from 1.
        jobs: Numbers of the jobs of each plan among all jobs, by the same index.
    """
    moved: list[LaunchPlan] = []
    partitions = 0
    for device, plan in plans.items():
        moved.append(_moved(plan, device, jobs[device], partitions))
        partitions += len(plan.partitions)
    return tuple(moved)


def _moved(plan: LaunchPlan, device: int, jobs: Sequence[int], partitions: int) -> LaunchPlan:
    """`plan` on the GPU `device`, with jobs and partitions numbered after others."""

    def start(own: Start) -> Start:
        return replace(own, number=jobs[own.number - 1])

    def part(own: LaunchPartition) -> LaunchPartition:
        return replace(own.with_starts(start), number=partitions + own.number, device=device)

    return plan.with_partitions(part)


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
    heads = dict.fromkeys(line for plan in plans for line in _head(plan))
    shells: list[str] = []
    for plan in plans:
        numbers = ", ".join(str(start.number) for start in plan.starts)
        lines = (f"  {line}" for line in _body(plan, plan.device))
        shells += [f"(  # GPU {plan.device}: job {numbers}", *lines, ') & jobs="$jobs $!"']
    inside = (*_AT_ONCE, *shells, "ended", shell.STATUS)
    return (*heads, "(", *(f"  {line}" for line in inside), ")")


def with_commands(advised: Recommendation, device: str | None = None) -> Recommendation:
    """Return `advised` with the `commands` of each plan for the GPU `device`."""
    plans: list[Plan] = []
    for plan in advised.plans:
        launched = launch_plan(advised.jobs, advised.gpu, plan.prediction)
        plans.append(replace(plan, commands=commands(launched, device)))
    return replace(advised, plans=tuple(plans), serial=plans[advised.serial.rank - 1])


def fleet_launch_plans(fleet: FleetPlan) -> tuple[LaunchPlan, ...]:
    """Return what each GPU runs, in the order of `FleetPlan.on`, its jobs numbered among all."""
    plans = {
        on.number: launch_plan(on.chosen(fleet.jobs), fleet.gpu, on.forecast.prediction)
        for on in fleet.on
    }
    return side_by_side(plans, {on.number: on.jobs for on in fleet.on})
