"""``advisor recommend``: rank the ways to share GPUs."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context, Option

from advisor.cli import options
from advisor.cli.completion import complete_job, complete_sharing
from advisor.cli.options import (
    AUTO,
    advisor_for,
    chosen_jobs,
    confined,
    counted_gpus,
    exclude,
    mlflow_log,
    on_checked_host,
    passed_options,
    protected_jobs,
    require,
    to_write,
)
from advisor.cli.output import aside, leave_out, show, show_json, show_text, warn
from advisor.errors import InvalidInput, require_extra
from advisor.hardware import DEFAULT_DEVICE, DEFAULT_GPU

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.api import Advisor
    from advisor.plan import ObjectiveName
    from advisor.plan.admission import Running
    from advisor.plan.fleet import FleetPlan
    from advisor.plan.values import Recommendation, Standing
    from advisor.prediction.prediction import Level
    from advisor.report.picture import PictureForm
    from advisor.workload.job import Job


_COPIES = ":auto"


_RUNS = {"running": "--running", "now": "--now"}


_OF_MANY = ("effort", "host_memory")  # options of plans for many jobs or several GPUs


_NOT_OF_COPIES = (
    "job_file",
    "running_sharing",
    "max_slowdown",
    "device",
    "gpus",
    *_OF_MANY,
    "commands",
    "top",
    "protect",
    "plot",
    "csv_file",
)


# Options that need one of others; options that exclude each other, and why.
_NEEDS = {
    "running_sharing": _RUNS,
    "max_slowdown": {**_RUNS, "protect": "--protect"},
    "device": {"now": "--now", "commands": "--commands", "as_json": "--json"},
}


_APART = (
    ("commands", ("as_json",), "--commands prints only shell lines."),
    ("auto", tuple(_RUNS), "--running and --now need a number of copies, e.g. JOB:4."),
    ("auto", _NOT_OF_COPIES, "JOB:auto finds the number of copies of one JOB on one GPU."),
    ("details", ("commands", *_RUNS), "--details is for jobs that start together."),
    ("now", ("running_sharing",), "--now reads from the driver how the GPU is shared."),
    *((runs, ("gpus", *_OF_MANY), "the running jobs share one GPU.") for runs in _RUNS),
    ("plot", ("gpus", *_RUNS), "--plot draws plans for jobs that start together on one GPU."),
    ("csv_file", tuple(_RUNS), "--csv writes plans for jobs that start together."),
    *((runs, ("protect",), "--max-slowdown protects the running jobs already.") for runs in _RUNS),
    *((runs, ("commands",), "commands are for plans whose jobs start together.") for runs in _RUNS),
    *(
        (
            runs,
            ("pessimistic",),
            "jobs join by how much they slow the running jobs. Allow less with --max-slowdown.",
        )
        for runs in _RUNS
    ),
    ("protect", ("gpus",), "plans for several GPUs protect no job yet."),
    ("device", ("gpus",), "several GPUs are numbered from 0."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """An answer in each form in which it can be shown; `jobs` are those that its plans start."""

    standing: "Standing"
    report: "Callable[[], RenderableType]"
    document: Callable[[], Mapping[str, Any]]
    commands: Callable[[int], str] | None = None
    table: Callable[[], str] | None = None
    picture: "Callable[[PictureForm], bytes] | None" = None
    refused: tuple[str, ...] = ()
    jobs: "Sequence[Job]" = ()


def recommend(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    pessimistic: Annotated[
        bool, Option("--pessimistic", help="Rank by the upper ends of the 90 % intervals.")
    ] = False,
    power_cap: Annotated[
        str | None,
        Option(
            "--power-cap",
            metavar="WATTS|auto",
            help="Cap the GPU's power; auto: each plan may choose 90, 80, 70 or 60 % of its "
            "limit; default: its own limit.",
        ),
    ] = None,
    root: options.Root = True,
    mig: options.Mig = "plain",
    memory_margin: options.MemoryMargin = 0.0,
    protect: options.Protect = None,
    top: options.Top = 5,
    details: Annotated[
        bool, Option("--details", help="Print all numbers, and how they were found.")
    ] = False,
    commands: Annotated[
        int | None,
        Option(
            metavar="RANK", min=1, help="Print only the shell commands of the plan of this rank."
        ),
    ] = None,
    gpus: options.Gpus = "1",
    effort: Annotated[
        float,
        Option(metavar="TIMES", help="Search so many times as long for many jobs or several GPUs."),
    ] = 1.0,
    running: Annotated[
        str | None,
        Option(
            metavar="JOB[:COPIES],...",
            autocompletion=complete_job,
            help="Add the JOBs to these jobs, which run on the GPU already.",
        ),
    ] = None,
    running_sharing: Annotated[
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
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    check_host: options.CheckHost = None,
    host_cores: options.HostCores = None,
    host_memory: options.HostMemory = None,
    as_json: options.AsJson = False,
    csv_file: Annotated[
        Path | None,
        Option("--csv", metavar="FILE", parser=to_write, help="Write all plans to this file, too."),
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
    """Rank the ways to share GPUs among the JOBs.

    Without a JOB, advisor ranks plans for bundled examples. For more than 8 jobs or several GPUs it
    prints the best plan that its search finds. JOB:auto prints how many copies of the JOB are
    worthwhile. --running and --now print which JOBs may join the running ones.
    """
    from advisor.launch.shell import with_commands
    from advisor.plan.cluster import FleetTerms
    from advisor.plan.rules import EXACT_JOBS, MAX_SLOWDOWN, Conditions, are_many

    log, (total, gpu) = mlflow_log(mlflow), counted_gpus(gpus, gpu, context)
    watts = None if power_cap is None or power_cap == AUTO else options.watts(power_cap)
    advisor = advisor_for(gpu, watts, profiles, models, calibration, host_cores)
    passed = _checked_options(context, jobs or (), total, commands, top)
    conditions = Conditions(
        root=root, memory_margin=memory_margin, power_caps=power_cap == AUTO, mig=mig
    )
    level: Level = "p95" if pessimistic else "p50"
    if copied := passed.get("auto"):
        _check_by_throughput(passed, objective, power_cap, copied)
        advisor = on_checked_host(
            advisor, [advisor.find_profile(copied.removesuffix(_COPIES))], check_host, EXACT_JOBS
        )
        conditions = confined(advisor.card, conditions, whole=root)
        from advisor.report.copies import copies_document, copies_report

        copies = advisor.recommend_copies(copied.removesuffix(_COPIES), conditions, level)
        answer = _Answer(
            standing=copies.standing,
            report=partial(copies_report, copies, details=details),
            document=partial(copies_document, copies),
        )
    else:
        members = protected_jobs(chosen_jobs(advisor, jobs, job_file, total), protect, max_slowdown)
        # The running jobs disturb it.
        advisor = on_checked_host(advisor, [each.profile for each in members], check_host)
        at_work = (
            _running_jobs(advisor, running, running_sharing, device if now else None)
            if now or running is not None
            else None
        )
        several = are_many(len(members), total)
        whole = root and ("root" in passed or several or at_work is not None)
        conditions = confined(advisor.card, conditions, whole=whole)
        if at_work is not None:
            _check_by_throughput(passed, objective, power_cap, "--now" if now else "--running")
            from advisor.report.copies import additions_document, additions_report

            joined = advisor.admit(
                at_work, members, MAX_SLOWDOWN if max_slowdown is None else max_slowdown, conditions
            )
            answer = _Answer(
                standing=joined.standing,
                report=partial(additions_report, joined, top),
                document=partial(additions_document, joined, top),
            )
        elif several:
            terms = FleetTerms(
                objective=objective,
                gpus=gpus,
                effort=effort,
                conditions=conditions,
                level=level,
                host_memory_mib=host_memory,
            )
            answer = _fleet_answer(advisor.recommend_fleet(members, terms), context.params, passed)
        elif only := next((passed[each] for each in _OF_MANY if each in passed), None):
            raise InvalidInput(
                f"{only} is for more than {EXACT_JOBS} jobs or several --gpus: advisor "
                f"compares all plans of fewer jobs. Leave it out."
            )
        else:
            advised = advisor.rank(members, objective, conditions=conditions, level=level)
            answer = _plans_answer(
                with_commands(advised, device) if "device" in passed else advised,
                top if "top" in passed else None,
                details,
                _start_command(advised, jobs or (), job_file, profiles),
            )
    _print(answer, commands, as_json, csv_file, plot)
    if log is not None:
        log.plans(answer.document())


def _start_command(
    advised: "Recommendation", jobs: Sequence[str], job_file: Path | None, profiles: Path | None
) -> str:
    """A line with the command that starts the best plan, or prints its script to be filled in."""
    words = ["advisor", "export", *jobs]
    words += [] if job_file is None else ["--jobs", str(job_file)]
    words += [] if profiles is None else ["--profiles", str(profiles)]
    words += [] if advised.gpu.key == DEFAULT_GPU else ["--gpu", advised.gpu.key]
    cap_w = advised.best.prediction.power_cap_w
    words += [] if cap_w is None else ["--power-cap", f"{cap_w:g}"]
    words += ["--sharing", str(advised.best.sharing)]
    return _with_start(shlex.join(words), advised.jobs)


def _with_start(command: str, jobs: "Sequence[Job]") -> str:
    """The `command` that prints a script, piped to bash if the commands of all `jobs` are known."""
    if all(job.profile.workload.script is not None for job in jobs):
        return f"Start it: {command} | bash"
    return f"Its script: {command}"


# Options of a plan for several GPUs that `advisor export` has, too, and those that choose no plan.
_EXPORTED = (
    "gpus",
    "gpu",
    "job_file",
    "objective",
    "power_cap",
    "profiles",
    "models",
    "calibration",
    "host_cores",
)


_ONLY_SHOWN = ("jobs", "top", "details", "as_json", "csv_file", "plot", "mlflow")


def _fleet_command(plan: "FleetPlan", params: Mapping[str, Any], passed: Mapping[str, str]) -> str:
    """A line with the command that starts the plan of the same question."""
    from advisor.launch.launch_plan import fleet_launch_plans
    from advisor.launch.shell import format_instead, why_not_started

    launches = fleet_launch_plans(plan)
    words, of_plan = list[str](params["jobs"] or ()), passed.keys() - {*_ONLY_SHOWN}
    for name in sorted(of_plan):
        value, option = params[name], passed[name]
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        else:
            words += [option, str(value).removesuffix(".0")]
    exported = of_plan <= {*_EXPORTED, "root"} and params["power_cap"] != AUTO
    instead = ["--format", format_instead(launches)]
    if why := why_not_started(launches):
        if not exported:
            return why
        words += instead
    words += [] if exported else ["--commands", "1"]
    line = shlex.join(["advisor", "export" if exported else "recommend", *words])
    return f"Its plan file: {line}" if why and "json" in instead else _with_start(line, plan.jobs)


def _checked_options(
    context: Context, jobs: Sequence[str], gpus: int, commands: int | None, top: int
) -> dict[str, str]:
    """Refuse options that would be ignored; return those passed, with ``auto`` for ``JOB:auto``."""
    passed = passed_options(context)
    if gpus == 1:  # equals no --gpus
        passed.pop("gpus", None)
    if copied := next((word for word in jobs if word.endswith(_COPIES)), None):
        passed["auto"] = copied
        if len(jobs) > 1:
            raise InvalidInput(f"{copied}: expected one JOB. Leave the others out.")
    if commands is not None and "top" in passed and commands > top:
        raise InvalidInput(
            f"--commands {commands} and --top {top} exclude each other: the rank exceeds the "
            f"number of plans."
        )
    if "plot" in passed:
        require_extra("--plot", "page", "altair", "vl_convert")
    for one, others, why in _APART:
        exclude(passed, one, others, why)
    if "now" not in passed:
        exclude(passed, "running", ("device",), "--device is for --now.")
    for one, some in _NEEDS.items():
        require(passed, one, some)
    return passed


def _check_by_throughput(
    passed: Mapping[str, str], objective: "ObjectiveName", power_cap: str | None, what: str
) -> None:
    """Refuse other objectives than throughput for `what`, and a choice of power caps."""
    if power_cap == AUTO:
        raise InvalidInput(
            f"--power-cap {AUTO} and {what} exclude each other: plans choose caps for jobs that "
            f"start together only. Write watts."
        )
    if "objective" in passed and objective != "throughput":
        raise InvalidInput(
            f"--objective {objective} and {what} exclude each other: advisor chooses copies and "
            f"additions by throughput. Leave --objective out."
        )


def _running_jobs(
    advisor: "Advisor", running: str | None, sharing: str | None, device: str | None
) -> "Running | None":
    """The running jobs, which share as the driver of the GPU `device` reports; None: none runs."""
    names = [running] if running else []
    if device is None:
        return advisor.running(names, sharing or "naive")
    from advisor.hardware.live_gpu import live_gpu

    live = live_gpu(device)
    jobs, refused = advisor.running_now(names, live)
    leave_out(*refused)
    if jobs is None:
        warn([f"no job runs on GPU {live.index} now"])
    return jobs


def _print(
    answer: _Answer, commands: int | None, as_json: bool, csv_file: Path | None, plot: Path | None
) -> None:
    from advisor.plan.rules import EXACT_JOBS
    from advisor.workload.spec import secrets_held
    from advisor.workload.writing import write_whole

    warn(answer.standing.doubts)
    leave_out(*answer.refused)
    if as_json or commands is not None:  # commands leave variables to the user
        workloads = [job.profile.workload for job in answer.jobs]
        warn(secrets_held(workloads, variables=commands is None))
    if csv_file is not None and answer.table is not None:
        write_whole(csv_file, answer.table())
    if plot is not None:
        if answer.picture is None:
            raise InvalidInput(
                f"--plot draws plans for up to {EXACT_JOBS} jobs that start together on one GPU. "
                f"For this answer, use --json."
            )
        write_whole(plot, answer.picture("png" if plot.suffix == ".png" else "svg"))
    if commands is not None and answer.commands is not None:
        show_text(answer.commands(commands))
    elif as_json:
        show_json(answer.document())
    else:
        show(answer.report())


def _fleet_answer(
    plan: "FleetPlan", params: Mapping[str, Any], passed: Mapping[str, str]
) -> _Answer:
    from advisor.report.fleet import fleet_commands, fleet_csv, fleet_document, fleet_report

    top, device = (params[name] if name in passed else None for name in ("top", "device"))
    command, details = _fleet_command(plan, params, passed), params["details"]
    return _Answer(
        standing=plan.standing,
        jobs=plan.jobs,
        report=partial(fleet_report, plan, top, command=command, details=details),
        document=partial(fleet_document, plan, device, top),
        commands=lambda rank: fleet_commands(plan, rank, device),
        table=partial(fleet_csv, plan),
    )


def _plans_answer(
    advised: "Recommendation", top: int | None, details: bool, command: str
) -> _Answer:
    """An answer that has `top` plans; None: each way at its best, and a document with all."""
    from advisor.report.plan_tables import plan_commands, plans_csv, plans_report
    from advisor.report.recommendation import another_layout_text, recommendation_document

    def picture(form: "PictureForm") -> bytes:
        from advisor.report.picture import ways_picture

        return ways_picture(advised, form)

    if advised.another_layout is not None:
        aside(another_layout_text(advised, advised.another_layout))
    return _Answer(
        standing=advised.standing,
        jobs=advised.jobs,
        refused=advised.refused_variants,
        report=partial(plans_report, advised, top, command=command, details=details),
        document=partial(recommendation_document, advised, top),
        commands=partial(plan_commands, advised),
        table=partial(plans_csv, advised),
        picture=picture,
    )
