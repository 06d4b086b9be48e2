"""``advisor recommend`` and ``advisor predict``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.combinations import given_in
from advisor.cli.options import (
    AUTO,
    DEFAULT_GPU,
    AsJson,
    By,
    Calibration,
    CapOrAuto,
    Device,
    GpuKey,
    JobFile,
    Jobs,
    Models,
    PowerCap,
    Profiles,
    Top,
    cap_w,
)
from advisor.cli.output import leave_out, show, show_json, show_text, warn
from advisor.errors import InvalidInput

if TYPE_CHECKING:
    from advisor.cli.beyond import Asked
    from advisor.workload.job import Job


# Words of `recommend` alone, then of `predict`.
_Pessimistic = Annotated[
    bool, typer.Option("--pessimistic", help="Rank by the upper ends of the ranges.")
]
_Root = Annotated[
    bool, typer.Option("--root/--no-root", help="Whether you may switch MIG on and cut it.")
]
_Margin = Annotated[
    float, typer.Option(metavar="SHARE", help="Share of memory to leave free, e.g. 0.1.")
]
_Commands = Annotated[
    int | None,
    typer.Option(metavar="RANK", min=1, help="Print only the shell commands of this plan."),
]
_Gpus = Annotated[int, typer.Option(min=1, max=64, help="How many equal GPUs there are.")]
_Limit = Annotated[
    float, typer.Option(metavar="S", help="Of a search for many jobs or several GPUs, seconds.")
]
_Running = Annotated[
    str | None,
    typer.Option(metavar="JOB[:COPIES],...", help="What runs on the GPU: add the JOBs to it."),
]
_RunningSharing = Annotated[
    str | None, typer.Option(metavar="SHARING", help="How that shares the GPU; default: naive.")
]
_Now = Annotated[
    bool, typer.Option("--now", help="Ask the driver how the GPU is shared at this moment.")
]
_Hurt = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="By which what runs may slow, e.g. 0.1; default: 0.05."),
]
_Sharing = Annotated[
    str,
    typer.Option(
        help="serial, naive, mps, mps=43,57, mig=3g.71gb,4g.71gb; with the jobs' numbers: "
        "mig=4g.71gb[1]+3g.71gb[2,3]/mps=50,50, mig=7g.141gb/ci=3c[1]+4c[2], naive[1,2];mps[3]."
    ),
]


def recommend(
    context: typer.Context,
    jobs: Jobs = None,
    job_file: JobFile = None,
    gpu: GpuKey = DEFAULT_GPU,
    objective: By = "makespan",
    pessimistic: _Pessimistic = False,
    power_cap: CapOrAuto = None,
    root: _Root = True,
    memory_margin: _Margin = 0.0,
    top: Top = 5,
    commands: _Commands = None,
    gpus: _Gpus = 1,
    time_limit: _Limit = 8.0,
    running: _Running = None,
    running_sharing: _RunningSharing = None,
    now: _Now = False,
    device: Device = "0",
    hurt: _Hurt = None,
    profiles: Profiles = None,
    models: Models = None,
    calibration: Calibration = None,
    as_json: AsJson = False,
) -> None:
    """Rank the ways to share GPUs among the JOBs; the bundled ones where none is named.

    More than 8 jobs, or several GPUs: the best plan found in time. JOB:auto: how many copies of it
    fit, and how many pay. --running or --now: what may be added to what runs.
    """
    from advisor.api.advice import Sources
    from advisor.cli.beyond import Asked, Beside, Shown, left_to_rank
    from advisor.measure.process.provenance import present_machine
    from advisor.plan.rules import Conditions

    sources = Sources(
        gpu=gpu, models=models, power_cap_w=cap_w(power_cap), calibration=calibration,
        present=present_machine(gpu),
    )  # fmt: skip
    asked = Asked(
        words=jobs, job_file=job_file, profiles=profiles, sources=sources,
        conditions=Conditions(
            root=root, memory_margin=memory_margin, power_caps=power_cap == AUTO
        ),
        objective=objective, level="p95" if pessimistic else "p50", gpus=gpus, limit_s=time_limit,
        beside=Beside(running, running_sharing, now, device, hurt),
        shown=Shown(as_json, top, commands), given=given_in(context),
    )  # fmt: skip
    if (chosen := left_to_rank(asked, chosen_jobs)) is not None:
        _show_ranking(chosen, asked)


def _show_ranking(chosen: "Sequence[Job]", asked: "Asked") -> None:
    from advisor.api.advice import recommend as rank
    from advisor.launch.devices import with_commands
    from advisor.report.documents import recommendation_document
    from advisor.report.plan_tables import plan_commands, plans_report

    sources, shown = asked.sources, asked.shown
    advised = rank(
        chosen,
        sources.gpu,
        asked.objective,
        profiles=asked.profiles,
        models=sources.models,
        power_cap_w=sources.power_cap_w,
        calibration=sources.calibration,
        present=sources.present,
        conditions=asked.conditions,
        level=asked.level,
    )
    warn(advised.standing.stale)
    leave_out(*advised.refused_variants)
    if asked.device is not None:
        advised = with_commands(advised, asked.device)
    if shown.commands is not None:
        show_text(plan_commands(advised, shown.commands))
    elif shown.as_json:
        show_json(recommendation_document(advised, shown.top))
    else:
        show(plans_report(advised, shown.top))


def predict(
    jobs: Jobs = None,
    sharing: _Sharing = "mps",
    job_file: JobFile = None,
    gpu: GpuKey = DEFAULT_GPU,
    power_cap: PowerCap = None,
    profiles: Profiles = None,
    models: Models = None,
    calibration: Calibration = None,
    as_json: AsJson = False,
) -> None:
    """Predict what the JOBs do under one way of sharing: pace, memory, power."""
    from advisor.api.advice import predict as foresee
    from advisor.measure.process.provenance import present_machine
    from advisor.report.documents import forecast_document
    from advisor.report.plan_tables import forecast_report

    chosen = chosen_jobs(jobs, job_file, gpu, profiles)
    forecast = foresee(
        chosen,
        sharing,
        gpu,
        models=models,
        power_cap_w=power_cap,
        calibration=calibration,
        present=present_machine(gpu),
    )
    warn(forecast.standing.stale)
    if as_json:
        show_json(forecast_document(forecast))
    else:
        show(forecast_report(forecast))


def chosen_jobs(
    jobs: Sequence[str] | None,
    job_file: Path | None,
    gpu: str,
    profiles: Path | None,
    gpus: int = 1,
) -> "tuple[Job, ...]":
    """The jobs that a command line asks for: named, in a file, or else the bundled ones.

    Raises:
        InvalidInput: It asks for both, or for what does not exist.
    """
    from advisor.api.advice import example_jobs
    from advisor.hardware.catalogue import gpu as known
    from advisor.workload.job import parse_jobs
    from advisor.workload.job_file import read_jobs

    key = known(gpu).key
    if jobs and job_file:
        raise InvalidInput("jobs are named on the command line or in a file (--jobs), not both")
    if job_file:
        return read_jobs(job_file, key, profiles, gpus)
    return parse_jobs(jobs, key, profiles, gpus) if jobs else example_jobs(key, profiles)
