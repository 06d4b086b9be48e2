"""``advisor run`` and ``stop``: run plans, watch, list and end them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.options import Device, Files, grouped
from advisor.cli.output import aside, live, show_text
from advisor.cli.tracking_options import Mlflow, mlflow_log
from advisor.errors import InvalidInput

_Plan = Annotated[
    str | None,
    typer.Argument(
        metavar="PLAN|RUN",
        help="A JSON file of `export` or `recommend`; or a run, to watch it again.",
    ),
]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of how a plan is run and watched."""

    apply: Annotated[bool, typer.Option("--apply", help="Start it; default: print the script.")] = (
        False
    )
    list_runs: Annotated[bool, typer.Option("--list", help="List runs instead.")] = False
    rank: Annotated[int, typer.Option(min=1, help="Which plan of a recommendation.")] = 1
    device: Device = "0"
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of each job of the zoo at most.")
    ] = None
    cores: Annotated[
        str | None, typer.Option(help="Host cores for jobs, e.g. 0-15; default: all.")
    ] = None
    replace_instances: Annotated[
        bool,
        typer.Option("--replace-instances", help="Remove idle MIG instances in the way."),
    ] = False
    deadline: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="End the run after so long.")
    ] = None
    grace: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Between asking a job to end and killing it."),
    ] = 30.0
    patience: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="End a job that does no step for so long."),
    ] = None


@grouped
def run(plan: _Plan = None, *, options: RunOptions, files: Files, mlflow: Mlflow = None) -> None:
    """Run a PLAN by the script that `export` writes, or watch a RUN again.

    Ctrl-C ends the jobs. They go on if this command is killed or its terminal closes. What was
    measured is kept for `fit`.
    """
    from advisor.launch.run_script import RunTerms, prepare
    from advisor.launch.saved_plan import saved_plan
    from advisor.run import (
        WatchTerms,
        expected_by,
        listed,
        rehearse,
        run_named,
        start,
        watch,
    )

    if options.list_runs:
        show_text("\n".join(listed()) or "no runs")
        return
    if plan is None:
        raise InvalidInput("name a PLAN or a RUN. `advisor run --list` lists runs.")
    log = mlflow_log(mlflow)
    expected, folder = None, None
    if plan.endswith(".json") or Path(plan).is_file():
        saved = saved_plan(Path(plan), options.rank, files.profiles)
        advisor = files.advisor(saved.gpu, saved.power_cap_w)
        found = advisor.predict(saved.jobs, saved.sharing).prediction
        prepared = prepare(saved, advisor.card, found)
        terms = RunTerms(
            device=options.device, cores=options.cores, steps=options.steps,
            replace_instances=options.replace_instances, grace_s=options.grace,
        )  # fmt: skip
        if not options.apply:
            show_text(rehearse(prepared, terms), end="")
            aside("nothing was started: add --apply")
            return
        expected = expected_by(saved, advisor)
        folder = start(prepared, terms)
        aside(f"run {folder.name}, in {folder}")
    with live() as show:
        watched = WatchTerms(
            say=aside, show=show, deadline_s=options.deadline, patience_s=options.patience,
            log=None if log is None else log.run,
        )  # fmt: skip
        code = watch(folder or run_named(plan), watched, expected)
    raise typer.Exit(code)


def stop(
    named: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Its name; default: the only one.")
    ] = None,
    job: Annotated[int | None, typer.Option(min=1, help="End only the job of that number.")] = None,
) -> None:
    """End a run, or one job of it.

    Asks the jobs first; then its MPS daemons, MIG instances and power cap are put back.
    """
    from advisor.run import run_named
    from advisor.run import stop as stop_run

    stop_run(run_named(named), job, aside)
