"""Plans for many jobs on equal GPUs, as JSON and as shell lines."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from advisor.errors import InvalidInput
from advisor.launch.commands import commands, commands_at_once, commands_on
from advisor.launch.fleet_launch import fleet_launch_plans
from advisor.launch.launch_plan import LaunchPlan
from advisor.plan.fleet_plan import FleetPlan
from advisor.report.documents import (
    SCHEMA,
    asked_document,
    forecast_document,
    interval_document,
    standing_document,
    workloads_document,
)
from advisor.report.fleet_text import fleet_faster, fleet_words, search_line


def fleet_document(found: FleetPlan, device: str | None = None) -> dict[str, Any]:
    """What ``advisor recommend --json`` prints for many jobs, or for several GPUs.

    Args:
        found: The plan.
        device: Index of the GPU that the commands are for, for a plan of one GPU; None: the first.

    Raises:
        InvalidInput: There is no such device.
    """
    return {
        "schema": SCHEMA,
        "gpu": found.gpu.key,
        "gpus": found.terms.gpus,
        "objective": found.terms.objective,
        "ranked_by": found.ranked_by,
        "note": found.note,
        **standing_document(found.standing),
        "workloads": workloads_document(found.jobs),
        "epochs": [job.epochs for job in found.jobs],
        "serial": {"sharing": "serial", "makespan_s": found.serial_s},
        "plans": [_plan(found, device)],
        "left_out": [],
    }


def fleet_commands(found: FleetPlan, rank: int, device: str | None = None) -> str:
    """Shell lines of the plan, of which there is one; arguments as of `fleet_document`.

    Raises:
        InvalidInput: There is no such plan, or no such device.
    """
    if rank != 1:
        raise InvalidInput(f"there is no plan {rank}; of many jobs there is one, plan 1.")
    return "\n".join(_commands(fleet_launch_plans(found), device))


def _plan(found: FleetPlan, device: str | None) -> dict[str, Any]:
    makespan_s, plans = found.makespan_s, fleet_launch_plans(found)
    return {
        "rank": 1,
        "ties_best": True,
        "sharing": " | ".join(fleet_words(each) for each in found.on),
        "commands": _commands(plans, device),
        "why": search_line(found),
        "jobs": _jobs(found),
        "makespan_s": None if makespan_s is None else makespan_s.p50,
        "makespan_interval_s": interval_document(makespan_s),
        "mean_completion_s": found.mean_completion_s,
        "speedup_vs_serial": fleet_faster(found),
        "energy_j": interval_document(found.energy_j),
        "power_cap_w": found.on[0].forecast.prediction.power_cap_w,  # of the question, so of all
        "late": list(found.late),
        "gpus": [
            {"number": each.number, "job_numbers": list(each.candidate.jobs)}
            | {"commands": list(_alone(plan, device))}
            | forecast_document(each.forecast)
            for each, plan in zip(found.on, plans, strict=True)
        ],
        "search": {name: getattr(found.search, name) for name in _OF_SEARCH},
    }


_OF_SEARCH = ("groups", "predicted", "seconds", "cost", "bound", "gap", "complete", "in_time")


def _jobs(found: FleetPlan) -> list[dict[str, Any]]:
    """Each job in the order asked for: its prediction, what was asked of it, its GPU and end."""
    ends_s = found.ends_s or (None,) * len(found.jobs)
    lived = {
        number: asdict(job)
        | asked_document(asked)
        | {"on_gpu": on.number, "end_s": interval_document(ends_s[number - 1])}
        for on in found.on
        for number, job, asked in zip(
            on.candidate.jobs,
            on.forecast.prediction.jobs,
            on.candidate.chosen(found.jobs),
            strict=True,
        )
    }
    return [lived[number] for number in sorted(lived)]


def _commands(plans: Sequence[LaunchPlan], device: str | None) -> list[str]:
    if len(plans) > 1:
        return list(commands_at_once(plans))
    return list(_alone(plans[0], device))


def _alone(plan: LaunchPlan, device: str | None) -> Sequence[str]:
    return commands(plan) if device is None else commands_on(plan, device)
