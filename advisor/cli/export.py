"""``advisor export``: write a plan as a file that applies it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Context, Option

from advisor.cli import options
from advisor.cli.completion import complete_sharing
from advisor.cli.output import aside, show_text, warn
from advisor.cli.question import (
    advisor_for,
    chosen_jobs,
    confined,
    counted_gpus,
    exclude,
    mlflow_log,
    on_checked_host,
)
from advisor.documents import answer_document
from advisor.errors import InvalidInput, require_extra
from advisor.hardware import DEFAULT_GPU
from advisor.launch import ExportFormat

if TYPE_CHECKING:
    from advisor.launch.launch_plan import LaunchPlan
    from advisor.plan.fleet import FleetPlan
    from advisor.plan.values import Recommendation
    from advisor.run.mlflow import MlflowLog
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
    rank: options.Rank = 1,
    form: Annotated[
        ExportFormat,
        Option(
            "--format", case_sensitive=False, help="Write for this tool; commands: a shell script."
        ),
    ] = "commands",
    out: Annotated[
        Path | None, options.file_to_write("Write to this file; default: stdout.")
    ] = None,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    gpus: options.Gpus = "1",
    objective: options.Objective = "makespan",
    pessimistic: options.Pessimistic = False,
    power_cap: options.CapOrAuto = None,
    root: options.Root = True,
    mig: options.Mig = "plain",
    effort: options.Effort = 1.0,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    host_cores: options.HostCores = None,
    host_memory: options.HostMemory = None,
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
    plot: Annotated[
        Path | None,
        Option(
            "--plot",
            metavar="FILE",
            parser=options.picture,
            help="Draw each way to share at its best to this file, FILE.svg or FILE.png, too.",
        ),
    ] = None,
    mlflow: options.Mlflow = None,
) -> None:
    """Write a plan for the JOBs as a file that applies it."""
    from advisor.launch.exports import check_format
    from advisor.launch.launch_plan import check_memory, fleet_launch_plans, launch_plan
    from advisor.plan.rules import EXACT_JOBS, Conditions, are_many
    from advisor.plan.values import Recommendation
    from advisor.report.forecast import ranked_plan, with_estimates_named

    exclude(context, "sharing", *_OF_SEARCH, why="--sharing names the plan.")
    if plot is not None:
        require_extra("--plot", "page", "altair", "vl_convert")
    log, (total, gpu) = mlflow_log(mlflow), counted_gpus(gpus, gpu, context)
    check_format(form, total, gres_name)
    if only is not None and total == 1:
        raise InvalidInput("--only is for --gpus of several models.")
    cap_w, choose = options.cap_or_auto(power_cap)
    advisor = advisor_for(gpu, cap_w, profiles, models, calibration, host_cores)
    members: Sequence[Job] = chosen_jobs(advisor, jobs, job_file, total)
    advisor = on_checked_host(advisor, [each.profile for each in members], None)
    if plot is not None and are_many(len(members), total):
        raise InvalidInput(f"--plot draws plans for up to {EXACT_JOBS} jobs on one GPU.")
    standing = advisor.standing(members)
    if standing.estimated_from is not None:
        aside(with_estimates_named(standing, ""))
    if sharing is not None:
        prediction = advisor.predict(members, sharing).prediction
    else:
        conditions = Conditions(root=root, power_caps=choose, mig=mig)
        advised = advisor.recommend(
            members,
            objective,
            gpus=gpus,
            effort=effort,
            host_memory_mib=host_memory,
            conditions=confined(advisor.card, conditions, whole=root or total > 1),
            level="p95" if pessimistic else "p50",
        )
        _draw_and_log(advised, plot, log)
        if not isinstance(advised, Recommendation):
            plans = fleet_launch_plans(ranked_plan(advised.plans, rank))
            _write(_on_model(plans, only), form, out, gres_name)
            return
        prediction = ranked_plan(advised.plans, rank).prediction
    plan = launch_plan(members, advisor.card, prediction)
    check_memory(plan, prediction)
    _write([plan], form, out, gres_name)


# Parameters that choose a plan.
_OF_SEARCH = [
    "gpus",
    "objective",
    "rank",
    "pessimistic",
    "root",
    "mig",
    "effort",
    "host_memory",
    "plot",
    "mlflow",
]


def _draw_and_log(
    advised: "Recommendation | FleetPlan", plot: Path | None, log: "MlflowLog | None"
) -> None:
    """Draw the ways to share to the file `plot`, and log the plans."""
    from advisor.plan.values import Recommendation

    if plot is not None and isinstance(advised, Recommendation):
        from advisor.files.writing import write_whole
        from advisor.report.charts import ways_picture

        write_whole(plot, ways_picture(advised, "png" if plot.suffix == ".png" else "svg"))
    if log is not None:
        from advisor.report.plans import advice, fleet_advice

        shown = advice(advised) if isinstance(advised, Recommendation) else fleet_advice(advised)
        log.plans(answer_document(shown))


def _on_model(plans: "Sequence[LaunchPlan]", model: str | None) -> "Sequence[LaunchPlan]":
    """Return the part of `plans` on the GPUs of a `model`; None: all."""
    from advisor.hardware.gpus import gpu_meant

    if model is None:
        return plans
    key = gpu_meant(model).key
    if own := [plan for plan in plans if plan.gpu.key == key]:
        return own
    planned = ", ".join(dict.fromkeys(plan.gpu.key for plan in plans))
    raise InvalidInput(f"--only {model}: the plan uses {planned}. Name one of these.")


def _write(
    plans: "Sequence[LaunchPlan]", form: ExportFormat, file: Path | None, gres_name: str | None
) -> None:
    """Write the plan of each GPU to `file`, or to stdout."""
    from advisor.files.writing import write_whole
    from advisor.launch.exports import exported
    from advisor.launch.plan_file import run_command
    from advisor.workload.spec import secrets_held

    text, notes = exported(plans, form, gres_name)
    workloads = [start.job.profile.workload for plan in plans for start in plan.starts]
    # The other formats leave variables to the user.
    warn([*notes, *secrets_held(workloads, variables=form == "json", text=text)])
    if file is None:
        show_text(text, end="")
        return
    write_whole(file, text)
    run = run_command(plans, file) if form == "json" else None
    aside(f"{file}: written" + (f"; {run} prints what it would start" if run else ""))
