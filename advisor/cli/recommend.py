"""``advisor recommend``: rank the ways to share GPUs."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Context, Option

from advisor.cli import options
from advisor.cli.output import aside, leave_out, show, show_json, warn
from advisor.cli.question import (
    advisor_for,
    chosen_jobs,
    confined,
    counted_gpus,
    on_checked_host,
    passed,
    protected_jobs,
    require,
)
from advisor.documents import answer_document
from advisor.hardware import DEFAULT_GPU

if TYPE_CHECKING:
    from advisor.plan.fleet import FleetPlan
    from advisor.plan.values import Recommendation


def recommend(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    gpus: options.Gpus = "1",
    objective: options.Objective = "makespan",
    pessimistic: options.Pessimistic = False,
    power_cap: options.CapOrAuto = None,
    root: options.Root = True,
    mig: options.Mig = "plain",
    protect: options.Protect = None,
    max_slowdown: options.MaxSlowdown = None,
    effort: options.Effort = 1.0,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    check_host: options.CheckHost = None,
    host_cores: options.HostCores = None,
    host_memory: options.HostMemory = None,
    details: Annotated[
        bool, Option("--details", help="Print all numbers, and how they were found.")
    ] = False,
    as_json: options.AsJson = False,
    csv_file: options.Csv = None,
) -> None:
    """Rank the ways to share GPUs among the JOBs.

    Without a JOB, advisor ranks plans for bundled examples. For more than 8 jobs or several GPUs it
    prints the best plan that its search finds.
    """
    from advisor.plan.rules import Conditions, are_many
    from advisor.plan.values import Recommendation

    require(context, "max_slowdown", "protect")
    total, gpu = counted_gpus(gpus, gpu, context)
    cap_w, choose = options.cap_or_auto(power_cap)
    advisor = advisor_for(gpu, cap_w, profiles, models, calibration, host_cores)
    members = protected_jobs(chosen_jobs(advisor, jobs, job_file, total), protect, max_slowdown)
    advisor = on_checked_host(advisor, [each.profile for each in members], check_host)
    whole = root and (passed(context, "root") or are_many(len(members), total))
    advised = advisor.recommend(
        members,
        objective,
        gpus=gpus,
        effort=effort,
        host_memory_mib=host_memory,
        conditions=confined(
            advisor.card, Conditions(root=root, power_caps=choose, mig=mig), whole=whole
        ),
        level="p95" if pessimistic else "p50",
    )
    command = ""
    if isinstance(advised, Recommendation):
        command = _start(advised, jobs, job_file, profiles)
    elif not as_json:
        command = _start_of_all(advised)
    show_plans(advised, as_json, command, csv_file, details=details)


def show_plans(
    advised: "Recommendation | FleetPlan",
    as_json: bool,
    command: str = "",
    csv_file: Path | None = None,
    *,
    details: bool = False,
) -> None:
    """Print plans as a report with the `command` that starts the best, or as JSON."""
    from advisor.files.writing import write_whole
    from advisor.plan.values import Recommendation
    from advisor.workload.spec import secrets_held

    warn(advised.standing.doubts)
    if as_json:
        warn(secrets_held([job.profile.workload for job in advised.jobs], variables=True))
    if not isinstance(advised, Recommendation):
        from advisor.report.plans import fleet_advice, fleet_csv, fleet_report

        if csv_file is not None:
            write_whole(csv_file, fleet_csv(advised))
        if as_json:
            show_json(answer_document(fleet_advice(advised)))
        else:
            show(fleet_report(advised, command=command, details=details))
        return
    from advisor.report.plans import advice, plans_csv, plans_report
    from advisor.report.recommendation import another_layout_text

    leave_out(*advised.refused_variants)
    if advised.another_layout is not None:
        aside(another_layout_text(advised, advised.another_layout))
    if csv_file is not None:
        write_whole(csv_file, plans_csv(advised))
    if as_json:
        show_json(answer_document(advice(advised)))
    else:
        show(plans_report(advised, command=command, details=details))


def _start(
    advised: "Recommendation", jobs: list[str] | None, job_file: Path | None, profiles: Path | None
) -> str:
    """A line with the command that starts the best plan, or prints its script to be filled in."""
    words = ["advisor", "export", *(jobs or ())]
    words += [] if job_file is None else ["--jobs", str(job_file)]
    words += [] if profiles is None else ["--profiles", str(profiles)]
    words += [] if advised.gpu.key == DEFAULT_GPU else ["--gpu", advised.gpu.key]
    cap_w = advised.best.prediction.power_cap_w
    words += [] if cap_w is None else ["--power-cap", f"{cap_w:g}"]
    command = shlex.join([*words, "--sharing", str(advised.best.sharing)])
    if all(job.profile.workload.script is not None for job in advised.jobs):
        return f"Start it: {command} | bash"
    return f"Its script: {command}"


def _start_of_all(plan: "FleetPlan") -> str:
    """A line on how to start the plan of all GPUs."""
    from advisor.launch.launch_plan import fleet_launch_plans
    from advisor.launch.shell import why_not_started

    why = why_not_started(fleet_launch_plans(plan))
    return why or "To start it, write `export` instead of `recommend` in this command."
