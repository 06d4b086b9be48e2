"""``advisor export``: a plan as a file for the tool that applies it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.launch import ExportFormat

if TYPE_CHECKING:
    from advisor.plan.recommendation import Plan

_WHY = "--objective and --rank choose a plan, and --sharing is one."


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options that say what is written, and where."""

    sharing: Annotated[
        str | None, typer.Option(help="As `predict` takes it; default: the best plan's.")
    ] = None
    rank: Annotated[
        int, typer.Option(min=1, help="Which plan of those that `recommend` ranks.")
    ] = 1
    form: Annotated[
        ExportFormat,
        typer.Option("--format", help="commands: for a shell; else for the tool of that name."),
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

    Shell lines, or for MPS, MIG, Slurm, radT, or JSON. On Kubernetes, NVIDIA's GPU operator takes
    what mig-parted does; for MPS or time-slicing set up NVIDIA's device plugin by hand.
    """
    from advisor.launch.exports import exported as exported_plan
    from advisor.workload.writing import write_whole

    given = given_in(context)
    apart(given, "sharing", ("objective", "rank"), _WHY)
    advisor = files.advisor(gpu, power_cap)
    jobs = named.chosen(advisor)
    if "rank" in given:
        _check_ranked(len(jobs))
    if exported.sharing is None:
        prediction = _of_rank(advisor.recommend(jobs, objective).plans, exported.rank).prediction
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


def _check_ranked(jobs: int) -> None:
    """See that `recommend` ranks plans for so many jobs.

    Raises:
        InvalidInput: It looks for one plan only.
    """
    from advisor.plan.rules import EXACT_JOBS

    if jobs > EXACT_JOBS:
        raise InvalidInput(
            f"--rank is for up to {EXACT_JOBS} jobs: for more, `advisor recommend` finds one plan. "
            f"Write its groups as --sharing, e.g. 'mps[1,2,3];mps[4,5]'."
        )


def _of_rank(plans: "Sequence[Plan]", rank: int) -> "Plan":
    """The plan of that rank.

    Raises:
        InvalidInput: There is none.
    """
    if rank > len(plans):
        raise InvalidInput(
            f"there is no plan {rank}: `advisor recommend` ranks {counted(len(plans), 'plan')} for "
            f"these jobs. Choose another --rank."
        )
    return plans[rank - 1]
