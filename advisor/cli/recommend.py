"""Commands that choose plans, and those on one job: copies, trials and batch."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option

from advisor.cli import options
from advisor.cli.options import flag, option
from advisor.cli.output import aside, leave_out, show, show_answer, show_json, show_text, warn
from advisor.cli.question import (
    Sources,
    chosen_jobs,
    confined,
    counted_gpus,
    exclude,
    mlflow_log,
    on_checked_host,
    passed,
    protected_jobs,
    require,
)
from advisor.documents import answer_document
from advisor.errors import InvalidInput, counted
from advisor.files.writing import write_whole
from advisor.hardware import DEFAULT_DEVICE, DEFAULT_GPU
from advisor.hardware.gpus import gpu_meant
from advisor.launch import ExportFormat
from advisor.plan import START_S
from advisor.simulation import START_CPU_S
from advisor.workload.spec import secrets_held

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.launch.launch_plan import LaunchPlan
    from advisor.plan.values import Recommendation
    from advisor.workload.job import Job


@dataclass(frozen=True)
class _Search:
    """Options on the search for plans and on their ranking."""

    gpus: options.Gpus = "1"
    objective: options.Objective = "makespan"
    pessimistic: options.Pessimistic = False
    power_cap: Any = option(
        "WATTS|auto",
        "Cap the GPU's power; auto: each plan may choose 90, 80, 70 or 60 % of its limit; default: "
        "its own limit.",
    )
    root: options.Root = True
    mig: options.Mig = "plain"
    effort: float = option(
        "TIMES", "Multiply the search effort for many jobs or several GPUs.", default=1.0
    )
    host_memory: float | None = option(
        "SIZE",
        "Limit the memory of each host, as 512GiB, in equal parts for its GPUs; default: no limit.",
    )

    share_loader: options.ShareLoader = False

    @property
    def cap_w(self) -> float | None:
        return None if self.power_cap == "auto" else self.power_cap

    def plans(self, advisor: "Advisor", jobs: "Sequence[Job]", *, whole: bool) -> "Recommendation":
        """Return the ranked plans for `jobs`, for the `whole` GPU even if it is in MIG mode."""
        from advisor.plan.rules import Conditions

        conditions = Conditions(root=self.root, power_caps=self.power_cap == "auto", mig=self.mig)
        return advisor.recommend(
            jobs,
            self.objective,
            gpus=self.gpus,
            effort=self.effort,
            host_memory_mib=self.host_memory,
            conditions=confined(advisor.card, conditions, whole=whole),
            level="p95" if self.pessimistic else "p50",
        )


def recommend(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    *,
    search: _Search,
    protect: options.Protect = None,
    max_slowdown: options.MaxSlowdown = None,
    sources: Sources,
    check_host: options.CheckHost = None,
    details: bool = flag("Print all numbers and their basis.", "--details"),
    as_json: options.AsJson = False,
    csv_file: options.Csv = None,
) -> None:
    """Rank the ways to share GPUs among the JOBs.

    Without a JOB, advisor ranks plans for bundled examples. For more than 8 jobs or several GPUs it
    prints the best plan that its search finds.
    """
    from advisor.plan.rules import are_many

    require(context, "max_slowdown", "protect")
    total, gpu = counted_gpus(search.gpus, gpu, context)
    advisor = sources.advisor(gpu, search.cap_w, share_loader=search.share_loader)
    members = protected_jobs(chosen_jobs(advisor, jobs, job_file, total), protect, max_slowdown)
    advisor = on_checked_host(advisor, members, check_host)
    whole = search.root and (passed(context, "root") or are_many(len(members), total))
    advised = search.plans(advisor, members, whole=whole)
    command = "" if as_json else _start(advised, jobs, job_file, sources.profiles)
    show_plans(advised, as_json, command, csv_file, details=details)


def show_plans(
    advised: "Recommendation",
    as_json: bool,
    command: str = "",
    csv_file: Path | None = None,
    *,
    details: bool = False,
) -> None:
    """Print plans as a report with the `command` that starts the best, or as JSON."""
    from advisor.report.plans import advice, plans_csv, plans_report
    from advisor.report.recommendation import another_layout_text

    warn(advised.standing.doubts)
    if as_json:
        warn(secrets_held([job.profile.workload for job in advised.jobs], variables=True))
    leave_out(*advised.refused_variants)
    if advised.another_layout is not None:
        aside(another_layout_text(advised, advised.another_layout))
    if csv_file is not None:
        write_whole(csv_file, plans_csv(advised))
    if as_json:
        show_json(advice(advised))
    else:
        show(plans_report(advised, command=command, details=details))


def _start(
    advised: "Recommendation", jobs: list[str] | None, job_file: Path | None, profiles: Path | None
) -> str:
    """A line with the command that starts the best plan, or prints its script to be filled in."""
    if advised.best.way is not None:
        from advisor.launch.launch_plan import launch_plans
        from advisor.launch.shell import why_not_started

        why = why_not_started(launch_plans(advised.hosts, advised.best))
        return why or "To start it, write `export` instead of `recommend` in this command."
    words = ["advisor", "export", *(jobs or ())]
    words += [] if job_file is None else ["--jobs", str(job_file)]
    words += [] if profiles is None else ["--profiles", str(profiles)]
    words += [] if advised.gpu.key == DEFAULT_GPU else ["--gpu", advised.gpu.key]
    cap_w = advised.best.prediction.power_cap_w
    words += [] if cap_w is None else ["--power-cap", f"{cap_w:g}"]
    if any(job.profile.workload.shared_loader for job in advised.jobs):
        words.append("--share-loader")
    command = shlex.join([*words, "--sharing", str(advised.best.sharing)])
    if all(job.profile.workload.script is not None for job in advised.jobs):
        return f"Start it: {command} | bash"
    return f"Its script: {command}"


def admit(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    running: list[str] | None = option(
        "JOB[:COPIES],...",
        "Name the jobs that run on the GPU already; repeat it for each of several GPUs.",
        autocompletion=options.complete_job,
    ),
    sharing: list[str] | None = option(
        "SHARING",
        (
            "Set how the running jobs share the GPU; default: naive. Give one for all GPUs, or "
            "repeat it."
        ),
    ),
    now: bool = flag("Ask the driver how the running jobs share the GPU now.", "--now"),
    device: options.Device = DEFAULT_DEVICE,
    max_slowdown: options.MaxSlowdown = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    root: options.Root = True,
    mig: options.Mig = "plain",
    memory_margin: options.MemoryMargin = 0.0,
    top: options.Top = 5,
    *,
    sources: Sources,
    check_host: options.CheckHost = None,
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

    named, ways = running or [], sharing or ["naive"]
    if not (now or named):
        raise InvalidInput("expected the running jobs. Name them with --running, or add --now.")
    exclude(context, "now", "sharing", why="the driver reports how the GPU is shared.")
    require(context, "device", "now")
    advisor = sources.advisor(gpu, power_cap)
    offered = chosen_jobs(advisor, jobs, job_file)
    advisor = on_checked_host(advisor, offered, check_host)
    if now:
        if len(named) > 1:
            raise InvalidInput("--now reads one GPU. Pass --running once.")
        there, refused = advisor.running_now(named, live_gpu(device))
        leave_out(*refused)
        at_work = [] if there is None else [there]
    else:
        if len(ways) not in (1, len(named)):
            raise InvalidInput(
                f"{counted(len(ways), 'sharing')} for {counted(len(named), 'GPU')}. Pass one "
                "--sharing for all, or one for each --running."
            )
        own = ways * len(named) if len(ways) == 1 else ways
        at_work = [advisor.running([on], way) for on, way in zip(named, own, strict=True)]
    conditions = Conditions(root=root, memory_margin=memory_margin, mig=mig)
    conditions = confined(advisor.card, conditions, whole=root)
    if not at_work:
        warn([f"no job runs on GPU {device} now: these are plans for the free GPU"])
        show_plans(advisor.recommend(offered, conditions=conditions), as_json)
        return
    most = MAX_SLOWDOWN if max_slowdown is None else max_slowdown
    answer = advisor.admit(at_work, offered, most, conditions)
    if as_json:
        answer = replace(answer, plans=answer.plans[:top])
    show_answer(answer, as_json, lambda it: additions_report(it, top))


def export(
    context: Context,
    sharing: str | None = option(
        "SHARING", ("Write the plan with this sharing, as for `predict`; default: the best plan.")
    ),
    rank: options.Rank = 1,
    form: ExportFormat = Option(
        "commands",
        "--format",
        case_sensitive=False,
        help="Write for this tool; commands: a shell script.",
    ),
    out: Path | None = option(
        "FILE", "Write to this file; default: stdout.", parser=options.to_write
    ),
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    *,
    search: _Search,
    sources: Sources,
    gres_name: str | None = option(
        "NAME",
        "Ask Slurm for GPUs by this name, e.g. gpu:tesla, or "
        "a100-40gb=gpu:a100,h100-sxm-80gb=gpu:h100; default: the first word of the model, if "
        "there are several.",
    ),
    only: str | None = option("GPU", "Write only the part of the plan for this GPU model."),
    plot: Path | None = option(
        "FILE",
        "Also draw the best plan of each way to share, to FILE.svg or FILE.png.",
        parser=options.picture,
    ),
    mlflow: options.Mlflow = None,
) -> None:
    """Write a plan for the JOBs as a file that applies it."""
    from advisor.launch.exports import check_format
    from advisor.launch.launch_plan import check_memory, launch_plan, launch_plans
    from advisor.report.forecast import ranked_plan, with_estimates_named
    from advisor.report.plans import advice

    of_both = "power_cap", "share_loader"
    of_search = [field.name for field in fields(_Search) if field.name not in of_both]
    why = "--sharing names the plan."
    exclude(context, "sharing", "rank", *of_search, "plot", "mlflow", why=why)
    log, (total, gpu) = mlflow_log(mlflow), counted_gpus(search.gpus, gpu, context)
    check_format(form, total, gres_name)
    if only is not None and total == 1:
        raise InvalidInput("--only needs --gpus with several models.")
    advisor = sources.advisor(gpu, search.cap_w, share_loader=search.share_loader)
    members = chosen_jobs(advisor, jobs, job_file, total)
    advisor = on_checked_host(advisor, members, None)
    standing = advisor.standing(members)
    if standing.estimated_from is not None:
        aside(with_estimates_named(standing, ""))
    if sharing is not None:
        mixes = [advisor.predict(members, sharing).prediction]
        plans = [launch_plan(members, advisor.card, mixes[0])]
    else:
        advised = search.plans(advisor, members, whole=search.root or total > 1)
        if plot is not None:
            from advisor.report.charts import ways_picture

            write_whole(plot, ways_picture(advised, plot.suffix))
        if log is not None:
            log.plans(answer_document(advice(advised)))
        chosen = ranked_plan(advised.plans, rank)
        mixes, plans = [*chosen.mixes], [*launch_plans(advised.hosts, chosen)]
    for plan, mix in zip(plans, mixes, strict=True):
        check_memory(plan, mix)
    _write(_on_model(plans, only), form, out, gres_name)


def _on_model(plans: "Sequence[LaunchPlan]", model: str | None) -> "Sequence[LaunchPlan]":
    """Return the part of `plans` on the GPUs of a `model`; None: all."""
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
    from advisor.launch.exports import exported
    from advisor.launch.plan_file import run_command

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


_Job = Annotated[
    str,
    Argument(
        metavar="JOB",
        autocompletion=options.complete_job,
        help="The job: a profile's name or file, or a measured train.py.",
    ),
]
_Details = Annotated[bool, Option("--details", help="Print every number of copies.")]


def copies(
    job: _Job,
    gpu: options.GpuKey = DEFAULT_GPU,
    pessimistic: options.Pessimistic = False,
    power_cap: options.PowerCap = None,
    root: options.Root = True,
    mig: options.Mig = "plain",
    memory_margin: options.MemoryMargin = 0.0,
    share_loader: options.ShareLoader = False,
    *,
    sources: Sources,
    check_host: options.CheckHost = None,
    details: _Details = False,
    as_json: options.AsJson = False,
) -> None:
    """Print how many copies of the JOB fit on a GPU, and how many are worthwhile."""
    from advisor.plan.rules import EXACT_JOBS, Conditions
    from advisor.report.copies import copies_report
    from advisor.workload.job import Job

    advisor = sources.advisor(gpu, power_cap, share_loader=share_loader)
    advisor = on_checked_host(advisor, [Job(advisor.find_profile(job))], check_host, EXACT_JOBS)
    conditions = Conditions(root=root, memory_margin=memory_margin, mig=mig)
    answer = advisor.recommend_copies(
        job, confined(advisor.card, conditions, whole=root), "p95" if pessimistic else "p50"
    )
    show_answer(answer, as_json, lambda it: copies_report(it, details=details))


def batch(
    names: list[str] = Argument(
        ...,
        metavar="JOB...",
        autocompletion=options.complete_job,
        help="A job's name without its batch size, or its profiles, one for each batch size.",
    ),
    slices: options.Slices = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    *,
    sources: Sources,
    as_json: options.AsJson = False,
) -> None:
    """Print the largest batch that fits each slice of a GPU.

    The JOB needs profiles at two batch sizes or more. --slices accepts whole, too: the whole GPU.
    """
    from advisor.report.copies import slice_batches_report

    advisor = sources.advisor(gpu, power_cap)
    batches = advisor.batches(names, on=slices.split(",") if slices else [])
    show_answer(batches, as_json, slice_batches_report)


def trials(
    context: Context,
    job: _Job,
    epochs: float = option("N", "Train each trial for N epochs.", default=1),
    steps: float | None = option("N", "Train each trial for N steps instead."),
    count: int | None = option("N", "Plan for N trials in all; default: a search without an end."),
    start_up: float = option(
        "SECONDS",
        "Set the start-up time of a trial's process; 0: one process runs all trials.",
        default=START_S,
    ),
    start_cpu: float = option(
        "SECONDS",
        "Set the CPU time of that start; the processes of a host share its cores.",
        default=START_CPU_S,
    ),
    memory_margin: options.MemoryMargin = 0.0,
    pessimistic: options.Pessimistic = False,
    gpus: options.Gpus = "1",
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    share_loader: options.ShareLoader = False,
    details: _Details = False,
    *,
    sources: Sources,
    as_json: options.AsJson = False,
) -> None:
    """Print how many trials of a search to run at once on each GPU.

    Each trial is a process of its own; the answer includes how they share a GPU.
    """
    from advisor.plan.rules import Conditions
    from advisor.plan.trials import TrialTerms
    from advisor.report.copies import trials_report
    from advisor.workload.job import Job

    exclude(context, "steps", "epochs", why="both set the length of a trial.")
    _, gpu = counted_gpus(gpus, gpu, context)
    advisor = sources.advisor(gpu, power_cap, share_loader=share_loader)
    search = advisor.trials(
        Job(advisor.find_profile(job), epochs=epochs),
        TrialTerms(
            count=count,
            steps=steps,
            start_s=start_up,
            start_cpu_s=start_cpu,
            gpus=gpus,
            conditions=Conditions(memory_margin=memory_margin),
            level="p95" if pessimistic else "p50",
        ),
    )
    show_answer(search, as_json, lambda it: trials_report(it, details=details))
