"""``advisor validate``: run the best plans and compare them with their predictions."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Context, Option

from advisor.cli import options
from advisor.cli.options import folder_to_write
from advisor.cli.output import aside, show_answer, show_text
from advisor.cli.question import advisor_for, chosen_jobs, exclude, mlflow_log, on_checked_host
from advisor.documents import answer_document
from advisor.hardware import DEFAULT_DEVICE, DEFAULT_GPU


def validate(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    top: options.Top = 3,
    device: options.Device = DEFAULT_DEVICE,
    ray: options.Ray = None,
    runs: Annotated[
        Path | None,
        Option("--runs", metavar="FILE", help="Compare the runs in this file; run none."),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print each process with its environment; run none.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            parser=folder_to_write,
            help="Add the runs to this folder of profiles; default: your own.",
        ),
    ] = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    check_host: options.CheckHost = True,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
    mlflow: options.Mlflow = None,
) -> None:
    """Run the best plans and compare them with their predictions.

    The exit code is 5 if a measured step lies outside its predicted interval.
    """
    from advisor.report.forecast import host_note, with_estimates_named
    from advisor.run import validate as validation

    of_running = ("jobs", "job_file", "dry_run", "objective", "top", "device", "ray", "check_host")
    exclude(context, "runs", *of_running, why="--runs compares existing runs and chooses none.")
    exclude(context, "dry_run", "as_json", "out", "ray", why="a dry run only prints processes.")
    exclude(context, "ray", "device", "check_host", why="the plans run on the cluster's nodes.")
    log = mlflow_log(mlflow)
    advisor = advisor_for(gpu, None, profiles, models, calibration, host_cores)
    if runs is not None:
        validated = validation.validate_file(runs, advisor, out)
    else:
        members = chosen_jobs(advisor, jobs, job_file)
        if not dry_run and ray is None:
            advisor = on_checked_host(advisor, [each.profile for each in members], check_host)
        advised = advisor.rank(members, objective)
        if dry_run:
            if advised.standing.estimated_from is not None:
                aside(with_estimates_named(advised.standing, ""))
            plans, _ = validation.choose(advised, top, "dry-run")
            for process in validation.planned_on(plans, device):
                show_text(validation.process_text(process))
            return
        validated = validation.validate_advice(advised, advisor, top, device, out, ray)
        validated = replace(validated, host=host_note(advised.standing))
    show_answer(validated, as_json, validation.validation_table)
    if log is not None:
        log.validation(answer_document(validated))
    validation.check(validated)
