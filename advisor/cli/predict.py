"""Commands on given plans: ``advisor predict`` and ``compare``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Exit, Option

from advisor.cli import options
from advisor.cli.completion import complete_plan_or_job, complete_sharing
from advisor.cli.options import (
    advisor_for,
    chosen_jobs,
    exclude,
    on_checked_host,
    passed_options,
    to_write,
)
from advisor.cli.output import show_answer, warn
from advisor.errors import InvalidInput, NothingFits
from advisor.hardware import DEFAULT_GPU

if TYPE_CHECKING:
    pass


def predict(
    sharing: Annotated[
        str,
        Option(
            "--sharing",
            metavar="SHARING",
            autocompletion=complete_sharing,
            help="How the JOBs share the GPU: serial, naive, mps, mps=43,57, mig=3g.71gb,4g.71gb; "
            "with the jobs' numbers mig=4g.71gb[1]+3g.71gb[2,3]/mps=50,50, "
            "mig=7g.141gb/ci=3c[1]+4c[2], or in turn naive[1,2];mps[3]. A queue of at most 2 at "
            "once: mps/2, or in an order mps/2[3,1,2].",
        ),
    ] = "mps",
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    check_host: options.CheckHost = None,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict pace, memory and power of the JOBs under one sharing."""
    from advisor.report.forecast import forecast_document, forecast_report

    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    members = chosen_jobs(advisor, jobs, job_file)
    advisor = on_checked_host(advisor, [each.profile for each in members], check_host)
    forecast = advisor.predict(members, sharing)
    warn(forecast.standing.doubts)
    show_answer(forecast, as_json, forecast_report, forecast_document)
    if not forecast.fits:
        raise Exit(NothingFits.exit_code)


def compare(
    context: Context,
    words: Annotated[
        list[str],
        Argument(
            metavar="PLAN PLAN... JOB...",
            show_default=False,
            autocompletion=complete_plan_or_job,
            help="Two PLANs or more, the first of which the others are compared with: a sharing, "
            "as for `predict --sharing`, or a FILE.json from `export`; then the JOBs, as for "
            "`predict`.",
        ),
    ],
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    power_cap: options.PowerCap = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
    csv_file: Annotated[
        Path | None,
        Option(
            "--csv",
            metavar="FILE",
            parser=to_write,
            help="Write a row for each plan to this file, too.",
        ),
    ] = None,
) -> None:
    """Compare two PLANs or more for the JOBs.

    The answer has time, gain, energy and memory of each plan, and the slowdown of each job, with
    the resource that limits it.

    For example: advisor compare naive mps mps=43,57 resnet50-imagenet64-bs128:2

    With a power cap: advisor compare mps mps resnet50-imagenet64-bs128:2 --power-cap 400
    """
    from advisor.launch.plan_file import SavedPlan, check_gpu_of_plan, check_same_jobs, plan_named
    from advisor.report.comparison import comparison_csv, comparison_document, comparison_report
    from advisor.workload.writing import write_whole

    named, jobs = options.plans_and_jobs(words)
    if len(named) < 2:
        meant = [part for word in named for part in ([word] if "=" in word else word.split(","))]
        raise InvalidInput(
            f"expected two PLANs or more before the JOBs: advisor compare "
            f"{' '.join(dict.fromkeys([*meant, 'naive', 'mps']))} {' '.join(jobs) or 'JOB'}"
        )
    plans = [plan_named(word, profiles) for word in named]
    saved = [plan for plan in plans if isinstance(plan, SavedPlan)]
    passed = passed_options(context) | ({"jobs": "JOB"} if jobs else {})
    if saved:
        passed |= {"plan": "a plan file"}
        exclude(passed, "plan", ("jobs", "job_file"), "a plan file has its own jobs.")
        if len(saved) == len(plans) and all(plan.power_cap_w for plan in saved):
            exclude(passed, "plan", ("power_cap",), "the plans have their own caps.")
        planned = check_same_jobs(saved)
        check_gpu_of_plan(gpu if "gpu" in passed else None, planned.gpu, "the file")
        gpu = planned.gpu
    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    members = saved[0].jobs if saved else chosen_jobs(advisor, jobs, job_file)
    comparison = advisor.compare(plans, members, objective)
    warn(comparison.plans[0].standing.doubts)
    if csv_file is not None:
        write_whole(csv_file, comparison_csv(comparison))
    show_answer(comparison, as_json, comparison_report, comparison_document)
    if all(comparison.forbidden):
        raise Exit(NothingFits.exit_code)
