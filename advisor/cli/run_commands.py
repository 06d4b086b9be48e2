"""``advisor run``, ``status``, ``stop`` and ``restore``: run plans, watch, end and undo them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.options import AsJson, Device, Files, grouped
from advisor.cli.output import aside, live, show_json, show_text, warn
from advisor.cli.tracking_options import Mlflow, mlflow_log
from advisor.errors import InvalidInput

if TYPE_CHECKING:
    from advisor.apply.restore import Restored
    from advisor.measure.execution.run_view import RunView
    from advisor.validate.execute import Ask
    from advisor.workload.run import Run

_Plan = Annotated[
    Path | None,
    typer.Argument(help="What `export --format json` or `recommend --json` wrote for one GPU."),
]


@dataclass(frozen=True, slots=True)
class RunTerms:
    """Options of how a plan is run."""

    apply: Annotated[
        bool, typer.Option("--apply", help="Start it; without, say what would be started.")
    ] = False
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Watch that run, which goes on unwatched.")
    ] = None
    rank: Annotated[int, typer.Option(min=1, help="Which plan of a recommendation.")] = 1
    device: Device = "0"
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of each job of the zoo at most.")
    ] = None
    cores: Annotated[
        str | None, typer.Option(help="Host cores for jobs, e.g. 0-15; default: all.")
    ] = None
    replace_instances: Annotated[
        bool, typer.Option("--replace-instances", help="Replace idle MIG instances meanwhile.")
    ] = False
    deadline: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="Stop what still runs after so long.")
    ] = None
    grace: Annotated[
        float,
        typer.Option(min=0, metavar="S", help="Time between asking a job to end and killing it."),
    ] = 30.0
    patience: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="End a job that takes no step for so long."),
    ] = None

    def ask(self, show: "Callable[[RunView], None]", log: "Callable[[Run], None] | None") -> "Ask":
        """The same as a request to the runner, which logs to stderr."""
        from advisor.validate.execute import Ask

        return Ask(
            device=self.device, cores=self.cores, steps=self.steps,
            replacing=self.replace_instances, grace_s=self.grace, patience_s=self.patience,
            deadline_s=self.deadline, say=aside, show=show, log=log,
        )  # fmt: skip


@grouped
def run(
    plan: _Plan = None,
    *,
    terms: RunTerms,
    files: Files,
    mlflow: Mlflow = None,
) -> None:
    """Run a PLAN, and watch its jobs.

    With MPS, MIG, limits and cores as planned, each job with a log and a live table. Jobs outlive
    this command where it is killed: `--resume` watches them again, `stop` and `restore` end them.
    Ctrl-C ends them all. What was measured is kept for `fit`.
    """
    from advisor.validate.execute import execute, rehearsed_plan, watch_again
    from advisor.validate.executed_plan import document_of, expected_by, saved_plan

    if (plan is None) == (terms.resume is None):
        raise InvalidInput("name a PLAN, or a run by --resume, and not both")
    log = mlflow_log(mlflow)
    with live() as show:
        ask = terms.ask(show, None if log is None else log.run)
        if plan is None:
            code = watch_again(str(terms.resume), ask)
        else:
            saved = saved_plan(plan, terms.rank, files.profiles)
            advisor = files.advisor(saved.gpu, saved.power_cap_w)
            document = document_of(saved, advisor)
            if not terms.apply:
                show_text("\n".join(rehearsed_plan(document, ask)))
                return
            code = execute(document, expected_by(saved, advisor), ask)
    raise typer.Exit(code)


def status(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the runs that `run` started.

    Who watches them, and how far each job is.
    """
    from advisor.measure.execution.run_folder import run_folders
    from advisor.measure.execution.run_status import status_lines, status_of

    found: list[dict[str, Any]] = [status_of(folder) for folder in run_folders()]
    shown = [each for each in found if everything or not each["over"]]
    if as_json:
        show_json({"schema": 1, "runs": shown})
        return
    for each in shown:
        show_text("\n".join(status_lines(each)))
    if not shown:
        show_text("no run is under way")


def stop(
    named: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Its id; default: the only one.")
    ] = None,
    job: Annotated[
        list[int] | None, typer.Option(min=1, help="End only the job of that number.")
    ] = None,
) -> None:
    """End a run.

    Its jobs, which are asked first, then its MPS daemons and MIG instances.
    """
    from advisor.apply.restore import layout_back
    from advisor.measure.execution.run_folder import run_named
    from advisor.measure.execution.run_status import stop_run

    folder = run_named(named)
    stop_run(folder, job or None, aside)
    if not job:
        show_restored(layout_back(folder.state().device))


def restore() -> None:
    """Undo what killed runs left on this machine.

    Jobs, MPS daemons and MIG instances.
    """
    from advisor.apply.restore import restore as restored

    if not show_restored(restored()):
        show_text("Nothing is left to undo.")


def show_restored(found: "Iterable[Restored]") -> int:
    """Print the outcome of each thing to undo, and return how many there were.

    Raises:
        AdvisorError: Some of it could not be undone.
    """
    failed, count = None, 0
    for count, each in enumerate(found, start=1):  # noqa: B007 - the last is what is returned
        if each.why_not is None:
            show_text(each.said)
        else:
            warn([f"{each.said}: {each.why_not}"])
            failed = failed or each.why_not
    if failed:
        raise type(failed)(
            "not all of it could be undone, as said above. Put that right, then run "
            "`advisor restore` again."
        )
    return count
