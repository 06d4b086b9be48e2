"""The shell lines that apply plans on the GPUs of one host, and the plans of a fleet's GPUs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.errors import InvalidInput
from advisor.launch import ExportFormat, shell
from advisor.launch.launch_plan import (
    NOT_RUN,
    LaunchPartition,
    LaunchPlan,
    Start,
    gres_names,
    launch_plan,
)
from advisor.plan.values import Plan, Recommendation

if TYPE_CHECKING:
    from advisor.plan.fleet import FleetForecast


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
    return ("(", *(f"  {line}" for line in _script(plan, device)), ")")


def commands_text(plan: LaunchPlan, gpu: str | None = None) -> str:
    """Return a script that applies `plan` by hand.

    Args:
        plan: The plan.
        gpu: Shell words for the index or UUID of the GPU; None: the caller's variable ``GPU``.
    """
    return "\n".join(["#!/usr/bin/env bash", *_script(plan, gpu), ""])


def _script(plan: LaunchPlan, gpu: str | None) -> Iterator[str]:
    yield from _head([plan])
    if gpu is not None:
        yield f"GPU={gpu}"
    yield from _plan_function(plan, "plan")
    yield from shell.functions([plan])
    yield f'begin {_mode(plan)}; plan; exit "$failed"'


def _head(plans: Sequence[LaunchPlan]) -> Iterator[str]:
    """Comments on what to know before applying `plans`."""
    yield f"# {', '.join(str(plan.sharing) for plan in plans)} on {plans[0].gpu.key}."
    if any(plan.on_mig for plan in plans):
        yield f"# {NOT_RUN} Nothing else may run on the GPU."
    yield from dict.fromkeys(line for plan in plans for line in shell.own_commands_wanted(plan))


def _plan_function(plan: LaunchPlan, name: str) -> Iterator[str]:
    yield from (f"{name}() {{", *(f"  {line}" for line in shell.plan_lines(plan)), "}")


def _mode(plan: LaunchPlan) -> str:
    """The word for `begin` by which the GPU may be in MIG mode, or not."""
    return "mig" if plan.on_mig else "whole"


def side_by_side(
    plans: Mapping[int, LaunchPlan], jobs: Mapping[int, Sequence[int]]
) -> tuple[LaunchPlan, ...]:
    """Return `plans` of GPUs of one host, with disjoint numbers of partitions.

    Args:
        plans: Plans by the index of the GPU, each with its jobs numbered from 1.
        jobs: Numbers of the jobs of each plan among all jobs, by the same index.
    """
    moved: list[LaunchPlan] = []
    partitions = 0
    for device, plan in plans.items():
        own = _renumbered(plan, jobs[device], partitions)
        moved.append(replace(own, number=device, device=device))
        partitions += len(plan.partitions)
    return tuple(moved)


def _renumbered(plan: LaunchPlan, jobs: Sequence[int], partitions: int) -> LaunchPlan:
    """`plan` with its jobs called by `jobs`, and its partitions numbered after others."""

    def start(own: Start) -> Start:
        return replace(own, number=jobs[own.number - 1])

    def part(own: LaunchPartition) -> LaunchPartition:
        return replace(own.with_starts(start), number=partitions + own.number)

    return plan.with_partitions(part)


def commands_at_once(plans: Sequence[LaunchPlan]) -> tuple[str, ...]:
    """Return lines that apply `plans`, as made by `fleet_launch_plans`, and wait for all of them.

    Raises:
        InvalidInput: They are not for jobs of one GPU on equal GPUs of one host.
    """
    return ("(", *(f"  {line}" for line in _script_at_once(plans)), ")")


def commands_text_of_all(plans: Sequence[LaunchPlan]) -> str:
    """Return a script that applies all `plans`, as `commands_at_once` does."""
    return "\n".join(["#!/usr/bin/env bash", *_script_at_once(plans), ""])


def _script_at_once(plans: Sequence[LaunchPlan]) -> Iterator[str]:
    if why := why_not_started(plans):
        raise InvalidInput(why)
    yield from _head(plans)
    for plan in plans:
        yield from _plan_function(plan, f"plan_{plan.device}")
    yield from (*shell.functions(plans), *shell.bash("gpus"))
    yield from (f"on_gpu {plan.device} {_mode(plan)}" for plan in plans)
    yield from ("wait_for_gpus 0", 'exit "$failed"')


def with_commands(advised: Recommendation, device: str | None = None) -> Recommendation:
    """Return `advised` with the `commands` of each plan for the GPU `device`."""
    plans: list[Plan] = []
    for plan in advised.plans:
        launched = launch_plan(advised.jobs, advised.gpu, plan.prediction)
        plans.append(replace(plan, commands=commands(launched, device)))
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
    remedy = f"Export the plan: `advisor export --format {format_instead(plans)}`."
    return f"No shell script runs jobs on {places}. {remedy}"


def format_instead(plans: Sequence[LaunchPlan]) -> ExportFormat:
    """Return the format of plans that no shell script applies; Slurm makes no MIG instances."""
    return "json" if any(plan.on_mig for plan in plans) else "slurm"


def fleet_launch_plans(fleet: "FleetForecast", gres: str | None = None) -> tuple[LaunchPlan, ...]:
    """Return what each GPU runs, in the order of `FleetForecast.on`, its jobs numbered among all.

    A job that takes several GPUs is in the plan of each of them, with the same number. `gres` names
    the GPUs to Slurm as `gres_names` has it.
    """
    names = gres_names([pool.gpu.key for pool in fleet.pools], gres)
    plans = {on.number: launch_plan(on.members, on.gpu, on.forecast.prediction) for on in fleet.on}
    sizes = [pool.host_gpus for pool in fleet.pools for _ in range(pool.hosts)]
    places = [(host, device) for host, size in enumerate(sizes) for device in range(size)]
    return tuple(
        replace(
            plan,
            host=places[plan.number][0],
            device=places[plan.number][1],
            gres=names.get(plan.gpu.key),
        )
        for plan in side_by_side(plans, {on.number: on.jobs for on in fleet.on})
    )
