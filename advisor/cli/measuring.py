"""``advisor profile``, ``campaign``, ``calibrate`` and ``validate``: what needs a GPU."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.advice import chosen_jobs
from advisor.cli.combinations import check_validate, given_in
from advisor.cli.options import (
    DEFAULT_GPU,
    AsJson,
    By,
    Device,
    GpuKey,
    JobFile,
    Jobs,
    Profiles,
    Top,
)
from advisor.cli.output import show, show_json, show_text

if TYPE_CHECKING:
    from advisor.plan.recommendation import Recommendation

# `profile` hands its words on, because the same program runs without this command line.
AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def profile(context: typer.Context) -> None:
    """Measure workloads alone; --help says more."""
    from advisor.profiling import main

    raise typer.Exit(main(context.args))


def campaign(context: typer.Context) -> None:
    """Measure a plan of many mixes on one or more GPUs; --help says more."""
    from advisor.campaign import main

    raise typer.Exit(main(context.args))


def calibrate(context: typer.Context) -> None:
    """Measure this machine, so that advice is for it; --help says more."""
    from advisor.calibration import main

    raise typer.Exit(main(context.args))


# Words of `validate` alone.
_Runs = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Runs made elsewhere, instead of running."),
]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print every process and its environment; run none.")
]
_Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of profiles to add the runs to."),
]


def validate(
    context: typer.Context,
    jobs: Jobs = None,
    job_file: JobFile = None,
    gpu: GpuKey = DEFAULT_GPU,
    objective: By = "makespan",
    top: Top = 3,
    device: Device = "0",
    runs: _Runs = None,
    dry_run: _DryRun = False,
    out: _Out = None,
    profiles: Profiles = None,
    as_json: AsJson = False,
) -> None:
    """Run the best plans for the JOBs, and set what is measured beside what was predicted.

    Exits with 5 where a measured step lies outside its interval.
    """
    from advisor.api.advice import recommend
    from advisor.hardware.catalogue import gpu as known
    from advisor.validate.advised import validate_advice, validate_file
    from advisor.validate.validate import check, validation_document, validation_table

    check_validate(given_in(context))
    if runs is not None:
        validation = validate_file(runs, known(gpu), profiles, out)
    else:
        advised = recommend(chosen_jobs(jobs, job_file, gpu, profiles), gpu, objective)
        if dry_run:
            _rehearse(advised, top, device)
            return
        validation = validate_advice(advised, top, device, out)
    if as_json:
        show_json(validation_document(validation))
    else:
        show(validation_table(validation))
    check(validation)


def _rehearse(advised: "Recommendation", top: int, device: str) -> None:
    from advisor.validate.advised import choose, rehearsed, spelt

    for process in rehearsed(choose(advised, top, "dry-run").plans, device):
        show_text(spelt(process))
