"""The shell lines that apply a plan by hand, and plans for several GPUs of one host at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.errors import InvalidInput
from advisor.launch import shell
from advisor.launch.launch_plan import NOT_RUN, LaunchPartition, LaunchPlan, Start, launch_plan
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
    "at_once=''",
    "trap 'trap \"\" INT HUP TERM; kill $at_once 2> /dev/null || :; wait' EXIT",
    "trap 'exit 130' INT; trap 'exit 143' HUP TERM",
)


def commands_at_once(plans: Sequence[LaunchPlan]) -> tuple[str, ...]:
    """Return lines that apply `plans`, as made by `side_by_side`, and wait for all of them."""
    return ("(", *(f"  {line}" for line in _script_at_once(plans)), ")")


def commands_text_of_all(plans: Sequence[LaunchPlan]) -> str:
    """Return a script that applies all `plans`, as made by `side_by_side`, by hand on one host."""
    return "\n".join(["#!/usr/bin/env bash", *_script_at_once(plans), ""])


def _script_at_once(plans: Sequence[LaunchPlan]) -> Iterator[str]:
    yield from _head(plans)
    for plan in plans:
        yield from _plan_function(plan, f"plan_{plan.device}")
    yield from (*shell.functions(plans), *_AT_ONCE)
    for plan in plans:
        run = f'begin {_mode(plan)}; plan_{plan.device}; exit "$failed"'
        yield f'(GPU={plan.device}; {run}) & at_once+=" $!"'
    yield from ("jobs=$at_once", "wait_for_jobs", 'exit "$failed"')


def with_commands(advised: Recommendation, device: str | None = None) -> Recommendation:
    """Return `advised` with the `commands` of each plan for the GPU `device`."""
    plans: list[Plan] = []
    for plan in advised.plans:
        launched = launch_plan(advised.jobs, advised.gpu, plan.prediction)
        plans.append(replace(plan, commands=commands(launched, device)))
    return replace(advised, plans=tuple(plans), serial=plans[advised.serial.rank - 1])


def why_not_started(fleet: "FleetForecast") -> str | None:
    """Return why no script starts a plan for several GPUs; None: one does."""
    by_hand = "start them by hand (`recommend --details`)."
    if len(fleet.pools) > 1:
        return f"No script starts jobs on several models of GPU: {by_hand}"
    if fleet.pools[0].hosts > 1:
        return f"No script starts jobs on {fleet.pools[0].hosts} hosts: {by_hand}"
    if wide := next((job for job in fleet.jobs if job.gpus > 1), None):
        return f"No script starts {wide.name} on {wide.gpus} GPUs: {by_hand}"
    return None


def fleet_launch_plans(fleet: "FleetForecast") -> tuple[LaunchPlan, ...]:
    """Return what each GPU runs, in the order of `FleetForecast.on`, its jobs numbered among all.

    Raises:
        InvalidInput: No script starts it.
    """
    if why := why_not_started(fleet):
        raise InvalidInput(why)
    plans = {on.number: launch_plan(on.members, on.gpu, on.forecast.prediction) for on in fleet.on}
    return side_by_side(plans, {on.number: on.jobs for on in fleet.on})
