"""``advisor validate``: run the best plans and compare them with their predictions."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Context, Option

from advisor.cli import options
from advisor.cli.options import (
    advisor_for,
    chosen_jobs,
    exclude,
    folder_to_write,
    mlflow_log,
    on_checked_host,
    passed_options,
)
from advisor.cli.output import aside, show_answer, show_text
from advisor.hardware import DEFAULT_DEVICE, DEFAULT_GPU

if TYPE_CHECKING:
    pass


def validate(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    top: options.Top = 3,
    device: options.Device = DEFAULT_DEVICE,
    ray: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="Run the plans at once on free GPUs of this Ray cluster, e.g. auto, whose nodes "
            "have advisor installed.",
        ),
    ] = None,
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
    from advisor import validate as validation
    from advisor.report.forecast import host_note, with_estimates_named
    from advisor.validation_runs import planned_on, process_text

    passed = passed_options(context)
    of_running = (
        "jobs",
        "job_file",
        "dry_run",
        "objective",
        "top",
        "device",
        "ray",
        "calibration",
        "check_host",
    )
    exclude(passed, "runs", of_running, "--runs compares existing runs and chooses none.")
    exclude(passed, "dry_run", ("as_json", "out", "ray"), "a dry run only prints processes.")
    exclude(passed, "ray", ("device", "check_host"), "the plans run on the nodes of the cluster.")
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
            for process in planned_on(plans, device):
                show_text(process_text(process))
            return
        validated = validation.validate_advice(advised, advisor, top, device, out, ray)
        validated = replace(validated, host=host_note(advised.standing))
    document = validation.validation_document
    show_answer(validated, as_json, validation.validation_table, document)
    if log is not None:
        log.validation(document(validated))
    validation.check(validated)
