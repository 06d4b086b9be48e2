"""Commands that measure, run plans and serve the page; ``profile`` to ``doctor`` pass words on."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.options import (
    AsJson,
    By,
    Device,
    Files,
    GpuKey,
    Mlflow,
    Named,
    Top,
    apart,
    given_in,
    grouped,
    mlflow_log,
    to_write,
)
from advisor.cli.output import aside, live, show_answer, show_text
from advisor.errors import GpuUnavailable, InvalidInput
from advisor.hardware import DEFAULT_GPU

_WITHOUT_GPU = (
    "Without a GPU, describe the job by numbers of its log and nvidia-smi: `advisor profile "
    "--from-numbers --help`. Or name a similar job with a profile: `advisor profiles`."
)

_UNCALIBRATED = (
    "Advice needs no calibration: without one, its intervals include slower and faster hosts."
)

AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def as_given(words: list[str], rest: list[str]) -> list[str]:
    """Join `words` and the `rest` after ``--``, such that typer passes a script's own words on."""
    return words + rest[: words[:1] == ["profile"]] + rest


def profile(context: typer.Context) -> None:
    """Measure workloads, or your own script, alone."""
    from advisor.cli.options import profiled_and_logged
    from advisor.measure.__main__ import main

    code = profiled_and_logged(["profile", *context.args], main)
    if code == GpuUnavailable.exit_code:
        aside(_WITHOUT_GPU)
    raise typer.Exit(code)


def campaign(context: typer.Context) -> None:
    """Measure a plan of many mixes on one or more GPUs."""
    from advisor.measure.__main__ import main

    raise typer.Exit(main(["campaign", *context.args]))


def calibrate(context: typer.Context) -> None:
    """Measure what advice needs about this machine."""
    from advisor.measure.__main__ import main

    code = main(["calibrate", *context.args])
    if code == GpuUnavailable.exit_code:
        aside(_UNCALIBRATED)
    raise typer.Exit(code)


def doctor(context: typer.Context) -> None:
    """Check this machine for what spoils measuring or sharing.

    With --undo, first undo what killed scripts and measurements left.
    """
    from advisor.measure.__main__ import main

    words = [word for word in context.args if word != "--undo"]
    if len(words) < len(context.args):
        from advisor.run import undo_left

        for line in undo_left():
            aside(line)
    raise typer.Exit(main(["doctor", *words]))


def app(
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", min=1, max=65535, help="Serve on this port of localhost."
        ),
    ] = 8501,
) -> None:
    """Serve the page on localhost until Ctrl-C."""
    from advisor.workload.reading import beside_package

    server = [sys.executable, "-m", "advisor.page.serve", "run", str(beside_package("app.py"))]
    options = {
        "server.address": "127.0.0.1",
        "server.port": port,
        "server.maxUploadSize": 8,  # MiB; our largest profile has a sixth of one
        "server.headless": "true",  # or it asks for an e-mail address at first
        "browser.gatherUsageStats": "false",
        "server.fileWatcherType": "none",  # it would watch every file near the package
        "client.showErrorDetails": "none",  # a traceback belongs in the terminal
        "client.toolbarMode": "minimal",  # or one click deploys it somewhere
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    sys.stdout.flush()
    os.execv(sys.executable, [*server, *words])  # what ends this process then ends the page


_Plan = Annotated[
    str | None,
    typer.Argument(
        metavar="PLAN|RUN",
        help="Run the plan in this JSON file of `export` or `recommend`, or watch this run again.",
    ),
]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of how a plan is run and watched."""

    apply: Annotated[
        bool, typer.Option("--apply", help="Start the jobs; default: print the script.")
    ] = False
    list_runs: Annotated[bool, typer.Option("--list", help="List the runs and exit.")] = False
    rank: Annotated[
        int, typer.Option("--rank", metavar="RANK", min=1, help="Run the plan of this rank.")
    ] = 1
    device: Device = "0"
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="End each bundled workload after N steps."),
    ] = None
    cores: Annotated[
        str | None,
        typer.Option(
            "--cores",
            metavar="CORES",
            help="Give the jobs these host cores, e.g. 0-15; default: all.",
        ),
    ] = None
    replace_instances: Annotated[
        bool,
        typer.Option(
            "--replace-instances",
            help="Remove idle MIG instances that are in the way until the end.",
        ),
    ] = False
    deadline: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="End the run after this time; default: never."),
    ] = None
    grace: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Kill a job this long after asking it to end."),
    ] = 30.0
    patience: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="End a job without a step for this long; default: never."
        ),
    ] = None


@grouped
def run(plan: _Plan = None, *, options: RunOptions, files: Files, mlflow: Mlflow = None) -> None:
    """Run a PLAN, or watch a RUN again.

    `run` starts the script that `export` writes. Ctrl-C ends the jobs. They go on if this command
    is killed or its terminal closes. `fit` uses the measured steps.
    """
    from advisor.launch.plan_file import RunTerms, prepare, saved_plan
    from advisor.run import WatchTerms, expected_by, find_run, rehearse, run_lines, start, watch

    if options.list_runs:
        show_text("\n".join(run_lines()) or "no runs")
        return
    if plan is None:
        raise InvalidInput("expected a PLAN or a RUN. `advisor run --list` lists runs.")
    log = mlflow_log(mlflow)
    expected, folder = None, None
    if plan.endswith(".json") or Path(plan).is_file():
        saved = saved_plan(Path(plan), options.rank, files.profiles)
        advisor = files.advisor(saved.gpu, saved.power_cap_w)
        prediction = advisor.predict(saved.jobs, saved.sharing).prediction
        prepared = prepare(saved, advisor.card, prediction)
        terms = RunTerms(
            device=options.device, cores=options.cores, steps=options.steps,
            replace_instances=options.replace_instances, grace_s=options.grace,
        )  # fmt: skip
        if not options.apply:
            show_text(rehearse(prepared, terms), end="")
            aside("no job was started. Add --apply to start.")
            return
        expected = expected_by(saved, advisor)
        folder = start(prepared, terms)
        aside(f"run {folder.name}, in {folder}")
    with live() as show:
        watched = WatchTerms(
            say=aside, show=show, deadline_s=options.deadline, patience_s=options.patience,
            log=None if log is None else log.run,
        )  # fmt: skip
        code = watch(folder or find_run(plan), watched, expected)
    raise typer.Exit(code)


def stop(
    named: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name of the run; default: the only one.")
    ] = None,
    job: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End only job number N.")
    ] = None,
) -> None:
    """End a run, or one job of it.

    The run's script ends the jobs, then puts back MPS daemons, MIG instances and power cap.
    """
    from advisor.run import find_run
    from advisor.run import stop as stop_run

    stop_run(find_run(named), job, aside)


_RunsFile = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Compare the runs in this file; run none."),
]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print each process with its environment; run none.")
]
_RunsFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", parser=to_write,
        help="Add the runs to this folder of profiles; default: your own.",
    ),
]  # fmt: skip


@grouped
def validate(
    context: typer.Context,
    *,
    named: Named,
    gpu: GpuKey = DEFAULT_GPU,
    objective: By = "makespan",
    top: Top = 3,
    device: Device = "0",
    runs: _RunsFile = None,
    dry_run: _DryRun = False,
    out: _RunsFolder = None,
    files: Files,
    as_json: AsJson = False,
    mlflow: Mlflow = None,
) -> None:
    """Run the best plans and compare them with their predictions.

    The exit code is 5 if a measured step lies outside its predicted interval.
    """
    from advisor import validate as validation
    from advisor.report.forecast import host_note, with_estimates_named

    given = given_in(context)
    of_running = ("jobs", "job_file", "dry_run", "objective", "top", "device", "calibration")
    apart(given, "runs", of_running, "--from compares existing runs and chooses none.")
    apart(given, "dry_run", ("as_json", "out"), "a dry run only prints processes.")
    log = mlflow_log(mlflow)
    advisor = files.advisor(gpu)
    if runs is not None:
        validated = validation.validate_file(runs, advisor, out)
    else:
        advised = advisor.recommend(named.chosen(advisor), objective)
        if dry_run:
            if advised.standing.estimated_from is not None:
                aside(with_estimates_named(advised.standing, ""))
            plans, _ = validation.choose(advised, top, "dry-run")
            for process in validation.dry_run(plans, device):
                show_text(validation.process_text(process))
            return
        validated = validation.validate_advice(advised, advisor, top, device, out)
        validated = replace(validated, host=host_note(advised.standing))
    document = validation.validation_document
    show_answer(validated, as_json, validation.validation_table, document)
    if log is not None:
        log.validation(document(validated))
    validation.check(validated)
