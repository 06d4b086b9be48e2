"""``advisor export``: write a plan as a file that applies it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Context, Option

from advisor.cli import options
from advisor.cli.completion import complete_sharing
from advisor.cli.options import (
    advisor_for,
    chosen_jobs,
    confined,
    counted_gpus,
    exclude,
    on_checked_host,
    passed_options,
    require,
    to_write,
)
from advisor.cli.output import aside, show_text, warn
from advisor.errors import InvalidInput, counted
from advisor.hardware import DEFAULT_GPU
from advisor.launch import ExportFormat

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.launch.launch_plan import LaunchPlan
    from advisor.plan.cluster import FleetTerms
    from advisor.workload.job import Job


def export(
    context: Context,
    sharing: Annotated[
        str | None,
        Option(
            "--sharing",
            metavar="SHARING",
            autocompletion=complete_sharing,
            help="As for `predict`; default: that of the best plan.",
        ),
    ] = None,
    rank: Annotated[
        int | None,
        Option(
            "--rank", metavar="RANK", min=1, help="Write the plan of this rank; default: the best."
        ),
    ] = None,
    form: Annotated[
        ExportFormat,
        Option(
            "--format", case_sensitive=False, help="Write for this tool; commands: a shell script."
        ),
    ] = "commands",
    out: Annotated[
        Path | None,
        Option(metavar="FILE", parser=to_write, help="Write to this file; default: stdout."),
    ] = None,
    gpus: options.Gpus = "1",
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    root: options.Root = True,
    power_cap: options.PowerCap = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    host_cores: options.HostCores = None,
    gres_name: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Ask Slurm for GPUs by this name, e.g. gpu:tesla, or "
            "a100-40gb=gpu:a100,h100-sxm-80gb=gpu:h100; default: the first word of the model, if "
            "there are several.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        Option(
            "--only",
            metavar="GPU",
            help="Write the part of the plan on this one of several GPU models.",
        ),
    ] = None,
) -> None:
    """Write a plan for the JOBs as a file that applies it."""
    from advisor.launch.exports import exported
    from advisor.launch.plan_file import run_command
    from advisor.plan.cluster import FleetTerms
    from advisor.plan.rules import Conditions
    from advisor.report.forecast import with_estimates_named
    from advisor.workload.spec import secrets_held
    from advisor.workload.writing import write_whole

    passed = passed_options(context)
    total, gpu = counted_gpus(gpus, gpu, context)
    if gres_name and form != "slurm":
        raise InvalidInput(f"--gres-name is for --format slurm, not {form}.")
    why = "--sharing names the plan, and --objective, --rank and --no-root choose one."
    exclude(passed, "sharing", ("objective", "rank", "root"), why)
    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    members: Sequence[Job] = chosen_jobs(advisor, jobs, job_file, total)
    advisor = on_checked_host(advisor, [each.profile for each in members], None)
    standing = advisor.standing(members)
    if standing.estimated_from is not None:
        aside(with_estimates_named(standing, ""))
    conditions = Conditions(root=root)
    if total > 1:
        exclude(passed, "gpus", ("sharing", "rank"), "advisor finds one plan for several GPUs.")
    else:
        require(passed, "only", {"gpus": "--gpus of several models"})
        conditions = confined(advisor.card, conditions, whole=root)
    terms = FleetTerms(objective=objective, gpus=gpus, conditions=conditions)
    plans = _planned(advisor, members, terms, sharing, rank)
    if only is not None:
        plans = _on_model(plans, only)
    text, notes = exported(plans, form, gres_name)
    workloads = [start.job.profile.workload for plan in plans for start in plan.starts]
    # The other formats leave variables to the user.
    warn([*notes, *secrets_held(workloads, variables=form == "json", text=text)])
    if out is None:
        show_text(text, end="")
        return
    write_whole(out, text)
    run = run_command(plans, out) if form == "json" else None
    aside(f"{out}: written" + (f"; {run} prints what it would start" if run else ""))


def _planned(
    advisor: "Advisor",
    jobs: "Sequence[Job]",
    terms: "FleetTerms",
    sharing: str | None,
    rank: int | None,
) -> "Sequence[LaunchPlan]":
    """Return the plan of each GPU: that of `sharing`, of that `rank`, or the best."""
    from advisor.launch.launch_plan import check_memory, fleet_launch_plans, launch_plan
    from advisor.plan.rules import EXACT_JOBS, are_many

    if sharing is not None:
        prediction = advisor.predict(jobs, sharing).prediction
    elif terms.total > 1 or are_many(len(jobs)):
        if rank is not None:
            raise InvalidInput(
                f"--rank is for up to {EXACT_JOBS} jobs: `advisor recommend` finds one plan for "
                f"more. Leave --rank out."
            )
        return fleet_launch_plans(advisor.recommend_fleet(jobs, terms))
    else:
        advised = advisor.rank(jobs, terms.objective, conditions=terms.conditions)
        if rank is not None and rank > len(advised.plans):
            raise InvalidInput(
                f"no plan of rank {rank}: `advisor recommend` ranks "
                f"{counted(len(advised.plans), 'plan')} for these jobs. Choose another --rank."
            )
        prediction = advised.plans[(rank or 1) - 1].prediction
    plan = launch_plan(jobs, advisor.card, prediction)
    check_memory(plan, prediction)
    return [plan]


def _on_model(plans: "Sequence[LaunchPlan]", model: str) -> "Sequence[LaunchPlan]":
    """Return the part of `plans` on the GPUs of a `model`."""
    from advisor.hardware.gpus import gpu_meant

    key = gpu_meant(model).key
    if own := [plan for plan in plans if plan.gpu.key == key]:
        return own
    planned = ", ".join(dict.fromkeys(plan.gpu.key for plan in plans))
    raise InvalidInput(f"--only {model}: the plan uses {planned}. Name one of these.")
