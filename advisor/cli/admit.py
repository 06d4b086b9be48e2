"""``advisor admit``: which jobs may join those that run on a GPU."""

from dataclasses import replace
from typing import Annotated

from typer import Context, Option

from advisor.cli import options
from advisor.cli.completion import complete_job, complete_sharing
from advisor.cli.output import leave_out, show_answer, warn
from advisor.cli.question import (
    advisor_for,
    chosen_jobs,
    confined,
    exclude,
    on_checked_host,
    require,
)
from advisor.cli.recommend import show_plans
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_DEVICE, DEFAULT_GPU


def admit(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    running: Annotated[
        str | None,
        Option(
            metavar="JOB[:COPIES],...",
            autocompletion=complete_job,
            help="These jobs run on the GPU already.",
        ),
    ] = None,
    sharing: Annotated[
        str | None,
        Option(
            metavar="SHARING",
            autocompletion=complete_sharing,
            help="How the running jobs share the GPU; default: naive.",
        ),
    ] = None,
    now: Annotated[
        bool, Option("--now", help="Ask the driver how the running jobs share the GPU now.")
    ] = False,
    device: options.Device = DEFAULT_DEVICE,
    max_slowdown: options.MaxSlowdown = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    root: options.Root = True,
    mig: options.Mig = "plain",
    memory_margin: options.MemoryMargin = 0.0,
    top: options.Top = 5,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    check_host: options.CheckHost = None,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
) -> None:
    """Print which JOBs may join the running jobs.

    Each line is a choice of jobs that slow no running job by more than --max-slowdown. The exit
    code is 3 if no job may join.

    For example: advisor admit bert-base-finetune-bs16 --running resnet50-imagenet64-bs128
    """
    from advisor.hardware.live_gpu import live_gpu
    from advisor.plan.rules import MAX_SLOWDOWN, Conditions
    from advisor.report.copies import additions_report

    if not (now or running):
        raise InvalidInput("expected the running jobs. Name them with --running, or add --now.")
    exclude(context, "now", "sharing", why="the driver reports how the GPU is shared.")
    require(context, "device", "now")
    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    offered = chosen_jobs(advisor, jobs, job_file)
    advisor = on_checked_host(advisor, [each.profile for each in offered], check_host)
    names = [running] if running else []
    if now:
        at_work, refused = advisor.running_now(names, live_gpu(device))
        leave_out(*refused)
    else:
        at_work = advisor.running(names, sharing or "naive")
    conditions = Conditions(root=root, memory_margin=memory_margin, mig=mig)
    conditions = confined(advisor.card, conditions, whole=root)
    if at_work is None:
        warn([f"no job runs on GPU {device} now: these are plans for the free GPU"])
        show_plans(advisor.recommend(offered, conditions=conditions), as_json)
        return
    most = MAX_SLOWDOWN if max_slowdown is None else max_slowdown
    answer = advisor.admit(at_work, offered, most, conditions)
    warn(answer.standing.doubts)
    if as_json:
        answer = replace(answer, plans=answer.plans[:top])
    show_answer(answer, as_json, lambda it: additions_report(it, top))
