"""``advisor validate``: runs plans and compares them with their predictions."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import (
    AsJson,
    By,
    Device,
    Files,
    Given,
    GpuKey,
    Named,
    Top,
    apart,
    given_in,
    grouped,
    to_write,
)
from advisor.cli.output import aside, show_found, show_text
from advisor.cli.tracking_options import Mlflow, mlflow_log
from advisor.hardware import DEFAULT_GPU

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.plan.recommendation import Recommendation
    from advisor.validate.validate import Validation


@dataclass(frozen=True, slots=True)
class Tried:
    """Options of which plans are run, and where."""

    objective: By = "makespan"
    top: Top = 3
    device: Device = "0"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Options of where runs are read from and written to."""

    runs: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Runs made elsewhere, instead of running."),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every process and its environment; run none.")
    ] = False
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=to_write, help="Folder of profiles to add the runs to."),
    ] = None


@grouped
def validate(
    context: typer.Context,
    *,
    named: Named,
    gpu: GpuKey = DEFAULT_GPU,
    tried: Tried,
    run_files: RunFiles,
    files: Files,
    as_json: AsJson = False,
    mlflow: Mlflow = None,
) -> None:
    """Run the best plans for the JOBs, and compare.

    What is measured is set beside what was predicted. Exits with 5 where a measured step lies
    outside its interval.
    """
    from advisor.validate.advised import validate_file
    from advisor.validate.validate import check, validation_document, validation_table

    _check(given_in(context))
    log = mlflow_log(mlflow)
    advisor = files.advisor(gpu)
    if run_files.runs is not None:
        validation = validate_file(run_files.runs, advisor, run_files.out)
    else:
        advised = advisor.recommend(named.chosen(advisor), tried.objective)
        if run_files.dry_run:
            _print_processes(advised, tried)
            return
        validation = _ran(advised, advisor, tried, run_files.out)
    show_found(validation, as_json, validation_table, validation_document)
    if log is not None:
        log.validation(validation_document(validation))
    check(validation)


def _ran(
    advised: "Recommendation", advisor: "Advisor", tried: Tried, out: Path | None
) -> "Validation":
    """The best plans that were `tried`, run here and compared with their predictions."""
    from advisor.report.headline import host_note
    from advisor.validate.advised import validate_advice

    ran = validate_advice(advised, advisor, tried.top, tried.device, out)
    return replace(ran, host=host_note(advised.standing))


def _check(given: Given) -> None:
    of_running = ("jobs", "job_file", "dry_run", "objective", "top", "device", "calibration")
    apart(given, "runs", of_running, "runs made already are compared, and none is chosen.")
    apart(given, "dry_run", ("as_json", "out"), "a dry run prints processes and runs none.")


def _print_processes(advised: "Recommendation", tried: Tried) -> None:
    from advisor.report.headline import with_estimates_named
    from advisor.validate.advised import choose, rehearsed, spelt

    if advised.standing.estimated_from is not None:
        aside(with_estimates_named(advised.standing, ""))

    for process in rehearsed(choose(advised, tried.top, "dry-run").plans, tried.device):
        show_text(spelt(process))
