"""``advisor export``: write a plan as a file that applies it."""

from collections.abc import Sequence
from dataclasses import replace
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
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.launch import ExportFormat

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.plan.cluster import FleetTerms
    from advisor.prediction.prediction import MixPrediction
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
    """Write a plan for the JOBs as a file that applies it.

    On Kubernetes, kubernetes-script is one pod for each GPU, which runs almost any plan; kubernetes
    is a pod for each training, for NVIDIA's GPU operator.
    """
    from advisor.launch.exports import exported
    from advisor.launch.plan_file import refused_by_run
    from advisor.plan.cluster import FleetTerms
    from advisor.plan.rules import Conditions
    from advisor.report.forecast import with_estimates_named
    from advisor.workload.spec import secrets_held

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
    terms = FleetTerms(objective=objective, gpus=gpus, conditions=Conditions(root=root))
    if total > 1:
        exclude(passed, "gpus", ("sharing", "rank"), "advisor finds one plan for several GPUs.")
        _export_of_all(advisor, members, terms, form, out, gres_name, only)
        return
    require(passed, "only", {"gpus": "--gpus of several models"})
    if sharing is None:
        conditions = confined(advisor.card, terms.conditions, whole=root)
        terms = replace(terms, conditions=conditions)
        members, prediction = _plan_to_export(advisor, members, terms, rank)
    else:
        prediction = advisor.predict(members, sharing).prediction
    text, notes = exported(members, advisor.card, prediction, form, gres_name)
    as_json = form == "json"
    refused = refused_by_run(members) if as_json else ()
    # The other formats leave variables to the user.
    workloads = [job.profile.workload for job in members]
    secrets = secrets_held(workloads, variables=as_json, text=text)
    warn([*notes, *secrets, *refused])
    _write(text, out, "" if refused or not as_json else f"advisor run {out}")


def _write(text: str, file: Path | None, run: str) -> None:
    """Write `text` to `file`, or to stdout; `run`: the command that prints what it would start."""
    from advisor.workload.writing import write_whole

    if file is None:
        show_text(text, end="")
        return
    write_whole(file, text)
    aside(f"{file}: written" + (f"; {run} prints what it would start" if run else ""))


def _export_of_all(
    advisor: "Advisor",
    jobs: "Sequence[Job]",
    terms: "FleetTerms",
    form: ExportFormat,
    out: Path | None,
    gres_name: str | None,
    only: str | None,
) -> None:
    """Write the plan that `recommend --gpus` finds, or its part on the GPU model `only`."""
    from advisor.hardware.gpus import gpu_meant
    from advisor.launch.commands import fleet_launch_plans
    from advisor.launch.exports import WHOLE, image_wanted
    from advisor.launch.launch_plan import NOT_RUN
    from advisor.launch.plan_file import left_out_by_run, refused_by_run
    from advisor.workload.spec import secrets_held

    if form not in WHOLE:
        raise InvalidInput(f"--format {form} is for one GPU: for several use {', '.join(WHOLE)}.")
    as_json = form == "json"
    plans = fleet_launch_plans(advisor.recommend_fleet(jobs, terms), gres_name)
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


def _plan_to_export(
    advisor: "Advisor", jobs: "Sequence[Job]", terms: "FleetTerms", rank: int | None
) -> "tuple[Sequence[Job], MixPrediction]":
    """Return jobs and prediction of the plan with that `rank`, or the best."""
    from advisor.launch.plan_file import plan_of_rank
    from advisor.plan.rules import EXACT_JOBS, are_many

    if not are_many(len(jobs)):
        advised = advisor.rank(jobs, terms.objective, conditions=terms.conditions)
        return jobs, plan_of_rank(advised, rank or 1)
    if rank is None:
        (on,) = advisor.recommend_fleet(jobs, terms).on
        return on.members, on.forecast.prediction
    raise InvalidInput(
        f"--rank is for up to {EXACT_JOBS} jobs: `advisor recommend` finds one plan for more. "
        f"Leave --rank out."
    )
