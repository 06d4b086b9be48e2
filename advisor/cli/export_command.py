"""``advisor export``: a plan as a file for the tool that applies it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.options import (
    By,
    Files,
    GpuKey,
    Named,
    PowerCap,
    apart,
    given_in,
    grouped,
)
from advisor.cli.output import aside, show_text, warn
from advisor.hardware import DEFAULT_GPU
from advisor.launch import ExportFormat

_WHY = "--objective chooses a plan, and --sharing is one."


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options that say what is written, and where."""

    sharing: Annotated[
        str | None, typer.Option(help="As `predict` takes it; default: the best plan's.")
    ] = None
    form: Annotated[
        ExportFormat, typer.Option("--format", help="For a shell, or the tool of that name.")
    ] = "commands"
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it; default: stdout.")
    ] = None


@grouped
def export(
    context: typer.Context,
    *,
    exported: ExportOptions,
    named: Named,
    gpu: GpuKey = DEFAULT_GPU,
    objective: By = "makespan",
    power_cap: PowerCap = None,
    files: Files,
) -> None:
    """Write the plan for the JOBs as a file.

    Shell lines, or for MPS, MIG, Slurm, radT, or JSON.
    """
    from advisor.launch.exports import exported as exported_plan
    from advisor.workload.writing import write_whole

    apart(given_in(context), "objective", ("sharing",), _WHY)
    advisor = files.advisor(gpu, power_cap)
    jobs = named.chosen(advisor)
    if exported.sharing is None:
        prediction = advisor.recommend(jobs, objective).best.prediction
    else:
        prediction = advisor.predict(jobs, exported.sharing).prediction
    file = exported_plan(jobs, advisor.card, prediction, exported.form)
    warn([file.note] if file.note else [])
    if exported.out is None:
        show_text(file.text, end="")
    else:
        write_whole(exported.out, file.text)
        run = f"; advisor run {exported.out} shows what it would do" * (exported.form == "json")
        aside(f"{exported.out}: written{run}")
