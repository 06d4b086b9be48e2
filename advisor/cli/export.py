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
    from advisor.hardware.gpus import Gpu
    from advisor.plan.fleet import FleetForecast, FleetPlan
    from advisor.plan.values import Recommendation
    from advisor.prediction.prediction import MixPrediction
    from advisor.report.mlflow_log import MlflowLog
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
        int, Option("--rank", metavar="RANK", min=1, help="Write the plan of this rank.")
    ] = 1,
    form: Annotated[
        ExportFormat,
        Option(
            "--format", case_sensitive=False, help="Write for this tool; commands: a shell script."
        ),
    ] = "commands",
    out: Annotated[
        Path | None,
        Option(
            metavar="FILE", parser=options.to_write, help="Write to this file; default: stdout."
        ),
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
    """Write a plan for the JOBs as a file that applies it.

    On Kubernetes, kubernetes-script is one pod for each GPU, which runs almost any plan; kubernetes
    is a pod for each training, for NVIDIA's GPU operator.
    """
    from advisor.plan.fleet import FleetPlan
    from advisor.plan.rules import Conditions
    from advisor.report.forecast import ranked_plan, with_estimates_named

    if gres_name and form != "slurm":
        raise InvalidInput(f"--gres-name is for --format slurm, not {form}.")
    exclude(context, "sharing", *_OF_SEARCH, why="--sharing names the plan.")
    if plot is not None:
        require_extra("--plot", "page", "altair", "vl_convert")
    log, (total, gpu) = mlflow_log(mlflow), counted_gpus(gpus, gpu, context)
    if only is not None and total == 1:
        raise InvalidInput("--only is for --gpus of several models.")
    cap_w, choose = options.cap_or_auto(power_cap)
    advisor = advisor_for(gpu, cap_w, profiles, models, calibration, host_cores)
    members: Sequence[Job] = chosen_jobs(advisor, jobs, job_file, total)
    advisor = on_checked_host(advisor, [each.profile for each in members], None)
    standing = advisor.standing(members)
    if standing.estimated_from is not None:
        aside(with_estimates_named(standing, ""))
    if sharing is not None:
        prediction = advisor.predict(members, sharing).prediction
        _write_one(members, advisor.card, prediction, form, out, gres_name)
        return
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
    if not isinstance(advised, FleetPlan):
        prediction = ranked_plan(advised.plans, rank).prediction
        _write_one(members, advisor.card, prediction, form, out, gres_name)
    elif total == 1:
        (on,) = ranked_plan(advised.plans, rank).on
        _write_one(on.members, on.gpu, on.forecast.prediction, form, out, gres_name)
    else:
        _write_all(ranked_plan(advised.plans, rank), form, out, gres_name, only)


# Parameters that choose a plan.
_OF_SEARCH = (
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
)


def _draw_and_log(
    advised: "Recommendation | FleetPlan", plot: Path | None, log: "MlflowLog | None"
) -> None:
    """Draw the ways to share to the file `plot`, and log the plans."""
    from advisor.plan.rules import EXACT_JOBS
    from advisor.plan.values import Recommendation
    from advisor.report.fleet import fleet_advice
    from advisor.report.recommendation import advice
    from advisor.workload.writing import write_whole

    if isinstance(advised, Recommendation):
        document = answer_document(advice(advised))
        if plot is not None:
            from advisor.report.picture import ways_picture

            write_whole(plot, ways_picture(advised, "png" if plot.suffix == ".png" else "svg"))
    else:
        document = answer_document(fleet_advice(advised))
        if plot is not None:
            raise InvalidInput(f"--plot draws plans for up to {EXACT_JOBS} jobs on one GPU.")
    if log is not None:
        log.plans(document)


def _write_one(
    jobs: "Sequence[Job]",
    gpu: "Gpu",
    prediction: "MixPrediction",
    form: ExportFormat,
    out: Path | None,
    gres_name: str | None,
) -> None:
    """Write the plan of one GPU."""
    from advisor.launch.exports import exported
    from advisor.launch.plan_file import refused_by_run
    from advisor.workload.spec import secrets_held

    text, notes = exported(jobs, gpu, prediction, form, gres_name)
    as_json = form == "json"
    refused = refused_by_run(jobs) if as_json else ()
    # The other formats leave variables to the user.
    workloads = [job.profile.workload for job in jobs]
    secrets = secrets_held(workloads, variables=as_json, text=text)
    warn([*notes, *secrets, *refused])
    _write(text, out, "" if refused or not as_json else f"advisor run {out}")


def _write_all(
    plan: "FleetForecast",
    form: ExportFormat,
    out: Path | None,
    gres_name: str | None,
    only: str | None,
) -> None:
    """Write the plan of all GPUs, or its part on the GPU model `only`."""
    from advisor.hardware.gpus import gpu_meant
    from advisor.launch.commands import fleet_launch_plans
    from advisor.launch.exports import WHOLE, image_wanted
    from advisor.launch.launch_plan import NOT_RUN
    from advisor.launch.plan_file import left_out_by_run, refused_by_run
    from advisor.workload.spec import secrets_held

    if form not in WHOLE:
        raise InvalidInput(f"--format {form} is for one GPU: for several use {', '.join(WHOLE)}.")
    as_json = form == "json"
    plans = fleet_launch_plans(plan, gres_name)
    if only is not None:
        key, models = gpu_meant(only).key, ", ".join(dict.fromkeys(each.gpu.key for each in plans))
        plans = tuple(plan for plan in plans if plan.gpu.key == key)
        if not plans:
            raise InvalidInput(f"--only {only}: the plan uses {models}. Name one of these.")
    text = WHOLE[form](plans)
    warn(image_wanted(text))
    started = [start.job for plan in plans for start in plan.starts]
    left_out = left_out_by_run(started) if as_json else ()
    refused = refused_by_run(job for job in started if job.gpus == 1) if as_json else ()
    workloads = [job.profile.workload for job in started]
    secrets = secrets_held(workloads, variables=as_json, text=text)
    warn([*[NOT_RUN] * any(plan.on_mig for plan in plans), *secrets, *left_out, *refused])
    here = len({plan.host for plan in plans}) == len({plan.gpu for plan in plans}) == 1
    run = f"advisor run {out}" + ("" if here else " --ray auto")
    runs = as_json and not refused and any(job.gpus == 1 for job in started)
    _write(text, out, run if runs else "")


def _write(text: str, file: Path | None, run: str) -> None:
    """Write `text` to `file`, or to stdout; `run`: the command that prints what it would start."""
    from advisor.workload.writing import write_whole

    if file is None:
        show_text(text, end="")
        return
    write_whole(file, text)
    aside(f"{file}: written" + (f"; {run} prints what it would start" if run else ""))
