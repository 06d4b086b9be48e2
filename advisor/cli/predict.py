"""Commands on given plans: ``advisor predict`` and ``compare``."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Exit, Option

from advisor.cli import options
from advisor.cli.completion import complete_plan_or_job, complete_sharing
from advisor.cli.output import show_answer, warn
from advisor.cli.question import advisor_for, chosen_jobs, on_checked_host, passed, plans_and_jobs
from advisor.errors import InvalidInput, NothingFits
from advisor.hardware import DEFAULT_GPU


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
    from advisor.report.forecast import forecast_report

    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    members = chosen_jobs(advisor, jobs, job_file)
    advisor = on_checked_host(advisor, [each.profile for each in members], check_host)
    forecast = advisor.predict(members, sharing)
    warn(forecast.standing.doubts)
    show_answer(forecast, as_json, forecast_report)
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
    csv_file: options.Csv = None,
) -> None:
    """Compare two PLANs or more for the JOBs.

    The answer has time, gain, energy and memory of each plan, and the slowdown of each job, with
    the resource that limits it.

    For example: advisor compare naive mps mps=43,57 resnet50-imagenet64-bs128:2

    With a power cap: advisor compare mps mps resnet50-imagenet64-bs128:2 --power-cap 400
    """
    from advisor.files.writing import write_whole
    from advisor.launch.plan_file import SavedPlan, check_gpu_of_plan, check_same_jobs, read_plan
    from advisor.report.comparison import comparison_csv, comparison_report

    named, jobs = plans_and_jobs(words)
    if len(named) < 2:
        raise InvalidInput(
            "expected two PLANs or more before the JOBs, as: advisor compare naive mps JOB"
        )
    plans = [read_plan(Path(word), profiles) if word.endswith(".json") else word for word in named]
    saved = [plan for plan in plans if isinstance(plan, SavedPlan)]
    if saved:
        if jobs or job_file:
            raise InvalidInput("a plan file has its own jobs. Leave out JOBs and --jobs.")
        if power_cap and len(saved) == len(plans) and all(plan.power_cap_w for plan in saved):
            raise InvalidInput("the plans have power caps of their own. Leave out --power-cap.")
        planned = check_same_jobs(saved)
        check_gpu_of_plan(gpu if passed(context, "gpu") else None, planned.gpu, "the file")
        gpu = planned.gpu
    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    members = saved[0].jobs if saved else chosen_jobs(advisor, jobs, job_file)
    comparison = advisor.compare(plans, members, objective)
    warn(comparison.standing.doubts)
    if csv_file is not None:
        write_whole(csv_file, comparison_csv(comparison))
    show_answer(comparison, as_json, comparison_report)
    if all(each.forbidden for each in comparison.plans):
        raise Exit(NothingFits.exit_code)
